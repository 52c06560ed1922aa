//! How ops that treat each element by itself walk their tensors.
//!
//! A block takes a tile of consecutive elements, a thread four of them: one 16-byte access an input. Whole tensors begin
//! at multiples of 256 bytes, so that these are aligned; the last, incomplete four go one by one. Bound by memory.

use cuda_std::prelude::*;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Elements of a block.
pub const TILE: u32 = BLOCK * 4;

/// Calls `vector(i)` for the four elements from `i` on that are this thread's, or `single(i)` for each where the tensor
/// of `n` elements ends among them.
#[inline(always)]
pub(crate) fn for_each4(n: u64, vector: impl FnOnce(usize), single: impl Fn(usize)) {
    let first = thread::block_idx_x() as u64 * TILE as u64 + thread::thread_idx_x() as u64 * 4;
    if first + 4 <= n {
        vector(first as usize);
    } else {
        let mut i = first;
        while i < n {
            single(i as usize);
            i += 1;
        }
    }
}

/// `out[i] = f(a[i]) + beta * out[i]` for all `n` elements; with `beta = 0`, `out` is not read.
///
/// # Safety
/// `a` and `out` hold `n` elements and begin at multiples of 16 bytes.
#[inline(always)]
pub(crate) unsafe fn map(a: Global<f32>, out: GlobalMut<f32>, beta: f32, n: u64, f: impl Fn(f32) -> f32) {
    for_each4(
        n,
        // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
        |i| unsafe { put4(out, i, a.load4(i).map(&f), beta) },
        // SAFETY: `i < n`.
        |i| unsafe { put(out, i, f(a.load(i)), beta) },
    );
}

/// `out[i] = f(a[i], b[i]) + beta * out[i]`, as [`map`].
///
/// # Safety
/// As [`map`], for `b` too.
#[inline(always)]
pub(crate) unsafe fn map2(
    a: Global<f32>,
    b: Global<f32>,
    out: GlobalMut<f32>,
    beta: f32,
    n: u64,
    f: impl Fn(f32, f32) -> f32,
) {
    for_each4(
        n,
        // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
        |i| unsafe { put4(out, i, a.load4(i).zip_with(b.load4(i), &f), beta) },
        // SAFETY: `i < n`.
        |i| unsafe { put(out, i, f(a.load(i), b.load(i)), beta) },
    );
}

/// `out[i] = result + beta * out[i]`; with `beta = 0`, `out` is not read.
///
/// # Safety
/// `out` holds an element `i`.
#[inline(always)]
pub(crate) unsafe fn put(out: GlobalMut<f32>, i: usize, result: f32, beta: f32) {
    // SAFETY: the caller's.
    unsafe { out.store(i, if beta == 0.0 { result } else { float::fma(beta, out.load(i), result) }) }
}

/// [`put`] of four elements at once.
///
/// # Safety
/// `out` holds the four elements from `i` on, and they begin at a multiple of 16 bytes.
#[inline(always)]
pub(crate) unsafe fn put4(out: GlobalMut<f32>, i: usize, result: Vec4<f32>, beta: f32) {
    // SAFETY: the caller's.
    unsafe {
        let sum =
            if beta == 0.0 { result } else { result.zip_with(out.load4(i), |new, old| float::fma(beta, old, new)) };
        out.store4(i, sum);
    }
}
