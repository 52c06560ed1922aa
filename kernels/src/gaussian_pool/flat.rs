//! Gaussian pooling in 16 bits, with the channels last, of 3×3 windows one apart whose weights are the same everywhere and which all channels share:
//! by rows of pixels as *flat* runs of elements, however many channels a pixel has. A thread has four neighbouring elements of a row of outputs, and of
//! [`FLAT_ROWS`] rows one below the other.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`. Of windows one apart `dx` is the pooling of `dy` by the window turned round.
//!
//! A neighbour along x is as many elements away as a pixel has channels, whatever channel an element is of; so the four elements of each of a
//! window's columns are four beside each other, from any element on. A thread reads the words that hold them, and shifts them by an
//! element where they begin in the middle of one, which all threads do alike in a row. Elements that lie before or past the
//! row, in the padding, are in the next row's or the last row's memory: they are cleared.
//!
//! Launch: blocks of [`FLAT_BLOCK`] threads in one dimension, as [`Elements`] lays them; neighbouring threads have neighbouring fours.
//!
//! Bound by instructions (suspected, by their count): on an H200, 128×31×57×59 in bf16 0.35 of the copy rate, by packs of an element 0.29 (docs/perf).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::packs::{own_shape, weights};
use crate::elements::{Elements, Place};
use crate::elementwise::put;
use crate::vectors::{LANES, Lanes};
use crate::window::{Nhwc, Window};

/// Threads of a block.
pub const FLAT_BLOCK: u32 = 128;
/// Blocks that fit on a multiprocessor.
const BLOCKS: u32 = 5;
/// Rows of a thread.
pub const FLAT_ROWS: u32 = 4;
/// Elements of a thread in each.
pub const FLAT_EACH: u32 = 4;
/// Positions of a window along an axis, and rows that the windows of a thread's rows have together.
const SIZE: usize = 3;
const LINES: usize = SIZE + FLAT_ROWS as usize - 1;
/// Words that hold a thread's elements, from whichever on.
const WORDS: usize = 3;

/// `y` = `x` pooled by one Gaussian, plus `beta * y`. Backward it is the pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose windows are 3×3 and one apart, and have an even number of elements, less than 2³¹;
/// `mean` holds two and `var` `variances` elements; `elements` are fours of a row of outputs, [`FLAT_ROWS`] rows a thread, with the launch's
/// grid.
#[kernel(block = FLAT_BLOCK, min_blocks = BLOCKS, instances(T = [f16, bf16]))]
pub unsafe fn gaussian_pool_forward_flat<T: Lanes>(
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
    let shape = unsafe { own_shape([mean, var], variances) };
    let place = elements.place(FLAT_BLOCK, 1);
    let Place { plane, row, column, .. } = place.unwrap_or_default();
    let (pixel, first) = (window.channels, column * FLAT_EACH);
    let [along, out] = [window.input, window.output].map(|[_, columns]| columns * pixel);
    let height = if place.is_some() { window.input[0] } else { 0 };
    // What lies before the image or the row wraps round to far after it.
    let top = row.wrapping_sub(window.padding[0]);
    let left = first.wrapping_sub(window.padding[1] * pixel);
    let mut there = [[0; 2]; SIZE];
    unrolled!(J in [0 1 2] { unrolled!(W in [0 1] {
        let at = left.wrapping_add(J as u32 * pixel + 2 * W as u32);
        let low = if at < along { 0xffff } else { 0 };
        there[J][W] = low | if at.wrapping_add(1) < along { 0xffff_0000 } else { 0 };
    }); });
    let count = window.planes * window.input[0] * along / 2;
    let at = (plane * window.input[0]).wrapping_add(top).wrapping_mul(along).wrapping_add(left);
    // SAFETY: elements are as good as integers, and the tensors begin at multiples of 16 bytes.
    let (words, to) = unsafe { (x.cast::<u32>(), y.cast::<u32>()) };
    let first_of = |line: usize| at.wrapping_add(line as u32 * along);
    let mut columns = [[[0; WORDS]; SIZE]; LINES];
    unrolled!(I in [0 1 2 3 4 5] {
        let count = if top.wrapping_add(I as u32) < height { count } else { 0 };
        unrolled!(J in [0 1 2] {
            let word = (first_of(I).wrapping_add(J as u32 * pixel).cast_signed() >> 1).cast_unsigned();
            // Before the tensor's first, from where it is counted on.
            let from = word.cast_signed() as isize as usize;
            unrolled!(W in [0 1 2] {
                let inside = word.wrapping_add(W as u32) < count;
                // SAFETY: a word of the tensor where it is loaded.
                columns[I][J][W] = unsafe { words.load_if(inside, from.wrapping_add(W), 0) };
            });
        });
    });
    let [by_y, by_x] = weights::<SIZE>(shape, turned != 0);
    let mut sums = [[0.0; LANES]; FLAT_ROWS as usize];
    unrolled!(I in [0 1 2 3 4 5] {
        let mut across = [0.0; FLAT_EACH as usize];
        unrolled!(J in [0 1 2] {
            let at = first_of(I).wrapping_add(J as u32 * pixel);
            let [a, b, c] = columns[I][J];
            // From the second element of a word on.
            let shift = (at & 1) * 16;
            let shifted = |low: u32, high: u32| ((u64::from(high) << 32 | u64::from(low)) >> shift) as u32;
            let numbers = T::numbers([shifted(a, b) & there[J][0], shifted(b, c) & there[J][1], 0, 0]);
            unrolled!(K in [0 1 2 3] { across[K] = float::fma(by_x[J], numbers[K], across[K]); });
        });
        unrolled!(R in [0 1 2 3] {
            if I >= R && I < R + SIZE {
                unrolled!(K in [0 1 2 3] {
                    sums[R][K] = float::fma(by_y[I.wrapping_sub(R) % SIZE], across[K], sums[R][K]);
                });
            }
        });
    });
    if place.is_none() {
        return;
    }
    unrolled!(R in [0 1 2 3] {
        let row = row + R as u32;
        if row < window.output[0] {
            let at = (plane * window.output[0] + row) * out + first;
            if (beta == 0.0) & at.is_multiple_of(2) & (first + FLAT_EACH <= out) {
                let [low, high, ..] = T::words(sums[R]);
                let at = (at / 2) as usize;
                // SAFETY: the outputs exist, and are this thread's.
                unsafe {
                    to.store(at, low);
                    to.store(at + 1, high);
                }
            } else {
                unrolled!(K in [0 1 2 3] {
                    if first + (K as u32) < out {
                        // SAFETY: as above.
                        unsafe { put(y, at as usize + K, sums[R][K], beta) };
                    }
                });
            }
        }
    });
}
