//! Forward of planes that follow each other, where windows do not overlap: the stride is at least the window.
//!
//! A *line* is a row of windows of a plane. A block takes some lines at a time, of several planes where these are small, or a
//! part of one, and goes on to others: weights that all channels share are computed once. A thread sums one column of one
//! window along y, with `AHEAD` rows under way at once, and leaves the sum by its weight along x in shared memory;
//! neighbouring threads have neighbouring columns. Then a thread adds up one window's. Every pixel of a window is read once
//! for each Gaussian, and none between windows.
//!
//! Small windows of a few known sizes go by [`direct`](super::direct) instead.
//!
//! Bound by memory where windows have a few rows; of larger images than the L1 cache holds, once more for each Gaussian.

use cuda_std::prelude::*;

use super::strips::MAX_STRIDE;
use super::weights::{Shape, vector};
use super::{Geometry, get_if};
use crate::window::Divider;

/// Threads of a block.
pub const APART_BLOCK: u32 = 256;
/// Blocks that fit on a multiprocessor, at least: 40 registers a thread.
const MIN_BLOCKS: u32 = 6;
/// Rows that a thread loads before it uses the first, at most.
const AHEAD: u32 = 8;
/// Columns of windows that a block takes, about: what it does once, the weights, is little beside them.
const COLUMNS: u32 = 4 * APART_BLOCK;
/// Blocks that keep a GPU busy: there are no more, and no block takes so many lines that there are fewer.
const BLOCKS: u32 = 132 * MIN_BLOCKS;
/// Shared memory that a block may have, in elements: what needs no leave of the driver.
const MAX_SHARED: u64 = (48 << 10) / 4;

/// How blocks take lines apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Lines of all planes, and of a block.
    total: u32,
    lines: u32,
    /// Windows of a block's part of a line, and such parts.
    windows: u32,
    across: u32,
    /// Variances of each Gaussian, 1 or 2.
    variances: u32,
    by_windows: Divider,
    /// What blocks take at a time, of all lines.
    turns: u32,
    /// By the lines of a plane.
    by_rows: Divider,
    /// By the columns of a window.
    by_width: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Apart {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub apart: Apart,
    /// Blocks.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Apart {
    /// None where windows overlap or the stride is one of [`strips`](super::strips), or where the kernel has no room.
    pub fn plan(geometry: &Geometry, variances: u32) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let limit = i32::MAX as u32;
        let total = geometry.planes.checked_mul(vertical.output).filter(|&total| total <= limit)?;
        if geometry.axes.into_iter().any(|axis| axis.size > axis.stride || axis.stride <= MAX_STRIDE) || total == 0 {
            return None;
        }
        let width = horizontal.size;
        let windows = (COLUMNS / width).clamp(1, horizontal.output);
        let across = horizontal.output.div_ceil(windows);
        let windows = horizontal.output.div_ceil(across);
        let enough = u64::from(total) * u64::from(across) / u64::from(BLOCKS);
        let lines = if across > 1 { 1 } else { u64::from(COLUMNS / (windows * width)).min(enough).max(1) as u32 };
        // Of the planes that a block's lines are of.
        let sets = if geometry.sets == 1 { 1 } else { (lines - 1) / vertical.output + 2 };
        let weights = u64::from(of_gaussian(geometry)?) * u64::from(geometry.kernels) * u64::from(sets);
        let elements = weights + u64::from(lines) * u64::from(windows) * u64::from(width);
        let turns = u64::from(total.div_ceil(lines)) * u64::from(across);
        if elements > MAX_SHARED || turns > u64::from(limit) {
            return None;
        }
        let apart = Self {
            total,
            lines,
            windows,
            across,
            variances,
            by_windows: Divider::new(windows),
            turns: turns as u32,
            by_rows: Divider::new(vertical.output),
            by_width: Divider::new(width),
        };
        Some(Plan { apart, blocks: (turns as u32).min(BLOCKS), shared_bytes: elements as u32 * 4 })
    }
}

/// Elements of a Gaussian's weights, those along y and those along x; none where they are too many to count.
const fn of_gaussian(geometry: &Geometry) -> Option<u32> {
    let [vertical, horizontal] = &geometry.axes;
    match (vertical.cases.checked_mul(vertical.size), horizontal.cases.checked_mul(horizontal.size)) {
        (Some(y), Some(x)) => y.checked_add(x),
        _ => None,
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. The grid is the plan's.
///
/// On an H200 0.54 of the copy rate for 7×7 windows in f32; latency is suspected to be the limit.
///
/// # Safety
/// The parent module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for
/// each Gaussian; where channels have Gaussians of their own, `weights_y` and `weights_x` are the tables of
/// [`gaussian_pool_weights`](super::gaussian_pool_weights) without derivatives. `apart` is what [`Apart::plan`] made of
/// `geometry`.
#[kernel(block = APART_BLOCK, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward_apart<T: Storage>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    weights_y: Option<Global<f32>>,
    weights_x: Option<Global<f32>>,
    y: GlobalMut<T>,
    geometry: Geometry,
    apart: Apart,
) {
    let [vertical, horizontal] = &geometry.axes;
    let (size, width) = (vertical.size, horizontal.size);
    let shared = dynamic_shared::<f32>();
    let thread = thread::thread_idx_x();
    let mut turn = thread::block_idx_x();
    while turn < apart.turns {
        let group = super::divide(turn, apart.across).0;
        let part = turn - group * apart.across;
        let (first_line, first_window) = (group * apart.lines, part * apart.windows);
        let lines = apart.lines.min(apart.total - first_line);

        // The weights: of each set and Gaussian those of each case along y, then along x.
        let (down, across) = (vertical.cases * size, horizontal.cases * width);
        let first_plane = apart.by_rows.divide(first_line);
        let sets = if geometry.sets == 1 { 1 } else { apart.by_rows.divide(first_line + lines - 1) - first_plane + 1 };
        let of_set = geometry.kernels * (down + across);
        if let (Some(weights_y), Some(weights_x)) = (weights_y, weights_x) {
            let mut i = thread;
            while i < sets * of_set {
                let (place, element) = super::divide(i, down + across);
                let (plane, kernel) = super::divide(place, geometry.kernels);
                let set = if geometry.sets == 1 { 0 } else { super::divide(first_plane + plane, geometry.channels).1 };
                let gaussian = set as usize * geometry.kernels as usize + kernel as usize;
                // SAFETY: the tables have an entry for each Gaussian, case and position; each element is one thread's.
                unsafe {
                    let weight = if element < down {
                        weights_y.load(gaussian * down as usize + element as usize)
                    } else {
                        weights_x.load(gaussian * across as usize + (element - down) as usize)
                    };
                    shared.store(i, weight);
                }
                i += APART_BLOCK;
            }
        } else if turn == thread::block_idx_x() {
            let cases = vertical.cases + horizontal.cases;
            let mut number = thread / warp::WARP_SIZE;
            while number < geometry.kernels * cases {
                let (kernel, case) = super::divide(number, cases);
                let along_y = case < vertical.cases;
                let axis = geometry.axis(along_y);
                let case = if along_y { case } else { case - vertical.cases };
                let first = kernel * (down + across) + case * axis.size + if along_y { 0 } else { down };
                // SAFETY: shared memory holds the vector, which is this warp's; the parameters are there.
                unsafe {
                    let put = |i: u32, weight: f32| shared.store(first + i, weight);
                    let shape = Shape::load([mean, var], kernel, along_y, apart.variances);
                    vector(&axis, case, shape, false, put, |i| shared.load(first + i), |_, _, _| {});
                }
                number += APART_BLOCK / warp::WARP_SIZE;
            }
        }
        // SAFETY: shared memory holds the weights and then a number for each column.
        let sums = unsafe { shared.offset(sets * of_set) };
        // A window's plane, its row and column in the output, and where the weights of its plane's set begin.
        let find = |window: u32| {
            let line = apart.by_windows.divide(window);
            let plane = apart.by_rows.divide(first_line + line);
            let row = first_line + line - plane * vertical.output;
            let set = if geometry.sets == 1 { 0 } else { plane - first_plane };
            (plane, row, first_window + window - line * apart.windows, set * of_set)
        };
        thread::sync_threads();

        for kernel in 0..geometry.kernels {
            let mut i = thread;
            while i < lines * apart.windows * width {
                let window = apart.by_width.divide(i);
                let position = i - window * width;
                let (plane, row, ox, weights) = find(window);
                let weights = weights + kernel * (down + across);
                let column = (ox * horizontal.stride + position).wrapping_sub(horizontal.padding);
                let there = (ox < horizontal.output) & (column < horizontal.image);
                let top = (row * vertical.stride).wrapping_sub(vertical.padding);
                let along_y = weights + vertical.case(row) * size;
                let along_x = weights + down + horizontal.case(ox.min(horizontal.output - 1)) * width + position;
                let mut at = (plane as usize * vertical.image as usize)
                    .wrapping_add_signed(top.cast_signed() as isize)
                    .wrapping_mul(horizontal.image as usize)
                    .wrapping_add(column as usize);
                let mut sum = 0.0;
                let mut begin = 0;
                while begin < size {
                    let mut rows = [0.0; AHEAD as usize];
                    unrolled!(R in [0 1 2 3 4 5 6 7] {
                        let row = begin + R as u32;
                        let inside = there & (row < size) & (top.wrapping_add(row) < vertical.image);
                        // SAFETY: loaded only where row and column are in the image.
                        rows[R] = unsafe { get_if(x, inside, at) };
                        at = at.wrapping_add(horizontal.image as usize);
                    });
                    unrolled!(R in [0 1 2 3 4 5 6 7] {
                        let row = begin + R as u32;
                        // SAFETY: the vector has as many weights.
                        let weight = unsafe { shared.load_if(row < size, along_y + row, 0.0) };
                        sum = float::fma(weight, rows[R], sum);
                    });
                    begin += AHEAD;
                }
                // SAFETY: the vector is there; each column is one thread's.
                unsafe { sums.store(i, sum * shared.load(along_x)) };
                i += APART_BLOCK;
            }
            thread::sync_threads();
            let mut window = thread;
            while window < lines * apart.windows {
                let (plane, row, ox, _) = find(window);
                let mut sum = 0.0;
                for position in 0..width {
                    // SAFETY: written before the barrier.
                    sum += unsafe { sums.load(window * width + position) };
                }
                let map = plane as usize * geometry.kernels as usize + kernel as usize;
                let at = (map * vertical.output as usize + row as usize) * horizontal.output as usize + ox as usize;
                // SAFETY: stored only where it is in the output; one thread has it.
                unsafe { y.store_if(ox < horizontal.output, at, T::from_f32(sum)) };
                window += APART_BLOCK;
            }
            thread::sync_threads();
        }
        turn += thread::grid_dim_x();
    }
}
