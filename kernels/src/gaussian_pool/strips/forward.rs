//! Forward.

use cuda_std::prelude::*;

use super::{
    BLOCK, POSITIONS, Part, QUAD, ROWS, Strips, Weights, chunk, chunk_of_weights, load_columns, load_quad, pitch,
};
use crate::gaussian_pool::Geometry;

/// Rows of the image that a strip covers with as many positions, at most.
const COVERED: usize = ((ROWS - 1) * super::MAX_STRIDE + POSITIONS) as usize;

/// What a strip covers of some columns of the image.
type Covered<const C: usize> = [[f32; C]; COVERED];

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. The grid has a block for each tile, of each plane
/// or group of planes. `SIZE` is both sides of the window, or 0 for any; a thread loads `C` columns at once, which is one or,
/// where rows have an even number of elements, two.
///
/// Bound by memory for windows of known sizes and one Gaussian; then by the instructions issued.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for each
/// Gaussian; `strips` is what [`Strips::forward`] made of `geometry`, whose strides are `STRIDE`.
#[kernel(
    block = BLOCK,
    min_blocks = 3,
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, C) = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (3, 2, 1), (3, 2, 2), (11, 2, 1), (11, 2, 2)]
    )
)]
pub unsafe fn gaussian_pool_forward_strips<T: Storage, const SIZE: u32, const STRIDE: u32, const C: usize>(
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
    // SAFETY: shared memory holds the weights and then the sums, as the plan says; `of_gaussian` is a multiple of 4.
    let (weights, sums) = unsafe {
        let weights = Weights::compute::<1>(shared, mean, var, &geometry, &strips, &part);
        (weights, shared.offset(weights.len(1)))
    };
    let kernels = geometry.kernels;
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
            let (band_half, column) = super::divide(i, around);
            let column = if column < horizontal.padding { column } else { column - horizontal.padding + end };
            // SAFETY: columns up to the last that a window covers have places.
            unsafe { sums.store4((band_half * half + place(column)) * QUAD, Vec4::splat(0.0)) };
            i += BLOCK;
        }
    }
    thread::sync_threads();

    let size = if SIZE == 0 { vertical.size } else { SIZE };
    let image = vertical.image as usize * horizontal.image as usize;
    let mut task = thread::thread_idx_x();
    while task < part.bands * strips.groups.divisor {
        let (band, group) = strips.groups.divide(task);
        let (plane, strip) = strips.strips.divide(band);
        let first = (part.strip + strip) * ROWS;
        let column = group * C as u32;
        let top = (first * STRIDE).wrapping_sub(vertical.padding);
        let origin = ((part.plane + plane) as usize * image)
            .wrapping_add_signed(top.cast_signed() as isize * horizontal.image as isize)
            .wrapping_add(column as usize);
        // The rows that these positions of the windows cover, all loads under way at once.
        let load = |begin: u32| {
            // SAFETY: zero bits are 0.0.
            let mut covered: Covered<C> = unsafe { core::mem::zeroed() };
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32] {
                let above = I as u32;
                if above < (ROWS - 1) * STRIDE + chunk(SIZE) {
                    let row = top.wrapping_add(begin + above);
                    let needed = SIZE != 0 || above < (ROWS - 1) * STRIDE + (size - begin);
                    let at = origin.wrapping_add((begin + above) as usize * horizontal.image as usize);
                    // SAFETY: loaded only where the row is in the image, as the columns are.
                    covered[I] = unsafe { load_columns::<T, C>(x, needed & (row < vertical.image), at) };
                }
            });
            covered
        };
        let once = if SIZE != 0 {
            load(0)
        } else {
            // SAFETY: zero bits are 0.0.
            unsafe { core::mem::zeroed() }
        };
        let one_vector = first >= vertical.shared_begin && (first + ROWS).min(vertical.output) <= vertical.shared_end;
        let mut kernel = 0;
        while kernel < kernels {
            let [along_y, _] = weights.of(&geometry, plane, kernel);
            // SAFETY: zero bits are 0.0.
            let mut totals: [[f32; C]; ROWS as usize] = unsafe { core::mem::zeroed() };
            let mut begin = 0;
            while one_vector && begin < size {
                let covered = if SIZE == 0 { load(begin) } else { once };
                let at = along_y + vertical.shared_begin * pitch(vertical) + begin;
                // SAFETY: the vector is there.
                let weights = unsafe { chunk_of_weights::<SIZE>(weights.at, at, size - begin) };
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                    if (I as u32) < chunk(SIZE) && (SIZE != 0 || begin + (I as u32) < size) {
                        unrolled!(R in [0 1 2 3 4 5 6 7] {
                            unrolled!(K in [0 1] {
                                if K < C {
                                    totals[R][K] =
                                        float::fma(weights[I], covered[R * STRIDE as usize + I][K], totals[R][K]);
                                }
                            });
                        });
                    }
                });
                begin += chunk(SIZE);
            }
            // Windows that are cut off have vectors of their own: few strips have such.
            let mut position = 0;
            while !one_vector && position < size {
                unrolled!(R in [0 1 2 3 4 5 6 7] {
                    // A row past the output is summed with another's weights and not stored.
                    let case = vertical.case((first + R as u32).min(vertical.output - 1));
                    let above = R as u32 * STRIDE + position;
                    let at = origin.wrapping_add(above as usize * horizontal.image as usize);
                    // SAFETY: the vector is there; loaded only where the row is in the image, as the columns are.
                    let (weight, row) = unsafe {
                        (
                            weights.at.load(along_y + case * pitch(vertical) + position),
                            load_columns::<T, C>(x, top.wrapping_add(above) < vertical.image, at),
                        )
                    };
                    unrolled!(K in [0 1] { if K < C { totals[R][K] = float::fma(weight, row[K], totals[R][K]); } });
                });
                position += 1;
            }
            unrolled!(K in [0 1] {
                if K < C {
                    let at = (band_place(kernel, band) + place(column + horizontal.padding + K as u32)) * QUAD;
                    let of = totals.map(|row| row[K % C]);
                    let [a, b, c, d, e, f, g, h] = of;
                    // SAFETY: each column of the image has a place, and one thread.
                    unsafe {
                        sums.store4(at, Vec4::new(a, b, c, d));
                        sums.store4(at + half * QUAD, Vec4::new(e, f, g, h));
                    }
                }
            });
            kernel += 1;
        }
        task += BLOCK;
    }
    thread::sync_threads();

    let size = if SIZE == 0 { horizontal.size } else { SIZE };
    let mut task = thread::thread_idx_x();
    while task < part.bands * kernels * strips.windows.divisor {
        let (rest, ox) = strips.windows.divide(task);
        let (band, kernel) = strips.kernels.divide(rest);
        let (plane, strip) = strips.strips.divide(band);
        let [_, along_x] = weights.of(&geometry, plane, kernel);
        let vector = along_x + horizontal.case(ox) * pitch(horizontal);
        let from = band_place(kernel, band) + ox;
        // SAFETY: zero bits are 0.0.
        let mut totals: [f32; ROWS as usize] = unsafe { core::mem::zeroed() };
        let mut begin = 0;
        while begin < size {
            // SAFETY: the vector is there.
            let weights = unsafe { chunk_of_weights::<SIZE>(weights.at, vector + begin, size - begin) };
            let from = from + begin / STRIDE;
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if (I as u32) < chunk(SIZE) && (SIZE != 0 || begin + (I as u32) < size) {
                    let at = from + place(I as u32);
                    // SAFETY: the sums of the columns that the window covers were written before the barrier.
                    let (low, high) = unsafe { (load_quad(sums, at), load_quad(sums, at + half)) };
                    unrolled!(R in [0 1 2 3] {
                        totals[R] = float::fma(weights[I], low[R], totals[R]);
                        totals[R + 4] = float::fma(weights[I], high[R], totals[R + 4]);
                    });
                }
            });
            begin += chunk(SIZE);
        }
        let first = (part.strip + strip) * ROWS;
        let map = (part.plane + plane) as usize * kernels as usize + kernel as usize;
        let at = (map * vertical.output as usize + first as usize) * horizontal.output as usize + ox as usize;
        unrolled!(R in [0 1 2 3 4 5 6 7] {
            let inside = first + (R as u32) < vertical.output;
            // SAFETY: stored only where the row is in the output; one thread has it.
            unsafe { y.store_if(inside, at + R * horizontal.output as usize, T::from_f32(totals[R])) };
        });
        task += BLOCK;
    }
}
