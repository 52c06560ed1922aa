//! Backward: the input's gradient, and with it the sums that the parameters' gradients are made of.

use cuda_std::prelude::*;

use super::{Part, QUAD, ROWS, Strips, Weights, chunk_of_weights, load_quad, margin, pitch};
use crate::gaussian_pool::{Axis, Geometry, get_if};

/// Threads of a block.
pub const BACKWARD_BLOCK: u32 = 256;
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(stride: u32) -> u32 {
    if stride == 3 { 3 } else { 4 }
}

/// Windows over a pixel along one axis that are taken at once.
const TAPS: u32 = 4;
/// Rows of `dy` that as many windows over a strip take.
const WINDOW: usize = (ROWS + TAPS) as usize;
/// Fours of rows of `dy` that a thread has under way at once.
const AHEAD: usize = 2;

/// A strip of a column: by row of the stride and window.
type OfStrip = [[f32; ROWS as usize]; super::MAX_STRIDE as usize];

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`. The grid has a block for each tile,
/// of each plane or group of planes.
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` as many of the output for each of `kernels`, `mean` two and `var` `variances`
/// elements for each Gaussian; `strips` is what [`Strips::backward`] made of `geometry`, whose strides are `STRIDE`, for one
/// table.
#[kernel(
    block = BACKWARD_BLOCK,
    min_blocks = blocks(STRIDE),
    instances(T = [f32, f16, bf16], STRIDE = [1, 2, 3])
)]
pub unsafe fn gaussian_pool_backward_strips<T: Storage, const STRIDE: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    strips: Strips,
) {
    let part = Part::of_block(&geometry, &strips);
    let (shared, sums) = (dynamic_shared::<f32>(), |_: u32, _: [f32; 4]| {});
    // SAFETY: passed on.
    unsafe {
        tile::<T, STRIDE, 1, BACKWARD_BLOCK>(
            dy,
            None,
            [mean, var],
            Some(dx),
            dx_beta,
            &geometry,
            &strips,
            &part,
            shared,
            sums,
        );
    }
}

/// One tile of the backward pass with `W` tables of weights, the weights alone or, for `W = 3`, their derivatives too. Then
/// `x` is there, and `sums` is called by all lanes of a warp for each Gaussian of each turn of the block, with what the
/// thread's pixels add to the sums of `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`.
///
/// # Safety
/// As [`gaussian_pool_backward_strips`]; `shared` holds the weights, what is spread along x of each table and Gaussian, and
/// the rows of `dy` of one.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "what two kernels take, and how they differ")]
pub(super) unsafe fn tile<T: Storage, const STRIDE: u32, const W: usize, const THREADS: u32>(
    dy: Global<T>,
    x: Option<Global<T>>,
    [mean, var]: [Global<f32>; 2],
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    geometry: &Geometry,
    strips: &Strips,
    part: &Part,
    shared: Shared<f32>,
    sums: impl Fn(u32, [f32; 4]),
) {
    let [vertical, horizontal] = &geometry.axes;
    let (size, margin) = (vertical.size, margin(vertical, STRIDE));
    let thread = thread::thread_idx_x();
    let tables = W as u32;
    // Fours of rows of the block's planes that hold its strips' and the margin above; places of such a four.
    let quads = if strips.planes == 1 { 2 * part.bands + margin } else { strips.quads.divisor };
    let (all_quads, line) = (part.planes * quads, STRIDE * strips.places);
    // The window that begins in a strip's first row, counted from that of the first strip; and what the first staged row
    // is of dy, and the first staged column, which wrap where they are before it.
    let first_window = vertical.padding / STRIDE + part.strip * ROWS;
    let first_row = first_window.wrapping_sub(margin * QUAD);
    let first_column = horizontal.padding / STRIDE;
    let reach = horizontal.size.div_ceil(STRIDE) - 1;

    let all_staged = all_quads * strips.staged.divisor;
    let load_staged = |kernel: u32, i: u32| {
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
            let inside = (i < all_staged) & (row.wrapping_add(R as u32) < vertical.output) & (ox < horizontal.output);
            // SAFETY: loaded only where row and column are in the output.
            rows[R] = unsafe { get_if(dy, inside, at.wrapping_add(R * horizontal.output as usize)) };
        });
        rows
    };
    let load_ahead = |kernel: u32| {
        let mut rows = [[0.0; 4]; AHEAD];
        unrolled!(A in [0 1] { rows[A] = load_staged(kernel, thread + A as u32 * THREADS); });
        rows
    };
    let tasks = part.bands * strips.columns.divisor;
    let find = |number: u32| {
        let (band, column) = strips.columns.divide(number);
        let (plane, strip) = strips.strips.divide(band);
        let window = first_window + strip * ROWS;
        let top = (window * STRIDE).wrapping_sub(vertical.padding);
        let origin = ((part.plane + plane) as usize * vertical.image as usize)
            .wrapping_add_signed(top.cast_signed() as isize)
            .wrapping_mul(horizontal.image as usize)
            .wrapping_add(column as usize);
        Task { plane, strip, column, window, top, origin }
    };
    let load_pixels = |task: Task, wanted: bool| {
        // SAFETY: zero bits are 0.0.
        let mut pixels: OfStrip = unsafe { core::mem::zeroed() };
        if let Some(x) = x {
            let covered = wanted & is_covered::<STRIDE>(horizontal, task.column);
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                unrolled!(P in [0 1 2] {
                    if (P as u32) < STRIDE {
                        let row = task.top.wrapping_add(R as u32 * STRIDE + P as u32);
                        let at = task.origin.wrapping_add((R * STRIDE as usize + P) * horizontal.image as usize);
                        // A pixel that no window covers is no term: its NaN times the zeros summed for it would be one.
                        let counts = covered & (row < vertical.image) & is_covered::<STRIDE>(vertical, row);
                        // SAFETY: loaded only where the row is in the image, as the column is.
                        pixels[P][R] = unsafe { get_if(x, counts, at) };
                    }
                });
            });
        }
        pixels
    };

    // The first loads are under way while the weights are computed.
    let mut ahead = load_ahead(0);
    // SAFETY: shared memory holds the weights first, as the plan says.
    let weights = unsafe {
        let planes = [strips.planes, part.plane, part.planes];
        Weights::compute::<W>(shared, mean, var, geometry, planes, strips.variances, strips.kernels)
    };
    // SAFETY: then what is spread along x, and what is staged.
    let spread_rows = unsafe { shared.offset(weights.len(tables)) };
    let spread_place = |kernel: u32, table: u32, quad: u32| ((kernel * tables + table) * all_quads + quad) * line;
    // SAFETY: as above.
    let staged = unsafe { spread_rows.offset(spread_place(geometry.kernels, 0, 0) * QUAD) };

    for kernel in 0..geometry.kernels {
        unrolled!(A in [0 1] {
            let i = thread + A as u32 * THREADS;
            if i < all_staged {
                // SAFETY: each place has one thread.
                unsafe { staged.store4(i * QUAD, Vec4::from(ahead[A])) };
            }
        });
        let mut i = thread + AHEAD as u32 * THREADS;
        while i < all_staged {
            // SAFETY: as above.
            unsafe { staged.store4(i * QUAD, Vec4::from(load_staged(kernel, i))) };
            i += THREADS;
        }
        thread::sync_threads();
        if kernel + 1 < geometry.kernels {
            ahead = load_ahead(kernel + 1);
        }

        let mut i = thread;
        while i < all_quads * strips.windows.divisor {
            let (quad, column) = strips.windows.divide(i);
            // The plane decides only where there are several.
            let plane = if strips.planes == 1 { 0 } else { strips.quads.divide(quad).0 };
            let [_, along_x] = weights.of(geometry, plane, kernel);
            let from = quad * strips.staged.divisor + column + reach;
            unrolled!(V in [0 1 2] {
                if V < W {
                    let table = V as u32 * weights.of_table + along_x;
                    // SAFETY: the vectors are there; staged before the barrier.
                    let spread = unsafe {
                        spread::<STRIDE>(geometry, &weights, table, staged, from, first_column + column)
                    };
                    unrolled!(P in [0 1 2] {
                        if (P as u32) < STRIDE {
                            let at = spread_place(kernel, V as u32, quad) + P as u32 * strips.places + column;
                            // SAFETY: each place has one thread.
                            unsafe { spread_rows.store4(at * QUAD, Vec4::from(spread[P])) };
                        }
                    });
                }
            });
            i += THREADS;
        }
        thread::sync_threads();
    }

    // By warps, of which all lanes come to the sums.
    let lane = warp::lane_id();
    let mut of_warp = thread - lane;
    while of_warp < tasks {
        let active = of_warp + lane < tasks;
        // A thread with no strip does another's work, and keeps it to itself.
        let task = find(if active { of_warp + lane } else { of_warp });
        let pixels = load_pixels(task, active);
        let Task { plane, strip, column, window, top, origin } = task;
        // SAFETY: zero bits are 0.0.
        let mut gradient: OfStrip = unsafe { core::mem::zeroed() };
        // Of the windows over the strip, those that are there.
        let (from, to) = ((window + 1).saturating_sub(size.div_ceil(STRIDE)), (window + ROWS).min(vertical.output));
        let one_vector = from >= vertical.shared_begin && to <= vertical.shared_end;
        let padded = column + horizontal.padding;
        let place = padded % STRIDE * strips.places + padded / STRIDE - first_column;
        // Fours of rows of the tile, of which the strip's own begin here.
        let own = plane * quads + 2 * strip + margin;
        for kernel in 0..geometry.kernels {
            let [along_y, _] = weights.of(geometry, plane, kernel);
            let mut moments = [0.0; 4];
            let mut begin = 0;
            while one_vector && begin * STRIDE < size {
                // The rows of dy for these taps: the strip's own, and as many above, in fours.
                let above = TAPS;
                let first_quad = own.wrapping_sub((begin + above) / QUAD);
                let rows_of = |table: u32| {
                    // SAFETY: zero bits are 0.0.
                    let mut rows: [f32; WINDOW] = unsafe { core::mem::zeroed() };
                    unrolled!(Q in [0 1 2] {
                        let last_tap = above.saturating_sub(4 * Q as u32 + 3);
                        if last_tap == 0 || (begin + last_tap) * STRIDE < size {
                            let at = spread_place(kernel, table, first_quad.wrapping_add(Q as u32)) + place;
                            // SAFETY: written before the barrier.
                            let four = unsafe { load_quad(spread_rows, at) };
                            unrolled!(R in [0 1 2 3] { rows[4 * Q + R] = four[R]; });
                        }
                    });
                    rows
                };
                let case = vertical.shared_begin * pitch(vertical);
                let vector = along_y + case + begin * STRIDE;
                // SAFETY: the vector is there.
                let by_weight = unsafe { chunk_of_weights(weights.at, vector, size - begin * STRIDE) };
                let rows = rows_of(0);
                unrolled!(I in [0 1 2 3] {
                    unrolled!(P in [0 1 2] {
                        let position = (begin + I as u32) * STRIDE + P as u32;
                        if (P as u32) < STRIDE && position < size {
                            let weight = by_weight[I * STRIDE as usize + P];
                            unrolled!(R in [0 1 2 3 4 5 6 7] {
                                let row = above as usize + R - I;
                                gradient[P][R] = float::fma(weight, rows[row], gradient[P][R]);
                            });
                            if W == 3 {
                                // The gradient by this weight.
                                let mut by = 0.0;
                                unrolled!(R in [0 1 2 3 4 5 6 7] {
                                    by = float::fma(pixels[P][R], rows[above as usize + R - I], by);
                                });
                                let at = vector + I as u32 * STRIDE + P as u32;
                                // SAFETY: the vectors are there.
                                unsafe {
                                    let by_mean = weights.at.load(at + weights.of_table);
                                    let by_var = weights.at.load(at + 2 * weights.of_table);
                                    moments[0] = float::fma(by_mean, by, moments[0]);
                                    moments[2] = float::fma(by_var, by, moments[2]);
                                }
                            }
                        }
                    });
                });
                if W == 3 {
                    // What the pixels sum to along y.
                    // SAFETY: zero bits are 0.0.
                    let mut pooled: [f32; WINDOW] = unsafe { core::mem::zeroed() };
                    unrolled!(I in [0 1 2 3] {
                        unrolled!(P in [0 1 2] {
                            let position = (begin + I as u32) * STRIDE + P as u32;
                            if (P as u32) < STRIDE && position < size {
                                let weight = by_weight[I * STRIDE as usize + P];
                                unrolled!(R in [0 1 2 3 4 5 6 7] {
                                    let row = above as usize + R - I;
                                    pooled[row] = float::fma(weight, pixels[P][R], pooled[row]);
                                });
                            }
                        });
                    });
                    let (by_mean, by_var) = (rows_of(1), rows_of(2));
                    unrolled!(R in [0 1 2 3 4 5 6 7 8 9 10 11] {
                        // The windows over the strip that these taps lead to.
                        if R as u32 + TAPS > above {
                            moments[1] = float::fma(by_mean[R], pooled[R], moments[1]);
                            moments[3] = float::fma(by_var[R], pooled[R], moments[3]);
                        }
                    });
                }
                begin += TAPS;
            }
            // Windows that are cut off have vectors of their own: few strips have such.
            let mut tap = 0;
            while !one_vector && tap * STRIDE < vertical.size {
                unrolled!(R in [0 1 2 3 4 5 6 7] {
                    let row = own * QUAD + R as u32 - tap;
                    // Outside of the output are zeros: any vector does.
                    let case = vertical.case((window + R as u32).saturating_sub(tap).min(vertical.output - 1));
                    let mut of_row = [0.0; W];
                    unrolled!(V in [0 1 2] {
                        if V < W {
                            let at = spread_place(kernel, V as u32, row / QUAD) + place;
                            // SAFETY: written before the barrier.
                            of_row[V] = unsafe { spread_rows.load(at * QUAD + row % QUAD) };
                        }
                    });
                    unrolled!(P in [0 1 2] {
                        let position = tap * STRIDE + P as u32;
                        if (P as u32) < STRIDE && position < vertical.size {
                            let weight_of = |table: u32| {
                                let at = table * weights.of_table + along_y + case * pitch(vertical) + position;
                                // SAFETY: the vector is there.
                                unsafe { weights.at.load(at) }
                            };
                            let weight = weight_of(0);
                            gradient[P][R] = float::fma(weight, of_row[0], gradient[P][R]);
                            if W == 3 {
                                let mut by = [0.0; 3];
                                unrolled!(V in [0 1 2] { by[V] = pixels[P][R] * of_row[V % W]; });
                                moments[0] = float::fma(weight_of(1), by[0], moments[0]);
                                moments[1] = float::fma(weight, by[1], moments[1]);
                                moments[2] = float::fma(weight_of(2), by[0], moments[2]);
                                moments[3] = float::fma(weight, by[2], moments[3]);
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
                            // SAFETY: the row is in the image, as the column is; one thread has it.
                            let old = unsafe { get_if(dx.as_global(), inside, at) };
                            gradient[P][R] = float::fma(dx_beta, old, gradient[P][R]);
                        }
                    });
                });
            }
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                unrolled!(P in [0 1 2] {
                    if (P as u32) < STRIDE {
                        let (inside, at) = place(R, P);
                        // SAFETY: as above.
                        unsafe { dx.store_if(inside, at, T::from_f32(gradient[P][R])) };
                    }
                });
            });
        }
        of_warp += THREADS;
    }
}

/// A thread's strip of one column.
#[derive(Clone, Copy)]
struct Task {
    /// Of the block's, both.
    plane: u32,
    strip: u32,
    column: u32,
    /// The window that begins in the strip's first row.
    window: u32,
    /// The strip's first row, and where the column has it; both wrap where it is above the image.
    top: u32,
    origin: usize,
}

/// Four rows of `dy`, spread along x by a table's weights from `table` on: what the columns of the image have of them in
/// which window number `window` begins and those after it by less than the stride. `from` is that window's place.
///
/// # Safety
/// The vectors are there, and the rows, with zeros where `dy` ends.
#[device_inline]
unsafe fn spread<const STRIDE: u32>(
    geometry: &Geometry,
    weights: &Weights,
    table: u32,
    staged: Shared<f32>,
    from: u32,
    window: u32,
) -> [[f32; 4]; super::MAX_STRIDE as usize] {
    let horizontal = &geometry.axes[1];
    let size = horizontal.size;
    // SAFETY: zero bits are 0.0.
    let mut spread: [[f32; 4]; super::MAX_STRIDE as usize] = unsafe { core::mem::zeroed() };
    let one_vector = horizontal.cases == 1;
    let mut begin = 0;
    while one_vector && begin * STRIDE < size {
        // SAFETY: the caller's.
        let by = unsafe { chunk_of_weights(weights.at, table + begin * STRIDE, size - begin * STRIDE) };
        unrolled!(I in [0 1 2 3] {
            let tap = begin + I as u32;
            if tap * STRIDE < size {
                // SAFETY: the caller's.
                let rows = unsafe { load_quad(staged, from - tap) };
                unrolled!(P in [0 1 2] {
                    if (P as u32) < STRIDE && tap * STRIDE + (P as u32) < size {
                        unrolled!(R in [0 1 2 3] {
                            spread[P][R] = float::fma(by[I * STRIDE as usize + P], rows[R], spread[P][R]);
                        });
                    }
                });
            }
        });
        begin += TAPS;
    }
    // Windows that are cut off have vectors of their own.
    let mut tap = 0;
    while !one_vector && tap * STRIDE < horizontal.size {
        // Outside of the output are zeros: any vector does.
        let case = horizontal.case(window.saturating_sub(tap).min(horizontal.output - 1));
        let at = table + case * pitch(horizontal) + tap * STRIDE;
        // SAFETY: the caller's.
        let rows = unsafe { load_quad(staged, from - tap) };
        unrolled!(P in [0 1 2] {
            if (P as u32) < STRIDE && tap * STRIDE + (P as u32) < horizontal.size {
                // SAFETY: the caller's.
                let weight = unsafe { weights.at.load(at + P as u32) };
                unrolled!(R in [0 1 2 3] { spread[P][R] = float::fma(weight, rows[R], spread[P][R]); });
            }
        });
        tap += 1;
    }
    spread
}

/// Whether any window covers this pixel of the image; anything for one before or after it.
#[device_inline]
fn is_covered<const STRIDE: u32>(axis: &Axis, pixel: u32) -> bool {
    let (size, padded) = (axis.size, pixel.wrapping_add(axis.padding));
    (padded < (axis.output - 1) * STRIDE + size) & (padded % STRIDE < size)
}
