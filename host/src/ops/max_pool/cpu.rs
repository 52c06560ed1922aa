use std::hint::select_unpredictable;
use std::ops::Range;

use kernels::window::Position;
use multiversion::multiversion;
use num_traits::Float;
use rayon::prelude::*;

use super::{FlatIndices, Forward, Indices, Window, Windows};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, rounding};
use crate::ops::pixels::{Pixel, blocks};
use crate::ops::route::for_indices;
use crate::ops::rows::{Lines, Runs, rows_per_task, zip_strided};
use crate::{Compute, Real, Result};

/// Elements of a line that are compared at once where windows are gone over one after another.
const LANES: usize = 8;

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
    if let Some(planes) = windows.whole_planes() {
        let nothing = &mut vec![(); y.len()];
        return planes.forward(x, y, nothing, |x, y, _| y.fill(x[first_greatest(&[x], 0..x.len())[1]]));
    }
    if let Some(planes) = windows.small_planes() {
        let (small, nothing) = (SmallPlanes::new(windows), &mut vec![(); y.len()]);
        return planes.forward(x, y, nothing, |x, y, _| {
            small.for_each(x, |output, maximum, _| y[output] = maximum);
        });
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
            if columns.one_by_one {
                return columns.scan(windows, lines, row, |output, x, _| y[output] = x);
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
    if let Some(planes) = windows.whole_planes() {
        return planes.forward(x, y, indices, |x, y, indices| {
            let [_, position] = first_greatest(&[x], 0..x.len());
            y.fill(x[position]);
            indices.fill(P::narrow(position as u32));
        });
    }
    if let Some(planes) = windows.small_planes() {
        let small = SmallPlanes::new(windows);
        return planes.forward(x, y, indices, |x, y, indices| {
            small.for_each(x, |output, maximum, position| {
                (y[output], indices[output]) = (maximum, P::narrow(position as u32));
            });
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
            if columns.one_by_one {
                return columns.scan(windows, lines, row, |output, x, position| {
                    (y[output], best[output]) = (x, position as u32);
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
        (..4, true) => greatest::<1, false, C>(window, width, maxima, best),
        (..4, false) => greatest::<1, true, C>(window, width, maxima, best),
        (..8, true) => greatest::<4, false, C>(window, width, maxima, best),
        (..8, false) => greatest::<4, true, C>(window, width, maxima, best),
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

/// Where in these columns of the lines the first of the greatest elements is, or the first NaN: the line, and the column; of minus
/// infinities that of all.
#[multiversion(targets("x86_64+avx2"))]
fn first_greatest<C: Compute>(lines: &[&[C]], columns: Range<usize>) -> [usize; 2] {
    let mut lanes = [C::neg_infinity(); LANES];
    let take = |x: C, lane: &mut C| *lane = select_unpredictable(wins(x, *lane), x, *lane);
    for line in lines {
        let (chunks, rest) = line[columns.clone()].as_chunks::<LANES>();
        chunks.iter().for_each(|chunk| chunk.iter().zip(&mut lanes).for_each(|(x, lane)| take(*x, lane)));
        rest.iter().zip(&mut lanes).for_each(|(x, lane)| take(*x, lane));
    }
    let greatest =
        lanes.into_iter().fold(C::neg_infinity(), |greatest, x| if wins(x, greatest) { x } else { greatest });
    // Looked for again, chunk after chunk: most elements are only asked whether any is it.
    let is_it = |x: &C| (*x == greatest) | (x.is_nan() & greatest.is_nan());
    for (number, line) in lines.iter().enumerate() {
        let mut begin = columns.start;
        for chunk in line[columns.clone()].chunks(LANES) {
            if chunk.iter().fold(false, |any, x| any | is_it(x)) {
                return [number, begin + chunk.iter().position(is_it).unwrap_or(0)];
            }
            begin += chunk.len();
        }
    }
    [0, columns.start]
}

/// [`first_greatest`], of so many columns that are not neighbours.
fn first_greatest_apart<C: Compute>(lines: &[&[C]], first: usize, [count, apart]: [usize; 2]) -> [usize; 2] {
    let (mut greatest, mut at) = (C::neg_infinity(), [0, first]);
    for (number, line) in lines.iter().enumerate() {
        for column in (first..).step_by(apart).take(count) {
            if wins(line[column], greatest) {
                (greatest, at) = (line[column], [number, column]);
            }
        }
    }
    at
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
    /// Whether better one output after another: there are fewer than columns of the window, or the window's own neighbours are
    /// more than could be compared at once of neighbouring outputs.
    one_by_one: bool,
}

impl Columns {
    fn new(windows: &Windows) -> Self {
        let pixel = windows.pixel();
        let Window { size: [_, width], stride: [_, stride], dilation: [_, dilation], .. } = windows.window;
        // Loops over every so many elements are no vector instructions.
        let strided = stride > 4;
        let first = |output| windows.positions_inside(1, output).start as u32;
        Self {
            runs: if pixel > 1 { Runs::new() } else { windows.runs() },
            first: (0..windows.output[1]).map(first).collect(),
            pixel,
            one_by_one: windows.few_outputs() || windows.pixel() == 1 && strided && width >= LANES && dilation == 1,
        }
    }

    /// Calls `f` for each window of one row of the output, of pixels of one element, that is not all outside the image: with the
    /// output, the maximum and its position.
    #[inline(always)]
    fn scan<T: Real>(
        &self,
        windows: &Windows,
        lines: &mut Lines<'_, T>,
        row: usize,
        mut f: impl FnMut(usize, T::Compute, usize),
    ) {
        let first_row = windows.positions_inside(0, row % windows.output[0]).start;
        let ([_, width], [_, dilation]) = (windows.window.size, windows.window.dilation);
        let lines = lines.all_of_windows(windows, row);
        for output in 0..windows.output[1] {
            let positions = windows.positions_inside(1, output);
            if lines.is_empty() || positions.is_empty() {
                continue;
            }
            let first = windows.coordinate(1, output, positions.start);
            let [i, column] = match dilation {
                1 => first_greatest(&lines, first..first + positions.len()),
                _ => first_greatest_apart(&lines, first, [positions.len(), dilation]),
            };
            f(output, lines[i][column], (first_row + i) * width + positions.start + (column - first) / dilation);
        }
    }
}

/// Small planes of one element a pixel: of each output's windows along each axis, the positions inside the image and the place of
/// the first.
struct SmallPlanes<'a> {
    windows: &'a Windows,
    inside: [Vec<(Range<usize>, usize)>; 2],
}

impl<'a> SmallPlanes<'a> {
    fn new(windows: &'a Windows) -> Self {
        let inside = |axis: usize, output: usize| {
            let positions = windows.positions_inside(axis, output);
            let first = if positions.is_empty() { 0 } else { windows.coordinate(axis, output, positions.start) };
            (positions, first)
        };
        Self {
            windows,
            inside: [0, 1].map(|axis| (0..windows.output[axis]).map(|output| inside(axis, output)).collect()),
        }
    }

    /// Calls `f` with each output of a plane, the maximum and its position.
    #[inline(always)]
    fn for_each<C: Compute>(&self, plane: &[C], mut f: impl FnMut(usize, C, usize)) {
        let ([_, width], Window { size, dilation, .. }) = (self.windows.input, self.windows.window);
        let [down, right] = &self.inside;
        let mut output = 0;
        for (rows, top) in down {
            for (columns, left) in right {
                let (mut greatest, mut at) = (C::neg_infinity(), rows.start * size[1] + columns.start);
                for (i, y) in rows.clone().zip((*top..).step_by(dilation[0])) {
                    for (j, x) in columns.clone().zip((*left..).step_by(dilation[1])) {
                        let value = plane[y * width + x];
                        let take = wins(value, greatest);
                        greatest = select_unpredictable(take, value, greatest);
                        at = select_unpredictable(take, i * size[1] + j, at);
                    }
                }
                f(output, greatest, at);
                output += 1;
            }
        }
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
