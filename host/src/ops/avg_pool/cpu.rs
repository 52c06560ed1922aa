use std::ops::Range;

use multiversion::multiversion;
use rayon::prelude::*;
use smallvec::SmallVec;

use super::{Averages, Backward, Forward};
use crate::device::convert::rounding;
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::element::convert::{Halves, halves, widen_some};
use crate::ops::pixels::{Pixel, blocks};
use crate::ops::planes::Gradient;
use crate::ops::rows::{Lines, Run, Runs, rows_per_task, zip_strided};
use crate::ops::window::{Window, Windows};
use crate::{Compute, Real, Result};

/// Channels of a pixel from which on elements of 16 bits are converted where they are added, window by window: with fewer they
/// cannot be loaded together, and a row is converted for all windows that share it.
const IN_REGISTERS: usize = 8;

impl Averages {
    /// The rows, or with `axis` 1 the columns, of the input that this one of the output averages over.
    fn inside(&self, axis: usize, output: usize) -> Range<usize> {
        let window = self.windows.window;
        let begin = output * window.stride[axis];
        let clamped = |place: usize| place.saturating_sub(window.padding[axis]).min(self.windows.input[axis]);
        clamped(begin)..clamped(begin + window.size[axis])
    }

    /// One axis' factor of an output's divisor.
    fn factor<C: Compute>(&self, axis: usize, output: usize) -> C {
        match (self.divisor.divisor_override, axis) {
            (None, _) => C::of(self.counted(axis, output) as f64),
            (Some(divisor), 0) => C::of(divisor.get() as f64),
            (Some(_), _) => C::one(),
        }
    }

    /// All factors: one for each row of the output, and one for each element of a row.
    fn factors<C: Compute>(&self) -> [Vec<C>; 2] {
        let ([height, width], pixel) = (self.windows.output, self.windows.pixel());
        let across = (0..width).flat_map(|i| std::iter::repeat_n(self.factor(1, i), pixel));
        [(0..height).map(|i| self.factor(0, i)).collect(), across.collect()]
    }

    /// Whether it takes less to go from pixel to pixel of the output than to add up whole lines first, which are read and written
    /// for each row of the windows, and then their columns.
    fn by_pixels(&self) -> bool {
        let Window { size: [height, width], stride, .. } = self.windows.window;
        self.windows.pixel() > 1 && height * width <= 2 * (height * stride[1] + width)
    }

    /// Of each of a row's outputs, the columns of the input and the factor of its divisor.
    fn columns<C: Compute>(&self) -> SmallVec<[(Range<usize>, C); 8]> {
        (0..self.windows.output[1]).map(|i| (self.inside(1, i), self.factor(1, i))).collect()
    }

    /// The gradient of a plane's inputs. Each row of windows is spread over a line, from the last window to the first, which is then
    /// added to those that they cover: the order in which whole lines are.
    fn small_plane_backward<C: Compute>(&self, columns: &[(Range<usize>, C)], dy: &[C], dx: &mut [C]) {
        let line = self.windows.input_line();
        let mut spread = SmallVec::<[C; 64]>::from_elem(C::zero(), line);
        dx.fill(C::zero());
        for (row, dy) in dy.chunks_exact(columns.len()).enumerate() {
            let (rows, down) = (self.inside(0, row), self.factor::<C>(0, row));
            spread.fill(C::zero());
            for ((columns, across), dy) in columns.iter().zip(dy).rev() {
                let share = *dy / (down * *across);
                spread[columns.clone()].iter_mut().for_each(|cell| *cell += share);
            }
            for dx in dx[rows.start * line..rows.end * line].chunks_exact_mut(line) {
                dx.iter_mut().zip(&spread).for_each(|(dx, cell)| *dx += *cell);
            }
        }
    }

    /// The averages of a plane, window after window. Of a window each column is added up, then these: the order in which
    /// whole lines are.
    fn small_plane<C: Compute>(&self, columns: &[(Range<usize>, C)], x: &[C], y: &mut [C]) {
        let (line, zero) = (self.windows.input_line(), C::zero());
        for (row, y) in y.chunks_exact_mut(columns.len()).enumerate() {
            let (rows, down) = (self.inside(0, row), self.factor::<C>(0, row));
            let x = &x[rows.start * line..rows.end * line];
            for ((columns, across), y) in columns.iter().zip(y) {
                let mut sum = zero;
                for column in columns.clone() {
                    let (mut of_column, mut at) = (zero, column);
                    while let Some(x) = x.get(at) {
                        of_column += *x;
                        at += line;
                    }
                    sum += of_column;
                }
                *y = sum / (down * *across);
            }
        }
    }
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y, averages) = (self.x.host()?, self.y.host_mut()?, self.averages);
        if y.is_empty() {
            return Ok(());
        }
        let nothing = &mut vec![(); y.len()];
        if let Some(planes) = averages.windows.whole_planes() {
            let divisor = averages.factor::<T::Compute>(0, 0) * averages.factor(1, 0);
            planes.forward(x, y, nothing, |x, y, _| y.fill(sum(x) / divisor));
            return Ok(());
        }
        if let Some(planes) = averages.windows.small_planes() {
            let columns = averages.columns();
            planes.forward(x, y, nothing, |x, y, _| averages.small_plane(&columns, x, y));
            return Ok(());
        }
        let (line, output_line) = (averages.windows.input_line(), averages.windows.output_line());
        let output_height = averages.windows.output[0];
        let (windows, by_pixels, zero) = (&averages.windows, averages.by_pixels(), T::Compute::of(0.0));
        let (factors, pixel) = (averages.factors::<T::Compute>(), windows.pixel());
        // What whole lines take, and what pixels do not.
        let (runs, sums) = if by_pixels { (Runs::new(), 0) } else { (windows.runs(), line) };
        y.par_chunks_mut(output_line).enumerate().run_with(
            rows_per_task(output_line),
            || (Lines::new(windows, x), vec![zero; sums], Vec::new()),
            |(lines, sums, room), (row, y)| {
                let down = factors[0][row % output_height];
                rounding(y, zero, room, |y| {
                    if by_pixels && pixel >= IN_REGISTERS {
                        let lines: SmallVec<[_; 8]> =
                            windows.rows_of(row).map(|row| &x[row * line..][..line]).collect();
                        return averages_of_row(windows, &lines, row, down, &factors[1], y);
                    }
                    if by_pixels {
                        let lines = lines.all_of_windows(windows, row);
                        return averages_of_row(windows, &lines, row, down, &factors[1], y);
                    }
                    sums.fill(zero);
                    windows.for_each_line(lines, row, |_, line| {
                        sums.iter_mut().zip(line).for_each(|(sum, x)| *sum += *x);
                    });
                    y.fill(zero);
                    for run in &runs {
                        let y = y[run.outputs.clone()].iter_mut();
                        zip_strided(y, &sums[run.first..], run.stride, |y, sum| *y += sum);
                    }
                    y.iter_mut().zip(&factors[1]).for_each(|(y, across)| *y /= down * *across);
                });
            },
        );
        Ok(())
    }
}

/// The sum of a plane, every sixteenth element first.
#[multiversion(targets("x86_64+avx2"))]
fn sum<C: Compute>(plane: &[C]) -> C {
    const LANES: usize = 16;
    let (chunks, rest) = plane.as_chunks::<LANES>();
    let mut sums = [C::zero(); LANES];
    chunks.iter().for_each(|chunk| sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += *x));
    sums.iter_mut().zip(rest).for_each(|(sum, x)| *sum += *x);
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    sums[0]
}

/// The averages over the windows of a row of pixels, whose divisors' factors are one down and one `across` for each element.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+f16c"))]
fn averages_of_row<T: Real>(
    windows: &Windows,
    lines: &[&[T]],
    row: usize,
    down: T::Compute,
    across: &[T::Compute],
    averages: &mut [T::Compute],
) {
    let (pixel, halves) = (windows.pixel(), halves!());
    windows.for_each_pixel(lines, row, |column, window| {
        let (first, averages) = (column * pixel, &mut averages[column * pixel..][..pixel]);
        let divisor = down * across[first];
        match pixel {
            ..4 => average::<1, T>(window, divisor, averages, halves),
            4..8 => average::<4, T>(window, divisor, averages, halves),
            8..32 => average::<8, T>(window, divisor, averages, halves),
            32.. => average::<32, T>(window, divisor, averages, halves),
        }
    });
}

/// The averages over a pixel's window. Each column is added up, then these: the order in which whole lines are.
#[inline(always)]
fn average<const BLOCK: usize, T: Real>(
    window: &Pixel<'_, T>,
    divisor: T::Compute,
    averages: &mut [T::Compute],
    halves: impl Halves,
) {
    let zero = T::Compute::of(0.0);
    for first in blocks::<BLOCK>(averages.len()) {
        let mut sums = [zero; BLOCK];
        for (_, begin) in window.columns() {
            let mut of_column = [zero; BLOCK];
            for line in window.lines {
                let values = widen_some::<BLOCK, T>(&line[begin + first..], halves);
                of_column.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            sums.iter_mut().zip(of_column).for_each(|(sum, of_column)| *sum += of_column);
        }
        averages[first..][..BLOCK].iter_mut().zip(sums).for_each(|(average, sum)| *average = sum / divisor);
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (dy, dx, averages) = (self.dy.host()?, self.dx.tensor.host_mut()?, self.averages);
        if dx.is_empty() {
            return Ok(());
        }
        let (windows, line, beta) = (&averages.windows, averages.windows.input_line(), T::Compute::of(self.dx.beta));
        if let Some(planes) = windows.whole_planes() {
            let divisor = averages.factor::<T::Compute>(0, 0) * averages.factor(1, 0);
            planes.fill(dy, &vec![(); dy.len()], dx, beta, |dy, ()| Gradient { all: dy / divisor, one: None });
            return Ok(());
        }
        if let Some(planes) = windows.small_planes() {
            let columns = averages.columns();
            planes.backward(dy, dx, beta, |dy, dx| averages.small_plane_backward(&columns, dy, dx));
            return Ok(());
        }
        let (factors, runs) = (averages.factors(), windows.runs());
        dx.par_chunks_mut(line).enumerate().run_with(
            rows_per_task(line),
            || (Spreads::new(&averages, &factors, &runs, dy), Vec::new()),
            |(spreads, room), (row, dx)| {
                let (plane, row) = (row / windows.input[0], row % windows.input[0]);
                rounding(dx, beta, room, |dx| {
                    let mut first = true;
                    for output in windows.outputs_over(0, &(row..row + 1)) {
                        let shares = spreads.row(plane, output);
                        if std::mem::take(&mut first) {
                            dx.copy_from_slice(shares);
                        } else {
                            dx.iter_mut().zip(shares).for_each(|(dx, share)| *dx += *share);
                        }
                    }
                    if first {
                        dx.fill(T::Compute::of(0.0));
                    }
                });
            },
        );
        Ok(())
    }
}

/// Rows of the output's gradients, each spread over the columns of the input: the same for all rows that its windows cover, for
/// which it stays.
struct Spreads<'a, T: Real> {
    averages: &'a Averages,
    factors: &'a [Vec<T::Compute>; 2],
    runs: &'a [Run],
    dy: &'a [T],
    /// Of one row.
    shares: Vec<T::Compute>,
    /// Room for as many rows as there are over one of the input, and which it holds, counted over all planes.
    spread: Vec<T::Compute>,
    held: Vec<Option<usize>>,
}

impl<'a, T: Real> Spreads<'a, T> {
    fn new(averages: &'a Averages, factors: &'a [Vec<T::Compute>; 2], runs: &'a [Run], dy: &'a [T]) -> Self {
        let (windows, zero) = (&averages.windows, T::Compute::of(0.0));
        let rows = windows.window.size[0].div_ceil(windows.window.stride[0]).min(windows.output[0]);
        let shares = vec![zero; windows.output_line()];
        Self {
            averages,
            factors,
            runs,
            dy,
            shares,
            spread: vec![zero; rows * windows.input_line()],
            held: vec![None; rows],
        }
    }

    /// What each window of a row of a plane's outputs gives one row of its inputs.
    fn row(&mut self, plane: usize, output: usize) -> &[T::Compute] {
        let windows = &self.averages.windows;
        let (line, row) = (windows.input_line(), plane * windows.output[0] + output);
        let room = row % self.held.len();
        let spread = &mut self.spread[room * line..][..line];
        if self.held[room].replace(row) != Some(row) {
            let [down, across] = self.factors;
            T::widen_all(&self.dy[row * self.shares.len()..][..self.shares.len()], &mut self.shares);
            self.shares.iter_mut().zip(across).for_each(|(share, across)| *share /= down[output] * *across);
            spread.fill(T::Compute::of(0.0));
            for run in self.runs {
                add_strided(&mut spread[run.first..], &self.shares[run.outputs.clone()], run.stride);
            }
        }
        spread
    }
}

/// Adds to every `stride`th of the cells, from the first on.
#[multiversion(targets("x86_64+avx2"))]
fn add_strided<C: Compute>(cells: &mut [C], shares: &[C], stride: usize) {
    match stride {
        1 => cells.iter_mut().zip(shares).for_each(|(cell, share)| *cell += *share),
        2 => add_to_chunks::<2, C>(cells, shares),
        3 => add_to_chunks::<3, C>(cells, shares),
        _ => cells.iter_mut().step_by(stride).zip(shares).for_each(|(cell, share)| *cell += *share),
    }
}

/// [`add_strided`] with a stride that is known when it is compiled.
#[inline(always)]
fn add_to_chunks<const STRIDE: usize, C: Compute>(cells: &mut [C], shares: &[C]) {
    let (chunks, rest) = cells.as_chunks_mut::<STRIDE>();
    // The last cell may have fewer neighbours.
    if let ([cell, ..], Some(share)) = (rest, shares.get(chunks.len())) {
        *cell += *share;
    }
    chunks.iter_mut().zip(shares).for_each(|(chunk, share)| chunk[0] += *share);
}
