//! `cargo xtask bench`: the library's benchmark.

use std::process::Command;

use crate::bundle::build;
use crate::error::{Error, Result};
use crate::workspace::run as run_command;

#[derive(clap::Args)]
pub struct Options {
    /// Passed on to the benchmark: `cargo xtask bench -- --help` lists what it takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    // Built and then started by itself: its exit code is the command's, and nothing but its table is printed.
    let binaries = build("ferrolayer", &["--bench", "ops"])?;
    let bench = binaries.first().ok_or_else(|| Error::Bundle("Cargo built no benchmark".into()))?;
    run_command(Command::new(&bench.path).args(&options.arguments))
}
