//! How CPU versions go over windows: a row of outputs at a time, one position of their windows after another, so that the
//! innermost loop is over neighbours in memory; or a band of rows of inputs at a time.

use std::ops::Range;

use rayon::prelude::*;
use smallvec::SmallVec;

use super::window::Windows;
use crate::Real;
use crate::device::tasks::Tasks;

/// Elements of a row of outputs at which the same column of the window is at every `stride`th element of a row of inputs,
/// from `first` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The window's.
    pub column: usize,
    pub outputs: Range<usize>,
    pub first: usize,
    pub stride: usize,
}

/// Without an allocation for the windows that networks pool by.
pub(crate) type Runs = SmallVec<[Run; 3]>;

impl Windows {
    /// For each column of the window, the runs of a row of outputs for which it is inside the image.
    pub fn runs(&self) -> Runs {
        let (pixel, stride) = (self.pixel(), self.window.stride[1]);
        let mut runs = Runs::new();
        for column in 0..self.window.size[1] {
            let outputs = self.outputs_at(1, column);
            if outputs.is_empty() {
                continue;
            }
            let first = self.coordinate(1, outputs.start, column);
            if pixel == 1 {
                runs.push(Run { column, outputs, first, stride });
            } else if stride == 1 {
                let outputs = outputs.start * pixel..outputs.end * pixel;
                runs.push(Run { column, outputs, first: first * pixel, stride });
            } else {
                runs.extend(outputs.enumerate().map(|(number, output)| Run {
                    column,
                    outputs: output * pixel..(output + 1) * pixel,
                    first: (first + number * stride) * pixel,
                    stride: 1,
                }));
            }
        }
        runs
    }

    /// Whether a row has fewer outputs than a window has columns, so that better one output after another is computed.
    pub fn few_outputs(&self) -> bool {
        self.pixel() == 1 && self.output[1] < self.window.size[1]
    }

    /// Calls `f` for each position of the windows of one row of the output (counted over all planes) in row-major order:
    /// with the position, the run of its outputs, and the input from the run's first element on. `runs` are
    /// [`Windows::runs`].
    #[inline(always)]
    pub fn sweep<T: Real>(
        &self,
        lines: &mut Lines<'_, T>,
        runs: &[Run],
        row: usize,
        mut f: impl FnMut(u32, &Run, &[T::Compute]),
    ) {
        self.for_each_line(lines, row, |i, line| {
            for run in runs {
                f((i * self.window.size[1] + run.column) as u32, run, &line[run.first..]);
            }
        });
    }

    /// Calls `f` with each row inside the image of the windows of one row of the output, and that row of the input.
    #[inline(always)]
    pub fn for_each_line<T: Real>(
        &self,
        lines: &mut Lines<'_, T>,
        row: usize,
        mut f: impl FnMut(usize, &[T::Compute]),
    ) {
        let positions = self.positions_inside(0, row % self.output[0]);
        positions.zip(lines.of_windows(self, row)).for_each(|(i, line)| f(i, line));
    }

    /// The rows of the input, counted over all planes, that the windows of one row of the output have inside the image.
    pub fn rows_of(&self, row: usize) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
        let (plane, row) = (row / self.output[0], row % self.output[0]);
        self.positions_inside(0, row).map(move |i| plane * self.input[0] + self.coordinate(0, row, i))
    }
}

/// Rows of the input, to compute with. Those that have to be converted for that stay while other windows have them too.
pub(crate) struct Lines<'a, T: Real> {
    x: &'a [T],
    line: usize,
    /// Room for as many rows as windows span.
    rooms: usize,
    /// These, from when the first is needed.
    converted: Vec<T::Compute>,
    /// The rows that are there, counted over all planes: each in the room of its number modulo the rooms.
    held: Range<usize>,
}

impl<'a, T: Real> Lines<'a, T> {
    pub fn new(windows: &Windows, x: &'a [T]) -> Self {
        let (line, height) = (windows.input_line(), windows.input[0]);
        let span = ((windows.window.size[0] - 1) * windows.window.dilation[0] + 1).min(height);
        let rooms = if T::as_compute(x).is_some() { 0 } else { span };
        Self { x, line, rooms, converted: Vec::new(), held: 0..0 }
    }

    /// Those that the windows of one row of the output have inside the image, from the top.
    pub fn of_windows(&mut self, windows: &Windows, row: usize) -> impl Iterator<Item = &[T::Compute]> {
        let mut rows = windows.rows_of(row);
        if let (1.., Some(first)) = (self.rooms, rows.next()) {
            self.hold(first..rows.next_back().unwrap_or(first) + 1);
        }
        let (line, rooms, given, converted) = (self.line, self.rooms, T::as_compute(self.x), &self.converted);
        windows.rows_of(row).map(move |row| match given {
            Some(x) => &x[row * line..][..line],
            None => &converted[row % rooms * line..][..line],
        })
    }

    /// [`of_windows`](Self::of_windows), to be looked up.
    pub fn all_of_windows(&mut self, windows: &Windows, row: usize) -> SmallVec<[&[T::Compute]; 8]> {
        self.of_windows(windows, row).collect()
    }

    /// Converts those of these rows that are not there, as many at once as are neighbours.
    fn hold(&mut self, rows: Range<usize>) {
        if self.converted.is_empty() {
            self.converted = vec![T::Compute::of(0.0); self.rooms * self.line];
        }
        let goes_on = self.held.contains(&rows.start);
        let mut next = if goes_on { self.held.end } else { rows.start };
        while next < rows.end {
            let room = next % self.rooms;
            let count = (rows.end - next).min(self.rooms - room);
            let places = room * self.line..(room + count) * self.line;
            T::widen_all(&self.x[next * self.line..][..count * self.line], &mut self.converted[places]);
            next += count;
        }
        self.held = rows.start..next;
    }
}

/// Elements that one task on the CPU takes: long enough to hide the task's cost, short enough for its caches.
pub(crate) const TASK: usize = 32 * 1024;

/// Rows of inputs in a band, at least, for each row of a window.
const TALL: usize = 3;

/// Rows of as many elements that make one task; at least one.
pub(crate) fn rows_per_task(line: usize) -> usize {
    (TASK / line).max(1)
}

/// Calls `f` for bands of whole rows of the windows' planes of inputs, on all threads: with something of its thread's, the plane,
/// the band's rows in it, and these rows of `dx`. What a band is does not depend on the number of threads.
pub(crate) fn for_each_band<T: Real, S: Default>(
    dx: &mut [T],
    windows: &Windows,
    f: impl Fn(&mut S, usize, Range<usize>, &mut [T]) + Sync,
) {
    let line = windows.input_line();
    let (height, plane) = (windows.input[0], windows.input[0].saturating_mul(line));
    // Windows that reach into several bands are gone over for each.
    let band = rows_per_task(line).max(TALL * windows.window.size[0]).min(height);
    dx.par_chunks_mut(plane).enumerate().run_with(TASK.div_ceil(plane), S::default, |state, (plane, dx)| {
        if band == height {
            return f(state, plane, 0..height, dx);
        }
        let bands = dx.par_chunks_mut(band * line).enumerate();
        bands.run_with(1, S::default, |state, (index, dx)| {
            let first = index * band;
            f(state, plane, first..first + dx.len() / line, dx);
        });
    });
}

/// Calls `f` with each of `out` and every `stride`th element of `line` from its first on; `line` reaches as far as that.
///
/// The strides that networks use get loops that the compiler turns into vector instructions.
#[inline(always)]
pub(crate) fn zip_strided<A, T: Copy>(
    out: impl ExactSizeIterator<Item = A> + DoubleEndedIterator,
    line: &[T],
    stride: usize,
    mut f: impl FnMut(A, T),
) {
    debug_assert!(out.len() == 0 || (out.len() - 1) * stride < line.len(), "the line ends before the outputs");
    match stride {
        1 => out.zip(line).for_each(|(out, value)| f(out, *value)),
        2 => zip_chunks::<2, _, _>(out, line, f),
        3 => zip_chunks::<3, _, _>(out, line, f),
        4 => zip_chunks::<4, _, _>(out, line, f),
        _ => out.zip(line.iter().step_by(stride)).for_each(|(out, value)| f(out, *value)),
    }
}

/// [`zip_strided`] with a stride that is known when it is compiled.
#[inline(always)]
fn zip_chunks<const STRIDE: usize, A, T: Copy>(
    mut out: impl ExactSizeIterator<Item = A> + DoubleEndedIterator,
    line: &[T],
    mut f: impl FnMut(A, T),
) {
    let (chunks, rest) = line.as_chunks::<STRIDE>();
    // The last element may have fewer neighbours.
    if let [value, ..] = rest
        && out.len() > chunks.len()
        && let Some(out) = out.next_back()
    {
        f(out, *value);
    }
    out.zip(chunks).for_each(|(out, chunk)| f(out, chunk[0]));
}
