//! `cargo xtask test`: all tests that this machine can run.

use std::process::Command;

use clap::ValueEnum;

use crate::error::Result;
use crate::workspace::{answer, cargo, root, run as run_command, target_dir};

/// The packages and test targets whose tests run kernels on the emulated grid, and what to pass them.
///
/// cuda_std's tests of compile errors are left out: they start Cargo, which no sanitizer looks into.
const EMULATED: [(&str, &[&str], &[&str]); 2] = [
    ("ferrolayer-cuda-std", &["--lib", "--test", "emulator", "--test", "races"], &[]),
    // One after another: how the harness hands out its tests is ordered by std's locks, which no sanitizer sees.
    // Without the random shapes, the oracle's, the contract's, the 16-bit types and one of a Gaussian's two normalisations: under a
    // sanitizer each takes long, and the chosen shapes in f32 reach the same barriers and the same indices. Of the
    // 16-bit types the library has no kernels there (`ferrolayer::device::HALF`), so that these need not be compiled either.
    // Nor those that compare a large tensor's parts: whether its indices are right is not a matter of memory; nor those of large
    // windows, of a launch that always has a whole GPU's threads, of what large windows draw by many numbers, and of TF32, which
    // is f32 here: these take minutes each. Nor those of other numbers (parameters, NaN, scales) for launches that the chosen shapes
    // make too, and of tuning, which launches what it chooses among.
    (
        "ferrolayer-tests",
        &["--test", "ops"],
        &[
            "::emulated",
            "--test-threads=1",
            "--skip=random",
            "--skip=oracle::",
            "--skip=contract::",
            "--skip=::f16",
            "--skip=::bf16",
            "--skip=::Window",
            "--skip=matches_crops",
            "--skip=parts_of_tensors",
            "--skip=as_the_huge_ones",
            "--skip=large_windows",
            "--skip=large::edge_values",
            "--skip=tf32_layer_is_exact",
            "--skip=parts_are_the_matrix",
            "--skip=gaussian_pool::nan",
            "--skip=extreme_parameters",
            "--skip=invalid_parameters",
            "--skip=wide_is_average",
            "--skip=many_windows",
            "--skip=edge_scales",
            "--skip=::tune::",
        ],
    ),
];

#[derive(clap::Args)]
pub struct Options {
    /// Run the kernels' tests on the emulated grid under this sanitizer instead
    #[arg(long)]
    sanitizer: Option<Sanitizer>,
    /// Of this package alone, where a sanitizer is named
    #[arg(long, requires = "sanitizer", value_parser = EMULATED.map(|(package, ..)| package))]
    package: Option<String>,
    /// Passed on to `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sanitizer {
    /// ThreadSanitizer: reports a missing barrier as a race
    Thread,
    /// AddressSanitizer: reports accesses outside of buffers
    Address,
}

impl Sanitizer {
    const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Address => "address",
        }
    }

    /// What else to leave out. Each thread of a block is one of the system's under AddressSanitizer, which makes them slowly: these would
    /// take most of an hour. Their indices the emulated grid checks itself.
    const fn left_out(self) -> &'static [&'static str] {
        match self {
            Self::Thread => &[],
            Self::Address => &["--skip=pool::matches_cpu"],
        }
    }

    /// As rustc 1.95 takes them.
    const fn rustflags(self) -> &'static str {
        match self {
            // std is not instrumented, and rustc wants to be told that this is meant.
            Self::Thread => "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
            Self::Address => "-Zsanitizer=address",
        }
    }
}

pub fn run(options: &Options) -> Result<()> {
    match options.sanitizer {
        Some(sanitizer) => under(sanitizer, options.package.as_deref(), &options.arguments),
        None => everything(&options.arguments),
    }
}

fn everything(arguments: &[String]) -> Result<()> {
    // The tests find out by themselves; who reads their output should know what to expect.
    match libcuda::presence().and_then(|driver| driver.gpus) {
        Ok(gpus) => {
            let names: Vec<_> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
            println!("GPU tests run on: {}", names.join(", "));
        }
        Err(why) => println!("no GPU, so that GPU tests are ignored: {why}"),
    }
    run_command(cargo().args(["test", "--workspace"]).args(arguments))
}

/// Memory that is not to be had is an error of the library's, not the sanitizer's.
const NULL_FOR_TOO_MUCH: &str = "allocator_may_return_null=1";

/// The caller's options, and what is not to be reported.
fn thread_sanitizer_options() -> String {
    let given = std::env::var("TSAN_OPTIONS").unwrap_or_default();
    let suppressions = root().join("xtask/thread-sanitizer.supp");
    format!("{given} suppressions={} {NULL_FOR_TOO_MUCH}", suppressions.display()).trim_start().to_owned()
}

/// Without the search for leaks at the end: it reports rayon's pool, whose threads never end.
fn address_sanitizer_options() -> String {
    format!("{NULL_FOR_TOO_MUCH}:detect_leaks=0")
}

fn under(sanitizer: Sanitizer, only: Option<&str>, arguments: &[String]) -> Result<()> {
    // With a target named, macros and build scripts are built without the sanitizer, which could not load them.
    let said = answer(Command::new("rustc").arg("-vV").current_dir(root())).unwrap_or_default();
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("x86_64-unknown-linux-gnu");
    for (package, targets, filter) in EMULATED {
        if only.is_some_and(|only| only != package) {
            continue;
        }
        let mut cargo = cargo();
        cargo
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", sanitizer.rustflags())
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("TSAN_OPTIONS", thread_sanitizer_options())
            .env("ASAN_OPTIONS", std::env::var("ASAN_OPTIONS").unwrap_or_else(|_| address_sanitizer_options()))
            .arg("test")
            .args(["--package", package, "--target", host])
            // Kernels and the grid are the other crates'. What a sanitizer adds to the tests' own code makes it five times as long to
            // optimise, which is more than that saves.
            .args(["--config", "profile.dev.package.ferrolayer-tests.opt-level=0"])
            .args(targets)
            .arg("--target-dir")
            .arg(target_dir().join(format!("sanitizer-{}", sanitizer.name())))
            .args(arguments)
            .arg("--")
            .args(filter)
            .args(sanitizer.left_out());
        run_command(&mut cargo)?;
    }
    Ok(())
}
