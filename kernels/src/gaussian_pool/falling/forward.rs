//! Forward, and backward of windows one apart.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::FOUR;
use crate::band::{self, Bands, Staged, inputs_of};
use crate::elementwise::{put, put4};
use crate::gaussian_pool::sets::Sets;
use crate::window::{Nchw, Window};

/// Inputs of a row that a thread loads, at most.
const LOADED: usize = 12;
/// Windows that are open at a row, at most.
const OPEN: usize = 5;
/// Blocks that a multiprocessor has room for, at least: as many as leave a thread the registers for the windows that are open.
const fn min_blocks(size: usize, stride: usize, each: u32) -> u32 {
    if size == 5 && stride == 1 && each == 4 { 3 } else { 4 }
}

/// `to = weights * from + beta * to`, of windows of `SIZE` by `SIZE` positions, `STRIDE` apart, `EACH` columns of outputs a thread: one, or as many as four columns of inputs have, which begin `LEAD` after a vector.
///
/// # Safety
/// The parent's parent's. `from` holds the inputs of `window`, which is such, and `to` its outputs; `mean` and `var` are those of `sets`, one a plane; `bands`
/// are [of so many columns](super::plan), with the launch's grid and block, and shared memory for the [weights](Sets::bytes) and the launch's; `LEAD` is the window's [`lead`](super::lead), or 0.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = min_blocks(SIZE, STRIDE, EACH),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, EACH, LEAD) = [
            (3, 1, 1, 0), (5, 1, 1, 0), (5, 2, 1, 0), (7, 2, 1, 0), (3, 3, 1, 0), (4, 4, 1, 0),
            (3, 1, 4, 0), (3, 1, 4, 2), (3, 1, 4, 3),
            (5, 1, 4, 0), (5, 1, 4, 2), (5, 2, 2, 0), (5, 2, 2, 2), (7, 2, 2, 0), (7, 2, 2, 1),
        ]
    )
)]
pub unsafe fn gaussian_pool_falling<
    T: Storage,
    const SIZE: usize,
    const STRIDE: usize,
    const EACH: u32,
    const LEAD: usize,
>(
    from: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    to: GlobalMut<T>,
    beta: f32,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    // SAFETY: the caller's; all threads come here, and the launch's shared memory is for these rows.
    let (staged, weights) = unsafe {
        let rows = inputs_of(&window, &span);
        sets.stage::<_, SIZE>([mean, var], &span, false, |room| {
            Staged::copy(room.cast(), from, &span, rows, window.input)
        })
    };
    let part = bands.part(&span);
    // SAFETY: this thread's plane is one of the block's, if it has any columns.
    let weights = unsafe { weights.load(part.plane, 0) };
    for place in bands.each_column(&part) {
        let [height, width] = window.input;
        let column = place * EACH;
        // What lies before the image wraps round to far after it. One comparison says of row and column whether an input is
        // there: the row is below its column's height.
        let left = (column * STRIDE as u32).wrapping_sub(window.padding[1]).wrapping_sub(LEAD as u32);
        let first = (part.rows[0] * STRIDE as u32).wrapping_sub(window.padding[0]);
        let below = |column: u32| if column < width { height } else { 0 };
        let begin = staged.place(part.plane, first, left);
        let zero = T::from_f32(0.0);
        // A row, counted from the first window's, summed along x.
        let across = |row: u32| {
            let (input, at) = (first.wrapping_add(row), begin.wrapping_add(row.wrapping_mul(width)));
            let mut values = [0.0; LOADED];
            if EACH == 1 {
                unrolled!(J in [0 1 2 3 4 5 6] {
                    if J < SIZE {
                        let inside = input < below(left.wrapping_add(J as u32));
                        // SAFETY: in the image, and then staged: of this thread's rows.
                        values[J] = unsafe { staged.load_if(inside, at.wrapping_add(J as u32), zero) }.to_f32();
                    }
                });
            } else {
                unrolled!(V in [0 1 2] {
                    if 4 * V < LEAD + SIZE + STRIDE * (EACH as usize - 1) {
                        let on = 4 * V as u32;
                        let inside = input < below(left.wrapping_add(on));
                        // SAFETY: as above; rows are a multiple of four, and so is `left`.
                        let four = unsafe { staged.load4_if(inside, at.wrapping_add(on), Vec4::splat(zero)) };
                        let four = four.map(T::to_f32).to_array();
                        unrolled!(J in [0 1 2 3] { values[4 * V + J] = four[J]; });
                    }
                });
            }
            let mut sums = [0.0; FOUR as usize];
            unrolled!(K in [0 1 2 3] {
                unrolled!(J in [0 1 2 3 4 5 6] {
                    if K < EACH as usize && J < SIZE {
                        sums[K] = float::fma(weights.by_x[J], values[LEAD + STRIDE * K + J], sums[K]);
                    }
                });
            });
            sums
        };
        let line = window.output_line();
        let output =
            window.output_plane(span.first_plane + part.plane) + part.rows[0] as usize * line + column as usize;
        let rows = part.rows[1] - part.rows[0];
        let end = (rows - 1) * STRIDE as u32 + SIZE as u32;
        let open = const { SIZE.div_ceil(STRIDE) };
        let period = const { SIZE.div_ceil(STRIDE) * STRIDE };
        let mut sums = [[0.0; FOUR as usize]; OPEN];
        let mut base = 0;
        while base < end {
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                let row = base + R as u32;
                if R < period && row < end {
                    let across = across(row);
                    unrolled!(O in [0 1 2 3 4] {
                        if O < open {
                            // The row of the window whose turn this sum is.
                            let i = (R + period - STRIDE * O) % period;
                            unrolled!(K in [0 1 2 3] {
                                if K < EACH as usize && i < SIZE {
                                    let sum = if i == 0 { 0.0 } else { sums[O][K] };
                                    sums[O][K] = float::fma(weights.by_y[i], across[K], sum);
                                }
                            });
                            // Of windows that are open at the first row, but begin before it, no row is the last.
                            let done = (row + 1).wrapping_sub(SIZE as u32) / STRIDE as u32;
                            if i + 1 == SIZE && row + 1 >= SIZE as u32 {
                                let at = output + done as usize * line;
                                // SAFETY: outputs of this thread's rows.
                                unsafe { store::<T, EACH>(to, beta, &window, at, column, sums[O]) };
                            }
                        }
                    });
                }
            });
            base += period as u32;
        }
    }
}

/// Stores `EACH` neighbours of a row, of which the first is there and at this column.
///
/// # Safety
/// `to` holds those that are there, and begins at a multiple of 16 bytes.
#[device_inline]
unsafe fn store<T: Storage, const EACH: u32>(
    to: GlobalMut<T>,
    beta: f32,
    window: &Window<Nchw>,
    output: usize,
    column: u32,
    values: [f32; FOUR as usize],
) {
    // SAFETY: the caller's. Where rows have a multiple of `EACH` outputs, all begin at one and are whole.
    unsafe {
        let whole = window.output[1].is_multiple_of(EACH);
        if EACH == 4 && whole {
            put4(to, output, Vec4::from(values), beta);
        } else if EACH == 2 && whole && beta == 0.0 {
            to.store2(output, Vec2::new(values[0], values[1]).map(T::from_f32));
        } else {
            unrolled!(K in [0 1 2 3] {
                if K < EACH as usize && column + (K as u32) < window.output[1] {
                    put(to, output + K, values[K], beta);
                }
            });
        }
    }
}
