//! Backward of several Gaussians of a channel: the input's gradient.

use cuda_std::prelude::*;

use super::backward::{From, Own, Pixels, gather, rows_of_part};
use super::{
    COLUMNS, Columns, LANES_BLOCK, Lanes, MOST_KERNELS, MOST_TAPS, STRIDE, Unit, WINDOWS, Weights, Windows, of_maps,
    reach, taps, turn,
};
use crate::gaussian_pool::Geometry;

/// Rows of `dy` that are on their way to registers, as many as divide a turn; and rows after these that are on their way from memory.
const NEXT: usize = 2;
const AHEAD: u32 = 3;

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`, for `KERNELS` Gaussians of each
/// channel. The grid has a warp for each unit.
///
/// A lane keeps its windows of the rows of `dy` over a step, spreads them over the step's two rows of the image first, and of
/// all Gaussians together over columns: what its windows give to columns of the lanes after it is handed on from lane to lane, once
/// for all Gaussians. All weights stay in registers.
///
/// On an H100, 64×64×112×112: 0.79 of the copy rate in f32, bound by memory and by what is left of its latency; 0.50 in 16 bits, bound by
/// instructions (docs/perf).
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` `KERNELS` maps of each, `mean` two and `var` `variances` elements for each Gaussian;
/// `lanes` is what [`LanesPlan::backward`](super::LanesPlan::backward) made of `geometry`, whose windows are of this size, and
/// whose lanes' columns are in the image all or not at all.
#[kernel(block = LANES_BLOCK, min_blocks = 3, instances(T = [f32, f16, bf16], (SIZE, KERNELS) = [(11, 3)]))]
pub unsafe fn gaussian_pool_backward_maps_lanes<T: Storage, const SIZE: u32, const KERNELS: usize>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    lanes: Lanes,
) {
    let [vertical, horizontal] = &geometry.axes;
    let unit = Unit::of_warp_or_nothing(&lanes, reach(SIZE));
    let (before, map) = (taps(SIZE) as u32 - 1, vertical.output * horizontal.output);
    let first = vertical.padding / STRIDE as u32 + unit.begin;
    let steps = unit.end - unit.begin;
    // SAFETY: the plane begins there, and so do its maps.
    let (mut from, mut pixels) = unsafe {
        let rows = rows_of_part(vertical, first, steps);
        let pixels = Pixels::new(dx.offset(unit.first_pixel(&geometry)), &geometry, &lanes, &unit, first, rows);
        (From::new(dy, KERNELS as u32, &geometry, &lanes, &unit, first.wrapping_sub(before)), pixels)
    };
    // The rows over a step, its own last, and those of the next steps. (Where the hardware waits for one of these it now and then waits for
    // the others too: those after come as far as the L2 cache.)
    // SAFETY: zero bits are zeros.
    let (mut rows, mut next): ([[Windows; MOST_TAPS]; MOST_KERNELS], [[Own<T>; NEXT]; MOST_KERNELS]) =
        unsafe { core::mem::zeroed() };
    unrolled!(P in [1 2 3 4 5] {
        unrolled!(K in [0 1 2] {
            // SAFETY: the planes hold them.
            if K < KERNELS { rows[K][P] = unsafe { from.of_map(K as u32 * map) }.map(T::to_f32) }
        });
        from.next(0);
    });
    unrolled!(A in [0 1] {
        unrolled!(K in [0 1 2] {
            // SAFETY: as above.
            if K < KERNELS { next[K][A] = unsafe { from.of_map(K as u32 * map) } }
        });
        from.next(0);
    });
    // SAFETY: shared memory has the vectors of each warp; the parameters are there; no warp has left.
    let (by_y, by_x) =
        unsafe { of_maps::<SIZE, KERNELS>(dynamic_shared(), [mean, var], &geometry, lanes.variances, &unit) };
    let mut step = 0;
    'steps: while step < steps {
        // 0, see `From::load`.
        let nothing = step >> 31;
        unrolled!(Q in [0 1 2 3 4 5] {
            // Left here, not passed over: what is under way to registers would be waited for where two ways meet.
            if step + Q as u32 >= steps {
                break 'steps;
            }
            if Q < turn(SIZE) {
                unrolled!(K in [0 1 2] {
                    if K < KERNELS {
                        rows[K][Q] = next[K][Q % NEXT].map(T::to_f32);
                        // SAFETY: the planes hold them.
                        unsafe {
                            next[K][Q % NEXT] = from.of_map(K as u32 * map);
                            from.prefetch(K as u32 * map, AHEAD);
                        }
                    }
                });
                from.next(nothing);
                unrolled!(I in [0 1] {
                    let mut windows = [[0.0; WINDOWS]; MOST_KERNELS];
                    unrolled!(K in [0 1 2] {
                        if K < KERNELS { windows[K] = gather::<SIZE, WINDOWS>(&rows[K], Q, I, &by_y[K]) }
                    });
                    // SAFETY: one lane of one warp has these pixels.
                    unsafe { pixels.put(spread::<SIZE, KERNELS>(&windows, &by_x), dx_beta, nothing) };
                });
            }
        });
        step += turn(SIZE) as u32;
    }
}

/// What windows of all Gaussians give to the lane's columns, those that begin there and those of the lanes before: a column's sum
/// begins with the last lane that it is after, and is handed on from lane to lane.
#[device_inline]
fn spread<const SIZE: u32, const KERNELS: usize>(
    windows: &[Windows; MOST_KERNELS],
    by: &[Weights; MOST_KERNELS],
) -> Columns {
    let mut totals = [0.0; COLUMNS];
    unrolled!(L in [3 2 1 0] {
        unrolled!(J in [0 1 2 3] {
            // Of window V the column is position `L * COLUMNS + J - V * STRIDE`: one so many lanes after the window's own.
            let begun = (L + 1) * COLUMNS + J < SIZE as usize + (WINDOWS - 1) * STRIDE;
            let mut total = if begun { warp::shuffle_up(totals[J], 1) } else { 0.0 };
            unrolled!(K in [0 1 2] {
                unrolled!(V in [0 1] {
                    let position = (L * COLUMNS + J).wrapping_sub(V * STRIDE);
                    if K < KERNELS && position < SIZE as usize {
                        // The sum begins with what nothing was handed on for.
                        let first = !begun && K == 0 && (V == 0 || L * COLUMNS + J >= SIZE as usize);
                        let (weight, window) = (by[K][position], windows[K][V]);
                        total = if first { weight * window } else { float::fma(weight, window, total) };
                    }
                });
            });
            totals[J] = total;
        });
    });
    totals
}
