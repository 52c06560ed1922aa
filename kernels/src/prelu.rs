//! Parametric rectified linear unit: `y = x` where `x > 0`, else `alpha * x` (He et al., ICCV 2015, arXiv 1502.01852).
//!
//! Backward: `dx = dy` where `x > 0`, else `alpha * dy`; `dalpha = sum of x * dy where not x > 0` per channel.
//!
//! `x` is `[outer, channels, inner]`; one slope for all is one channel. Bound by memory: forward moves two
//! elements for each, backward three. Slopes and what is stored of their gradients are of the elements' type or `f32`, sums always `f32`.
//!
//! - [`prelu_forward_vectors`]: a thread takes [`VECTORS`] vectors of four elements, a block's width apart, all loaded, and their
//!   slopes, before the first is used; one where tensors are so small that multiprocessors would be left without a block, and of
//!   `f32` where a vector has one slope, for little is worked out there. Planes of a multiple of four elements have one slope for a
//!   vector, other planes of at least three have two, channels that are neighbours and a multiple of four have four; else a vector's
//!   four are looked for one by one.
//! - [`prelu_forward`], for more elements than 32 bits count: one thread for four elements, whatever their channels.
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
/// Vectors of a thread where there are enough for all.
pub const VECTORS: u32 = 4;

/// Where the slopes of a vector of four elements are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slopes {
    channels: u32,
    /// Vectors of a plane, or, with the channels last, of all channels; elements of a plane where vectors are of several.
    unit: u32,
    by_unit: Divider,
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

    /// A slope for each plane of `inner` elements, whatever vectors are of, for tensors of `n` elements; none where these are too
    /// many to count in 31 bits.
    pub fn of_elements(channels: u32, inner: u64, n: u64) -> Option<Self> {
        (n < 1 << 31).then(|| Self::new(channels, inner as u32))
    }

    fn new(channels: u32, unit: u32) -> Self {
        Self { channels, unit, by_unit: Divider::new(unit), by_channels: Divider::new(channels) }
    }

    /// The channel of a plane.
    #[device_inline]
    fn of(self, plane: u32) -> u32 {
        plane - self.by_channels.divide(plane) * self.channels
    }

    /// The channel after another.
    #[device_inline]
    fn after(self, channel: u32) -> u32 {
        if channel + 1 == self.channels { 0 } else { channel + 1 }
    }

    /// The slopes of a vector's elements, if there is such a vector.
    ///
    /// # Safety
    /// [`prelu_forward_vectors`]'s.
    #[device_inline]
    unsafe fn load<A: Storage, const SLOPES: u32>(self, alpha: Global<A>, there: bool, vector: u32) -> Vec4<f32> {
        let none = A::from_f32(0.0);
        // SAFETY: a remainder is below its divisor, so that `alpha` holds the slopes; the caller says that so many are enough.
        unsafe {
            let get = |channel: u32| alpha.load_if(there, channel as usize, none).to_f32();
            if SLOPES == 1 {
                return Vec4::splat(get(self.of(self.by_unit.divide(vector))));
            }
            if SLOPES == 4 {
                let number = vector - self.by_unit.divide(vector) * self.unit;
                return alpha.load4_if(there, number as usize * 4, Vec4::splat(none)).map(A::to_f32);
            }
            let plane = self.by_unit.divide(vector * 4);
            let mut channel = self.of(plane);
            // Elements of the plane from this one on.
            let mut left = self.unit - (vector * 4 - plane * self.unit);
            if SLOPES == 2 {
                let [this, next] = [channel, self.after(channel)].map(get);
                let of = |element: u32| if element < left { this } else { next };
                return Vec4::new(this, of(1), of(2), of(3));
            }
            let mut slopes = [0.0; 4];
            unrolled!(E in [0 1 2 3] {
                slopes[E] = get(channel);
                left -= 1;
                if left == 0 {
                    left = self.unit;
                    channel = self.after(channel);
                }
            });
            Vec4::from(slopes)
        }
    }
}

#[device_inline]
fn slope(x: f32, alpha: f32) -> f32 {
    if x > 0.0 { 1.0 } else { alpha }
}

/// What an element adds to its channel's `dalpha`.
#[device_inline]
fn part(x: f32, dy: f32) -> f32 {
    if x > 0.0 { 0.0 } else { x * dy }
}

/// `a / b` and `a % b` without a panic for `b = 0`.
///
/// # Safety
/// `b` is not zero.
#[device_inline]
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
#[kernel(block = BLOCK, instances((T, A) = [(f32, f32), (f16, f16), (f16, f32), (bf16, bf16), (bf16, f32)]))]
pub unsafe fn prelu_forward<T: Storage, A: Storage>(
    x: Option<Global<T>>,
    alpha: Global<A>,
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
    let apply = |x: f32, channel: u32| slope(x, unsafe { get(alpha, channel as usize) }) * x;
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

/// As [`prelu_forward`], by vectors that have one slope each, two of neighbouring planes, four neighbouring ones, or any (`SLOPES`
/// is 0); the grid's blocks take `each` times [`TILE`] elements each, which is 1 or [`VECTORS`].
///
/// # Safety
/// The module's; `n` is below 2³³, where vectors are of several planes 2³¹. It is a multiple of four with one slope a vector but
/// for one of all, and with four. With two, planes have at least three elements.
#[kernel(
    block = BLOCK,
    instances((T, A) = [(f32, f32), (f16, f16), (f16, f32), (bf16, bf16), (bf16, f32)], SLOPES = [0, 1, 2, 4])
)]
pub unsafe fn prelu_forward_vectors<T: Storage, A: Storage, const SLOPES: u32>(
    x: Option<Global<T>>,
    alpha: Global<A>,
    y: GlobalMut<T>,
    slopes: Slopes,
    each: u32,
    n: u64,
) {
    let x = x.unwrap_or(y.as_global());
    // SAFETY: passed on; what is left of `n` are fewer than 4 elements, which one block's first threads take.
    unsafe {
        if each == 1 {
            vectors::<T, A, SLOPES, 1>(x, alpha, y, slopes, n);
        } else {
            vectors::<T, A, SLOPES, { VECTORS as usize }>(x, alpha, y, slopes, n);
        }
        let i = n / 4 * 4 + thread::thread_idx_x() as u64;
        if thread::block_idx_x() == 0 && i < n {
            let channel = if SLOPES == 1 { 0 } else { slopes.of(slopes.by_unit.divide(i as u32)) };
            let x = get(x, i as usize);
            put(y, i as usize, slope(x, get(alpha, channel as usize)) * x, 0.0);
        }
    }
}

/// This thread's `EACH` vectors.
///
/// # Safety
/// [`prelu_forward_vectors`]'s.
#[device_inline]
unsafe fn vectors<T: Storage, A: Storage, const SLOPES: u32, const EACH: usize>(
    x: Global<T>,
    alpha: Global<A>,
    y: GlobalMut<T>,
    slopes: Slopes,
    n: u64,
) {
    let vectors = (n / 4) as u32;
    let first = thread::block_idx_x() * (BLOCK * EACH as u32) + thread::thread_idx_x();
    let mut loaded = [Vec4::splat(T::from_f32(0.0)); EACH];
    let mut of = [Vec4::splat(0.0); EACH];
    // SAFETY: the vector's elements are among the `n`, and begin at a multiple of 4.
    unsafe {
        unrolled!(K in [0 1 2 3] {
            if K < EACH {
                let vector = first + K as u32 * BLOCK;
                loaded[K] = x.load4_if(vector < vectors, vector as usize * 4, loaded[K]);
            }
        });
        // Before the first is stored: a slope that is loaded after a store is waited for by itself.
        unrolled!(K in [0 1 2 3] {
            if K < EACH {
                let vector = first + K as u32 * BLOCK;
                of[K] = slopes.load::<A, SLOPES>(alpha, vector < vectors, vector);
            }
        });
        unrolled!(K in [0 1 2 3] {
            if K < EACH {
                let vector = first + K as u32 * BLOCK;
                if vector < vectors {
                    let result = loaded[K].map(T::to_f32).zip_with(of[K], |x, alpha| slope(x, alpha) * x);
                    y.store4(vector as usize * 4, result.map(T::from_f32));
                }
            }
        });
    }
}

/// Backward, stage 1, for large planes; one block for each of `parts` parts of each plane, `part` the fastest.
/// `vector` is 1 where `inner` is a multiple of 4.
///
/// # Safety
/// The module's; there are fewer than 2³¹ blocks.
#[kernel(block = BLOCK, instances((T, A) = [(f32, f32), (f16, f16), (f16, f32), (bf16, bf16), (bf16, f32)]))]
pub unsafe fn prelu_backward_planes<T: Storage, A: Storage>(
    x: Global<T>,
    alpha: Global<A>,
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
        let slope_of_plane = get(alpha, (plane - by_channels.divide(plane) * channels) as usize);
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
/// The module's; `outer * parts` is below 2³¹, and `by_parts` divides by `parts`.
#[kernel(block = BLOCK, instances(A = [f32, f16, bf16]))]
pub unsafe fn prelu_backward_sum<A: Storage>(
    sums: Global<f32>,
    dalpha: GlobalMut<A>,
    beta: f32,
    outer: u32,
    channels: u32,
    parts: u32,
    by_parts: Divider,
) {
    let (channel, count) = (thread::block_idx_x(), outer * parts);
    let mut sum = 0.0;
    let mut i = thread::thread_idx_x();
    // SAFETY: the indices are those of the layout; one thread a block writes its channel.
    unsafe {
        // Four on their way at once.
        while i < count {
            let mut loaded = [0.0; 4];
            unrolled!(K in [0 1 2 3] {
                let i = i + K as u32 * BLOCK;
                let o = by_parts.divide(i);
                let plane = o as usize * channels as usize + channel as usize;
                loaded[K] = sums.load_if(i < count, plane * parts as usize + (i - o * parts) as usize, 0.0);
            });
            unrolled!(K in [0 1 2 3] { sum += loaded[K]; });
            i += 4 * BLOCK;
        }
        let sum = block_sum(sum);
        if thread::thread_idx_x() == 0 {
            put(dalpha, channel as usize, sum, beta);
        }
    }
}
