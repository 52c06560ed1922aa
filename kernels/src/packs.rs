//! Packs of 2 to 16 bytes of neighbouring channels, which are last.

use cuda_std::prelude::*;

use crate::elements::{Elements, Place};
use crate::vectors::{LANES, Lanes, Numbers, Words};
use crate::window::{Nhwc, Window};

/// Threads of a block of most kernels by packs.
pub const PACKS_BLOCK: u32 = 128;
/// Packs of a group, at most: few enough that a thread has few weights to compute, and enough that a warp reads whole sectors.
pub(crate) const MOST_LANES: u32 = 32;
/// Elements of a vector of weights.
pub(crate) const VECTOR: u32 = 8;

/// The weights along y and along x of each channel of a pack, and zeros after them.
pub(crate) type PackWeights = [[Numbers; VECTOR as usize]; 2];

/// Groups of a pixel's packs, and the packs of one: the last may have fewer.
pub const fn groups(packs: u32) -> [u32; 2] {
    let groups = packs.div_ceil(MOST_LANES);
    [groups, packs.div_ceil(groups)]
}

/// This thread's place, if it has one, in blocks of so many threads and groups of so many packs.
#[device_inline]
pub(crate) fn place(window: &Window<Nhwc>, elements: Elements, block: u32, lanes: u32) -> Option<Place> {
    let place = elements.place(block, lanes)?;
    let place = Place { channel: thread::block_idx_y() * lanes + place.channel, ..place };
    (place.channel < window.channels).then_some(place)
}

/// Channels of a pack of so many bytes.
#[device_inline]
pub(crate) const fn channels<T>(bytes: usize) -> u32 {
    (bytes / size_of::<T>()) as u32
}

/// Pack `at`, of so many bytes, where it is `there`; else zeros.
///
/// # Safety
/// `x` holds it, and begins at a multiple of its bytes.
#[device_inline]
pub(crate) unsafe fn load<T: Lanes, const BYTES: usize>(x: Global<T>, there: bool, at: usize) -> Words {
    // SAFETY: the caller's.
    unsafe { load_or::<T, BYTES>(x, there, at, 0) }
}

/// The same where it is `there`; else words of `outside`.
///
/// # Safety
/// As [`load`].
#[device_inline]
pub(crate) unsafe fn load_or<T: Lanes, const BYTES: usize>(
    x: Global<T>,
    there: bool,
    at: usize,
    outside: u32,
) -> Words {
    // SAFETY: the caller's.
    unsafe {
        if BYTES == 2 {
            return [u32::from(x.cast::<u16>().load_if(there, at, outside as u16)), 0, 0, 0];
        }
        let (x, at) = (x.cast::<u32>(), at.wrapping_mul(BYTES / 4));
        match BYTES {
            4 => [x.load_if(there, at, outside), 0, 0, 0],
            8 => {
                let Vec2 { x, y } = x.load2_if(there, at, Vec2::splat(outside));
                [x, y, 0, 0]
            }
            _ => x.load4_if(there, at, Vec4::splat(outside)).to_array(),
        }
    }
}

/// Puts `value + beta * y` into pack `at` of `y`.
///
/// # Safety
/// As [`load`]; the pack is this thread's.
#[device_inline]
pub(crate) unsafe fn put<T: Lanes, const BYTES: usize>(y: GlobalMut<T>, at: usize, mut value: Numbers, beta: f32) {
    // SAFETY: the caller's.
    unsafe {
        if beta != 0.0 {
            let before = load::<T, BYTES>(y.as_global(), true, at);
            value = add::<T, BYTES>(value, beta, T::numbers(before));
        }
        store::<T, BYTES>(y, at, T::words(value));
    }
}

/// Stores a pack's words, as many as it has, as pack `at` of `y`.
///
/// # Safety
/// As [`put`].
#[device_inline]
pub(crate) unsafe fn store<T: Lanes, const BYTES: usize>(y: GlobalMut<T>, at: usize, [a, b, c, d]: Words) {
    // SAFETY: the caller's.
    unsafe {
        if BYTES == 2 {
            return y.cast::<u16>().store(at, a as u16);
        }
        let (y, at) = (y.cast::<u32>(), at * (BYTES / 4));
        match BYTES {
            4 => y.store(at, a),
            8 => y.store2(at, Vec2 { x: a, y: b }),
            _ => y.store4(at, Vec4::new(a, b, c, d)),
        }
    }
}

/// `sum + weight * numbers`, of those that a pack of so many bytes has.
#[device_inline]
pub(crate) fn add<T: Lanes, const BYTES: usize>(sum: Numbers, weight: f32, numbers: Numbers) -> Numbers {
    add_each::<T, BYTES>(sum, [weight; LANES], numbers)
}

/// The same where each channel has a weight.
#[device_inline]
pub(crate) fn add_each<T: Lanes, const BYTES: usize>(mut sum: Numbers, weights: Numbers, numbers: Numbers) -> Numbers {
    unrolled!(K in [0 1 2 3 4 5 6 7] {
        if K < BYTES / size_of::<T>() { sum[K] = float::fma(weights[K], numbers[K], sum[K]); }
    });
    sum
}
