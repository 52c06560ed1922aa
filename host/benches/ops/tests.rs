//! Tests of the bench: a target of their own, since the bench's is a program.
#![expect(dead_code, reason = "what only the program uses")]

mod case;
mod command;
mod host;
mod power;
mod report;
mod row;
mod timing;
mod tune;
mod work;

#[path = "tests/case.rs"]
mod case_tests;
#[path = "tests/command.rs"]
mod command_tests;
#[path = "tests/host.rs"]
mod host_tests;
#[path = "tests/power.rs"]
mod power_tests;
#[path = "tests/report.rs"]
mod report_tests;
#[path = "tests/row.rs"]
mod row_tests;
#[path = "tests/timing.rs"]
mod timing_tests;
#[path = "tests/tune.rs"]
mod tune_tests;
#[path = "tests/work.rs"]
mod work_tests;
