//! Forward.

use cuda_std::prelude::*;

use super::{
    COLUMNS, Columns, LANES_BLOCK, Lanes, MOST_KERNELS, MOST_TAPS, Ring, STRIDE, Unit, VECTOR, WARPS, WINDOWS, Weights,
    Windows, of_maps, ring, taps, turn, warp_of_block,
};
use crate::gaussian_pool::Geometry;

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(size: u32, kernels: usize) -> u32 {
    match (taps(size), kernels) {
        (6, 1) => 5,
        (6, _) => 3,
        _ => 8,
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. The grid has a warp for each unit.
///
/// Of one Gaussian a lane sums its columns along y first, which takes fewer instructions; of several, along x first: then two
/// sums are open of each window instead of four, and their weights stay in registers. (From shared memory, 16 bytes for all
/// lanes alike take as long as 16 for each.)
///
/// On an H200, 64×64×112×112: in bf16 0.83 of the copy rate for 3×3 and 0.66 for 11×11 windows, of three Gaussians 0.38; these
/// in f32 0.74 (docs/perf). Instructions bound it.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `KERNELS` Gaussians, `mean` two and `var` `variances` elements for each Gaussian; `lanes` is
/// what [`LanesPlan::forward`](super::LanesPlan::forward) made of `geometry`, whose windows are of this size.
#[kernel(block = LANES_BLOCK, min_blocks = blocks(SIZE, KERNELS), instances(T = [f32, f16, bf16], (SIZE, TURN, KERNELS) = [(3, 4, 1), (11, 6, 1), (11, 6, 3)]))]
pub unsafe fn gaussian_pool_forward_lanes<T: Storage, const SIZE: u32, const TURN: usize, const KERNELS: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
    lanes: Lanes,
) {
    let [vertical, horizontal] = &geometry.axes;
    let unit = Unit::of_warp_or_nothing(&lanes, 0);
    let bytes = ring::bytes(TURN, size_of::<T>() as u32);
    let of_warp = KERNELS as u32 * 2 * VECTOR;
    // SAFETY: shared memory has each warp's vectors, and then its ring; the plane begins there; the parameters are there; no warp
    // has left.
    let (mut rows, (by_y, by_x)) = unsafe {
        let shared = dynamic_shared::<f32>();
        let ring = shared.offset(WARPS * of_warp).cast::<T>();
        let ring = ring.offset(warp_of_block() * (bytes / size_of::<T>() as u32));
        let plane = x.offset(unit.first_pixel(&geometry));
        let rows = Ring::<T, TURN>::new(plane, ring, &geometry, &lanes, &unit, unit.begin, (0, vertical.image));
        (rows, of_maps::<SIZE, KERNELS>(shared, [mean, var], &geometry, lanes.variances, &unit))
    };
    let (taps, ox) = (taps(SIZE), unit.window(&lanes));
    let map = vertical.output * horizontal.output;
    // SAFETY: the plane's maps begin there.
    let y = unsafe { y.offset(unit.plane as usize * KERNELS * map as usize) };
    // The row of windows that a step completes, counted from the part's first, and how many of each column are stored.
    let mut row = 0u32.wrapping_sub(taps as u32 - 1);
    let mut to = unit.begin.wrapping_add(row).wrapping_mul(horizontal.output).wrapping_add(ox).cast_signed();
    let mut stored = [0; WINDOWS];
    unrolled!(V in [0 1] {
        let there = unit.stores & (ox.wrapping_add(V as u32) < horizontal.output);
        stored[V] = if there { unit.end - unit.begin } else { 0 };
    });

    // SAFETY: zero bits are 0.0.
    let mut open: [[Columns; MOST_TAPS]; MOST_KERNELS] = unsafe { core::mem::zeroed() };
    let steps = if unit.end > unit.begin { unit.end - unit.begin + taps as u32 - 1 } else { 0 };
    let mut step = 0;
    while step < steps {
        // 0, see `Ring::next`.
        let nothing = step >> 31;
        unrolled!(Q in [0 1 2 3 4 5] {
            if Q < turn(SIZE) && step + (Q as u32) < steps {
                // SAFETY: one step after another.
                let rows = unsafe { rows.next(Q, nothing) };
                unrolled!(K in [0 1 2] {
                    if K < KERNELS {
                        let (open, by_y, by_x) = (&mut open[K], &by_y[K], &by_x[K]);
                        unrolled!(I in [0 1] {
                            let pixels = rows[I].map(T::to_f32);
                            if KERNELS == 1 {
                                down::<SIZE>(open, Q, I, &pixels, by_y);
                            } else {
                                let [left, right] = pool::<SIZE>(&pixels, by_x);
                                down::<SIZE>(open, Q, I, &[left, right, 0.0, 0.0], by_y);
                            }
                        });
                        // The row of windows that is complete.
                        let complete = open[(Q + 1) % taps];
                        let totals =
                            if KERNELS == 1 { pool::<SIZE>(&complete, by_x) } else { [complete[0], complete[1]] };
                        let to = to as isize + K as isize * map as isize;
                        unrolled!(V in [0 1] {
                            let at = (to + V as isize).cast_unsigned();
                            // SAFETY: stored only where the window is in the output; one lane of one warp has it.
                            unsafe { y.store_if(row < stored[V], at, T::from_f32(totals[V])) };
                        });
                    }
                });
                to = to.wrapping_add((horizontal.output + nothing).cast_signed());
                row = row.wrapping_add(1);
            }
        });
        step += turn(SIZE) as u32;
    }
}

/// Adds row `i` of a step to the windows over it, of which the step's own is kept as number `step`.
#[device_inline]
fn down<const SIZE: u32>(open: &mut [Columns; MOST_TAPS], step: usize, i: usize, row: &Columns, by: &Weights) {
    let taps = taps(SIZE);
    unrolled!(M in [0 1 2 3 4 5] {
        let position = M * STRIDE + i;
        if M < taps && position < SIZE as usize {
            let window = &mut open[(step + taps - M) % taps];
            unrolled!(J in [0 1 2 3] {
                // A window's first position begins its sum.
                let sum = window[J];
                window[J] = if position == 0 { by[position] * row[J] } else { float::fma(by[position], row[J], sum) };
            });
        }
    });
}

/// The sums of the windows that begin in the lane's columns, of these columns and the next lanes'. A sum begins with the last of
/// these lanes and is handed on from lane to lane.
#[device_inline]
fn pool<const SIZE: u32>(values: &Columns, by: &Weights) -> Windows {
    let mut totals = [0.0; WINDOWS];
    unrolled!(V in [0 1] {
        unrolled!(L in [3 2 1 0] {
            // Where the first of a lane's columns is, so many lanes after that in which the window begins.
            let first = (L * COLUMNS).wrapping_sub(V * STRIDE);
            let reached = L == 0 || first < SIZE as usize;
            let begun = first.wrapping_add(COLUMNS) < SIZE as usize;
            if reached {
                let mut total = if begun { warp::shuffle_down(totals[V], 1) } else { 0.0 };
                unrolled!(J in [0 1 2 3] {
                    let position = first.wrapping_add(J);
                    if position < SIZE as usize {
                        let product = by[position] * values[J];
                        let is_first = !begun && (position == first || (L == 0 && position == 0));
                        total = if is_first { product } else { float::fma(by[position], values[J], total) };
                    }
                });
                totals[V] = total;
            }
        });
    });
    totals
}
