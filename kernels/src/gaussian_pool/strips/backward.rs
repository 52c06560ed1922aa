//! Backward: the input's gradient, and with it the sums that the parameters' gradients are made of.

use cuda_std::prelude::*;

use super::{
    BLOCK, POSITIONS, Part, QUAD, ROWS, Strips, Weights, chunk_of_weights, load_columns, load_quad, margin, pitch,
    store_columns,
};
use crate::gaussian_pool::{Geometry, get_if};

/// Windows over a pixel along one axis that are taken at once where the window's size is not known.
const TAPS: u32 = 4;
/// The most that are taken at once.
const MOST_TAPS: u32 = 8;
/// Rows of `dy` that as many windows over a strip take.
const WINDOW: usize = (ROWS + MOST_TAPS) as usize;

/// A strip of some columns: by row of the stride, window and column.
type OfStrip<const C: usize> = [[[f32; C]; ROWS as usize]; super::MAX_STRIDE as usize];

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`. The grid has a block for each tile,
/// of each plane or group of planes. `SIZE` is both sides of the window, or 0 for any; a thread stores `C` columns at once,
/// which is one or, where rows have an even number of elements, two.
///
/// Bound by memory for windows of known sizes and one Gaussian; then by the instructions issued.
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` as many of the output for each of `kernels`, `mean` two and `var` `variances`
/// elements for each Gaussian; `strips` is what [`Strips::backward`] made of `geometry`, whose strides are `STRIDE`, for one
/// table.
#[kernel(
    block = BLOCK,
    min_blocks = 2,
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, C) = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (3, 2, 1), (3, 2, 2), (11, 2, 1), (11, 2, 2)]
    )
)]
pub unsafe fn gaussian_pool_backward_strips<T: Storage, const SIZE: u32, const STRIDE: u32, const C: usize>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    strips: Strips,
) {
    let (part, shared) = (Part::of_block(&geometry, &strips), dynamic_shared::<f32>());
    // SAFETY: shared memory holds the weights first, as the plan says.
    let (weights, rest) = unsafe {
        let weights = Weights::compute::<1>(shared, mean, var, &geometry, &strips, &part);
        (weights, shared.offset(weights.len(1)))
    };
    let sums = |_: u32, _: [f32; 4]| {};
    // SAFETY: passed on.
    unsafe {
        tile::<T, SIZE, STRIDE, C, 1>(dy, None, Some(dx), dx_beta, &geometry, &strips, &part, &weights, rest, sums);
    }
}

/// One tile of the backward pass with `W` tables of weights, the weights alone or, for `W = 3`, their derivatives too. Then
/// `x` is there, and `sums` is called by all lanes of a warp for each Gaussian of each turn of the block, with what the
/// thread's pixels add to the sums of `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`.
///
/// # Safety
/// As [`gaussian_pool_backward_strips`]; `shared` holds what is spread along x of each table and Gaussian, and the rows of
/// `dy` of one.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "what two kernels take, and how they differ")]
pub(super) unsafe fn tile<T: Storage, const SIZE: u32, const STRIDE: u32, const C: usize, const W: usize>(
    dy: Global<T>,
    x: Option<Global<T>>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    geometry: &Geometry,
    strips: &Strips,
    part: &Part,
    weights: &Weights,
    shared: Shared<f32>,
    sums: impl Fn(u32, [f32; 4]),
) {
    let [vertical, horizontal] = &geometry.axes;
    let (size, margin) = (if SIZE == 0 { vertical.size } else { SIZE }, margin(vertical, STRIDE));
    let thread = thread::thread_idx_x();
    let tables = W as u32;
    // Fours of rows of the block's planes that hold its strips' and the margin above; places of such a four.
    let quads = if strips.planes == 1 { 2 * part.bands + margin } else { strips.quads.divisor };
    let (all_quads, line) = (part.planes * quads, STRIDE * strips.places);
    let spread_place = |kernel: u32, table: u32, quad: u32| ((kernel * tables + table) * all_quads + quad) * line;
    // SAFETY: shared memory holds both, as the plan says.
    let staged = unsafe { shared.offset(spread_place(geometry.kernels, 0, 0) * QUAD) };
    // The window that begins in a strip's first row, counted from that of the first strip; and what the first staged row
    // is of dy, and the first staged column, which wrap where they are before it.
    let first_window = vertical.padding / STRIDE + part.strip * ROWS;
    let first_row = first_window.wrapping_sub(margin * QUAD);
    let first_column = horizontal.padding / STRIDE;
    let reach = (horizontal.size.div_ceil(STRIDE)) - 1;

    for kernel in 0..geometry.kernels {
        let mut i = thread;
        while i < all_quads * strips.staged.divisor {
            let (plane_quad, column) = strips.staged.divide(i);
            let (plane, quad) = strips.quads.divide(plane_quad);
            let map = (part.plane + plane) as usize * geometry.kernels as usize + kernel as usize;
            let row = first_row.wrapping_add(quad * QUAD);
            let ox = (first_column + column).wrapping_sub(reach);
            let at = (map * vertical.output as usize)
                .wrapping_add_signed(row.cast_signed() as isize)
                .wrapping_mul(horizontal.output as usize)
                .wrapping_add(ox as usize);
            let mut rows = [0.0; 4];
            unrolled!(R in [0 1 2 3] {
                let inside = (row.wrapping_add(R as u32) < vertical.output) & (ox < horizontal.output);
                // SAFETY: loaded only where row and column are in the output.
                rows[R] = unsafe { get_if(dy, inside, at.wrapping_add(R * horizontal.output as usize)) };
            });
            // SAFETY: each place has one thread.
            unsafe { staged.store4(i * QUAD, Vec4::from(rows)) };
            i += BLOCK;
        }
        thread::sync_threads();

        let size = if SIZE == 0 { horizontal.size } else { SIZE };
        let mut i = thread;
        while i < all_quads * strips.windows.divisor {
            let (quad, column) = strips.windows.divide(i);
            // The plane decides only where there are several.
            let plane = if strips.planes == 1 { 0 } else { strips.quads.divide(quad).0 };
            let [_, along_x] = weights.of(geometry, plane, kernel);
            // SAFETY: zero bits are 0.0.
            let mut spread: [[[f32; 4]; super::MAX_STRIDE as usize]; W] = unsafe { core::mem::zeroed() };
            let from = quad * strips.staged.divisor + column + reach;
            let one_vector = horizontal.cases == 1;
            let mut begin = 0;
            while one_vector && begin * STRIDE < size {
                // SAFETY: zero bits are 0.0.
                let mut by: [[f32; POSITIONS as usize]; W] = unsafe { core::mem::zeroed() };
                unrolled!(V in [0 1 2] {
                    if V < W {
                        let at = V as u32 * weights.of_table + along_x + begin * STRIDE;
                        // SAFETY: the vector is there.
                        by[V] = unsafe { chunk_of_weights::<SIZE>(weights.at, at, size - begin * STRIDE) };
                    }
                });
                unrolled!(I in [0 1 2 3 4 5 6 7] {
                    let tap = begin + I as u32;
                    if (I as u32) < taps(SIZE, STRIDE) && tap * STRIDE < size {
                        // SAFETY: staged before the barrier.
                        let rows = unsafe { load_quad(staged, from - tap) };
                        unrolled!(P in [0 1 2] {
                            if (P as u32) < STRIDE && tap * STRIDE + (P as u32) < size {
                                unrolled!(V in [0 1 2] {
                                    if V < W {
                                        unrolled!(R in [0 1 2 3] {
                                            let (weight, sum) = (by[V][I * STRIDE as usize + P], spread[V][P][R]);
                                            spread[V][P][R] = float::fma(weight, rows[R], sum);
                                        });
                                    }
                                });
                            }
                        });
                    }
                });
                begin += taps(SIZE, STRIDE);
            }
            // Windows that are cut off have vectors of their own.
            let mut tap = 0;
            while !one_vector && tap * STRIDE < size {
                // SAFETY: staged before the barrier.
                let rows = unsafe { load_quad(staged, from - tap) };
                // Outside of the output are zeros: any vector does.
                let case = horizontal.case((first_column + column).saturating_sub(tap).min(horizontal.output - 1));
                let vector = along_x + case * pitch(horizontal) + tap * STRIDE;
                unrolled!(P in [0 1 2] {
                    if (P as u32) < STRIDE && tap * STRIDE + (P as u32) < size {
                        unrolled!(V in [0 1 2] {
                            if V < W {
                                let at = V as u32 * weights.of_table + vector + P as u32;
                                // SAFETY: the vector is there.
                                let weight = unsafe { weights.at.load(at) };
                                unrolled!(R in [0 1 2 3] {
                                    spread[V][P][R] = float::fma(weight, rows[R], spread[V][P][R]);
                                });
                            }
                        });
                    }
                });
                tap += 1;
            }
            unrolled!(V in [0 1 2] {
                unrolled!(P in [0 1 2] {
                    if V < W && (P as u32) < STRIDE {
                        let at = spread_place(kernel, V as u32, quad) + P as u32 * strips.places + column;
                        // SAFETY: each place has one thread.
                        unsafe { shared.store4(at * QUAD, Vec4::from(spread[V][P])) };
                    }
                });
            });
            i += BLOCK;
        }
        thread::sync_threads();
    }

    let tasks = part.bands * strips.groups.divisor;
    let mut turn = 0;
    while turn < tasks {
        let active = turn + thread < tasks;
        // A thread with no strip does another's work, and keeps it to itself.
        let (band, group) = strips.groups.divide(if active { turn + thread } else { turn });
        let (plane, strip) = strips.strips.divide(band);
        let column = group * C as u32;
        let window = first_window + strip * ROWS;
        let top = (window * STRIDE).wrapping_sub(vertical.padding);
        let origin = ((part.plane + plane) as usize * vertical.image as usize)
            .wrapping_add_signed(top.cast_signed() as isize)
            .wrapping_mul(horizontal.image as usize)
            .wrapping_add(column as usize);
        // SAFETY: zero bits are 0.0.
        let (mut pixels, mut gradient): (OfStrip<C>, OfStrip<C>) = unsafe { core::mem::zeroed() };
        if let Some(x) = x {
            let covered = horizontal.is_covered(column);
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                unrolled!(P in [0 1 2] {
                    if (P as u32) < STRIDE {
                        let row = top.wrapping_add(R as u32 * STRIDE + P as u32);
                        let at = origin.wrapping_add((R * STRIDE as usize + P) * horizontal.image as usize);
                        // A pixel that no window covers is no term: its NaN times the zeros summed for it would be one.
                        let counts = covered && row < vertical.image && vertical.is_covered(row);
                        // SAFETY: loaded only where the row is in the image, as the columns are.
                        pixels[P][R] = unsafe { load_columns::<T, C>(x, counts, at) };
                    }
                });
            });
        }
        // Of the windows over the strip, those that are there.
        let (from, to) = ((window + 1).saturating_sub(size.div_ceil(STRIDE)), (window + ROWS).min(vertical.output));
        let one_vector = from >= vertical.shared_begin && to <= vertical.shared_end;
        let places: [u32; 2] = core::array::from_fn(|k| {
            let padded = column + k as u32 + horizontal.padding;
            padded % STRIDE * strips.places + padded / STRIDE - first_column
        });
        for kernel in 0..geometry.kernels {
            let [along_y, _] = weights.of(geometry, plane, kernel);
            let mut moments = [0.0; 4];
            let weight_of = |table: u32, case: u32, position: u32| {
                let at = table * weights.of_table + along_y + case * pitch(vertical) + position;
                // SAFETY: the vector is there.
                unsafe { weights.at.load(at) }
            };
            // Fours of rows of the tile, of which the strip's own begin here.
            let own = plane * quads + 2 * strip + margin;
            let mut begin = 0;
            while one_vector && begin * STRIDE < size {
                // The rows of dy for these taps: the strip's own, and as many above, in fours.
                let above = taps(SIZE, STRIDE).next_multiple_of(QUAD);
                // SAFETY: zero bits are 0.0.
                let mut rows: [[[f32; C]; WINDOW]; W] = unsafe { core::mem::zeroed() };
                let first_quad = own.wrapping_sub((begin + above) / QUAD);
                let mut by_weight: [[f32; POSITIONS as usize]; W] = unsafe { core::mem::zeroed() };
                unrolled!(V in [0 1 2] {
                    if V < W {
                        let case = vertical.shared_begin * pitch(vertical);
                        let at = V as u32 * weights.of_table + along_y + case + begin * STRIDE;
                        // SAFETY: the vector is there.
                        by_weight[V] = unsafe { chunk_of_weights::<SIZE>(weights.at, at, size - begin * STRIDE) };
                    }
                });
                unrolled!(Q in [0 1 2 3] {
                    let last_tap = above.saturating_sub(4 * Q as u32 + 3);
                    if (Q as u32) < (ROWS + above) / QUAD && (last_tap == 0 || (begin + last_tap) * STRIDE < size) {
                        unrolled!(V in [0 1 2] {
                            unrolled!(K in [0 1] {
                                if V < W && K < C {
                                    let quad = first_quad.wrapping_add(Q as u32);
                                    let at = spread_place(kernel, V as u32, quad) + places[K];
                                    // SAFETY: written before the barrier.
                                    let four = unsafe { load_quad(shared, at) };
                                    unrolled!(R in [0 1 2 3] { rows[V][4 * Q + R][K] = four[R]; });
                                }
                            });
                        });
                    }
                });
                unrolled!(I in [0 1 2 3 4 5 6 7] {
                    unrolled!(P in [0 1 2] {
                        let position = (begin + I as u32) * STRIDE + P as u32;
                        if (I as u32) < taps(SIZE, STRIDE) && (P as u32) < STRIDE && position < size {
                            let weight = by_weight[0][I * STRIDE as usize + P];
                            unrolled!(R in [0 1 2 3 4 5 6 7] {
                                unrolled!(K in [0 1] {
                                    if K < C {
                                        let (sum, row) = (gradient[P][R][K], rows[0][above as usize + R - I][K]);
                                        gradient[P][R][K] = float::fma(weight, row, sum);
                                    }
                                });
                            });
                            if W == 3 {
                                // The gradients by this weight, and by what dy was spread with.
                                let mut by = [0.0; 3];
                                unrolled!(R in [0 1 2 3 4 5 6 7] {
                                    unrolled!(V in [0 1 2] {
                                        let row = rows[V % W][above as usize + R - I][0];
                                        by[V] = float::fma(pixels[P][R][0], row, by[V]);
                                    });
                                });
                                let [by_mean, by_var] = [1, 2].map(|v| by_weight[v % W][I * STRIDE as usize + P]);
                                add_moments(&mut moments, by, weight, by_mean, by_var);
                            }
                        }
                    });
                });
                begin += taps(SIZE, STRIDE);
            }
            // Windows that are cut off have vectors of their own: few strips have such.
            let mut tap = 0;
            while !one_vector && tap * STRIDE < size {
                unrolled!(R in [0 1 2 3 4 5 6 7] {
                    let row = own * QUAD + R as u32 - tap;
                    // Outside of the output are zeros: any vector does.
                    let case = vertical.case((window + R as u32).saturating_sub(tap).min(vertical.output - 1));
                    let mut of_row: [[f32; C]; W] = [[0.0; C]; W];
                    unrolled!(V in [0 1 2] {
                        unrolled!(K in [0 1] {
                            if V < W && K < C {
                                let at = spread_place(kernel, V as u32, row / QUAD) + places[K];
                                // SAFETY: written before the barrier.
                                of_row[V][K] = unsafe { shared.load(at * QUAD + row % QUAD) };
                            }
                        });
                    });
                    unrolled!(P in [0 1 2] {
                        let position = tap * STRIDE + P as u32;
                        if (P as u32) < STRIDE && position < size {
                            let weight = weight_of(0, case, position);
                            unrolled!(K in [0 1] {
                                if K < C {
                                    gradient[P][R][K] = float::fma(weight, of_row[0][K], gradient[P][R][K]);
                                }
                            });
                            if W == 3 {
                                let mut by = [0.0; 3];
                                unrolled!(V in [0 1 2] { by[V] = pixels[P][R][0] * of_row[V % W][0]; });
                                let [by_mean, by_var] = [1, 2].map(|table| weight_of(table, case, position));
                                add_moments(&mut moments, by, weight, by_mean, by_var);
                            }
                        }
                    });
                });
                tap += 1;
            }
            if W == 3 {
                sums(kernel, if active { moments } else { [0.0; 4] });
            }
        }
        if let Some(dx) = dx {
            let place = |r: usize, p: usize| {
                let below = r * STRIDE as usize + p;
                let inside = active & (top.wrapping_add(below as u32) < vertical.image);
                (inside, origin.wrapping_add(below * horizontal.image as usize))
            };
            if dx_beta != 0.0 {
                unrolled!(R in [0 1 2 3 4 5 6 7] {
                    unrolled!(P in [0 1 2] {
                        if (P as u32) < STRIDE {
                            let (inside, at) = place(R, P);
                            // SAFETY: the row is in the image, as the columns are; one thread has them.
                            let old: [f32; C] = unsafe { load_columns(dx.as_global(), inside, at) };
                            unrolled!(K in [0 1] {
                                if K < C { gradient[P][R][K] = float::fma(dx_beta, old[K], gradient[P][R][K]); }
                            });
                        }
                    });
                });
            }
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                unrolled!(P in [0 1 2] {
                    if (P as u32) < STRIDE {
                        let (inside, at) = place(R, P);
                        // SAFETY: as above.
                        unsafe { store_columns(dx, inside, at, gradient[P][R]) };
                    }
                });
            });
        }
        turn += BLOCK;
    }
}

/// Adds what pixels under one weight along y give: `by` are the sums of `x` times `dy` spread along x by the weights and by
/// their derivatives by mean and by variance.
#[inline(always)]
fn add_moments(moments: &mut [f32; 4], by: [f32; 3], weight: f32, by_mean: f32, by_var: f32) {
    moments[0] = float::fma(by_mean, by[0], moments[0]);
    moments[1] = float::fma(weight, by[1], moments[1]);
    moments[2] = float::fma(by_var, by[0], moments[2]);
    moments[3] = float::fma(weight, by[2], moments[3]);
}

/// Windows over a pixel that are taken at once.
const fn taps(size: u32, stride: u32) -> u32 {
    if size == 0 { TAPS } else { size.div_ceil(stride) }
}
