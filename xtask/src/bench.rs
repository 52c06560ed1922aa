//! `cargo xtask bench`: the library's benchmarks.

use crate::error::Result;
use crate::workspace::{cargo, run as run_command};

#[derive(clap::Args)]
pub struct Options {
    /// Passed on to the benchmarks, such as the name of an op
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    // `--benches` leaves out the library's unit tests, which would run as a benchmark of nothing.
    run_command(cargo().args(["bench", "--package", "ferrolayer", "--bench", "*", "--"]).args(&options.arguments))
}
