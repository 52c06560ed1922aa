//! Times passes on a GPU: inputs rotated past the cache, events, the copy rate of the same run.
//!
//! A run is a pass several times after itself, about as long as a copy that the copy rate is measured with, timed by two
//! events around it: as a pass is among others in a stream, and as little touched as the copy by what events cost. So that they
//! measure the GPU and not the host, the queue is kept full: runs are queued in batches, each behind copies that take the
//! GPU longer than the host takes to queue the batch.

use std::time::{Duration, Instant};

use ferrolayer::device::Gpu;
use ferrolayer::ops::prelu;
use ferrolayer::{Device, Out, Result, Tensor};
use serde::Serialize;

use crate::row::{Times, thousandths};
use crate::work::Run;

/// Passes before any is timed.
pub const WARM_UP: usize = 3;
/// Passes that are queued at once: few enough that the queue's thousand launches hold them.
const BATCH: usize = 64;
/// Passes of a run at most.
const MOST_IN_A_RUN: usize = 16;
/// Sets of inputs at most. Where so many do not outgrow the cache, something else is read between the runs.
pub const MOST_SETS: usize = 128;
/// What an event and the reading between two passes cost the host.
const BETWEEN: Duration = Duration::from_micros(25);

/// How much is moved, and for how long.
pub struct Effort {
    /// What the copy rate is measured with, in bytes.
    pub copied: usize,
    /// More than any cache of the GPU holds, in bytes.
    pub cache: usize,
    /// How long copies warm the clocks.
    pub warm_up: Duration,
}

impl Effort {
    /// For a GPU; the largest caches have 50 to 60 MB.
    pub const FULL: Self = Self { copied: 2 << 30, cache: 64 << 20, warm_up: Duration::from_millis(500) };
}

/// Times runs on one GPU.
pub struct Timer {
    gpu: Gpu,
    /// Bytes read plus written by copies within the GPU, 1e9 a second.
    pub copy_gbps: f64,
    cache: usize,
    /// Bytes that inputs and outputs may take.
    room: usize,
    /// Seconds that a run is to take.
    run: f64,
    /// Twice the cache: copied in front of a batch, and read between runs where the inputs do not outgrow the cache.
    scratch: Tensor<f32>,
    /// Seconds that copying it takes.
    filler: f64,
    slope: Tensor<f32>,
    sum: Tensor<f32>,
}

impl Timer {
    /// Warms the clocks and measures the copy rate of a GPU with `memory` bytes.
    pub fn new(gpu: &Gpu, memory: usize, effort: &Effort) -> Result<Self> {
        let device = Device::Gpu(gpu.clone());
        let source = Tensor::<u32>::empty(&device, &[effort.copied / 4])?;
        let end = Instant::now() + effort.warm_up;
        loop {
            copied(&source)?;
            gpu.synchronize()?;
            if Instant::now() >= end {
                break;
            }
        }
        let times = gpu.time_each(50, |_| copied(&source).map(drop))?;
        let run = Times::of(&times).map_or(f64::INFINITY, |times| times.median / 1e6);
        let rate = 2.0 * effort.copied as f64 / (run * 1e9);
        drop(source);
        let scratch = Tensor::<f32>::zeros(&device, &[2 * effort.cache / 4])?;
        let times = gpu.time_each(10, |_| copied(&scratch).map(drop))?;
        let slope = Tensor::full(&device, &[1], 0.25)?;
        Ok(Self {
            gpu: gpu.clone(),
            copy_gbps: (rate * 10.0).round() / 10.0,
            cache: effort.cache,
            room: memory / 100 * 85,
            run,
            scratch,
            filler: times.iter().copied().fold(f64::INFINITY, f64::min),
            sum: slope.empty_like()?,
            slope,
        })
    }

    /// Sets of inputs to rotate among, together four times the cache; `None` where memory does not hold two.
    ///
    /// `input_bytes` is what one set takes, `all_bytes` with its results.
    pub fn sets(&self, input_bytes: usize, all_bytes: usize) -> Option<usize> {
        let fitting = self.room / all_bytes.max(1);
        let outgrown = (4 * self.cache).div_ceil(input_bytes.max(1)).max(2);
        (fitting >= 2).then_some(outgrown.min(fitting).min(MOST_SETS))
    }

    /// Times at least `runs` runs of a pass, and for `least` at least; `sets` is how many sets of inputs it rotates among.
    pub fn measure(&mut self, pass: &mut Run, sets: usize, runs: usize, least: Duration) -> Result<Times> {
        let gpu = self.gpu.clone();
        // The first loads the kernels.
        let warm_up = gpu.time_each(WARM_UP, &mut *pass)?;
        let start = Instant::now();
        pass(WARM_UP)?;
        let host = start.elapsed() + BETWEEN;
        gpu.synchronize()?;
        let evicts = sets >= MOST_SETS;
        let alone = warm_up.into_iter().fold(f64::INFINITY, f64::min);
        let passes = if evicts { 1 } else { ((self.run / alone).round() as usize).clamp(1, MOST_IN_A_RUN) };
        let batch = (BATCH / passes).clamp(1, runs);
        let ahead = 1.5 * (batch * passes) as f64 * host.as_secs_f64();
        // At least one: the first run is not to wait for the host either.
        let fillers = ((ahead / self.filler).ceil() as usize).clamp(1, 100);
        let mut times = Vec::with_capacity(runs + batch);
        let mut count = WARM_UP + 1;
        let start = Instant::now();
        while times.len() < runs || start.elapsed() < least {
            let pieces = fillers + if evicts { 2 * batch } else { batch };
            let is_run = |piece: usize| piece >= fillers && (!evicts || (piece - fillers) % 2 == 1);
            let measured = gpu.time_each(pieces, |piece| match () {
                () if is_run(piece) => {
                    let numbers = count..count + passes;
                    count = numbers.end;
                    numbers.into_iter().try_for_each(&mut *pass)
                }
                () if piece < fillers => copied(&self.scratch).map(drop),
                () => self.evict(),
            })?;
            let of_runs = measured.into_iter().enumerate().filter(|&(piece, _)| is_run(piece));
            times.extend(of_runs.map(|(_, time)| time / passes as f64));
        }
        Ok(Times::of(&times).expect("at least one run"))
    }

    /// Reads what displaces all else from the cache, and writes next to nothing.
    fn evict(&mut self) -> Result<()> {
        prelu::backward(&self.scratch, &self.slope, &self.scratch, None, Some(Out::write(&mut self.sum)))
    }
}

/// Microseconds of the host for a call, best and median.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HostTimes {
    pub best: f64,
    pub median: f64,
}

/// Of each contender, over `rounds` of `calls`, in turns: the host's clock is the same for all. `drain` waits for what they
/// queued.
pub fn host<const N: usize>(
    drain: impl Fn() -> Result<()>,
    mut contenders: [&mut dyn FnMut(usize) -> Result<()>; N],
    calls: usize,
    rounds: usize,
) -> Result<[HostTimes; N]> {
    let mut times = [const { Vec::new() }; N];
    // The first rounds warm up.
    for round in 0..rounds + 2 {
        for (run, times) in contenders.iter_mut().zip(&mut times) {
            drain()?;
            let start = Instant::now();
            for call in 0..calls {
                run(call)?;
            }
            let time = start.elapsed().as_secs_f64() / calls as f64;
            times.extend((round >= 2).then_some(time));
        }
    }
    drain()?;
    Ok(times.map(|times| {
        let best = thousandths(1e6 * times.iter().copied().fold(f64::INFINITY, f64::min));
        HostTimes { best, median: Times::of(&times).map_or(best, |times| times.median) }
    }))
}

/// A copy within the GPU.
pub fn copied<T: ferrolayer::Element>(tensor: &Tensor<T>) -> Result<Tensor<T>> {
    // Writing to one of two owners copies first.
    let mut copy = tensor.clone();
    copy.gpu_mut::<T>("bench", "copy")?;
    Ok(copy)
}
