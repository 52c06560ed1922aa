//! Parametric rectified linear unit: `y = x` where `x > 0`, else `alpha * x` (He et al., ICCV 2015, arXiv 1502.01852).
//!
//! Backward: `dx = dy` where `x > 0`, else `alpha * dy`; `dalpha = sum of x * dy where not x > 0` per channel.
//!
//! `x` is `[outer, channels, inner]`; one slope for all is one channel. Bound by memory: forward moves two
//! elements for each, backward three. Slopes and their sums are `f32` whatever the elements are.
//!
//! - [`prelu_forward_vectors`]: a thread takes [`VECTORS`] vectors of four elements, a block's width apart, all loaded before
//!   the first is used. Planes of a multiple of four elements have one slope for a vector, channels that are neighbours and
//!   a multiple of four have four.
//! - [`prelu_forward`], where neither holds: one thread for four elements, whatever their channels.
//! - Backward, stage 1, gives `dx` and partial sums of `dalpha` in one pass, laid out `[outer', channels, parts]`:
//!   - [`prelu_backward_planes`], for large `inner`: a block takes [`PART`] elements of one `(outer, channel)` plane and sums
//!     them (`outer' = outer`).
//!   - [`prelu_backward_columns`], for small `inner`: threads beside each other take neighbouring columns of the matrix
//!     `[outer, channels * inner]`, four each where they are a multiple of four, of 16 bits eight, and blocks take rows in turns
//!     (`outer'` = blocks, `parts = inner`).
//! - Stage 2, [`prelu_backward_sum`]: a block sums one channel's partial sums.
//! - Backward in one launch, [`prelu_backward_channels`], where a channel has few elements.
//!
//! All sums are in a fixed order. NaN is not positive, so that it comes out of every formula as NaN.
//!
//! # Safety
//! Buffers hold `outer * channels * inner` elements (`alpha`, `dalpha`: `channels`; partial sums as laid out above) and begin at
//! multiples of 16 bytes; no size is zero but `outer`; the grid is as each kernel says.

mod channels;
mod columns;

pub use channels::*;
pub use columns::*;
use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE};
use crate::elementwise::{for_each4, get, get4, put, put4};
use crate::reduce::block_sum;
use crate::window::Divider;

/// Elements of a plane that one block takes.
pub const PART: u32 = BLOCK * 16;
/// Vectors of a thread.
pub const VECTORS: u32 = 4;

/// Where the slopes of a vector of four elements are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slopes {
    channels: u32,
    /// Vectors of a plane, or, with the channels last, of all channels.
    vectors: u32,
    by_vectors: Divider,
    by_channels: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Slopes {}

impl Slopes {
    /// One slope for all.
    pub fn shared() -> Self {
        Self::new(1, i32::MAX.cast_unsigned())
    }

    /// A slope for each plane of `inner` elements; none where a vector may be of two, or there are too many.
    pub fn of_planes(channels: u32, inner: u64) -> Option<Self> {
        let vectors = u32::try_from(inner / 4).ok().filter(|_| inner.is_multiple_of(4))?;
        Some(Self::new(channels, vectors))
    }

    /// A slope for each of neighbouring elements; none where a vector may be of two pixels.
    pub fn of_pixels(channels: u32) -> Option<Self> {
        channels.is_multiple_of(4).then(|| Self::new(channels, channels / 4))
    }

    fn new(channels: u32, vectors: u32) -> Self {
        Self { channels, vectors, by_vectors: Divider::new(vectors), by_channels: Divider::new(channels) }
    }
}

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

/// As [`prelu_forward`], by vectors that have one slope each, or four (`SLOPES`) neighbouring ones; the grid's blocks take
/// [`VECTORS`] times [`TILE`] elements each.
///
/// # Safety
/// The module's; `n` is below 2³³, and a multiple of four but with one slope for all.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16], SLOPES = [1, 4]))]
pub unsafe fn prelu_forward_vectors<T: Storage, const SLOPES: u32>(
    x: Option<Global<T>>,
    alpha: Global<f32>,
    y: GlobalMut<T>,
    slopes: Slopes,
    n: u64,
) {
    let x = x.unwrap_or(y.as_global());
    let vectors = (n / 4) as u32;
    let first = thread::block_idx_x() * (BLOCK * VECTORS) + thread::thread_idx_x();
    // SAFETY: the vector's elements are among the `n`, and begin at a multiple of 4; a remainder is below its divisor, so that
    // `alpha` holds the slopes. What is left is fewer than 4 elements, with one slope.
    unsafe {
        let mut loaded = [Vec4::splat(T::from_f32(0.0)); VECTORS as usize];
        unrolled!(K in [0 1 2 3] {
            let vector = first + K as u32 * BLOCK;
            loaded[K] = x.load4_if(vector < vectors, vector as usize * 4, loaded[K]);
        });
        unrolled!(K in [0 1 2 3] {
            let vector = first + K as u32 * BLOCK;
            if vector < vectors {
                let plane = slopes.by_vectors.divide(vector);
                let alpha = if SLOPES == 1 {
                    Vec4::splat(alpha.load((plane - slopes.by_channels.divide(plane) * slopes.channels) as usize))
                } else {
                    alpha.load4((vector - plane * slopes.vectors) as usize * 4)
                };
                let result = loaded[K].map(T::to_f32).zip_with(alpha, |x, alpha| slope(x, alpha) * x);
                y.store4(vector as usize * 4, result.map(T::from_f32));
            }
        });
        let i = vectors as u64 * 4 + thread::thread_idx_x() as u64;
        if thread::block_idx_x() == 0 && i < n {
            let x = get(x, i as usize);
            put(y, i as usize, slope(x, alpha.load(0)) * x, 0.0);
        }
    }
}

/// Backward, stage 1, for large planes; one block for each of `parts` parts of each plane, `part` the fastest.
/// `vector` is 1 where `inner` is a multiple of 4.
///
/// # Safety
/// The module's; there are fewer than 2³¹ blocks.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn prelu_backward_planes<T: Storage>(
    x: Global<T>,
    alpha: Global<f32>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: Option<GlobalMut<f32>>,
    channels: u32,
    by_channels: Divider,
    inner: u64,
    parts: u32,
    by_parts: Divider,
    vector: u32,
) {
    // SAFETY: the block's plane and part exist by the grid, so that the elements up to `end` do; with `vector`, planes and so
    // `begin` and the steps of 4 are aligned.
    unsafe {
        let plane = by_parts.divide(thread::block_idx_x());
        let number = thread::block_idx_x() - plane * parts;
        let slope_of_plane = alpha.load((plane - by_channels.divide(plane) * channels) as usize);
        let begin = number as u64 * PART as u64;
        let end = if inner - begin < PART as u64 { inner } else { begin + PART as u64 };
        let base = plane as u64 * inner;
        let mut sum = 0.0;
        if vector == 1 {
            let first = base + begin + thread::thread_idx_x() as u64 * 4;
            let mut loaded = [[Vec4::splat(T::from_f32(0.0)); 2]; (PART / TILE) as usize];
            unrolled!(K in [0 1 2 3] {
                let i = first + K as u64 * TILE as u64;
                let there = i < base + end;
                loaded[K] = [x, dy].map(|from| from.load4_if(there, i as usize, loaded[K][0]));
            });
            unrolled!(K in [0 1 2 3] {
                let i = first + K as u64 * TILE as u64;
                let [x, dy] = loaded[K].map(|four| four.map(T::to_f32));
                // Zeros, where there is nothing, add nothing.
                let terms = x.zip_with(dy, part);
                sum += (terms.x + terms.y) + (terms.z + terms.w);
                if let Some(dx) = dx
                    && i < base + end
                {
                    put4(dx, i as usize, x.zip_with(dy, |x, dy| slope(x, slope_of_plane) * dy), dx_beta);
                }
            });
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
    let (channel, threads) = (thread::block_idx_x() as u64, BLOCK as u64);
    let mut sum = 0.0;
    let mut i = thread::thread_idx_x() as u64;
    // SAFETY: `parts` is not zero, and the indices are those of the layout; one thread a block writes its channel.
    unsafe {
        if parts == 1 {
            // Four on their way at once.
            while i < outer {
                let mut loaded = [0.0; 4];
                unrolled!(K in [0 1 2 3] {
                    let o = i + K as u64 * threads;
                    loaded[K] = sums.load_if(o < outer, (o * channels as u64 + channel) as usize, 0.0);
                });
                unrolled!(K in [0 1 2 3] { sum += loaded[K]; });
                i += 4 * threads;
            }
        } else {
            while i < outer * parts {
                let (o, p) = divide(i, parts);
                sum += sums.load(((o * channels as u64 + channel) * parts + p) as usize);
                i += threads;
            }
        }
        let sum = block_sum(sum);
        if thread::thread_idx_x() == 0 {
            put(dalpha, channel as usize, sum, beta);
        }
    }
}
