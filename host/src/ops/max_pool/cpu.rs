use std::hint::select_unpredictable;
use std::ops::Range;

use rayon::prelude::*;

use super::{Backward, FlatIndices, Forward, Indices, Windows};
use crate::device::{Cpu, OnCpu};
use crate::ops::window::{for_each_band, rows_per_task, zip_strided};
use crate::{Compute, Result};

/// An integer that names a position of a window.
trait Position: Copy + Send + Sync + Into<u32> {
    /// `position`, which the type can name: the type was chosen by the window.
    fn narrow(position: u32) -> Self;
}

impl Position for u8 {
    fn narrow(position: u32) -> Self {
        position as Self
    }
}

impl Position for u16 {
    fn narrow(position: u32) -> Self {
        position as Self
    }
}

impl<T: Compute> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y) = (self.x.host()?, self.y.host_mut()?);
        match self.indices {
            Some(Indices::U8(indices)) => maxima_and_indices(&self.windows, x, y, indices.host_mut()?),
            Some(Indices::U16(indices)) => maxima_and_indices(&self.windows, x, y, indices.host_mut()?),
            None => maxima(&self.windows, x, y),
        }
        Ok(())
    }
}

fn maxima<T: Compute>(windows: &Windows, x: &[T], y: &mut [T]) {
    let (columns, width, stride) = (Columns::new(windows), windows.output[1], windows.window.stride[1]);
    y.par_chunks_mut(width).with_min_len(rows_per_task(width)).enumerate().for_each(|(row, y)| {
        y.fill(T::neg_infinity());
        if columns.few {
            return columns.scan(windows, x, row, |output, _, x| {
                if wins(x, y[output]) {
                    y[output] = x;
                }
            });
        }
        columns.sweep(windows, x, row, |_, outputs, line| {
            zip_strided(y[outputs].iter_mut(), line, stride, |y, x| *y = if wins(x, *y) { x } else { *y });
        });
    });
}

fn maxima_and_indices<T: Compute, P: Position>(windows: &Windows, x: &[T], y: &mut [T], indices: &mut [P]) {
    let (columns, width, stride) = (Columns::new(windows), windows.output[1], windows.window.stride[1]);
    let rows = y.par_chunks_mut(width).zip(indices.par_chunks_mut(width)).with_min_len(rows_per_task(width));
    // Positions are kept as wide as f32 while they may change, so that one vector mask chooses both.
    rows.enumerate().for_each_init(
        || vec![0u32; width],
        |best, (row, (y, indices))| {
            y.fill(T::neg_infinity());
            let first_row = windows.positions_inside(0, row % windows.output[0]).start * windows.window.size[1];
            for (best, first) in best.iter_mut().zip(&columns.first) {
                *best = first_row as u32 + first;
            }
            if columns.few {
                columns.scan(windows, x, row, |output, position, x| {
                    if wins(x, y[output]) {
                        (y[output], best[output]) = (x, position);
                    }
                });
            } else {
                columns.sweep(windows, x, row, |position, outputs, line| {
                    take_greater(&mut y[outputs.clone()], &mut best[outputs], position, line, stride);
                });
            }
            for (index, best) in indices.iter_mut().zip(best) {
                *index = P::narrow(*best);
            }
        },
    );
}

/// One position of a row of windows: what it holds, every `stride`th element of `line`, replaces the maxima where it wins.
///
/// A function of its own: as its arguments the slices are known not to overlap, and the loop becomes vector instructions.
#[inline(never)]
fn take_greater<T: Compute>(maxima: &mut [T], best: &mut [u32], position: u32, line: &[T], stride: usize) {
    zip_strided(maxima.iter_mut().zip(best), line, stride, |(maximum, best), x| {
        // Branches, which the compiler makes of `if`, would be mispredicted and keep it from using vectors.
        let take = wins(x, *maximum);
        *maximum = select_unpredictable(take, x, *maximum);
        *best = select_unpredictable(take, position, *best);
    });
}

/// Whether `x` replaces the maximum so far: greater, or the first NaN.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must not count as less")]
fn wins<T: Compute>(x: T, maximum: T) -> bool {
    !(x <= maximum) & !maximum.is_nan()
}

/// What all rows of the output have in common.
struct Columns {
    /// For each column of the window, the outputs for which it is inside the image, and the input's first column then.
    inside: Vec<(Range<usize>, usize)>,
    /// For each output, the window's first column that is not left of the image.
    first: Vec<u32>,
    /// Whether there are fewer outputs than columns of the window, and so better one output after another.
    few: bool,
}

impl Columns {
    fn new(windows: &Windows) -> Self {
        let inside = |j| {
            let outputs = windows.outputs_at(1, j);
            let begin = if outputs.is_empty() { 0 } else { windows.coordinate(1, outputs.start, j) };
            (outputs, begin)
        };
        let (size, outputs) = (windows.window.size[1], windows.output[1]);
        Self {
            inside: (0..size).map(inside).collect(),
            first: (0..outputs).map(|output| windows.positions_inside(1, output).start as u32).collect(),
            few: outputs < size,
        }
    }

    /// Calls `f` for each position of the windows of one row of the output (counted over all planes) in row-major order:
    /// with the position, the outputs for which it is inside the image, and the input from the first of these on.
    #[inline(always)]
    fn sweep<T>(&self, windows: &Windows, x: &[T], row: usize, mut f: impl FnMut(u32, Range<usize>, &[T])) {
        for_each_line(windows, x, row, |i, line| {
            for (j, (outputs, begin)) in self.inside.iter().enumerate() {
                f((i * windows.window.size[1] + j) as u32, outputs.clone(), &line[*begin..]);
            }
        });
    }

    /// Calls `f` for the elements of the same windows, each window's in row-major order: with the output, the position
    /// and the element.
    #[inline(always)]
    fn scan<T: Compute>(&self, windows: &Windows, x: &[T], row: usize, mut f: impl FnMut(usize, u32, T)) {
        for_each_line(windows, x, row, |i, line| {
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

/// Calls `f` with each row inside the image of the windows of one row of the output, and that row of the input.
#[inline(always)]
fn for_each_line<T>(windows: &Windows, x: &[T], row: usize, mut f: impl FnMut(usize, &[T])) {
    let [height, width] = windows.input;
    let (plane, row) = (row / windows.output[0], row % windows.output[0]);
    for i in windows.positions_inside(0, row) {
        f(i, &x[(plane * height + windows.coordinate(0, row, i)) * width..][..width]);
    }
}

impl<T: Compute> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (dy, dx, beta) = (self.dy.host()?, self.dx.tensor.host_mut()?, T::of(self.dx.beta));
        match self.indices {
            Indices::U8(indices) => gradient(&self.windows, dy, indices.host()?, dx, beta),
            Indices::U16(indices) => gradient(&self.windows, dy, indices.host()?, dx, beta),
        }
        Ok(())
    }
}

fn gradient<T: Compute, P: Position>(windows: &Windows, dy: &[T], indices: &[P], dx: &mut [T], beta: T) {
    let (steps, width) = (steps(windows), windows.input[1]);
    let [output_height, output_width] = windows.output;
    let ([stride_down, stride_right], [above, left]) = (windows.window.stride, windows.window.padding);
    // A band has one owner, which scatters in the outputs' order: the sums are the same for any number of threads.
    for_each_band(dx, windows.input, beta, |plane, rows, dx| {
        for row in windows.outputs_over(0, &rows) {
            let first = (plane * output_height + row) * output_width;
            let (dy, indices) = (&dy[first..][..output_width], &indices[first..][..output_width]);
            for (column, (dy, index)) in dy.iter().zip(indices).enumerate() {
                let Some((down, right)) = steps.get((*index).into() as usize) else { continue };
                // What lies before the band or the image wraps round to far after it.
                let y = (row * stride_down + down).wrapping_sub(above + rows.start);
                let x = (column * stride_right + right).wrapping_sub(left);
                if y < rows.len() && x < width {
                    dx[y * width + x] += *dy;
                }
            }
        }
    });
}

/// From the window's first position to each, row-major: rows down and columns right.
fn steps(windows: &Windows) -> Vec<(usize, usize)> {
    let ([height, width], [down, right]) = (windows.window.size, windows.window.dilation);
    (0..height).flat_map(|i| (0..width).map(move |j| (i * down, j * right))).collect()
}

impl OnCpu for FlatIndices<'_> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let flat = self.flat.host_mut()?;
        match self.indices {
            Indices::U8(indices) => flatten(&self.windows, indices.host()?, flat),
            Indices::U16(indices) => flatten(&self.windows, indices.host()?, flat),
        }
        Ok(())
    }
}

fn flatten<P: Position>(windows: &Windows, indices: &[P], flat: &mut [u32]) {
    let (height, width) = (windows.output[0], windows.output[1]);
    let ([stride_down, stride_right], [above, left]) = (windows.window.stride, windows.window.padding);
    let ([down, right], size) = (windows.window.dilation, windows.window.size[1]);
    let rows = flat.par_chunks_mut(width).zip(indices.par_chunks(width)).with_min_len(rows_per_task(width));
    rows.enumerate().for_each(|(row, (flat, indices))| {
        for (column, (flat, index)) in flat.iter_mut().zip(indices).enumerate() {
            let position = (*index).into() as usize;
            // Wrapping, so that an index that forward never gives means as little here as on a GPU.
            let y = (row % height * stride_down + position / size * down).wrapping_sub(above);
            let x = (column * stride_right + position % size * right).wrapping_sub(left);
            *flat = y.wrapping_mul(windows.input[1]).wrapping_add(x) as u32;
        }
    });
}
