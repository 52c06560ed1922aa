//! Times every way to make a product: in turns, on inputs that no cache holds any more, by events.
//!
//! A run is the pass several times, each time on other inputs, behind copies that displace all else from the caches and last longer
//! than the host takes to queue it. All ways are run in turns, a few times; then those that are near the fastest, and the model's,
//! so often that medians tell them apart.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::plan::Choice;
use super::super::products::Products;
use super::super::{Activation, Gradients, Saved, backward_in, forward_inference_in};
use super::{Entry, Problem, Product, Table, in_use};
use crate::device::{Device, Gpu};
use crate::{DType, Out, Real, Result, Tensor, bf16, f16};

/// More than any cache of a GPU holds, in bytes.
const CACHE: usize = 64 << 20;
/// Sets of inputs at most, and passes of a run.
const MOST_SETS: usize = 16;
/// What a run takes if it can, in seconds.
const RUN: f64 = 500e-6;
/// Runs of every way, and of those that are left.
const ROUNDS: [usize; 2] = [3, 15];
/// How near the fastest is near.
const NEAR: f64 = 1.25;
/// The model's way is kept where no other is faster by more: that much two measurements differ by.
const NOISE: f64 = 1.01;
/// What events and copies cost the host besides.
const BETWEEN: Duration = Duration::from_micros(50);

/// Measures all ways to make each of these products on `gpu`, and keeps the fastest. `told` gets each as it is known, with the microseconds
/// of each way that was near the fastest, and of the model's.
///
/// Nobody else should use the GPU meanwhile. It takes some tenths of a second for a small product, and where a kernel was never
/// launched on this machine the driver's time to compile it.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for sizes of 0 or of 2³¹ and more, and for other types; [`Error::OutOfMemory`](crate::Error::OutOfMemory), and other
/// errors of the device.
pub fn tune(gpu: &Gpu, problems: &[Problem], mut told: impl FnMut(&Entry, &[(String, f64)])) -> Result<Table> {
    problems.iter().try_for_each(Problem::check)?;
    let mut table = Table::new(gpu);
    let timer = Timer::new(gpu)?;
    for problem in problems {
        let (entry, ways) = match problem.dtype {
            DType::F16 => timer.fastest::<f16>(problem),
            DType::Bf16 => timer.fastest::<bf16>(problem),
            _ => timer.fastest::<f32>(problem),
        }?;
        told(&entry, &ways);
        table.insert(entry);
    }
    Ok(table)
}

/// A GPU whose cache is displaced by copies.
struct Timer {
    gpu: Gpu,
    scratch: Tensor<f32>,
    /// Seconds that copying it takes.
    filler: f64,
}

/// Queues a pass on the set of inputs with this number.
type Pass<'a> = &'a mut dyn FnMut(usize) -> Result<()>;

impl Timer {
    fn new(gpu: &Gpu) -> Result<Self> {
        // The emulated one has no cache, and all the time that it takes is the host's.
        let len = if gpu.is_emulated() { 1 } else { 2 * CACHE / size_of::<f32>() };
        let scratch = Tensor::zeros(&Device::Gpu(gpu.clone()), &[len])?;
        let times = gpu.time_each(10, |_| copied(&scratch).map(drop))?;
        let filler = times.into_iter().fold(f64::INFINITY, f64::min).max(1e-6);
        Ok(Self { gpu: gpu.clone(), scratch, filler })
    }

    /// The fastest way, and what those near it take.
    fn fastest<T: Real + Products>(&self, problem: &Problem) -> Result<(Entry, Vec<(String, f64)>)> {
        let question = problem.question(self.gpu.hopper_multiprocessors().is_some());
        let model = question.model::<T>(&self.gpu, false).expect("sizes were checked").to_string();
        let choices = question.all();
        let (sets, mut pass) = pass::<T>(&self.gpu, problem)?;
        let mut timed: Vec<_> = choices.into_iter().map(|choice| Timed { choice, times: Vec::new() }).collect();
        let mut failure = None;
        timed.retain_mut(|timed| match self.first(problem, timed, &mut pass) {
            Ok(()) => true,
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        });
        for (stage, rounds) in ROUNDS.into_iter().enumerate() {
            let rounds = if self.gpu.is_emulated() { 1 } else { rounds };
            if stage > 0 {
                let near = NEAR * timed.iter().map(Timed::median).fold(f64::INFINITY, f64::min);
                timed.retain(|timed| timed.median() <= near || timed.choice.to_string() == model);
                timed.iter_mut().for_each(|timed| timed.times.clear());
            }
            for round in 0..rounds {
                // Each time another one first.
                let count = timed.len().max(1);
                for at in 0..timed.len() {
                    let timed = &mut timed[(at + round) % count];
                    let time = self.run(problem, timed.choice, sets, &mut pass)?;
                    timed.times.push(time);
                }
            }
        }
        let fastest = timed.iter().min_by(|a, b| a.median().total_cmp(&b.median()));
        let of_model = timed.iter().find(|timed| timed.choice.to_string() == model);
        let (Some(fastest), Some(of_model)) = (fastest, of_model) else {
            // The model's way failed: what it needs is not to be had.
            return Err(failure.unwrap_or_else(|| unreachable!("{problem}: {model} is one of its ways")));
        };
        let best = if of_model.median() <= NOISE * fastest.median() { of_model } else { fastest };
        let us = |timed: &Timed| (1e9 * timed.median()).round() / 1e3;
        let ways = timed.iter().map(|timed| (timed.choice.to_string(), us(timed))).collect();
        let entry =
            Entry { problem: *problem, choice: best.choice.to_string(), us: us(best), model_us: us(of_model), model };
        Ok((entry, ways))
    }

    /// Loads its kernels, and leaves out what cannot run here.
    fn first(&self, problem: &Problem, timed: &mut Timed, pass: Pass<'_>) -> Result<()> {
        in_use::with_forced(problem.product, timed.choice, || pass(0))?;
        self.gpu.synchronize()
    }

    /// Seconds of a pass.
    fn run(&self, problem: &Problem, choice: Choice, sets: usize, pass: Pass<'_>) -> Result<f64> {
        in_use::with_forced(problem.product, choice, || {
            let start = Instant::now();
            let alone = self.gpu.time(|| pass(0))?;
            let host = start.elapsed();
            if self.gpu.is_emulated() {
                return Ok(alone);
            }
            let passes = ((RUN / alone) as usize).clamp(1, sets);
            // The first waited for the GPU too: no less than the host takes.
            let ahead = (passes as u32 * host.min(Duration::from_micros(30)) + BETWEEN).as_secs_f64();
            let fillers = ((ahead / self.filler).ceil() as usize).clamp(1, 100);
            let times = self.gpu.time_each(fillers + 1, |piece| {
                if piece < fillers { copied(&self.scratch).map(drop) } else { (0..passes).try_for_each(&mut *pass) }
            })?;
            Ok(times[fillers] / passes as f64)
        })
    }
}

/// A way, and what it took.
struct Timed {
    choice: Choice,
    times: Vec<f64>,
}

impl Timed {
    fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}

/// The pass that makes a product alone, and among how many sets of inputs it rotates.
fn pass<T: Real>(gpu: &Gpu, problem: &Problem) -> Result<(usize, impl FnMut(usize) -> Result<()>)> {
    let &Problem { product, batch, inputs, outputs, precision, .. } = problem;
    let device = Device::Gpu(gpu.clone());
    let (a, b) = match product {
        Product::Forward => ([batch, inputs], [outputs, inputs]),
        Product::Dx => ([batch, outputs], [outputs, inputs]),
        Product::Dw => ([batch, outputs], [batch, inputs]),
    };
    let bytes = size_of::<T>() * (a[0] * a[1] + b[0] * b[1]);
    let sets = if gpu.is_emulated() { 1 } else { (4 * CACHE).div_ceil(bytes).clamp(2, MOST_SETS) };
    let made = |shape: &[usize; 2]| {
        let first = noise::<T>(&device, shape)?;
        (0..sets).map(|_| copied(&first)).collect::<Result<Vec<_>>>()
    };
    let (a, b) = (made(&a)?, made(&b)?);
    let mut out = match product {
        Product::Forward => VecDeque::new(),
        Product::Dx => (0..sets).map(|_| Tensor::empty(&device, &[batch, inputs])).collect::<Result<_>>()?,
        Product::Dw => (0..sets).map(|_| Tensor::empty(&device, &[outputs, inputs])).collect::<Result<_>>()?,
    };
    // The operand that a gradient does not need, to say how large it is.
    let other = match product {
        Product::Forward => None,
        Product::Dx => Some(Tensor::<T>::empty(&device, &[batch, inputs])?),
        Product::Dw => Some(Tensor::<T>::empty(&device, &[outputs, inputs])?),
    };
    Ok((sets, move |number: usize| {
        let at = number % sets;
        let (none, saved) = (Activation::Identity, Saved::Identity);
        match (product, &other) {
            (Product::Dx, Some(x)) => {
                let gradients = Gradients { dx: Some(Out::write(&mut out[at])), ..Gradients::default() };
                backward_in(precision, x, &b[at], none, &saved, &a[at], gradients)
            }
            (_, Some(w)) => {
                let gradients = Gradients { dw: Some(Out::write(&mut out[at])), ..Gradients::default() };
                backward_in(precision, &b[at], w, none, &saved, &a[at], gradients)
            }
            (_, None) => {
                // Memory that was just written is in a cache.
                out.push_back(forward_inference_in(precision, &a[at], &b[at], None, none)?);
                if out.len() > sets {
                    out.pop_front();
                }
                Ok(())
            }
        }
    }))
}

/// Numbers between -1 and 1 of no pattern.
fn noise<T: Real>(device: &Device, shape: &[usize; 2]) -> Result<Tensor<T>> {
    let mut state = 1u32;
    let block: Vec<T> = (0..(shape[0] * shape[1]).min(1 << 20))
        .map(|_| {
            // A linear congruential generator's high bits.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::of(f64::from(state >> 8) / f64::from(1 << 23) - 1.0)
        })
        .collect();
    let values = block.iter().copied().cycle().take(shape[0] * shape[1]).collect();
    Tensor::from_vec(device, shape, values)
}

/// A copy within the GPU.
fn copied<T: Real>(tensor: &Tensor<T>) -> Result<Tensor<T>> {
    let mut copy = tensor.clone();
    // Writing to one of two owners copies first.
    copy.gpu_mut::<T>("dense.tune", "copy")?;
    Ok(copy)
}
