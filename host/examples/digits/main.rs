//! Trains a network of Ferrolayer's layers on handwritten digits, and tests it with digits that it has not seen.
//!
//! `cargo run --release --example digits` (`-- --help` for the options). One network for each seed; all are tested with
//! the same fifth of the images, which is never looked at before.

mod augment;
mod data;
mod model;
mod plots;
mod train;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use ferrolayer::{Device, Result};
use indicatif::{ProgressBar, ProgressStyle};

use self::data::Digits;
use self::train::{Run, Training};

/// Trains a network on handwritten digits and tests it with a held-back fifth of them.
#[derive(Parser)]
struct Arguments {
    /// How many networks to train, each from a seed of its own
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Where to run: cpu, gpu, gpu:N, auto (the first GPU where there is one), or, with the feature emulator,
    /// emulated (the GPU's kernels on the CPU, thousands of times slower: with --steps)
    #[arg(long, default_value = "auto")]
    device: String,
    /// How often each network sees each image
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    epochs: u32,
    /// Directory for the plots: loss.png, confusion.png, windows.png
    #[arg(long, default_value = "target/digits")]
    out: PathBuf,
    /// Take only so many steps with the first network and print the loss of each: to compare devices
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let device = match open(&arguments.device) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("--device {}: {error}", arguments.device);
            return ExitCode::from(2);
        }
    };
    let (training, test) = data::load();
    let result = match arguments.steps {
        Some(steps) => first_losses(&device, &training, &arguments, steps).map_err(Into::into),
        None => job(&device, &training, &test, &arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn open(name: &str) -> Result<Device> {
    match name {
        #[cfg(feature = "emulator")]
        "emulated" => Ok(Device::Gpu(ferrolayer::device::Gpu::emulated())),
        name => name.parse(),
    }
}

fn first_losses(device: &Device, training: &Digits, arguments: &Arguments, steps: usize) -> Result<()> {
    let mut state = Training::new(device, training, 1, arguments.epochs as usize)?;
    let mut losses = Vec::new();
    while losses.len() < steps {
        losses.extend(state.epoch(steps - losses.len())?);
    }
    for (step, loss) in losses.iter().enumerate() {
        println!("step {}: loss {:?}", step + 1, loss.to_vec()?[0]);
    }
    Ok(())
}

fn job(
    device: &Device,
    training: &Digits,
    test: &Digits,
    arguments: &Arguments,
) -> Result<(), Box<dyn std::error::Error>> {
    println!("{} images to learn from, {} held back, on {device}", training.len(), test.len());
    print!("{}", model::network(device, 1)?);
    let progress = ProgressBar::new(arguments.seeds * u64::from(arguments.epochs));
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} epochs, {eta} left, {msg}")?);
    let runs = train_all(device, training, test, arguments, &progress)?;
    progress.finish_and_clear();
    for (seed, run) in (1..).zip(&runs) {
        let loss = run.losses.last().expect("at least one epoch");
        println!("seed {seed}: loss {loss:.4}, test accuracy {:.1} %", 100.0 * run.accuracy());
    }

    std::fs::create_dir_all(&arguments.out).map_err(|error| format!("{}: {error}", arguments.out.display()))?;
    plots::draw_all(&arguments.out, &runs, device)?;
    println!("loss.png, confusion.png and windows.png are in {}", arguments.out.display());
    let accuracy = runs.iter().map(Run::accuracy).sum::<f64>() / runs.len() as f64;
    println!("test accuracy: {:.1} % (mean of {})", 100.0 * accuracy, seeds(runs.len()));
    Ok(())
}

/// So many seeds, in words.
fn seeds(count: usize) -> String {
    format!("{count} seed{}", if count == 1 { "" } else { "s" })
}

/// One network after another on a GPU; on the CPU one in each thread, since they are too small to be shared by several.
fn train_all(
    device: &Device,
    training: &Digits,
    test: &Digits,
    arguments: &Arguments,
    progress: &ProgressBar,
) -> Result<Vec<Run>, Box<dyn std::error::Error>> {
    let all = 1..=arguments.seeds;
    let train = |seed: u64| train(device, training, test, arguments.epochs, seed, progress);
    if let Device::Gpu(_) = device {
        return Ok(all.map(train).collect::<Result<_>>()?);
    }
    let one_thread = || rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let next = AtomicU64::new(*all.start());
    // The runs that one thread comes to, with their seeds.
    let work = |pool: rayon::ThreadPool| -> Result<Vec<(u64, Run)>> {
        let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| all.contains(seed)));
        mine.map(|seed| Ok((seed, pool.install(|| train(seed))?))).collect()
    };
    let threads = rayon::current_num_threads().min(arguments.seeds as usize);
    let pools = (0..threads).map(|_| one_thread()).collect::<Result<Vec<_>, _>>()?;
    let mut runs = std::thread::scope(|scope| -> Result<Vec<(u64, Run)>> {
        let workers: Vec<_> = pools.into_iter().map(|pool| scope.spawn(|| work(pool))).collect();
        let done = workers.into_iter().map(|worker| worker.join().expect("training does not panic"));
        Ok(done.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })?;
    runs.sort_by_key(|(seed, _)| *seed);
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

fn train(
    device: &Device,
    training: &Digits,
    test: &Digits,
    epochs: u32,
    seed: u64,
    progress: &ProgressBar,
) -> Result<Run> {
    let mut state = Training::new(device, training, seed, epochs as usize)?;
    let mut losses = Vec::new();
    for _ in 0..epochs {
        let loss = train::mean(&state.epoch(usize::MAX)?)?;
        losses.push(loss);
        progress.set_message(format!("seed {seed}, loss {loss:.4}"));
        progress.inc(1);
    }
    state.finish(losses, test)
}
