//! How ops that treat each element by itself walk their tensors.
//!
//! A block takes a tile of consecutive elements, a thread 16 bytes of each input: one vector of four elements, or of 16-bit types
//! two, a block's width apart, both loaded before the first is used. Whole tensors begin at multiples of 16 bytes, so that these are
//! aligned; the last, incomplete four go one by one. Bound by memory.

use cuda_std::prelude::*;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Elements of a block where a thread takes four.
pub const TILE: u32 = BLOCK * 4;

/// Elements of a block where a thread takes 16 bytes of them.
pub const fn tile<T>() -> u32 {
    TILE * vectors::<T>() as u32
}

/// Vectors of four elements in 16 bytes.
const fn vectors<T>() -> usize {
    4 / size_of::<T>()
}

/// Calls `vector(i)` for the four elements from `i` on that are this thread's, or `single(i)` for each where the tensor
/// of `n` elements ends among them.
#[device_inline]
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

/// Element `i`, as arithmetic takes it.
///
/// # Safety
/// `from` holds it.
#[device_inline]
pub(crate) unsafe fn get<T: Storage>(from: Global<T>, i: usize) -> f32 {
    // SAFETY: the caller's.
    unsafe { from.load(i) }.to_f32()
}

/// [`get`] of four elements at once.
///
/// # Safety
/// `from` holds the four elements from `i` on, and they begin at a multiple of their size together.
#[device_inline]
pub(crate) unsafe fn get4<T: Storage>(from: Global<T>, i: usize) -> Vec4<f32> {
    // SAFETY: the caller's.
    unsafe { from.load4(i) }.map(T::to_f32)
}

/// For each vector that is this thread's of the blocks' [`tile`]s, `vector(i, load(true, i))` of the four elements from `i` on, or
/// `single(i)` for each where the tensor of `n` elements ends among them; there `load` gets `false`. All loads come first.
#[device_inline]
fn for_each_vector<T, L: Copy>(
    n: u64,
    load: impl Fn(bool, usize) -> L,
    vector: impl Fn(usize, L),
    single: impl Fn(usize),
) {
    let first = thread::block_idx_x() as u64 * tile::<T>() as u64 + thread::thread_idx_x() as u64 * 4;
    let place = |number: usize| first + number as u64 * TILE as u64;
    let load = |i: u64| load(i + 4 <= n, i as usize);
    let use_ = |mut i: u64, loaded: L| {
        if i + 4 <= n {
            vector(i as usize, loaded);
        } else {
            while i < n {
                single(i as usize);
                i += 1;
            }
        }
    };
    let loaded = load(place(0));
    if vectors::<T>() == 2 {
        let second = load(place(1));
        use_(place(0), loaded);
        use_(place(1), second);
    } else {
        use_(place(0), loaded);
    }
}

/// `out[i] = f(a[i]) + beta * out[i]` for all `n` elements, by [`tile`]s; with `beta = 0`, `out` is not read.
///
/// # Safety
/// `a` and `out` hold `n` elements and begin at multiples of 16 bytes.
#[device_inline]
pub(crate) unsafe fn map<T: Storage>(a: Global<T>, out: GlobalMut<T>, beta: f32, n: u64, f: impl Fn(f32) -> f32) {
    let nothing = Vec4::splat(T::from_f32(0.0));
    for_each_vector::<T, _>(
        n,
        // SAFETY: loaded where the four elements from `i` on are among the `n`; `i` is a multiple of 4.
        |there, i| unsafe { a.load4_if(there, i, nothing) },
        // SAFETY: as above.
        |i, a| unsafe { put4(out, i, a.map(|a| f(a.to_f32())), beta) },
        // SAFETY: `i < n`.
        |i| unsafe { put(out, i, f(get(a, i)), beta) },
    );
}

/// `out[i] = f(a[i], b[i]) + beta * out[i]`, as [`map`].
///
/// # Safety
/// As [`map`], for `b` too.
#[device_inline]
pub(crate) unsafe fn map2<T: Storage>(
    a: Global<T>,
    b: Global<T>,
    out: GlobalMut<T>,
    beta: f32,
    n: u64,
    f: impl Fn(f32, f32) -> f32,
) {
    let nothing = Vec4::splat(T::from_f32(0.0));
    for_each_vector::<T, _>(
        n,
        // SAFETY: loaded where the four elements from `i` on are among the `n`; `i` is a multiple of 4.
        |there, i| unsafe { (a.load4_if(there, i, nothing), b.load4_if(there, i, nothing)) },
        // SAFETY: as above.
        |i, (a, b)| unsafe { put4(out, i, a.map(T::to_f32).zip_with(b.map(T::to_f32), &f), beta) },
        // SAFETY: `i < n`.
        |i| unsafe { put(out, i, f(get(a, i), get(b, i)), beta) },
    );
}

/// `out[i] = result + beta * out[i]`, rounded once; with `beta = 0`, `out` is not read.
///
/// # Safety
/// `out` holds an element `i`.
#[device_inline]
pub(crate) unsafe fn put<T: Storage>(out: GlobalMut<T>, i: usize, result: f32, beta: f32) {
    // SAFETY: the caller's.
    unsafe {
        let sum = if beta == 0.0 { result } else { float::fma(beta, get(out.as_global(), i), result) };
        out.store(i, T::from_f32(sum));
    }
}

/// [`put`] of four elements at once.
///
/// # Safety
/// `out` holds the four elements from `i` on, and they begin at a multiple of their size together.
#[device_inline]
pub(crate) unsafe fn put4<T: Storage>(out: GlobalMut<T>, i: usize, result: Vec4<f32>, beta: f32) {
    // SAFETY: the caller's.
    unsafe {
        let sum = if beta == 0.0 {
            result
        } else {
            result.zip_with(get4(out.as_global(), i), |new, old| float::fma(beta, old, new))
        };
        out.store4(i, sum.map(T::from_f32));
    }
}

/// The reciprocal of a number of moderate size, within a unit or two in the last place.
#[device_inline]
pub(crate) fn reciprocal(number: f32) -> f32 {
    let near = float::reciprocal_approx(number);
    float::fma(near, float::fma(-number, near, 1.0), near)
}
