//! Tests of the bench: a target of their own, since the bench's is a program.
#![expect(dead_code, reason = "what only the program uses")]

mod case;
mod command;
mod host;
mod report;
mod row;
mod timing;
mod work;
