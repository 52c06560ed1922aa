use std::hint::select_unpredictable;
use std::iter::{StepBy, Take};
use std::slice;

use kernels::philox;
use kernels::stochastic_pool::{self, SMALL, state};
use kernels::window::Position;
use multiversion::multiversion;
use rayon::prelude::*;

use super::{Advance, Forward, Inference, Windows};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate_all};
use crate::ops::route::for_indices;
use crate::ops::rows::{Lines, Run, rows_per_task, zip_strided};
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
    let (line, height, runs, few) = (windows.output_line(), windows.output[0], windows.runs(), windows.few_outputs());
    let rows = y.par_chunks_mut(line).zip(indices.par_chunks_mut(line));
    rows.enumerate().run_with(
        rows_per_task(line),
        || (Row::new(line), Lines::new(windows, x)),
        |(row, lines), (number, (y, indices))| {
            row.uniforms(windows, state, number);
            if !few {
                row.sums(windows, &runs, lines, number);
                row.draw(windows, &runs, lines, number);
                accumulate_all(y, &row.drawn, T::Compute::of(0.0));
                indices.iter_mut().zip(&row.positions).for_each(|(index, position)| *index = P::narrow(*position));
            }
            for place in (0..line).filter(|place| few || is_special(row.sums[*place])) {
                let elements = Elements::new(windows, x, [number / height, number % height], place);
                let (weights, sum) = elements.weights();
                let (position, value) = elements.draw(row.uniforms[place], weights, sum);
                y[place] = T::narrow(value);
                indices[place] = P::narrow(position as u32);
            }
        },
    );
}

/// Whether the windows are summed by rows.
fn by_rows(windows: &Windows) -> bool {
    stochastic_pool::by_rows(windows.window.size.map(|size| size as u32))
}

/// Whether a sum over a window's elements cannot be what they are weighed by as they are.
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN is special too")]
fn is_special<C: Compute>(sum: C) -> bool {
    !(sum < C::infinity())
}

/// What is known of a row of outputs, all of one length.
struct Row<C> {
    uniforms: Vec<C>,
    /// Of `a` over the windows.
    sums: Vec<C>,
    /// The part of the sums that is drawn by.
    until: Vec<C>,
    /// Of `a` up to a position; of windows that are summed by rows, in its row.
    so_far: Vec<C>,
    /// Of `a` over the rows before, of windows that are summed by rows.
    before: Vec<C>,
    drawn: Vec<C>,
    positions: Vec<u32>,
}

impl<C: Compute> Row<C> {
    fn new(line: usize) -> Self {
        let [uniforms, sums, until, so_far, before, drawn] = [(); 6].map(|()| vec![C::zero(); line]);
        Self { uniforms, sums, until, so_far, before, drawn, positions: vec![0; line] }
    }

    /// The numbers that outputs are drawn by: those of their places in a row-major tensor.
    fn uniforms(&mut self, windows: &Windows, state: &[u64], number: usize) {
        let (pixel, [height, width]) = (windows.pixel(), windows.output);
        let first = (number / height * pixel * height + number % height) * width;
        let counter = [state[state::SEED], state[state::OFFSET]];
        if pixel == 1 {
            return uniforms(&mut self.uniforms, counter, first as u64, 1);
        }
        for (column, uniforms_) in self.uniforms.chunks_exact_mut(pixel).enumerate() {
            uniforms(uniforms_, counter, (first + column) as u64, (height * width) as u64);
        }
    }

    fn sums<T: Real<Compute = C>>(&mut self, windows: &Windows, runs: &[Run], lines: &mut Lines<'_, T>, number: usize) {
        self.sums.fill(C::zero());
        if !by_rows(windows) {
            return windows.sweep(lines, runs, number, |_, run, line| {
                add(&mut self.sums[run.outputs.clone()], line, run.stride);
            });
        }
        windows.for_each_line(lines, number, |_, line| {
            self.so_far.fill(C::zero());
            for run in runs {
                add(&mut self.so_far[run.outputs.clone()], &line[run.first..], run.stride);
            }
            add_all(&mut self.sums, &self.so_far);
        });
    }

    /// What is expected of a draw, by the sums.
    fn mean<T: Real<Compute = C>>(&mut self, windows: &Windows, runs: &[Run], lines: &mut Lines<'_, T>, number: usize) {
        self.drawn.fill(C::zero());
        windows.sweep(lines, runs, number, |_, run, line| {
            let outputs = run.outputs.clone();
            add_expected(&mut self.drawn[outputs.clone()], &self.sums[outputs], line, run.stride);
        });
    }

    /// By the sums and the uniform numbers.
    fn draw<T: Real<Compute = C>>(&mut self, windows: &Windows, runs: &[Run], lines: &mut Lines<'_, T>, number: usize) {
        self.drawn.fill(C::zero());
        self.so_far.fill(C::zero());
        self.positions.fill(windows.window.positions() as u32);
        for (until, (uniform, sum)) in self.until.iter_mut().zip(self.uniforms.iter().zip(&self.sums)) {
            *until = *uniform * *sum;
        }
        if !by_rows(windows) {
            return windows.sweep(lines, runs, number, |position, run, line| {
                let outputs = run.outputs.clone();
                let (so_far, until) = (&mut self.so_far[outputs.clone()], &self.until[outputs.clone()]);
                let drawn = (&mut self.drawn[outputs.clone()], &mut self.positions[outputs]);
                pass(drawn, so_far, until, position, line, run.stride);
            });
        }
        self.before.fill(C::zero());
        windows.for_each_line(lines, number, |i, line| {
            self.so_far.fill(C::zero());
            for run in runs {
                let outputs = run.outputs.clone();
                let sums = (&self.before[outputs.clone()], &mut self.so_far[outputs.clone()]);
                let drawn = (&mut self.drawn[outputs.clone()], &mut self.positions[outputs.clone()]);
                let position = i * windows.window.size[1] + run.column;
                pass_in_row(drawn, sums, &self.until[outputs], position as u32, &line[run.first..], run.stride);
            }
            add_all(&mut self.before, &self.so_far);
        });
    }
}

/// One position of a row of windows, added to `sum p_i a_i`.
#[multiversion(targets("x86_64+avx2"))]
fn add_expected<C: Compute>(means: &mut [C], sums: &[C], line: &[C], stride: usize) {
    let zero = C::zero();
    zip_strided(means.iter_mut().zip(sums), line, stride, |(mean, sum), x| {
        let weight = rectified(x);
        // A quotient first: squares would pass the largest float, or vanish.
        let expected = weight / *sum * weight;
        *mean += if *sum == zero { zero } else { expected };
    });
}

/// The numbers of every `step`th element from `first` on.
#[multiversion(targets("x86_64+avx2"))]
fn uniforms<C: Compute>(out: &mut [C], [seed, offset]: [u64; 2], first: u64, step: u64) {
    for (i, out) in (0..).zip(out) {
        *out = uniform(philox::numbers(seed, offset, first + i * step));
    }
}

/// One position of a row of windows, every `stride`th element of `line`, added to the sums.
#[multiversion(targets("x86_64+avx2"))]
fn add<C: Compute>(sums: &mut [C], line: &[C], stride: usize) {
    zip_strided(sums.iter_mut(), line, stride, |sum, x| *sum += rectified(x));
}

/// One position of a row of windows is drawn where it has a weight and the sum of those before has not passed `until`: the
/// last such position stays.
///
/// Not for AVX2, of whose masked stores the compiler makes use here: on some processors they take ten times as long as others.
#[multiversion(targets("x86_64+sse4.1"))]
fn pass<C: Compute>(
    (drawn, positions): (&mut [C], &mut [u32]),
    so_far: &mut [C],
    until: &[C],
    position: u32,
    line: &[C],
    stride: usize,
) {
    let outputs = drawn.iter_mut().zip(positions).zip(so_far).zip(until);
    zip_strided(outputs, line, stride, |(((drawn, drawn_at), so_far), until), x| {
        let weight = rectified(x);
        let take = (*so_far <= *until) & (weight > C::zero());
        *drawn = select_unpredictable(take, weight, *drawn);
        *drawn_at = select_unpredictable(take, position, *drawn_at);
        *so_far += weight;
    });
}

/// As [`pass`], where the sum is that of the rows `before` and to it that of this row `so_far`.
#[multiversion(targets("x86_64+sse4.1"))]
fn pass_in_row<C: Compute>(
    (drawn, positions): (&mut [C], &mut [u32]),
    (before, so_far): (&[C], &mut [C]),
    until: &[C],
    position: u32,
    line: &[C],
    stride: usize,
) {
    let outputs = drawn.iter_mut().zip(positions).zip(before.iter().zip(so_far)).zip(until);
    zip_strided(outputs, line, stride, |(((drawn, drawn_at), (before, so_far)), until), x| {
        let weight = rectified(x);
        let take = (*before + *so_far <= *until) & (weight > C::zero());
        *drawn = select_unpredictable(take, weight, *drawn);
        *drawn_at = select_unpredictable(take, position, *drawn_at);
        *so_far += weight;
    });
}

/// Adds the sums of a row to those of the rows before.
#[multiversion(targets("x86_64+avx2"))]
fn add_all<C: Compute>(sums: &mut [C], of_row: &[C]) {
    sums.iter_mut().zip(of_row).for_each(|(sum, of_row)| *sum += *of_row);
}

/// A number from 0 to below 1, of as many bits as the type holds.
#[inline(always)]
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
        let (line, height, runs, few) =
            (windows.output_line(), windows.output[0], windows.runs(), windows.few_outputs());
        y.par_chunks_mut(line).enumerate().run_with(
            rows_per_task(line),
            || (Row::new(line), Lines::new(windows, x)),
            |(row, lines), (number, y)| {
                if !few {
                    row.sums(windows, &runs, lines, number);
                    row.mean(windows, &runs, lines, number);
                    accumulate_all(y, &row.drawn, T::Compute::of(0.0));
                }
                for place in (0..line).filter(|place| few || is_special(row.sums[*place])) {
                    let elements = Elements::new(windows, x, [number / height, number % height], place);
                    y[place] = T::narrow(elements.mean());
                }
            },
        );
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
#[inline(always)]
fn rectified<C: Compute>(x: C) -> C {
    if x <= C::zero() { C::zero() } else { x }
}

/// A sum over a window's elements, in its order.
struct Sum<C> {
    by_rows: bool,
    /// Of the rows before, where it is by rows; else nothing.
    before: C,
    /// Of the rest.
    rest: C,
}

impl<C: Compute> Sum<C> {
    fn new(windows: &Windows) -> Self {
        Self { by_rows: by_rows(windows), before: C::zero(), rest: C::zero() }
    }

    #[inline(always)]
    fn so_far(&self) -> C {
        self.before + self.rest
    }

    #[inline(always)]
    fn end_row(&mut self) {
        if self.by_rows {
            (self.before, self.rest) = (self.so_far(), C::zero());
        }
    }
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

impl<'a, T: Real> Elements<'a, T> {
    /// Of the output at this place in a row of a plane.
    fn new(windows: &'a Windows, x: &'a [T], [plane, row]: [usize; 2], place: usize) -> Self {
        let (column, channel) = (place / windows.pixel(), place % windows.pixel());
        Self { windows, x, plane, channel, row, column }
    }

    /// Calls `f` with each row of elements inside the image: the position of the first, and all of them.
    #[inline(always)]
    fn for_each_row(&self, mut f: impl FnMut(usize, Take<StepBy<slice::Iter<'_, T>>>)) {
        let Self { windows, x, plane, channel, row, column } = *self;
        let (line, pixel) = (windows.input_line(), windows.pixel());
        let columns = windows.positions_inside(1, column);
        let first = windows.coordinate(1, column, columns.start) * pixel + channel;
        for i in windows.positions_inside(0, row) {
            let x = &x[(plane * windows.input[0] + windows.coordinate(0, row, i)) * line..][..line];
            let row = x[first..].iter().step_by(pixel).take(columns.len());
            f(i * windows.window.size[1] + columns.start, row);
        }
    }

    /// Calls `f` with each element inside the image.
    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(T::Compute)) {
        self.for_each_row(|_, row| row.for_each(|x| f(x.widen())));
    }

    fn sum(&self, weights: Weights) -> T::Compute {
        let mut sum = Sum::<T::Compute>::new(self.windows);
        self.for_each_row(|_, row| {
            row.for_each(|x| sum.rest += weights.of(x.widen()));
            sum.end_row();
        });
        sum.so_far()
    }

    /// The weights and their sum.
    fn weights(&self) -> (Weights, T::Compute) {
        use num_traits::Float;
        let (sum, infinity) = (self.sum(Weights::Plain), T::Compute::infinity());
        if sum < infinity {
            return (Weights::Plain, sum);
        }
        let mut infinite = false;
        self.for_each(|x| infinite |= x == infinity);
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
        let (mut drawn, mut open) = ((self.windows.window.positions(), zero), true);
        let (mut so_far, until) = (Sum::<T::Compute>::new(self.windows), uniform * sum);
        self.for_each_row(|first, row| {
            row.enumerate().for_each(|(number, x)| {
                let x = x.widen();
                let weight = weights.of(x);
                so_far.rest += weight;
                if open && weight > zero {
                    drawn = (first + number, x);
                }
                open &= so_far.so_far() <= until;
            });
            so_far.end_row();
        });
        drawn
    }

    /// `sum p_i a_i`.
    fn mean(&self) -> T::Compute {
        let (weights, sum) = self.weights();
        let mut mean = T::Compute::of(0.0);
        if sum != mean {
            // A quotient first: squares would pass the largest float, or vanish.
            self.for_each(|x| mean += weights.of(x) / sum * rectified(x));
        }
        mean
    }
}
