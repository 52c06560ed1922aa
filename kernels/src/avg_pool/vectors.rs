//! Windows of any size with the channels last, by [vectors](crate::vectors).

use cuda_std::prelude::*;

use super::Divisor;
use super::backward::Quotients;
use crate::vectors::{self, LANES, Lanes, Numbers, Over, Place, Vectors, Words};
use crate::window::{FEWER_BLOCKS, Nhwc, Window};

/// As [`avg_pool_forward`](super::avg_pool_forward), by [vectors](crate::vectors).
///
/// # Safety
/// The module's, but for the tiling; memory begins at multiples of 16 bytes; `vectors` are of the window's outputs, with the launch's
/// grid, block and shared memory, which has a word for each channel that a thread sums.
#[kernel(max_threads = vectors::THREADS, min_blocks = vectors::MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_forward_vectors<T: Lanes>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    vectors: Vectors,
) {
    let found = |_: &Place| [0.0; LANES];
    let add = |mut sum: Numbers, words: Words, _| {
        let numbers = T::numbers(words);
        unrolled!(K in [0 1 2 3 4 5 6 7] { sum[K] += numbers[K]; });
        sum
    };
    // SAFETY: the caller's.
    let found = unsafe { vectors::of_windows(x, &window, &vectors, dynamic_shared(), 0, found, add) };
    let Some((sum, place, output)) = found else { return };
    let of = divisor.of(divisor.counted(&window, 0, place.row), divisor.counted(&window, 1, place.column));
    // SAFETY: the output exists.
    unsafe { y.cast().store4(output * 4, Vec4::from(T::words(sum.map(|sum| sum / of)))) };
}

/// As [`avg_pool_backward`](super::avg_pool_backward), by [vectors](crate::vectors), `ROWS` inputs a thread.
///
/// # Safety
/// The module's, but for the tiling; memory begins at multiples of 16 bytes; `vectors` are of the window's inputs, with the launch's
/// grid and block; windows overlap, or `ROWS` is [`AHEAD`](vectors::AHEAD).
#[kernel(
    max_threads = vectors::FEWER_THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], ROWS = [1, 4])
)]
pub unsafe fn avg_pool_backward_vectors<T: Lanes, const ROWS: usize>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nhwc>,
    divisor: Divisor,
    vectors: Vectors,
) {
    let quotients = Quotients::new(&window, divisor);
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let dy = dy.cast::<u32>();
        let load = |inside, vector: usize| dy.load4_if(inside, vector.wrapping_mul(4), Vec4::splat(0));
        let add = |mut sum: Numbers, dy: Vec4<u32>, Over { output: [row, column], .. }: Over| {
            let shares = quotients.of(&window, T::numbers(dy.to_array()), row, column);
            unrolled!(K in [0 1 2 3 4 5 6 7] { sum[K] += shares[K]; });
            sum
        };
        vectors::gather::<T, _, ROWS>(dx, beta, &window, &vectors, load, add);
    }
}
