//! Builds, checks and measures Ferrolayer: `cargo xtask <command>`.

mod bench;
mod build_ptx;
mod bundle;
mod doctor;
mod error;
mod new_op;
mod packed;
mod ptxas;
mod python;
mod setup;
mod spills;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::error::Error;

/// Builds, checks and measures Ferrolayer.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the kernels to PTX, or check the PTX that is committed
    BuildPtx(build_ptx::Options),
    /// Write the files of a new op, which compile and pass as they are
    NewOp(new_op::Options),
    /// Install what building PTX and looking at it takes
    Setup,
    /// Say what this machine has and lacks
    Doctor,
    /// Run all tests that this machine can run
    Test(test::Options),
    /// Build the Python package's wheel and run its tests in an environment of its own
    TestPython(python::Options),
    /// Pack tests, benches and examples for a machine without cargo
    Bundle(bundle::Options),
    /// Time every op on a GPU, or show and compare earlier results
    Bench(bench::Options),
    /// Draw results of a bench as PNG
    Plot(python::PlotOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        if error.kind() == ErrorKind::InvalidSubcommand {
            // What clap prints lists none. Where this cannot be printed there is nobody to tell.
            let _ = error.print();
            eprint!("\n{}", known_commands());
            std::process::exit(error.exit_code());
        }
        error.exit()
    });
    let done = match arguments.command {
        Command::BuildPtx(options) => build_ptx::run(&options),
        Command::NewOp(options) => new_op::run(&options),
        Command::Setup => setup::run(),
        Command::Doctor => return doctor::run(),
        Command::Test(options) => test::run(&options),
        Command::TestPython(options) => python::run(&options),
        Command::Bundle(options) => bundle::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Plot(options) => python::plot(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            match error {
                // What failed has said so itself: its code is ours.
                Error::Failed { code, .. } => ExitCode::from(code),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// The commands with what they do, a line each.
fn known_commands() -> String {
    let mut known = String::from("Commands:\n");
    for command in Arguments::command().get_subcommands() {
        known += &format!("  {:<12} {}\n", command.get_name(), command.get_about().unwrap_or_default());
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_unknown_command_is_an_error_of_use_and_the_known_ones_are_listed() {
        let error = Arguments::try_parse_from(["cargo xtask", "biuld-ptx"]).err().expect("no such command");
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::InvalidSubcommand, 2));
        let known = known_commands();
        for command in ["build-ptx", "new-op", "setup", "doctor", "test", "test-python", "bundle", "bench", "plot"] {
            assert!(known.contains(&format!("\n  {command} ")), "{command}: {known}");
        }
    }
}
