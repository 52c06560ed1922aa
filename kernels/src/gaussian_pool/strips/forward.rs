//! Forward.

use cuda_std::prelude::*;

use super::{POSITIONS, Part, QUAD, ROWS, Strips, Weights, chunk_of_weights, load_quad, pitch};
use crate::gaussian_pool::{Geometry, divide, get_if};

/// Threads of a block: two strips of 112 columns, and of as many of half and a quarter of these.
pub const FORWARD_BLOCK: u32 = 224;
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(stride: u32) -> u32 {
    if stride == 1 { 2 } else { 3 }
}

/// Rows of the image that a strip covers with as many positions, at most.
const COVERED: usize = ((ROWS - 1) * super::MAX_STRIDE + POSITIONS) as usize;

/// What a strip covers of a column of the image.
type Covered = [f32; COVERED];

/// A thread's strip of one column.
#[derive(Clone, Copy)]
struct Task {
    band: u32,
    /// Of the block's.
    plane: u32,
    /// The strip's first row of the output.
    first: u32,
    column: u32,
    /// The first row of the image that it covers, and where the column has it; both wrap where it is above the image.
    top: u32,
    origin: usize,
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. The grid has a block for each tile, of each plane
/// or group of planes.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for each
/// Gaussian; `strips` is what [`Strips::forward`] made of `geometry`, whose strides are `STRIDE`.
#[kernel(
    block = FORWARD_BLOCK,
    min_blocks = blocks(STRIDE),
    instances(T = [f32, f16, bf16], STRIDE = [1, 2, 3])
)]
pub unsafe fn gaussian_pool_forward_strips<T: Storage, const STRIDE: u32>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
    strips: Strips,
) {
    let shared = dynamic_shared::<f32>();
    let [vertical, horizontal] = &geometry.axes;
    let part = Part::of_block(&geometry, &strips);
    let kernels = geometry.kernels;
    let size = vertical.size;
    let image = vertical.image as usize * horizontal.image as usize;
    let tasks = part.bands * strips.columns.divisor;
    let find = |task: u32| {
        let (band, column) = strips.columns.divide(task);
        let (plane, strip) = strips.strips.divide(band);
        let first = (part.strip + strip) * ROWS;
        let top = (first * STRIDE).wrapping_sub(vertical.padding);
        let origin = ((part.plane + plane) as usize * image)
            .wrapping_add_signed(top.cast_signed() as isize * horizontal.image as isize)
            .wrapping_add(column as usize);
        Task { band, plane, first, column, top, origin }
    };
    // The rows that these positions of the windows cover, all loads under way at once. `turn` is the task's number, below
    // 2³¹, which changes nothing; but the compiler cannot know that, or it would keep the distances of all rows in registers
    // from one turn to the next.
    let load = |task: Task, begin: u32, turn: u32| {
        let width = (horizontal.image + (turn >> 31)) as usize;
        // SAFETY: zero bits are 0.0.
        let mut covered: Covered = unsafe { core::mem::zeroed() };
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32] {
            let above = I as u32;
            if above < (ROWS - 1) * STRIDE + POSITIONS {
                let row = task.top.wrapping_add(begin + above);
                let needed = above < (ROWS - 1) * STRIDE + (size - begin);
                let at = task.origin.wrapping_add((begin + above) as usize * width);
                // SAFETY: loaded only where the row is in the image, as the column is.
                covered[I] = unsafe { get_if(x, needed & (row < vertical.image), at) };
            }
        });
        covered
    };

    // SAFETY: shared memory holds the weights and then the sums, as the plan says; `of_gaussian` is a multiple of 4.
    let (weights, sums) = unsafe {
        let planes = [strips.planes, part.plane, part.planes];
        let weights = Weights::compute::<1>(shared, mean, var, &geometry, planes, strips.variances, strips.kernels);
        (weights, shared.offset(weights.len(1)))
    };
    // Fours of rows of one half of a band, and the two halves of a Gaussian's.
    let half = STRIDE * strips.places;
    let band_place = |kernel: u32, band: u32| (kernel * part.bands + band) * 2 * half;
    // The place of a column, counted with the padding.
    let place = |column: u32| column % STRIDE * strips.places + column / STRIDE;

    // The padding's columns, which are zero.
    let end = horizontal.padding + horizontal.image;
    let covered = (horizontal.output - 1) * STRIDE + horizontal.size;
    let around = horizontal.padding + covered.saturating_sub(end);
    if around > 0 {
        let mut i = thread::thread_idx_x();
        while i < kernels * part.bands * 2 * around {
            let (band_half, column) = divide(i, around);
            let column = if column < horizontal.padding { column } else { column - horizontal.padding + end };
            // SAFETY: columns up to the last that a window covers have places.
            unsafe { sums.store4((band_half * half + place(column)) * QUAD, Vec4::splat(0.0)) };
            i += FORWARD_BLOCK;
        }
    }
    thread::sync_threads();

    let mut number = thread::thread_idx_x();
    while number < tasks {
        let task = find(number);
        let first = task.first;
        let one_vector = first >= vertical.shared_begin && (first + ROWS).min(vertical.output) <= vertical.shared_end;
        for kernel in 0..kernels {
            let [along_y, _] = weights.of(&geometry, task.plane, kernel);
            // SAFETY: zero bits are 0.0.
            let mut totals: [f32; ROWS as usize] = unsafe { core::mem::zeroed() };
            let mut begin = 0;
            // Windows that are cut off come below.
            while one_vector && begin < size {
                let covered = load(task, begin, number);
                let at = along_y + vertical.shared_begin * pitch(vertical) + begin;
                // SAFETY: the vector is there.
                let weights = unsafe { chunk_of_weights(weights.at, at, size - begin) };
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                    if begin + (I as u32) < size {
                        unrolled!(R in [0 1 2 3 4 5 6 7] {
                            totals[R] = float::fma(weights[I], covered[R * STRIDE as usize + I], totals[R]);
                        });
                    }
                });
                begin += POSITIONS;
            }
            let mut position = 0;
            while !one_vector && position < size {
                let width = (horizontal.image + (position >> 31)) as usize;
                unrolled!(R in [0 1 2 3 4 5 6 7] {
                    let case = vertical.case((first + R as u32).min(vertical.output - 1));
                    let above = R as u32 * STRIDE + position;
                    let at = task.origin.wrapping_add(above as usize * width);
                    // SAFETY: the vector is there; loaded only where the row is in the image, as the column is.
                    let (weight, row) = unsafe {
                        (
                            weights.at.load(along_y + case * pitch(vertical) + position),
                            get_if(x, task.top.wrapping_add(above) < vertical.image, at),
                        )
                    };
                    totals[R] = float::fma(weight, row, totals[R]);
                });
                position += 1;
            }
            let at = (band_place(kernel, task.band) + place(task.column + horizontal.padding)) * QUAD;
            let [a, b, c, d, e, f, g, h] = totals;
            // SAFETY: each column of the image has a place, and one thread.
            unsafe {
                sums.store4(at, Vec4::new(a, b, c, d));
                sums.store4(at + half * QUAD, Vec4::new(e, f, g, h));
            }
        }
        number += FORWARD_BLOCK;
    }
    thread::sync_threads();

    let size = horizontal.size;
    let mut task = thread::thread_idx_x();
    while task < part.bands * kernels * 2 * strips.windows.divisor {
        let (rest, ox) = strips.windows.divide(task);
        let lower = rest % 2;
        let (band, kernel) = strips.kernels.divide(rest / 2);
        let (plane, strip) = strips.strips.divide(band);
        let [_, along_x] = weights.of(&geometry, plane, kernel);
        let vector = along_x + horizontal.case(ox) * pitch(horizontal);
        let from = band_place(kernel, band) + lower * half + ox;
        let mut totals = [0.0; QUAD as usize];
        let mut begin = 0;
        while begin < size {
            // SAFETY: the vector is there.
            let weights = unsafe { chunk_of_weights(weights.at, vector + begin, size - begin) };
            let from = from + begin / STRIDE;
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if begin + (I as u32) < size {
                    // SAFETY: the sums of the columns that the window covers were written before the barrier.
                    let rows = unsafe { load_quad(sums, from + place(I as u32)) };
                    unrolled!(R in [0 1 2 3] { totals[R] = float::fma(weights[I], rows[R], totals[R]); });
                }
            });
            begin += POSITIONS;
        }
        let first = (part.strip + strip) * ROWS + lower * QUAD;
        let map = (part.plane + plane) as usize * kernels as usize + kernel as usize;
        let at = (map * vertical.output as usize + first as usize) * horizontal.output as usize + ox as usize;
        unrolled!(R in [0 1 2 3] {
            let inside = first + (R as u32) < vertical.output;
            // SAFETY: stored only where the row is in the output; one thread has it.
            unsafe { y.store_if(inside, at + R * horizontal.output as usize, T::from_f32(totals[R])) };
        });
        task += FORWARD_BLOCK;
    }
}
