//! How long each pass takes on the GPU, beside the rate at which the same GPU copies memory.
//!
//! `cargo xtask bench`, or `benches/ops` of a bundle; `--help` lists the options, `docs/perf/bench.md` says how to read
//! what it prints. Its rows are written as the lines of JSON that `python -m ferrolayer bench` writes, and both reports
//! read both.
//!
//! | module | holds |
//! |---|---|
//! | `command` | the options, and what happens in which order |
//! | `case` | the ops and their shapes, the fewest bytes |
//! | `work` | a pass bound to its inputs |
//! | `timing` | rotated inputs, events, the copy rate |
//! | `power` | clock and watts meanwhile |
//! | `row` | one result, as a line of JSON |
//! | `report` | the table, the summary, the comparison with an earlier run |
//! | `host` | what a call costs the host |

mod case;
mod command;
mod host;
mod power;
mod report;
mod row;
mod timing;
mod tune;
mod work;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    command::run(&command::Arguments::parse())
}
