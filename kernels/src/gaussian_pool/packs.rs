//! Gaussian pooling of 2×2, 3×3, 5×5 and 7×7 windows whose weights are the same everywhere and which all channels share: by *packs* of 2 to 16
//! bytes of neighbouring channels, which are last; row-major images have one channel. A thread has the pack of an output, or of a few one
//! below the other; backward, of windows two apart, those of a cell of 2×2 inputs, or of a few such.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, and `dx` likewise over the windows that cover an input. Of windows
//! one apart that is the pooling of `dy` by the window turned round.
//!
//! Launch: blocks of [`PACKS_BLOCK`] threads in one dimension, as [`Elements`] lays them; neighbouring threads have neighbouring packs of a
//! row of pixels. The parameters' loads and after them all of a thread's are on their way before the block's first threads compute the weights
//! along each axis. Outputs one below the other share the rows that their windows have in common, which are summed along x once.
//!
//! Of little bound by what a launch and the weights take, and by the time that memory takes to answer; of more by memory (`dx` of 5×5 two apart on
//! 64×64×112×112 takes 0.91 of the copy rate on an H200 in f32, 0.85 in bf16) and, suspected, by instructions and the L1 cache, which gives a pack to each
//! window that it is in: of much, and of 7×7 sooner, forward passes and such of windows one apart go down [strips](super::falling_packs).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::weights::{Shape, whole};
use crate::elements::{Elements, Place};
use crate::packs::{PACKS_BLOCK, PackWeights, VECTOR, add_each, load, put};
use crate::vectors::{LANES, Lanes};
use crate::window::{Nhwc, Window};

/// Positions along each axis of a window, of which there are kernels.
pub const SIZES: [u32; 4] = [2, 3, 5, 7];
/// The most of them.
const MOST: usize = 7;
/// Outputs of a thread that has several, of windows of 2×2 and 3×3 one apart, and of others or where there are fewer.
pub const OUTPUTS: u32 = 8;
/// See [`OUTPUTS`].
pub const FEWER_OUTPUTS: u32 = 4;
/// Outputs of a thread that has several, of windows two apart, and cells.
pub const OUTPUTS_TWO_APART: u32 = 4;
/// See [`OUTPUTS_TWO_APART`].
pub const CELLS: u32 = 4;
/// Rows that the windows of a thread's outputs have together, at most.
const MOST_LINES: usize = MOST + OUTPUTS as usize - 1;
/// Windows two apart over an input along an axis, at most; and rows of them over a thread's cells.
const MOST_OVER: usize = over(MOST);
const MOST_LINES_OVER: usize = MOST_OVER + CELLS as usize - 1;

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers for so many packs of so many bytes.
const fn blocks(bytes: usize, packs: usize) -> u32 {
    blocks_of(bytes.div_ceil(4) * packs)
}

/// The same of so many words.
pub(super) const fn blocks_of(words: usize) -> u32 {
    match words {
        0..=20 => 8,
        21..=40 => 6,
        _ => 4,
    }
}

/// Those of the forward kernel.
const fn forward_blocks(bytes: usize, size: usize, stride: usize, rows: usize) -> u32 {
    blocks(bytes, size * lines(size, stride, rows))
}

/// Those of the backward kernel, which has sums of the same number of rows and columns beside what it loads.
const fn backward_blocks(bytes: usize, size: usize, rows: usize) -> u32 {
    blocks(bytes, over(size) * (over(size) - 1 + 3 * rows))
}

/// Rows that the windows of so many outputs have together.
pub(super) const fn lines(size: usize, stride: usize, rows: usize) -> usize {
    size + (rows - 1) * stride
}

/// Windows two apart over an input along an axis, at most, of so many positions.
const fn over(size: usize) -> usize {
    size.div_ceil(2)
}

/// The weights along y and along x, and zeros after them.
pub(super) type Weights = [[f32; VECTOR as usize]; 2];

/// This thread's part of what [`weights`] needs of the parameters: loaded, but not waited for.
///
/// # Safety
/// `parameters` hold a Gaussian with so many `variances`.
#[device_inline]
pub(super) unsafe fn own_shape(parameters: [Global<f32>; 2], variances: u32) -> Shape {
    let number = thread::thread_idx_x();
    // SAFETY: the caller's.
    unsafe { Shape::load_if(number < 2, parameters, 0, number == 0, variances) }
}

/// The weights of windows of `SIZE` positions each way, turned round or not, of each thread's [`own_shape`]: a thread those of an axis. All threads
/// of the block come here, once.
#[device_inline]
pub(super) fn weights<const SIZE: usize>(shape: Shape, turned: bool) -> Weights {
    let shared = shared_array![f32; 2 * VECTOR as usize].handle();
    let number = thread::thread_idx_x();
    if number < 2 {
        let weights: [f32; SIZE] = whole(shape);
        unrolled!(I in [0 1 2 3 4 5 6] { if I < SIZE {
            let position = if turned { SIZE - 1 - I } else { I };
            // SAFETY: the vector is this thread's until the barrier.
            unsafe { shared.store(number * VECTOR + position as u32, weights[I]) };
        } });
    }
    thread::sync_threads();
    [0, VECTOR].map(|first| {
        // SAFETY: written before the barrier, as far as windows have positions.
        let [start, end] = unsafe { [shared.load4(first), shared.load4(first + 4)] };
        [start.x, start.y, start.z, start.w, end.x, end.y, end.z, 0.0]
    })
}

/// The same for every channel of a pack.
#[device_inline]
pub(super) fn alike(weights: Weights) -> PackWeights {
    weights.map(|along| along.map(|weight| [weight; LANES]))
}

/// `y` = `x` pooled by one Gaussian, plus `beta * y`. Backward, of windows one apart, it is the pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose channels are packs of `BYTES` bytes and whose windows are `SIZE` by `SIZE`, and
/// one apart along y where `ROWS` is not 1; `mean` holds two and `var` `variances` elements; `elements` are the window's outputs, `ROWS` a thread,
/// with the launch's grid.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = forward_blocks(BYTES, SIZE, 1, ROWS),
    instances(
        (T, BYTES, SIZE, ROWS) = [
            (f32, 4, 2, 1), (f32, 4, 2, 4), (f32, 4, 2, 8), (f32, 8, 2, 1), (f32, 8, 2, 4), (f32, 8, 2, 8),
            (f16, 2, 2, 1), (f16, 2, 2, 4), (f16, 2, 2, 8), (f16, 4, 2, 1), (f16, 4, 2, 4), (f16, 4, 2, 8), (f16, 8, 2, 1), (f16, 8, 2, 4), (f16, 8, 2, 8),
            (bf16, 2, 2, 1), (bf16, 2, 2, 4), (bf16, 2, 2, 8), (bf16, 4, 2, 1), (bf16, 4, 2, 4), (bf16, 4, 2, 8), (bf16, 8, 2, 1), (bf16, 8, 2, 4), (bf16, 8, 2, 8),
            (f32, 4, 3, 1), (f32, 4, 3, 4), (f32, 4, 3, 8), (f32, 8, 3, 1), (f32, 8, 3, 4), (f32, 8, 3, 8),
            (f16, 2, 3, 1), (f16, 2, 3, 4), (f16, 2, 3, 8), (f16, 4, 3, 1), (f16, 4, 3, 4), (f16, 4, 3, 8), (f16, 8, 3, 1), (f16, 8, 3, 4), (f16, 8, 3, 8),
            (bf16, 2, 3, 1), (bf16, 2, 3, 4), (bf16, 2, 3, 8), (bf16, 4, 3, 1), (bf16, 4, 3, 4), (bf16, 4, 3, 8), (bf16, 8, 3, 1), (bf16, 8, 3, 4), (bf16, 8, 3, 8),
            (f32, 4, 5, 1), (f32, 4, 5, 4), (f32, 8, 5, 1), (f32, 8, 5, 4),
            (f16, 2, 5, 1), (f16, 2, 5, 4), (f16, 4, 5, 1), (f16, 4, 5, 4), (f16, 8, 5, 1), (f16, 8, 5, 4),
            (bf16, 2, 5, 1), (bf16, 2, 5, 4), (bf16, 4, 5, 1), (bf16, 4, 5, 4), (bf16, 8, 5, 1), (bf16, 8, 5, 4),
            (f32, 4, 7, 1), (f32, 4, 7, 4),
            (f16, 2, 7, 1), (f16, 2, 7, 4), (f16, 4, 7, 1), (f16, 4, 7, 4),
            (bf16, 2, 7, 1), (bf16, 2, 7, 4), (bf16, 4, 7, 1), (bf16, 4, 7, 4)
        ]
    )
)]
pub unsafe fn gaussian_pool_forward_packs<T: Lanes, const BYTES: usize, const SIZE: usize, const ROWS: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    beta: f32,
    turned: u32,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
) {
    // SAFETY: the caller's.
    unsafe {
        let shape = own_shape([mean, var], variances);
        let place = elements.place(PACKS_BLOCK, window.channels);
        pool::<T, BYTES, SIZE, 1, ROWS>(x, (y, beta), &window, place, || alike(weights::<SIZE>(shape, turned != 0)));
    }
}

/// `y` = `x` pooled by one Gaussian, of windows two apart along y: four outputs a thread.
///
/// # Safety
/// As [`gaussian_pool_forward_packs`]'s.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = forward_blocks(BYTES, SIZE, 2, OUTPUTS_TWO_APART as usize),
    instances(
        (T, BYTES, SIZE) = [
            (f16, 2, 3), (bf16, 2, 3), (f32, 4, 3), (f16, 4, 3), (bf16, 4, 3), (f32, 8, 3), (f16, 8, 3), (bf16, 8, 3),
            (f16, 2, 5), (bf16, 2, 5), (f32, 4, 5), (f16, 4, 5), (bf16, 4, 5), (f32, 8, 5), (f16, 8, 5), (bf16, 8, 5),
            (f16, 2, 7), (bf16, 2, 7), (f32, 4, 7), (f16, 4, 7), (bf16, 4, 7)
        ]
    )
)]
pub unsafe fn gaussian_pool_forward_packs_two_apart<T: Lanes, const BYTES: usize, const SIZE: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
) {
    const ROWS: usize = OUTPUTS_TWO_APART as usize;
    // SAFETY: the caller's.
    unsafe {
        let shape = own_shape([mean, var], variances);
        let place = elements.place(PACKS_BLOCK, window.channels);
        pool::<T, BYTES, SIZE, 2, ROWS>(x, (y, 0.0), &window, place, || alike(weights::<SIZE>(shape, false)));
    }
}

/// The pass of [`gaussian_pool_forward_packs`], of windows `STRIDE` apart along y where `ROWS` is not 1, for the outputs from this thread's `place` on, if it
/// has one. `weights` are asked for once, by all threads of the block, after their loads are on their way.
///
/// # Safety
/// The kernels'.
#[device_inline]
pub(super) unsafe fn pool<T: Lanes, const BYTES: usize, const SIZE: usize, const STRIDE: usize, const ROWS: usize>(
    x: Global<T>,
    (y, beta): (GlobalMut<T>, f32),
    window: &Window<Nhwc>,
    place: Option<Place>,
    weights: impl FnOnce() -> PackWeights,
) {
    let (pixel, line) = (window.channels as usize, window.input_line());
    let there = place.is_some();
    let Place { plane, row, column, channel } = place.unwrap_or_default();
    let [top, left] =
        [(0, row), (1, column)].map(|(axis, output)| (output * window.stride[axis]).wrapping_sub(window.padding[axis]));
    // One comparison says of row and column whether a pack is there: the row is below its column's height.
    let mut height = [0; MOST];
    unrolled!(J in [0 1 2 3 4 5 6] {
        if J < SIZE && there & (left.wrapping_add(J as u32) < window.input[1]) { height[J] = window.input[0]; }
    });
    // Before the first pack where padding is, from where it is counted on.
    let at = (top as i32 as isize as usize)
        .wrapping_mul(line)
        .wrapping_add((left as i32 as isize as usize).wrapping_mul(pixel))
        .wrapping_add(window.input_plane(plane) + channel as usize);
    let mut packs = [[[0; 4]; MOST]; MOST_LINES];
    unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] {
        unrolled!(J in [0 1 2 3 4 5 6] { if I < lines(SIZE, STRIDE, ROWS) && J < SIZE {
            let at = at.wrapping_add(I * line).wrapping_add(J * pixel);
            // SAFETY: inside of the image where it is loaded.
            packs[I][J] = unsafe { load::<T, BYTES>(x, top.wrapping_add(I as u32) < height[J], at) };
        } });
    });
    let [by_y, by_x] = weights();
    let mut sums = [[0.0; LANES]; OUTPUTS as usize];
    unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] { if I < lines(SIZE, STRIDE, ROWS) {
        let mut along = [0.0; LANES];
        unrolled!(J in [0 1 2 3 4 5 6] {
            if J < SIZE { along = add_each::<T, BYTES>(along, by_x[J], T::numbers(packs[I][J])); }
        });
        unrolled!(R in [0 1 2 3 4 5 6 7] {
            if R < ROWS && I >= R * STRIDE && I < R * STRIDE + SIZE {
                sums[R] = add_each::<T, BYTES>(sums[R], by_y[I.wrapping_sub(R * STRIDE)], along);
            }
        });
    } });
    if !there {
        return;
    }
    let at = window.output_plane(plane) + column as usize * pixel + channel as usize;
    unrolled!(R in [0 1 2 3 4 5 6 7] { if R < ROWS && row + (R as u32) < window.output[0] {
        let at = at + (row + R as u32) as usize * window.output_line();
        // SAFETY: the output exists, and is this thread's.
        unsafe { put::<T, BYTES>(y, at, sums[R], beta) };
    } });
}

/// `dx = sum over windows that cover the input of weight * dy + beta * dx`, of windows two apart, by cells: those of windows `i` are the first two
/// rows or columns of theirs, in the padded image, which window `i - k` has with its positions `2 k` and `2 k + 1`.
///
/// # Safety
/// As [`gaussian_pool_forward_packs`]'s, of `dy` and `dx`; windows are two apart both ways; `elements` are the [cells] of the window, `ROWS` a thread.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = backward_blocks(BYTES, SIZE, ROWS),
    instances(
        (T, BYTES, SIZE) = [
            (f16, 2, 3), (bf16, 2, 3), (f32, 4, 3), (f16, 4, 3), (bf16, 4, 3), (f32, 16, 3), (f16, 16, 3), (bf16, 16, 3),
            (f16, 2, 5), (bf16, 2, 5), (f32, 4, 5), (f16, 4, 5), (bf16, 4, 5), (f32, 16, 5), (f16, 16, 5), (bf16, 16, 5),
            (f16, 2, 7), (bf16, 2, 7), (f32, 4, 7), (f16, 4, 7), (bf16, 4, 7)
        ],
        ROWS = [1, 4]
    )
)]
pub unsafe fn gaussian_pool_backward_packs<T: Lanes, const BYTES: usize, const SIZE: usize, const ROWS: usize>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
) {
    // SAFETY: the caller's.
    unsafe {
        let shape = own_shape([mean, var], variances);
        let place = elements.place(PACKS_BLOCK, window.channels);
        spread::<T, BYTES, SIZE, ROWS>(dy, (dx, beta), &window, place, || alike(weights::<SIZE>(shape, false)));
    }
}

/// The pass of [`gaussian_pool_backward_packs`], for the cells from this thread's `place` on, if it has one. `weights` as of [`pool`].
///
/// # Safety
/// The kernels'.
#[device_inline]
pub(super) unsafe fn spread<T: Lanes, const BYTES: usize, const SIZE: usize, const ROWS: usize>(
    dy: Global<T>,
    (dx, beta): (GlobalMut<T>, f32),
    window: &Window<Nhwc>,
    place: Option<Place>,
    weights: impl FnOnce() -> PackWeights,
) {
    let (pixel, line) = (window.channels as usize, window.output_line());
    let there = place.is_some();
    let Place { plane, row, column, channel } = place.unwrap_or_default();
    // The last windows over the first cell, and of those over it the first row.
    let [down, right] = [(0, row), (1, column)].map(|(axis, cell)| cell + window.padding[axis] / 2);
    let first = (down + 1).wrapping_sub(over(SIZE) as u32);
    let mut height = [0; MOST_OVER];
    unrolled!(J in [0 1 2 3] {
        if there & (right.wrapping_sub(J as u32) < window.output[1]) { height[J] = window.output[0]; }
    });
    let at = (first as i32 as isize as usize)
        .wrapping_mul(line)
        .wrapping_add(window.output_plane(plane) + right as usize * pixel + channel as usize);
    let mut packs = [[[0; 4]; MOST_OVER]; MOST_LINES_OVER];
    unrolled!(I in [0 1 2 3 4 5 6] {
        unrolled!(J in [0 1 2 3] { if I < over(SIZE) + ROWS - 1 && 2 * J < SIZE {
            let at = at.wrapping_add(I * line).wrapping_sub(J * pixel);
            // SAFETY: an output where it is loaded.
            packs[I][J] = unsafe { load::<T, BYTES>(dy, first.wrapping_add(I as u32) < height[J], at) };
        } });
    });
    let [by_y, by_x] = weights();
    let [top, left] = [(0, down), (1, right)].map(|(axis, last)| (last * 2).wrapping_sub(window.padding[axis]));
    // Of each cell, of its rows and columns.
    let mut sums = [[[[0.0; LANES]; 2]; 2]; CELLS as usize];
    unrolled!(I in [0 1 2 3 4 5 6] { if I < over(SIZE) + ROWS - 1 {
        let mut along = [[0.0; LANES]; 2];
        unrolled!(J in [0 1 2 3] { if 2 * J < SIZE {
            let numbers = T::numbers(packs[I][J]);
            unrolled!(C in [0 1] { if 2 * J + C < SIZE { along[C] = add_each::<T, BYTES>(along[C], by_x[2 * J + C], numbers); } });
        } });
        unrolled!(K in [0 1 2 3] { if K < ROWS && I >= K && I < over(SIZE) + K {
            // Windows before the cell's last.
            let before = (over(SIZE) - 1 + K).wrapping_sub(I) % MOST_OVER;
            unrolled!(R in [0 1] { if 2 * before + R < SIZE {
                unrolled!(C in [0 1] {
                    sums[K][R][C] = add_each::<T, BYTES>(sums[K][R][C], by_y[2 * before + R], along[C]);
                });
            } });
        } });
    } });
    if !there {
        return;
    }
    let plane = window.input_plane(plane) + channel as usize;
    unrolled!(K in [0 1 2 3] { if K < ROWS { unrolled!(R in [0 1] { unrolled!(C in [0 1] {
        let (row, column) = (top.wrapping_add(2 * K as u32 + R as u32), left.wrapping_add(C as u32));
        if (row < window.input[0]) & (column < window.input[1]) {
            let at = plane + row as usize * window.input_line() + column as usize * pixel;
            // SAFETY: the input exists, and is this thread's.
            unsafe { put::<T, BYTES>(dx, at, sums[K][R][C], beta) };
        }
    }); }); } });
}

/// Rows and columns of cells over the inputs of a window two apart.
pub fn cells(window: &Window<Nhwc>) -> [u32; 2] {
    [0, 1].map(|axis| (window.input[axis] - 1 + window.padding[axis]) / 2 + 1 - window.padding[axis] / 2)
}
