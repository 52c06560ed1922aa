//! Parametric rectified linear unit: `y = x` where `x > 0`, else `alpha * x` (He et al., ICCV 2015, arXiv 1502.01852).
//!
//! Backward: `dx = dy` where `x > 0`, else `alpha * dy`; `dalpha = sum of x * dy where not x > 0` per channel.
//!
//! `x` is `[outer, channels, inner]`; one slope for all is one channel. Bound by memory: forward moves two
//! elements for each, backward three. Slopes and their sums are `f32` whatever the elements are.
//!
//! - [`prelu_forward`]: one thread for four elements, whatever their channels: the division that finds the channel of the first
//!   costs less than the 32 bytes that they move.
//! - Backward, stage 1, gives `dx` and partial sums of `dalpha` in one pass, laid out `[outer', channels, parts]`:
//!   - [`prelu_backward_planes`], for large `inner`: a block takes [`PART`] elements of one `(outer, channel)` plane and sums
//!     them (`outer' = outer`).
//!   - [`prelu_backward_columns`], for small `inner`: a thread takes one column of the matrix `[outer, channels * inner]`
//!     and [`ROWS`] of its rows (`outer'` = chunks of rows, `parts = inner`).
//! - Stage 2, [`prelu_backward_sum`]: a block sums one channel's partial sums.
//!
//! All sums are in a fixed order. NaN is not positive, so that it comes out of every formula as NaN.
//!
//! # Safety
//! Buffers hold `outer * channels * inner` elements (`alpha`, `dalpha`: `channels`; partial sums as laid out above) and begin at
//! multiples of 16 bytes; no size is zero but `outer`; the grid is as each kernel says.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE};
use crate::elementwise::{for_each4, get, get4, put, put4};
use crate::reduce::block_sum;

/// Elements of a plane that one block takes.
pub const PART: u32 = BLOCK * 16;
/// Rows that one thread takes.
pub const ROWS: u32 = 64;

#[inline(always)]
fn slope(x: f32, alpha: f32) -> f32 {
    if x > 0.0 { 1.0 } else { alpha }
}

/// What an element adds to its channel's `dalpha`.
#[inline(always)]
fn part(x: f32, dy: f32) -> f32 {
    if x > 0.0 { 0.0 } else { x * dy }
}

/// `a / b` and `a % b` without a panic for `b = 0`.
///
/// # Safety
/// `b` is not zero.
#[inline(always)]
unsafe fn divide(a: u64, b: u64) -> (u64, u64) {
    // SAFETY: the caller's.
    unsafe { core::hint::assert_unchecked(b != 0) };
    let quotient = a / b;
    (quotient, a - quotient * b)
}

/// `y = prelu(x)`, or without `x` of what `y` holds; the grid's blocks take [`TILE`] of the `n` elements each.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn prelu_forward<T: Storage>(
    x: Option<Global<T>>,
    alpha: Global<f32>,
    y: GlobalMut<T>,
    channels: u32,
    inner: u64,
    n: u64,
) {
    let x = x.unwrap_or(y.as_global());
    // The channel of an element, and its place in the plane.
    let locate = |i: usize| {
        // SAFETY: neither is zero.
        let (plane, position) = unsafe { divide(i as u64, inner) };
        // SAFETY: as above.
        (unsafe { divide(plane, channels as u64) }.1 as u32, position)
    };
    // SAFETY: `alpha` holds `channels` elements, and a remainder is below its divisor.
    let apply = |x: f32, channel: u32| slope(x, unsafe { alpha.load(channel as usize) }) * x;
    for_each4(
        n,
        |i| {
            let (mut c, mut position) = locate(i);
            // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
            let result = unsafe { get4(x, i) }.map(|x| {
                let y = apply(x, c);
                position += 1;
                if position == inner {
                    position = 0;
                    c = if c + 1 == channels { 0 } else { c + 1 };
                }
                y
            });
            // SAFETY: as above.
            unsafe { put4(y, i, result, 0.0) };
        },
        // SAFETY: `i < n`.
        |i| unsafe { put(y, i, apply(get(x, i), locate(i).0), 0.0) },
    );
}

/// Backward, stage 1, for large planes; one block for each of `parts` parts of each plane, `part` the fastest.
/// `vector` is 1 where `inner` is a multiple of 4.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn prelu_backward_planes<T: Storage>(
    x: Global<T>,
    alpha: Global<f32>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: Option<GlobalMut<f32>>,
    channels: u32,
    inner: u64,
    parts: u32,
    vector: u32,
) {
    // SAFETY: `parts` and `channels` are not zero; the block's plane and part exist by the grid, so that the elements up to `end` do;
    // with `vector`, planes and so `begin` and the steps of 4 are aligned.
    unsafe {
        let (plane, number) = divide(thread::block_idx_x() as u64, parts as u64);
        let slope_of_plane = alpha.load(divide(plane, channels as u64).1 as usize);
        let begin = number * PART as u64;
        let end = if inner - begin < PART as u64 { inner } else { begin + PART as u64 };
        let base = plane * inner;
        let mut sum = 0.0;
        if vector == 1 {
            let mut i = base + begin + thread::thread_idx_x() as u64 * 4;
            while i < base + end {
                let (x, dy) = (get4(x, i as usize), get4(dy, i as usize));
                let terms = x.zip_with(dy, part);
                sum += (terms.x + terms.y) + (terms.z + terms.w);
                if let Some(dx) = dx {
                    put4(dx, i as usize, x.zip_with(dy, |x, dy| slope(x, slope_of_plane) * dy), dx_beta);
                }
                i += BLOCK as u64 * 4;
            }
        } else {
            let mut i = base + begin + thread::thread_idx_x() as u64;
            while i < base + end {
                let (x, dy) = (get(x, i as usize), get(dy, i as usize));
                sum += part(x, dy);
                if let Some(dx) = dx {
                    put(dx, i as usize, slope(x, slope_of_plane) * dy, dx_beta);
                }
                i += BLOCK as u64;
            }
        }
        let sum = block_sum(sum);
        if let Some(sums) = sums {
            sums.store_if(thread::thread_idx_x() == 0, thread::block_idx_x() as usize, sum);
        }
    }
}

/// Backward, stage 1, for small planes; the grid is `[outer / ROWS, columns / BLOCK]`, rounded up, with
/// `columns = channels * inner`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn prelu_backward_columns<T: Storage>(
    x: Global<T>,
    alpha: Global<f32>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: Option<GlobalMut<f32>>,
    outer: u64,
    channels: u32,
    inner: u32,
) {
    let columns = channels * inner;
    let column = thread::block_idx_y() * BLOCK + thread::thread_idx_x();
    if column >= columns {
        return;
    }
    // SAFETY: `inner` is not zero; the column exists, and the rows up to `end` do.
    unsafe {
        let slope_of_column = alpha.load(divide(column as u64, inner as u64).0 as usize);
        let begin = thread::block_idx_x() as u64 * ROWS as u64;
        let end = if outer - begin < ROWS as u64 { outer } else { begin + ROWS as u64 };
        let mut i = begin * columns as u64 + column as u64;
        let mut sum = 0.0;
        while i < end * columns as u64 {
            let (x, dy) = (get(x, i as usize), get(dy, i as usize));
            sum += part(x, dy);
            if let Some(dx) = dx {
                put(dx, i as usize, slope(x, slope_of_column) * dy, dx_beta);
            }
            i += columns as u64;
        }
        if let Some(sums) = sums {
            sums.store((thread::block_idx_x() as u64 * columns as u64 + column as u64) as usize, sum);
        }
    }
}

/// Backward, stage 2: one block a channel sums `[outer, channels, parts]` over the first and the last.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn prelu_backward_sum(
    sums: Global<f32>,
    dalpha: GlobalMut<f32>,
    beta: f32,
    outer: u64,
    channels: u32,
    parts: u64,
) {
    let channel = thread::block_idx_x() as u64;
    let mut sum = 0.0;
    let mut i = thread::thread_idx_x() as u64;
    // SAFETY: `parts` is not zero, and the indices are those of the layout; one thread a block writes its channel.
    unsafe {
        while i < outer * parts {
            let (o, p) = divide(i, parts);
            sum += sums.load(((o * channels as u64 + channel) * parts + p) as usize);
            i += BLOCK as u64;
        }
        let sum = block_sum(sum);
        if thread::thread_idx_x() == 0 {
            put(dalpha, channel as usize, sum, beta);
        }
    }
}
