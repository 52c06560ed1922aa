//! Backward with the gradients of mean and variance that all channels share, over windows of 3×3 one pixel apart whose weights are the same
//! everywhere: the input's gradient and a sum of `x · dy` for each position ([`positions`](super::positions) says what these are for) in one
//! pass, so that `x` and `dy` are read once.
//!
//! A thread has a run of inputs below each other, of 16 bytes of channels, or of columns of row-major images. It goes down the rows of `dy`
//! that their windows are in, as [`runs`](super::runs) do. A row of `dy` meets the three rows of `x` whose windows it is in, which a thread keeps
//! as they are in memory, and is summed along x, turned round, for the input's gradient. What it takes next is on its way. A block leaves four
//! sums, which another kernel adds up.
//!
//! Not bound by memory alone: an H200, whose copies are 1.42 times as fast as an H100's, takes 0.85 of its time. Latency is suspected, with the 16
//! warps that 128 registers leave; not profiled. 64×256×56×56 takes 0.56 of an H200's copy rate, in f32 0.59, with the channels last 0.63; 7×7
//! images, whose runs are short, 0.32 and 0.43.

use cuda_std::prelude::*;

use super::positions::gradients;
use super::runs::add;
use super::weights::with_derivatives;
use super::{Geometry, SUMS_PER_GAUSSIAN, leave};
use crate::vectors::{FEWER_THREADS, LANES, Lanes, Numbers, Vectors, lanes, put};
use crate::window::{Nhwc, Window};

/// The size of both axes.
pub const SIZE: usize = 3;
const WARPS: u32 = FEWER_THREADS / warp::WARP_SIZE;
/// Elements of a vector of weights in shared memory, and vectors: weights along an axis, and their derivatives by mean and variance.
const VECTOR: u32 = 4;
const VECTORS: u32 = 6;
/// Bytes of shared memory of a block: vectors, and sums of warps.
pub const SHARED_BYTES: u32 = (VECTORS * VECTOR + WARPS * SUMS_PER_GAUSSIAN) * 4;

/// A row of `dy`, moved to what is over each position of a row of windows turned round.
struct Row {
    moved: [Numbers; SIZE],
    /// Whether there is its own column, as it is of row-major images.
    here: bool,
    /// Whether there is a column before and after. With the channels last, of the whole vector; else of its first and last element alone.
    beside: [bool; 2],
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, where it is asked for; and each block's part of the sums of
/// `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`, laid out `[blocks, 4]`.
///
/// `window` is turned round: its inputs are `dy`, its outputs `x`, padded by all but one of the positions that the pooling is not padded by. Of
/// row-major images (`ROWS`) columns take the place of channels, in rows of whole vectors, and windows are padded by one.
///
/// # Safety
/// The parent module's. `dy` holds the inputs of `window`, `x` and `dx` its outputs; all begin at multiples of 16 bytes; `mean` holds two and `var`
/// `variances` elements, and `sums` four for each block of the grid; `geometry` has windows of that size; `vectors` are of runs of the outputs, with the
/// launch's grid and block, and shared memory is [`SHARED_BYTES`]. With `ROWS`, `window` is of images of one column, of as many channels as there are columns.
#[kernel(max_threads = FEWER_THREADS, min_blocks = 2, instances(T = [f32, f16, bf16], ROWS = [false, true]))]
pub unsafe fn gaussian_pool_runs_learnt<T: Lanes, const ROWS: bool>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: Option<GlobalMut<T>>,
    beta: f32,
    sums: GlobalMut<f32>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    let shared = dynamic_shared::<f32>();
    let place = vectors.run();
    let [height, width] = window.input;
    let [top, left] = [place.row.wrapping_sub(window.padding[0]), place.column.wrapping_sub(window.padding[1])];
    let from = vectors.first(&place, window.input);
    let begin = vectors.first(&place, window.output) + vectors.at(place.row, place.column, window.output[1]);
    let line = window.output[1] * vectors.groups;
    let rows = if place.there { vectors.each.min(window.output[0] - place.row) } else { 0 };
    let end = if place.there { rows + SIZE as u32 - 1 } else { 0 };
    let own_column = if ROWS { 0 } else { left.wrapping_add(1) };
    let load = |row: u32, there: bool, column: u32| {
        let inside = there & (top.wrapping_add(row) < height) & (column < width);
        let at = from.wrapping_add(vectors.at(top.wrapping_add(row), column, width));
        // SAFETY: in the image where it is loaded.
        unsafe { dy.cast::<u32>().load4_if(inside, at.wrapping_mul(4), Vec4::splat(0)) }
    };
    let own = |row: u32| load(row, row < end, own_column);
    let load_x = |row: u32| {
        let at = begin.wrapping_add(row.wrapping_mul(line) as usize);
        // SAFETY: a row of the run where it is loaded.
        unsafe { x.cast::<u32>().load4_if(row < rows, at.wrapping_mul(4), Vec4::splat(0)) }
    };
    // Of a row that is in the image.
    let moved = |row: u32, own: Vec4<u32>| {
        let numbers = T::numbers(own.to_array());
        if ROWS {
            let last = window.channels / lanes::<T>() as u32 - 1;
            let beside = [place.group > 0, place.group < last];
            let element = from.wrapping_add(vectors.at(top.wrapping_add(row), 0, 1)).wrapping_mul(lanes::<T>());
            let zero = T::from_f32(0.0);
            // SAFETY: of the same row where the vector is not its first or last.
            let (before, after) = unsafe {
                (
                    dy.load_if(beside[0], element.wrapping_sub(1), zero).to_f32(),
                    dy.load_if(beside[1], element.wrapping_add(lanes::<T>()), zero).to_f32(),
                )
            };
            let mut moved = [[0.0; LANES], numbers, [0.0; LANES]];
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < lanes::<T>() {
                    moved[0][K] = if K == 0 { before } else { numbers[(K + LANES - 1) % LANES] };
                    moved[2][K] = if K + 1 == lanes::<T>() { after } else { numbers[(K + 1) % LANES] };
                }
            });
            Row { moved, here: true, beside }
        } else {
            let beside = [left < width, left.wrapping_add(2) < width];
            let [before, after] = [load(row, true, left), load(row, true, left.wrapping_add(2))];
            let moved = [T::numbers(before.to_array()), numbers, T::numbers(after.to_array())];
            Row { moved, here: own_column < width, beside }
        }
    };

    let mut ahead = [Vec4::splat(0); SIZE];
    // With the channels last registers are full: of `x` one row is on its way.
    let rows_ahead = if ROWS { SIZE } else { 1 };
    let mut ahead_x = [Vec4::splat(0); SIZE];
    unrolled!(R in [0 1 2] {
        ahead[R] = own(R as u32);
        if R < rows_ahead {
            ahead_x[R] = load_x(R as u32);
        }
    });
    // SAFETY: the caller's; all threads of the block come here.
    unsafe { with_derivatives(shared, VECTOR, [mean, var], &geometry, variances) };
    thread::sync_threads();
    // Turned round.
    let (mut by_y, mut by_x) = ([0.0; SIZE], [0.0; SIZE]);
    unrolled!(I in [0 1 2] {
        let position = (SIZE - 1 - I) as u32;
        // SAFETY: written before the barrier.
        (by_y[I], by_x[I]) = unsafe { (shared.load(position), shared.load(3 * VECTOR + position)) };
    });
    let mut products = [[0.0; SIZE]; SIZE];
    // Of the windows that a row is in, as they come round; and the rows of `x` that have them.
    let mut gathered = [[0.0; LANES]; SIZE];
    let mut xs = [Vec4::splat(0); SIZE];
    let mut first = 0;
    while first < end {
        unrolled!(R in [0 1 2] {
            let row = first + R as u32;
            let slot = R % rows_ahead;
            xs[R] = ahead_x[slot];
            let of_row = ahead[R];
            ahead[R] = own(row + SIZE as u32);
            ahead_x[slot] = load_x(row + rows_ahead as u32);
            // What is outside of the image, or another run's, is no term: by an infinity it would be NaN.
            if (row < end) & (top.wrapping_add(row) < height) {
                let Row { moved, here, beside } = moved(row, of_row);
                unrolled!(I in [0 1 2] {
                    if row.wrapping_sub(I as u32) < rows {
                        let x = T::numbers(xs[(R + SIZE - I) % SIZE].to_array());
                        let (last, mut edges) = (lanes::<T>() - 1, [x, x]);
                        if ROWS {
                            edges[0][0] = if beside[0] { x[0] } else { 0.0 };
                            edges[1][last] = if beside[1] { x[last] } else { 0.0 };
                        }
                        if ROWS || beside[0] {
                            products[2 - I][2] = sum(products[2 - I][2], edges[0], moved[0], last);
                        }
                        if here {
                            products[2 - I][1] = sum(products[2 - I][1], x, moved[1], last);
                        }
                        if ROWS || beside[1] {
                            products[2 - I][0] = sum(products[2 - I][0], edges[1], moved[2], last);
                        }
                    }
                });
                let across = add(add(add([0.0; LANES], by_x[0], moved[0]), by_x[1], moved[1]), by_x[2], moved[2]);
                unrolled!(I in [0 1 2] {
                    let slot = &mut gathered[(R + SIZE - I) % SIZE];
                    *slot = add(*slot, by_y[I], across);
                });
            }
            // The window whose last row it was.
            let (whole, done) = (&mut gathered[(R + 1) % SIZE], (row + 1).wrapping_sub(SIZE as u32));
            if let Some(dx) = dx {
                // SAFETY: the caller's.
                unsafe { put(dx, beta, done < rows, begin.wrapping_add(done.wrapping_mul(line) as usize), *whole) };
            }
            *whole = [0.0; LANES];
        });
        first += SIZE as u32;
    }
    // SAFETY: the vectors were written before the barrier; there is room for the sums of all warps, and four for each block.
    unsafe {
        let of_thread = gradients(shared, VECTOR, products);
        let of_warps = shared.offset(VECTORS * VECTOR);
        leave(of_thread, of_warps, sums, thread::block_idx_x() as usize);
    }
}

/// `sum` with the products of numbers up to the `last`th.
#[device_inline]
fn sum(mut sum: f32, x: Numbers, dy: Numbers, last: usize) -> f32 {
    unrolled!(K in [0 1 2 3 4 5 6 7] { if K <= last { sum = float::fma(x[K], dy[K], sum); } });
    sum
}
