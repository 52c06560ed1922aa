//! Forward, and the input's gradient of windows one apart.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::{CHANNELS_BLOCK, Run, Workers, load_weights, signed};
use crate::elementwise::put;
use crate::gaussian_pool::sets::Weights;
use crate::window::{Nhwc, Window};

/// Windows that are open at a row, at most.
const OPEN: usize = 5;

/// Rows that are loaded together, at most.
const AHEAD: usize = 4;

/// Rows after which the sums of open windows come round.
const fn rows_of_period(size: usize, stride: usize) -> usize {
    size.div_ceil(stride) * stride
}

/// Blocks that a multiprocessor has room for forward, at least.
const fn forward_blocks(size: usize, each: usize) -> u32 {
    if size * each > 7 { 3 } else { 4 }
}

/// `to` = `from` pooled by windows of `SIZE` by `SIZE` positions, `STRIDE` apart, `+ beta * to`, with the weights the other way round where `turned` is not
/// 0. A thread has `EACH` neighbouring channels.
///
/// # Safety
/// The parent's parent's. `from` holds the inputs of `window`, which is such, and `to` its outputs of each of a map's Gaussians; the tables have one case and
/// entries of one element of neighbouring sets; `workers` are of the window's outputs and of as many channels a thread, with as many blocks; both tensors
/// begin at multiples of 16 bytes.
#[kernel(
    block = CHANNELS_BLOCK,
    min_blocks = forward_blocks(SIZE, EACH),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, EACH) = [
            (2, 2, 1), (2, 2, 2), (5, 2, 1), (5, 2, 2), (7, 2, 1), (7, 2, 2), (3, 1, 1), (5, 1, 1), (5, 1, 2), (4, 4, 1), (4, 4, 2),
            (3, 3, 1), (3, 3, 2)
        ]
    )
)]
pub unsafe fn gaussian_pool_forward_channels<T: Storage, const SIZE: usize, const STRIDE: usize, const EACH: usize>(
    from: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    to: GlobalMut<T>,
    beta: f32,
    turned: u32,
    window: Window<Nhwc>,
    workers: Workers,
) {
    let (channel, number) = workers.channel();
    let (each, worker) = workers.workers();
    let item = number * each + worker;
    if channel >= workers.channels || item >= workers.count {
        return;
    }
    let map = workers.by_kernels.divide(channel);
    let kernel = channel - map * workers.kernels;
    // Of two channels a thread each map has one Gaussian.
    let first = map * EACH as u32;
    let tables = [weights_y, weights_x];
    let weights = [0, EACH as u32 - 1].map(|k| {
        // SAFETY: the caller's.
        let Weights { mut by_y, mut by_x } = unsafe { load_weights::<SIZE>(tables, &workers, first + k, kernel, 1) };
        if turned != 0 {
            by_y.reverse();
            by_x.reverse();
        }
        Weights { by_y, by_x }
    });
    let Run { image, column, rows } = workers.run(item);
    let [height, width] = window.input;
    // What lies before the image wraps round to far after it. One comparison says of row and column whether an input is there: the row is
    // below its column's height.
    let [top, left] =
        [(0, rows[0]), (1, column)].map(|(axis, output)| (output * STRIDE as u32).wrapping_sub(window.padding[axis]));
    let mut below = [0; SIZE];
    unrolled!(J in [0 1 2 3 4 5 6] {
        if J < SIZE && left.wrapping_add(J as u32) < width { below[J] = height; }
    });
    let (line, pixel) = (window.input_line(), window.channels as usize);
    let begin = window
        .input_plane(image)
        .wrapping_add(signed(top, line))
        .wrapping_add(signed(left, pixel))
        .wrapping_add(first as usize);
    let zero = T::from_f32(0.0);
    let outputs = window.output_line() * workers.kernels as usize;
    let output = (image as usize * window.output[0] as usize + rows[0] as usize) * outputs
        + (column as usize * workers.channels as usize + channel as usize) * EACH;
    let end = (rows[1] - rows[0] - 1) * STRIDE as u32 + SIZE as u32;
    let open = const { SIZE.div_ceil(STRIDE) };
    let period = const { rows_of_period(SIZE, STRIDE) };
    let load = |row: u32| {
        let at = begin.wrapping_add(row as usize * line);
        let mut values = [[zero; 2]; SIZE];
        unrolled!(J in [0 1 2 3 4 5 6] {
            if J < SIZE {
                let inside = (row < end) & (top.wrapping_add(row) < below[J]);
                let at = at.wrapping_add(J * pixel);
                // SAFETY: in the image where it is loaded; of two channels the first is even.
                values[J] = unsafe {
                    if EACH == 2 {
                        from.load2_if(inside, at, Vec2::splat(zero)).to_array()
                    } else {
                        [from.load_if(inside, at, zero), zero]
                    }
                };
            }
        });
        values
    };
    // Rows are on their way together where there are registers for as many.
    let ahead = const { SIZE <= 4 && rows_of_period(SIZE, STRIDE) <= AHEAD };
    let mut sums = [[0.0; 2]; OPEN];
    let mut base = 0;
    while base < end {
        let mut rows = [[[zero; 2]; SIZE]; AHEAD];
        unrolled!(R in [0 1 2 3] { if ahead && R < period { rows[R] = load(base + R as u32); } });
        unrolled!(R in [0 1 2 3 4 5 6 7] {
            let row = base + R as u32;
            if R < period && row < end {
                let values = if ahead { rows[R % AHEAD] } else { load(row) };
                let mut across = [0.0; 2];
                unrolled!(J in [0 1 2 3 4 5 6] {
                    if J < SIZE {
                        unrolled!(K in [0 1] {
                            if K < EACH { across[K] = float::fma(weights[K].by_x[J], values[J][K].to_f32(), across[K]); }
                        });
                    }
                });
                unrolled!(O in [0 1 2 3 4] {
                    if O < open {
                        // The row of the window whose turn this sum is.
                        let i = (R + period - STRIDE * O) % period;
                        unrolled!(K in [0 1] {
                            if K < EACH && i < SIZE {
                                let sum = if i == 0 { 0.0 } else { sums[O][K] };
                                sums[O][K] = float::fma(weights[K].by_y[i], across[K], sum);
                            }
                        });
                        // Of windows that are open at the first row, but begin before it, no row is the last.
                        if i + 1 == SIZE && row + 1 >= SIZE as u32 {
                            let done = (row + 1 - SIZE as u32) / STRIDE as u32;
                            let at = output + done as usize * outputs;
                            // SAFETY: outputs of this thread's.
                            unsafe {
                                if EACH == 2 && beta == 0.0 {
                                    to.store2(at, Vec2::from(sums[O].map(T::from_f32)));
                                } else {
                                    unrolled!(K in [0 1] { if K < EACH { put(to, at + K, sums[O][K], beta); } });
                                }
                            }
                        }
                    }
                });
            }
        });
        base += period as u32;
    }
}
