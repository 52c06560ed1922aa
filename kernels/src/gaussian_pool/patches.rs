//! Gaussian pooling with the channels last, of 2×2 and 3×3 windows two pixels apart whose weights are the same everywhere and which
//! all channels share: by [patches](crate::patch) of 16 bytes of channels, four of `f32` or eight of 16 bits.
//!
//! A thread has the products of the weights along y and x in registers. Those along each axis the block's first threads compute, while
//! what all threads load first is on its way.
//!
//! Bound by memory; in 16 bits by that and by instructions.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::weights::{Shape, unscaled};
use crate::patch::Patches;
use crate::patch::octets::{self, Octet};
use crate::vectors::{LANES, Lanes};
use crate::window::{FEWER_BLOCKS, FEWEST_BLOCKS, Nhwc, THREADS, Window};

/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 4;

/// Blocks that fit on a multiprocessor, as many as leave each thread of the forward pass the registers it needs.
const fn forward_blocks<T>(size: usize) -> u32 {
    if size_of::<T>() == 4 && size == 3 { FEWEST_BLOCKS } else { FEWER_BLOCKS }
}

/// Products of the weights along y and x, row by row.
pub(super) type Weights = [[f32; 3]; 3];

/// Puts the weights along y and then those along x, of windows of so many positions each way, before they are divided by their sums, and
/// zeros after them up to four, into shared memory: of `shape(axis)`, a position by each of the block's first threads.
///
/// # Safety
/// All threads of the block come here, once.
#[device_inline]
unsafe fn put_unscaled(size: u32, shape: impl Fn(u32) -> Shape) -> Shared<f32> {
    let shared = shared_array![f32; 2 * VECTOR as usize].handle();
    let threads = thread::block_dim_x() * thread::block_dim_y() * thread::block_dim_z();
    let mut number = thread::index_in_block();
    while number < 2 * VECTOR {
        // SAFETY: the element is this thread's.
        unsafe { shared.store(number, unscaled(size, number % VECTOR, shape(number / VECTOR))) };
        number += threads;
    }
    thread::sync_threads();
    shared
}

/// Puts the weights along y and then those along x, and zeros after them up to four, into shared memory.
///
/// # Safety
/// As [`put_unscaled`].
#[device_inline]
pub(super) unsafe fn put_weights(size: u32, shape: impl Fn(u32) -> Shape) -> Shared<f32> {
    // SAFETY: the caller's.
    let shared = unsafe { put_unscaled(size, shape) };
    let threads = thread::block_dim_x() * thread::block_dim_y() * thread::block_dim_z();
    let mut number = thread::index_in_block();
    while number < 2 {
        // SAFETY: written before the barrier; the vector is this thread's until the next.
        unsafe {
            let weights = shared.load4(number * VECTOR);
            let reciprocal = 1.0 / (weights.x + weights.y + weights.z);
            shared.store4(number * VECTOR, weights.map(|weight| weight * reciprocal));
        }
        number += threads;
    }
    thread::sync_threads();
    shared
}

/// The products of the weights of windows of so many positions each way, of `shape(axis)`. Each thread divides by the sums: that takes less
/// than another wait for one that does.
///
/// # Safety
/// As [`put_unscaled`].
#[device_inline]
pub(super) unsafe fn weights(size: u32, shape: impl Fn(u32) -> Shape) -> Weights {
    // SAFETY: the caller's; written before a barrier.
    let [y, x] = unsafe {
        let shared = put_unscaled(size, shape);
        [shared.load4(0).to_array(), shared.load4(VECTOR).to_array()]
    };
    let sums = [y, x].map(|along: [f32; 4]| along[0] + along[1] + along[2]);
    // Of what is between 1 and 9.
    let product = sums[0] * sums[1];
    let near = float::reciprocal_approx(product);
    let reciprocal = float::fma(near, float::fma(-product, near, 1.0), near);
    let row = |y: f32| {
        let y = y * reciprocal;
        [y * x[0], y * x[1], y * x[2]]
    };
    [row(y[0]), row(y[1]), row(y[2])]
}

/// `y` = `x` pooled by one Gaussian, of windows of `SIZE` by `SIZE` positions, two apart, padded by `PADDING`.
///
/// On an H200, 3×3 on 64×64×112×112, 0.99 of the copy rate in f32 and 0.94 in 16 bits (docs/perf).
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, which is such; `mean` holds two and `var` `variances` elements; `patches` are
/// of the window's outputs by 16 bytes, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = forward_blocks::<T>(SIZE),
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn gaussian_pool_forward_patches<T: Lanes, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's.
    let weights = || unsafe { weights(SIZE as u32, |axis| Shape::load([mean, var], 0, axis == 0, variances)) };
    let finish = |weights: &Weights, octet: usize, _: octets::Place, inputs: [[Octet; SIZE]; SIZE]| {
        let mut sums = [0.0; LANES];
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE {
                let numbers = T::numbers(inputs[I][J]);
                unrolled!(K in [0 1 2 3 4 5 6 7] {
                    let (product, sum) = (weights[I][J] * numbers[K], float::fma(weights[I][J], numbers[K], sums[K]));
                    sums[K] = if I + J == 0 { product } else { sum };
                });
            }
        }); });
        // SAFETY: the output exists, and begins at a multiple of 16 bytes.
        unsafe { y.cast().store4(octet * octets::PAIRS, Vec4::from(T::words(sums))) };
    };
    // SAFETY: the caller's.
    unsafe { octets::each::<_, SIZE, PADDING>(x.cast(), &window, &patches, 0, weights, finish) };
}

/// What an output gives, and the position of who gets it; none where it gives nothing.
type Given = Option<([f32; LANES], u32)>;

/// `dx`, as it was not: without `beta`, of [`gaussian_pool_forward_patches`].
///
/// On an H200, 3×3 on 64×64×112×112, 0.93 of the copy rate in f32 and 0.88 in 16 bits (docs/perf).
///
/// # Safety
/// As [`gaussian_pool_forward_patches`]'s, of `dy` and `dx`; `patches` are of the window's inputs.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn gaussian_pool_backward_patches<T: Lanes, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    variances: u32,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let weights = || weights(SIZE, |axis| Shape::load([mean, var], 0, axis == 0, variances));
        let dy = dy.cast::<u32>();
        let none = Vec4::splat(0);
        let load = |inside, octet: usize| dy.load4_if(inside, octet.wrapping_mul(octets::PAIRS), none);
        let numbers = |dy: Vec4<u32>, _, _| T::numbers(dy.to_array());
        let sum_of = |weights: &Weights, outputs: [[Given; 2]; 2]| {
            let mut sums = [0.0; LANES];
            unrolled!(I in [0 1] { unrolled!(J in [0 1] {
                if let Some((given, position)) = outputs[I][J] {
                    let weight = weights[(position / SIZE) as usize][(position % SIZE) as usize];
                    unrolled!(K in [0 1 2 3 4 5 6 7] { sums[K] = float::fma(weight, given[K], sums[K]); });
                }
            }); });
            T::words(sums)
        };
        octets::gather::<_, _, _, SIZE, PADDING>(dx.cast(), &window, &patches, none, load, weights, numbers, sum_of);
    }
}
