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
use crate::window::Divider;

/// Elements of a plane that one block takes.
pub const PART: u32 = BLOCK * 16;
/// Vectors of a thread.
pub const VECTORS: u32 = 4;
/// Blocks by columns that a multiprocessor has room for, at least: 128 registers a thread.
const COLUMN_BLOCKS: u32 = 2;
/// Rows that a thread loads before it uses the first.
const AT_ONCE: usize = 2;
/// Blocks over the rows at most: as many as an H200 has room for at once, so that all go through memory together. More leave more
/// partial sums.
const MOST_BLOCKS: u64 = 264;

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

/// How a block is laid over rows of a matrix: threads beside each other over columns, and as often as there is room.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Columns of the matrix.
    columns: u32,
    /// Threads beside each other.
    beside: u32,
    by_beside: Divider,
    by_inner: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Columns {}

impl Columns {
    /// Over `[outer, channels * inner]`, `each` columns a thread, of which these are a multiple; and the grid.
    pub fn new(outer: u64, columns: u32, inner: u32, each: u32) -> (Self, [u32; 3]) {
        let units = columns / each;
        let (beside, across) = (units.min(BLOCK), u64::from(units.div_ceil(BLOCK)));
        // What a block takes in one go.
        let rows = u64::from(BLOCK / beside) * AT_ONCE as u64;
        let blocks = outer.div_ceil(rows).min((MOST_BLOCKS / across).max(1));
        let [by_beside, by_inner] = [beside, inner].map(Divider::new);
        (Self { columns, beside, by_beside, by_inner }, [blocks as u32, across as u32, 1])
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

/// Backward, stage 1, for small planes, `EACH` columns a thread. The grid's blocks take rows in turns, so that all that is under
/// way at a time is beside each other in memory.
///
/// # Safety
/// The module's; `columns` are of the `outer` rows with the launch's grid, and a multiple of `EACH`.
#[kernel(
    block = BLOCK,
    min_blocks = COLUMN_BLOCKS,
    instances((T, EACH) = [(f32, 1), (f32, 4), (f16, 1), (f16, 4), (f16, 8), (bf16, 1), (bf16, 4), (bf16, 8)])
)]
pub unsafe fn prelu_backward_columns<T: Storage, const EACH: usize>(
    x: Global<T>,
    alpha: Global<f32>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: Option<GlobalMut<f32>>,
    outer: u64,
    columns: Columns,
) {
    let Columns { columns, beside, by_beside, by_inner } = columns;
    let line = by_beside.divide(thread::thread_idx_x());
    let column = (thread::block_idx_y() * BLOCK + thread::thread_idx_x() - line * beside) * EACH as u32;
    let at_once = by_beside.divide(BLOCK);
    let here = (column < columns) & (line < at_once);
    let mut total = [0.0; EACH];
    // SAFETY: the thread's columns exist where it is `here`, and the rows before `outer` do; `EACH` columns begin at a multiple of
    // as many in a row that is one.
    unsafe {
        if here {
            let mut slopes = [0.0; EACH];
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < EACH { slopes[K] = alpha.load(by_inner.divide(column + K as u32) as usize); }
            });
            // From a row that the thread has at a time to the next, and from those of one turn to those of the next.
            let step = at_once as usize * columns as usize;
            let turn = AT_ONCE * step * thread::grid_dim_x() as usize;
            let first = thread::block_idx_x() as usize * AT_ONCE * at_once as usize + line as usize;
            let mut i = first * columns as usize + column as usize;
            let end = outer as usize * columns as usize;
            let load = |i: usize| {
                let mut loaded = [[[0; 4]; 2]; AT_ONCE];
                unrolled!(R in [0 1] {
                    if R < AT_ONCE {
                        let i = i + R * step;
                        loaded[R] = [x, dy].map(|from| load_each::<T, EACH>(from, i < end, i));
                    }
                });
                loaded
            };
            let mut give = |loaded: [[[u32; 4]; 2]; AT_ONCE], i: usize| {
                unrolled!(R in [0 1] {
                    if R < AT_ONCE {
                        let i = i + R * step;
                        let [x, dy] = loaded[R].map(|words| numbers::<T, EACH>(words));
                        let mut result = [0.0; EACH];
                        unrolled!(K in [0 1 2 3 4 5 6 7] {
                            if K < EACH {
                                // Zeros, where there is nothing, add nothing.
                                total[K] += part(x[K], dy[K]);
                                result[K] = slope(x[K], slopes[K]) * dy[K];
                            }
                        });
                        if let Some(dx) = dx
                            && i < end
                        {
                            put_each(dx, i, result, dx_beta);
                        }
                    }
                });
            };
            // The next turn's rows are on their way while these are worked with. By turns in two variables: moved from one to the
            // other, what is loaded would be waited for.
            let mut here = load(i);
            while i < end {
                let next = load(i + turn);
                give(here, i);
                i += turn;
                here = load(i + turn);
                give(next, i);
                i += turn;
            }
        }
        // The block's lines, one after another.
        let lines = shared_array![f32; BLOCK as usize * 8];
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < EACH { lines.store(K as u32 * BLOCK + thread::thread_idx_x(), total[K]); }
        });
        thread::sync_threads();
        let Some(sums) = sums else { return };
        if here && line == 0 {
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < EACH {
                    let mut sum = 0.0;
                    let mut place = thread::thread_idx_x();
                    while place < at_once * beside {
                        sum += lines.load(K as u32 * BLOCK + place);
                        place += beside;
                    }
                    let chunk = thread::block_idx_x() as u64 * columns as u64;
                    sums.store((chunk + column as u64) as usize + K, sum);
                }
            });
        }
    }
}

/// The words of `EACH` elements from `i` on, 1, 4 or, of 16 bits, 8, or zeros.
///
/// # Safety
/// `from` holds them where the predicate is true, and they begin at a multiple of all together.
#[inline(always)]
unsafe fn load_each<T: Storage, const EACH: usize>(from: Global<T>, predicate: bool, i: usize) -> [u32; 4] {
    // SAFETY: the caller's; elements are bits, two or four bytes of them.
    unsafe {
        let words = from.cast::<u32>();
        match (EACH, size_of::<T>()) {
            (1, 2) => [u32::from(from.cast::<u16>().load_if(predicate, i, 0)), 0, 0, 0],
            (1, _) => [words.load_if(predicate, i, 0), 0, 0, 0],
            (4, 2) => {
                let Vec2 { x, y } = words.load2_if(predicate, i / 2, Vec2::splat(0));
                [x, y, 0, 0]
            }
            (_, size) => words.load4_if(predicate, i * size / 4, Vec4::splat(0)).to_array(),
        }
    }
}

/// The `EACH` elements of these words, as arithmetic takes them.
#[inline(always)]
fn numbers<T: Storage, const EACH: usize>(words: [u32; 4]) -> [f32; EACH] {
    // SAFETY: the words hold as many elements, of which any bits are one.
    unsafe { core::mem::transmute_copy::<_, [T; EACH]>(&words) }.map(T::to_f32)
}

/// [`put`] of `EACH` elements, 1, 4 or, of 16 bits, 8.
///
/// # Safety
/// `out` holds them, and they begin at a multiple of all together.
#[inline(always)]
unsafe fn put_each<T: Storage, const EACH: usize>(out: GlobalMut<T>, i: usize, mut result: [f32; EACH], beta: f32) {
    // SAFETY: the caller's.
    unsafe {
        if beta != 0.0 {
            let before = numbers::<T, EACH>(load_each::<T, EACH>(out.as_global(), true, i));
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < EACH { result[K] = float::fma(beta, before[K], result[K]); }
            });
        }
        if EACH == 1 {
            out.store(i, T::from_f32(result[0]));
            return;
        }
        let mut rounded = [T::from_f32(0.0); EACH];
        unrolled!(K in [0 2 4 6] {
            if K + 1 < EACH { [rounded[K], rounded[K + 1]] = T::from_two_f32([result[K], result[K + 1]]); }
        });
        if EACH == 4 {
            out.store4(i, core::mem::transmute_copy::<_, Vec4<T>>(&rounded));
        } else {
            out.cast::<u32>().store4(i / 2, core::mem::transmute_copy::<_, Vec4<u32>>(&rounded));
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
            let (o, p) = if parts == 1 { (i, 0) } else { divide(i, parts) };
            sum += sums.load(((o * channels as u64 + channel) * parts + p) as usize);
            i += BLOCK as u64;
        }
        let sum = block_sum(sum);
        if thread::thread_idx_x() == 0 {
            put(dalpha, channel as usize, sum, beta);
        }
    }
}
