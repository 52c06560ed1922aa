//! Windows of any size, stride and dilation by bands.
//!
//! Threads take what there is to compute one element after another, whatever row or plane it is of. Forward goes along
//! columns first (over rows of outputs and columns of inputs), so that neighbouring threads read
//! neighbouring elements whatever the stride, and along rows of what that leaves: a window of n by n costs 2 n steps or
//! fewer, and the sums along columns serve all windows beside each other. Backward adds in shared memory: to where each
//! output's index names ([`Phases`]), or along rows and then columns.

use cuda_std::prelude::*;

use super::choice::{Costs, MOST_BYTES, Weights};
use super::groups::reached;
use super::{BandLaunch, Bands, Block, Span, THREADS, least, staged_bytes};
use crate::window::{Covering, Divider, Nchw, Order, Window};

/// Numbers of bands of a plane that are tried.
const MOST_TRIED: u32 = 4096;

/// The numbers by which elements of planes are told apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    pub(crate) width: u32,
    by_width: Divider,
    by_height: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Lines {}

impl Lines {
    /// Of planes of this height and width.
    pub fn new([height, width]: [u32; 2]) -> Self {
        Self { width, by_width: Divider::new(width), by_height: Divider::new(height) }
    }

    /// The plane, of several that a block has all rows of, that its row number `line` is of.
    #[device_inline]
    pub(crate) fn plane(&self, span: &Span, line: u32) -> u32 {
        if span.depth > 1 { self.by_height.divide(line) } else { 0 }
    }

    /// The row of its plane that is the block's row number `line`.
    #[device_inline]
    pub(crate) fn row(&self, span: &Span, line: u32) -> u32 {
        span.rows[0] + line - self.plane(span, line) * (span.rows[1] - span.rows[0])
    }

    /// Elements of these rows of the block's planes, and as many more as fill 16 bytes of `f32`.
    #[device_inline]
    pub(crate) fn padded(&self, span: &Span, rows: [u32; 2]) -> u32 {
        (span.depth * (rows[1] - rows[0]) * self.width + 3) & !3
    }
}

/// An element of the rows that a block takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Its number among them.
    pub number: u32,
    /// Its plane among the block's.
    pub plane: u32,
    pub row: u32,
    pub column: u32,
}

/// Calls `f` with each element that is this thread's of these rows of the block's planes.
#[device_inline]
pub(crate) fn for_each_item(span: &Span, lines: &Lines, rows: [u32; 2], f: impl Fn(Item)) {
    let height = rows[1] - rows[0];
    let count = span.depth * height * lines.width;
    let mut number = thread::thread_idx_x();
    while number < count {
        let line = lines.by_width.divide(number);
        // Of several planes the rows are all that there are.
        let plane = if span.depth > 1 { lines.by_height.divide(line) } else { 0 };
        let (row, column) = (rows[0] + line - plane * height, number - line * lines.width);
        f(Item { number, plane, row, column });
        number += thread::block_dim_x();
    }
}

/// Calls `f(of_column(column), column, line)` with each element that is this thread's of so many rows, one after another: a
/// column, and every so manyth row.
#[device_inline]
pub(crate) fn for_each_below<H: Copy>(
    lines: &Lines,
    count: u32,
    of_column: impl Fn(u32) -> H,
    f: impl Fn(H, u32, u32),
) {
    for_all_below(lines, of_column, |of_column, column, first, step| {
        let mut line = first;
        while line < count {
            f(of_column, column, line);
            line += step;
        }
    });
}

/// As [`for_each_below`], four rows at a time, of which the last may be past the end.
#[device_inline]
pub(crate) fn for_four_below<H: Copy>(
    lines: &Lines,
    count: u32,
    of_column: impl Fn(u32) -> H,
    f: impl Fn(H, u32, [u32; 4]),
) {
    for_all_below(lines, of_column, |of_column, column, first, step| {
        let mut line = first;
        while line < count {
            f(of_column, column, [line, line + step, line + 2 * step, line + 3 * step]);
            line += 4 * step;
        }
    });
}

/// Calls `f(of_column(column), column, first, step)` with each column of this thread, its first row there and how many on the next
/// is.
#[device_inline]
fn for_all_below<H: Copy>(lines: &Lines, of_column: impl Fn(u32) -> H, f: impl Fn(H, u32, u32, u32)) {
    let (number, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let beside = lines.by_width.divide(threads);
    // Rows longer than a block go one at a time.
    let (first, step) = if beside == 0 { (0, 1) } else { (lines.by_width.divide(number), beside) };
    let mut column = number - first * lines.width;
    while column < lines.width && first < step {
        f(of_column(column), column, first, step);
        column += threads;
    }
}

/// The outputs of a band in groups whose windows do not overlap: of each so manyth row and column.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Rows and columns from one output of a group to the next.
    step: [u32; 2],
    /// Outputs of a group along each axis, at most.
    most: [u32; 2],
    by_most: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Phases {}

impl Phases {
    /// Of bands of at most `rows` rows of the window's outputs.
    pub fn new(window: &Window<Nchw>, rows: u32) -> Self {
        let step = [0, 1].map(|axis| window.extent(axis).div_ceil(window.stride[axis]));
        let most = [rows.div_ceil(step[0]), window.output[1].div_ceil(step[1])];
        Self { step, most, by_most: most.map(Divider::new) }
    }

    /// Calls `f` with the plane, the row and the column of each output of these rows: of this thread's between two barriers
    /// and others', no two windows overlap.
    #[device_inline]
    pub(crate) fn for_each_output(&self, span: &Span, rows: [u32; 2], width: u32, f: impl Fn(u32, u32, u32)) {
        let count = span.depth * self.most[0] * self.most[1];
        let mut first = [0, 0];
        while first[0] < self.step[0] {
            let mut number = thread::thread_idx_x();
            while number < count {
                let line = self.by_most[1].divide(number);
                let plane = self.by_most[0].divide(line);
                let row = rows[0] + first[0] + (line - plane * self.most[0]) * self.step[0];
                let column = first[1] + (number - line * self.most[1]) * self.step[1];
                if row < rows[1] && column < width {
                    f(plane, row, column);
                }
                number += thread::block_dim_x();
            }
            thread::sync_threads();
            first[1] += 1;
            if first[1] == self.step[1] {
                first = [first[0] + 1, 0];
            }
        }
    }
}

/// The steps of a window along one axis that are inside the image: from the first that is to that which is not.
#[device_inline]
pub(crate) fn steps_inside<L: Order>(window: &Window<L>, axis: usize, output: u32) -> [u32; 2] {
    let begin = output * window.stride[axis];
    let first = window.padding[axis].saturating_sub(begin);
    let end = window.input[axis] + window.padding[axis] - begin;
    [first, least(end, window.size[axis])]
}

impl Block {
    /// Over the outputs of windows without dilation, of whose inputs an element has `bytes`, with so many bytes more for each
    /// block; and the launch.
    pub fn of_outputs(window: &Window<Nchw>, bytes: usize, more: usize) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        Self::new(&of_outputs(window, bytes, &[], more))
    }

    /// As [`of_outputs`](Self::of_outputs), with as many bytes of shared memory for so many rows of outputs of so many planes.
    pub(crate) fn of_outputs_with(
        window: &Window<Nchw>,
        bytes: usize,
        shared: impl Fn(u64, u64) -> u64,
    ) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        let Costs { planes, height, plane_bytes, most_bytes, moved, .. } = of_outputs(window, bytes, &[], 0);
        Self::new(&Costs { planes, height, plane_bytes, most_bytes, moved, shared })
    }

    /// Over the inputs of windows, of whose outputs an element has `bytes`, those of each tensor, and four for the sum of each
    /// input; the launch, and the most rows of outputs of a band.
    pub fn of_inputs(window: &Window<Nchw>, bytes: &[usize]) -> Option<(Self, BandLaunch, u32)> {
        let (block, launch) = Self::new(&of_inputs(window, bytes, 0))?;
        let rows = if block.rows == block.height { window.output[0] } else { reach(window, block.rows.into()) as u32 };
        // Of outputs whose windows do not overlap there are few: smaller blocks wait less at barriers.
        Some((block, BandLaunch { block: [THREADS / 2, 1, 1], ..launch }, rows))
    }

    /// Of all numbers of rows that have room, that which costs least.
    pub(super) fn new<C: Fn(u64) -> u64, S: Fn(u64, u64) -> u64>(costs: &Costs<C, S>) -> Option<(Self, BandLaunch)> {
        let mut best: Option<(f64, u32)> = None;
        for bands in 1..=costs.height.min(MOST_TRIED) {
            let rows = costs.height.div_ceil(bands);
            let Some(worth) = costs.worth(rows) else { continue };
            if best.is_none_or(|(of_best, _)| worth > of_best) {
                best = Some((worth, rows));
            }
        }
        // Images so high that no few bands will do get bands of one row.
        let rows = best.map_or(1, |(_, rows)| rows);
        costs.worth(rows)?;
        let (block, grid, shared) = costs.block(rows, u32::MAX);
        Some((block, BandLaunch { grid, block: [THREADS, 1, 1], shared }))
    }
}

impl Bands {
    /// Over the inputs of windows, of whose outputs an element has `bytes`, with four bytes for each output, for each row of
    /// outputs and column of inputs, and for the sum of each input.
    pub fn of_inputs(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        let weights = Weights { most_run: 32, ..Weights::HEAVY };
        Self::new(window.input[1], weights, &of_inputs(window, &[bytes, size_of::<f32>()], size_of::<f32>()))
    }
}

/// The most rows of outputs that so many rows of inputs have windows of.
fn reach(window: &Window<Nchw>, rows: u64) -> u64 {
    u64::from(window.output[0]).min((rows + u64::from(window.extent(0)) - 2) / u64::from(window.stride[0]) + 1)
}

/// What bands of outputs of windows without dilation cost: of their inputs an element has `bytes`, a row of outputs and
/// reached column `kept`, those of each array, and a block so many `more`.
pub(super) fn of_outputs(
    window: &Window<Nchw>,
    bytes: usize,
    kept: &[usize],
    more: usize,
) -> Costs<impl Fn(u64) -> u64, impl Fn(u64, u64) -> u64> {
    let [height, stride, size] = [window.input, window.stride, window.size].map(|pair| u64::from(pair[0]));
    let [wide, narrow, bytes] = [window.input[1].into(), window.output[1].into(), bytes as u64];
    let reach = move |rows: u64| height.min((rows - 1) * stride + size);
    let (whole, reached) = (u64::from(window.output[0]), u64::from(reached(window)));
    let shared = move |rows: u64, depth: u64| {
        let inputs = if rows == whole { height } else { reach(rows) };
        let kept: u64 = kept.iter().map(|kept| staged_bytes(depth * rows * reached * *kept as u64)).sum();
        staged_bytes(depth * inputs * wide * bytes) + kept + more as u64
    };
    let moved = move |rows: u64| (reach(rows) * wide + rows * narrow) * bytes;
    let plane_bytes = (height * wide + whole * narrow) * bytes;
    let (planes, height) = (window.planes, window.output[0]);
    Costs { planes, height, plane_bytes, most_bytes: MOST_BYTES, moved, shared }
}

/// What bands of inputs cost: of their outputs an element has `bytes`, those of each tensor; a row of outputs and column of
/// inputs `kept`.
fn of_inputs(
    window: &Window<Nchw>,
    bytes: &[usize],
    kept: usize,
) -> Costs<impl Fn(u64) -> u64, impl Fn(u64, u64) -> u64> {
    let [wide, narrow] = [window.input, window.output].map(|pair| u64::from(pair[1]));
    let (height, whole) = (u64::from(window.input[0]), u64::from(window.output[0]));
    let shared = move |rows: u64, depth: u64| {
        let outputs = if rows == height { whole } else { reach(window, rows) };
        let line = |bytes: &usize| staged_bytes(depth * outputs * narrow * *bytes as u64);
        let kept = staged_bytes(depth * outputs * wide * kept as u64);
        bytes.iter().map(line).sum::<u64>() + kept + staged_bytes(depth * rows * wide * size_of::<f32>() as u64)
    };
    // What is computed from outputs counts as if it were moved: little beside the inputs.
    let (of_output, of_input) = (bytes.iter().sum::<usize>() as u64, bytes[0] as u64);
    let moved = move |rows: u64| reach(window, rows) * narrow * of_output + rows * wide * of_input;
    let plane_bytes = whole * narrow * of_output + height * wide * of_input;
    let (planes, height) = (window.planes, window.input[0]);
    Costs { planes, height, plane_bytes, most_bytes: MOST_BYTES, moved, shared }
}

/// The rows of outputs that give to the block's rows of inputs.
#[device_inline]
pub(crate) fn outputs_of(window: &Window<Nchw>, covering: &Covering, span: &Span) -> [u32; 2] {
    if span.whole {
        return [0, window.output[0]];
    }
    let [first, _] = covering.over(window, 0, span.rows[0]);
    let [_, end] = covering.over(window, 0, span.rows[1] - 1);
    [least(first, end), end]
}
