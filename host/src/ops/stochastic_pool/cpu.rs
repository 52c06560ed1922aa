use kernels::philox;
use kernels::stochastic_pool::{SMALL, state};
use kernels::window::Position;
use rayon::prelude::*;

use super::{Advance, Forward, Inference, Windows};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::ops::route::for_indices;
use crate::ops::window::rows_per_task;
use crate::{Compute, DType, Real, Result};

/// The same as the kernels', operation for operation: with 16 and 32 bits both draw the same.
impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y, state) = (self.x.host()?, self.y.host_mut()?, self.state.host()?);
        if y.is_empty() {
            return Ok(());
        }
        for_indices!(self.indices, indices as P => draw(&self.windows, state, x, y, indices.host_mut()?));
        Ok(())
    }
}

impl OnCpu for Advance<'_> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let state = self.state.host_mut()?;
        state[state::OFFSET] = state[state::OFFSET].wrapping_add(1);
        Ok(())
    }
}

fn draw<T: Real, P: Position>(windows: &Windows, state: &[u64], x: &[T], y: &mut [T], indices: &mut [P]) {
    let (seed, offset) = (state[state::SEED], state[state::OFFSET]);
    let (line, pixel, [height, width]) = (windows.output_line(), windows.pixel(), windows.output);
    let rows = y.par_chunks_mut(line).zip(indices.par_chunks_mut(line));
    rows.enumerate().run(rows_per_task(line), |(number, (y, indices))| {
        let (plane, row) = (number / height, number % height);
        for (place, (y, index)) in y.iter_mut().zip(indices).enumerate() {
            let (column, channel) = (place / pixel, place % pixel);
            let output = ((plane * pixel + channel) * height + row) * width + column;
            let uniform = uniform(philox::numbers(seed, offset, output as u64));
            let elements = Elements { windows, x, plane, channel, row, column };
            let (weights, sum) = elements.weights();
            let (position, value) = elements.draw(uniform, weights, sum);
            *y = T::narrow(value);
            *index = P::narrow(position as u32);
        }
    });
}

/// A number from 0 to below 1, of as many bits as the type holds.
fn uniform<C: Compute>([first, second, ..]: [u32; 4]) -> C {
    match C::DTYPE {
        DType::F64 => C::of(((u64::from(first) << 32 | u64::from(second)) >> 11) as f64 / (1u64 << 53) as f64),
        _ => C::of(f64::from(first >> 8) / f64::from(1 << 24)),
    }
}

impl<T: Real> OnCpu for Inference<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y, windows) = (self.x.host()?, self.y.host_mut()?, &self.windows);
        if y.is_empty() {
            return Ok(());
        }
        let (line, pixel, height) = (windows.output_line(), windows.pixel(), windows.output[0]);
        y.par_chunks_mut(line).enumerate().run(rows_per_task(line), |(number, y)| {
            let (plane, row) = (number / height, number % height);
            for (place, y) in y.iter_mut().enumerate() {
                let (column, channel) = (place / pixel, place % pixel);
                let elements = Elements { windows, x, plane, channel, row, column };
                *y = T::narrow(elements.mean());
            }
        });
        Ok(())
    }
}

/// How the elements of a window are weighed. The sum is finite.
#[derive(Clone, Copy)]
enum Weights {
    /// By `a`.
    Plain,
    /// By [`SMALL`] times `a`: the sum of `a` is infinite, and no element is.
    Small,
    /// Infinite elements alike, others not.
    Infinite,
    /// NaNs alike, others not.
    Nan,
}

impl Weights {
    fn of<C: Compute>(self, x: C) -> C {
        let chosen = |is: bool| if is { C::one() } else { C::zero() };
        match self {
            Self::Plain => rectified(x),
            Self::Small => rectified(x) * C::of(SMALL.into()),
            Self::Infinite => chosen(x == C::infinity()),
            Self::Nan => chosen(x.is_nan()),
        }
    }
}

/// `a`, written so that NaN stays.
fn rectified<C: Compute>(x: C) -> C {
    if x <= C::zero() { C::zero() } else { x }
}

/// The window of one output.
struct Elements<'a, T> {
    windows: &'a Windows,
    x: &'a [T],
    plane: usize,
    channel: usize,
    row: usize,
    column: usize,
}

impl<T: Real> Elements<'_, T> {
    /// Calls `f` with the position and the element of each that is inside the image, in row-major order.
    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(usize, T::Compute)) {
        let Self { windows, x, plane, channel, row, column } = *self;
        let (line, pixel) = (windows.input_line(), windows.pixel());
        let columns = windows.positions_inside(1, column);
        for i in windows.positions_inside(0, row) {
            let x = &x[(plane * windows.input[0] + windows.coordinate(0, row, i)) * line..][..line];
            for j in columns.clone() {
                let place = windows.coordinate(1, column, j) * pixel + channel;
                f(i * windows.window.size[1] + j, x[place].widen());
            }
        }
    }

    fn sum(&self, weights: Weights) -> T::Compute {
        let mut sum = T::Compute::of(0.0);
        self.for_each(|_, x| sum += weights.of(x));
        sum
    }

    /// The weights and their sum.
    fn weights(&self) -> (Weights, T::Compute) {
        use num_traits::Float;
        let (sum, infinity) = (self.sum(Weights::Plain), T::Compute::infinity());
        if sum < infinity {
            return (Weights::Plain, sum);
        }
        let mut infinite = false;
        self.for_each(|_, x| infinite |= x == infinity);
        let weights = match (sum.is_nan(), infinite) {
            (true, _) => Weights::Nan,
            (false, true) => Weights::Infinite,
            (false, false) => Weights::Small,
        };
        (weights, self.sum(weights))
    }

    /// The position and the element at which the sum of the weights so far passes `uniform` of all of them; the last that
    /// has a weight, where rounding keeps it from that. Without any weight the position past the last, and 0.
    fn draw(&self, uniform: T::Compute, weights: Weights, sum: T::Compute) -> (usize, T::Compute) {
        let zero = T::Compute::of(0.0);
        let (mut drawn, mut so_far, mut open) = ((self.windows.window.positions(), zero), zero, true);
        let until = uniform * sum;
        self.for_each(|position, x| {
            let weight = weights.of(x);
            so_far += weight;
            if open && weight > zero {
                drawn = (position, x);
            }
            open &= so_far <= until;
        });
        drawn
    }

    /// `sum p_i a_i`.
    fn mean(&self) -> T::Compute {
        let (weights, sum) = self.weights();
        let mut mean = T::Compute::of(0.0);
        if sum != mean {
            // A quotient first: squares would pass the largest float, or vanish.
            self.for_each(|_, x| mean += weights.of(x) / sum * rectified(x));
        }
        mean
    }
}
