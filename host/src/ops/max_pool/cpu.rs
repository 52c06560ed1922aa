use std::hint::select_unpredictable;

use kernels::window::Position;
use multiversion::multiversion;
use num_traits::Float;
use rayon::prelude::*;

use super::{FlatIndices, Forward, Indices, Windows};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, rounding};
use crate::ops::pixels::{Pixel, blocks};
use crate::ops::route::for_indices;
use crate::ops::rows::{Lines, Runs, rows_per_task, zip_strided};
use crate::{Compute, Real, Result};

/// Elements that are compared at once where a plane is a window.
const LANES: usize = 16;

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y) = (self.x.host()?, self.y.host_mut()?);
        match self.indices {
            _ if y.is_empty() => {}
            Some(Indices::U8(indices)) => maxima_and_indices(&self.windows, x, y, indices.host_mut()?),
            Some(Indices::U16(indices)) => maxima_and_indices(&self.windows, x, y, indices.host_mut()?),
            None => maxima(&self.windows, x, y),
        }
        Ok(())
    }
}

fn maxima<T: Real>(windows: &Windows, x: &[T], y: &mut [T]) {
    if let Some(wholes) = windows.wholes() {
        let nothing = &mut vec![(); y.len()];
        return wholes.forward(x, y, nothing, |plane| (plane[first_greatest(plane)], ()));
    }
    let (columns, line) = (Columns::new(windows), windows.output_line());
    let room = || (Lines::new(windows, x), Vec::new());
    y.par_chunks_mut(line).enumerate().run_with(rows_per_task(line), room, |(lines, room), (row, y)| {
        rounding(y, T::Compute::of(0.0), room, |y| {
            if columns.pixel > 1 {
                return windows.for_each_pixel(&lines.all_of_windows(windows, row), row, |column, window| {
                    greatest_of_pixel(window, [columns.pixel, 0], &mut y[column * columns.pixel..], &mut []);
                });
            }
            y.fill(T::Compute::neg_infinity());
            if columns.few {
                return columns.scan(windows, lines, row, |output, _, x| {
                    if wins(x, y[output]) {
                        y[output] = x;
                    }
                });
            }
            windows.sweep(lines, &columns.runs, row, |_, run, line| {
                zip_strided(y[run.outputs.clone()].iter_mut(), line, run.stride, |y, x| {
                    *y = if wins(x, *y) { x } else { *y };
                });
            });
        });
    });
}

fn maxima_and_indices<T: Real, P: Position>(windows: &Windows, x: &[T], y: &mut [T], indices: &mut [P]) {
    if let Some(wholes) = windows.wholes() {
        return wholes.forward(x, y, indices, |plane| {
            let position = first_greatest(plane);
            (plane[position], P::narrow(position as u32))
        });
    }
    let (columns, line, width) = (Columns::new(windows), windows.output_line(), windows.window.size[1]);
    let rows = y.par_chunks_mut(line).zip(indices.par_chunks_mut(line));
    // Positions are kept as wide as f32 while they may change, so that one vector mask chooses both.
    let room = || (Lines::new(windows, x), Vec::new(), vec![0u32; line]);
    rows.enumerate().run_with(rows_per_task(line), room, |(lines, room, best), (row, (y, indices))| {
        let first_row = windows.positions_inside(0, row % windows.output[0]).start * width;
        rounding(y, T::Compute::of(0.0), room, |y| {
            if columns.pixel > 1 {
                return windows.for_each_pixel(&lines.all_of_windows(windows, row), row, |column, window| {
                    let (y, best) = (&mut y[column * columns.pixel..], &mut best[column * columns.pixel..]);
                    greatest_of_pixel(window, [columns.pixel, width], y, best);
                });
            }
            y.fill(T::Compute::neg_infinity());
            for (best, first) in best.iter_mut().zip(&columns.first) {
                *best = first_row as u32 + first;
            }
            if columns.few {
                return columns.scan(windows, lines, row, |output, position, x| {
                    if wins(x, y[output]) {
                        (y[output], best[output]) = (x, position);
                    }
                });
            }
            windows.sweep(lines, &columns.runs, row, |position, run, line| {
                let (maxima, best) = (&mut y[run.outputs.clone()], &mut best[run.outputs.clone()]);
                take_greater(maxima, best, position, line, run.stride);
            });
        });
        for (index, best) in indices.iter_mut().zip(best) {
            *index = P::narrow(*best);
        }
    });
}

/// The maxima of a pixel's window, and their positions where there is room for them, of windows of this many columns.
#[multiversion(targets("x86_64+avx2"))]
fn greatest_of_pixel<C: Compute>(
    window: &Pixel<'_, C>,
    [channels, width]: [usize; 2],
    maxima: &mut [C],
    best: &mut [u32],
) {
    let maxima = &mut maxima[..channels];
    match (channels, best.is_empty()) {
        (..8, true) => greatest::<1, false, C>(window, width, maxima, best),
        (..8, false) => greatest::<1, true, C>(window, width, maxima, best),
        (..32, true) => greatest::<8, false, C>(window, width, maxima, best),
        (..32, false) => greatest::<8, true, C>(window, width, maxima, best),
        (_, true) => greatest::<32, false, C>(window, width, maxima, best),
        (_, false) => greatest::<32, true, C>(window, width, maxima, best),
    }
}

#[inline(always)]
fn greatest<const BLOCK: usize, const INDICES: bool, C: Compute>(
    window: &Pixel<'_, C>,
    width: usize,
    maxima: &mut [C],
    best: &mut [u32],
) {
    let [rows, columns] = window.positions.each_ref().map(|positions| positions.start);
    for first in blocks::<BLOCK>(maxima.len()) {
        let (mut greatest, mut at) = ([C::neg_infinity(); BLOCK], [(rows * width + columns) as u32; BLOCK]);
        for (i, line) in window.positions[0].clone().zip(window.lines) {
            for (j, begin) in window.columns() {
                let (values, position) = (&line[begin + first..][..BLOCK], (i * width + j) as u32);
                for channel in 0..BLOCK {
                    let take = wins(values[channel], greatest[channel]);
                    greatest[channel] = select_unpredictable(take, values[channel], greatest[channel]);
                    at[channel] = select_unpredictable(take, position, at[channel]);
                }
            }
        }
        maxima[first..][..BLOCK].copy_from_slice(&greatest);
        if INDICES {
            best[first..][..BLOCK].copy_from_slice(&at);
        }
    }
}

/// One position of a row of windows: what it holds, every `stride`th element of `line`, replaces the maxima where it wins.
///
/// A function of its own: as its arguments the slices are known not to overlap, and the loop becomes vector instructions.
#[inline(never)]
fn take_greater<C: Compute>(maxima: &mut [C], best: &mut [u32], position: u32, line: &[C], stride: usize) {
    zip_strided(maxima.iter_mut().zip(best), line, stride, |(maximum, best), x| {
        // Branches, which the compiler makes of `if`, would be mispredicted and keep it from using vectors.
        let take = wins(x, *maximum);
        *maximum = select_unpredictable(take, x, *maximum);
        *best = select_unpredictable(take, position, *best);
    });
}

/// The place of the first of the greatest elements, or of the first NaN; 0 of minus infinities.
#[multiversion(targets("x86_64+avx2"))]
fn first_greatest<C: Compute>(plane: &[C]) -> usize {
    let (chunks, rest) = plane.as_chunks::<LANES>();
    let mut lanes = [C::neg_infinity(); LANES];
    let take = |x: C, lane: &mut C| *lane = select_unpredictable(wins(x, *lane), x, *lane);
    chunks.iter().for_each(|chunk| chunk.iter().zip(&mut lanes).for_each(|(x, lane)| take(*x, lane)));
    rest.iter().zip(&mut lanes).for_each(|(x, lane)| take(*x, lane));
    let greatest = lanes.into_iter().reduce(|greatest, x| if wins(x, greatest) { x } else { greatest });
    let greatest = greatest.unwrap_or(C::neg_infinity());
    if greatest.is_nan() {
        return plane.iter().position(|x| x.is_nan()).unwrap_or(0);
    }
    // Looked for where it is known to be, chunk after chunk: most elements are only asked whether any is it.
    let has = |chunk: &[C]| chunk.iter().fold(false, |has, x| has | (*x == greatest));
    let before = chunks.iter().take_while(|chunk| !has(*chunk)).count() * LANES;
    before + plane[before..].iter().position(|x| *x == greatest).unwrap_or(0)
}

/// Whether `x` replaces the maximum so far: greater, or the first NaN.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must not count as less")]
fn wins<C: Compute>(x: C, maximum: C) -> bool {
    !(x <= maximum) & !maximum.is_nan()
}

/// What all rows of the output have in common.
struct Columns {
    /// Of pixels of one element; others are gone over one by one.
    runs: Runs,
    /// For each output, the window's first column that is not left of the image.
    first: Vec<u32>,
    /// Elements of a pixel.
    pixel: usize,
    /// Whether there are fewer outputs than columns of the window, and so better one output after another.
    few: bool,
}

impl Columns {
    fn new(windows: &Windows) -> Self {
        let pixel = windows.pixel();
        let first = |output| windows.positions_inside(1, output).start as u32;
        Self {
            runs: if pixel > 1 { Runs::new() } else { windows.runs() },
            first: (0..windows.output[1]).map(first).collect(),
            pixel,
            few: windows.few_outputs(),
        }
    }

    /// Calls `f` for the elements of the windows of one row of the output, of pixels of one element, each window's in row-major
    /// order: with the output, the position and the element.
    #[inline(always)]
    fn scan<T: Real>(
        &self,
        windows: &Windows,
        lines: &mut Lines<'_, T>,
        row: usize,
        mut f: impl FnMut(usize, u32, T::Compute),
    ) {
        windows.for_each_line(lines, row, |i, line| {
            for output in 0..windows.output[1] {
                let columns = windows.positions_inside(1, output);
                if columns.is_empty() {
                    continue;
                }
                let position = (i * windows.window.size[1] + columns.start) as u32;
                let line = &line[windows.coordinate(1, output, columns.start)..];
                let elements = line.iter().step_by(windows.window.dilation[1]).take(columns.len());
                elements.zip(position..).for_each(|(x, position)| f(output, position, *x));
            }
        });
    }
}

impl OnCpu for FlatIndices<'_> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let flat = self.flat.host_mut()?;
        if !flat.is_empty() {
            for_indices!(self.indices, indices as P => flatten(&self.windows, indices.host()?, flat));
        }
        Ok(())
    }
}

fn flatten<P: Position>(windows: &Windows, indices: &[P], flat: &mut [u32]) {
    let (height, line, pixel) = (windows.output[0], windows.output_line(), windows.pixel());
    let ([stride_down, stride_right], [above, left]) = (windows.window.stride, windows.window.padding);
    let ([down, right], size) = (windows.window.dilation, windows.window.size[1]);
    let rows = flat.par_chunks_mut(line).zip(indices.par_chunks(line));
    rows.enumerate().run(rows_per_task(line), |(row, (flat, indices))| {
        for (column, (flat, indices)) in flat.chunks_exact_mut(pixel).zip(indices.chunks_exact(pixel)).enumerate() {
            for (flat, index) in flat.iter_mut().zip(indices) {
                let position = index.widen() as usize;
                // Wrapping, so that an index that forward never gives means as little here as on a GPU.
                let y = (row % height * stride_down + position / size * down).wrapping_sub(above);
                let x = (column * stride_right + position % size * right).wrapping_sub(left);
                *flat = y.wrapping_mul(windows.input[1]).wrapping_add(x) as u32;
            }
        }
    });
}
