//! Backward with the gradients of mean and variance.

use cuda_std::prelude::*;

use super::backward::{From, Own, Pixels, gather, rows_of_part};
use super::{
    COLUMNS, Columns, LANES_BLOCK, Lanes, MOST_TAPS, Ring, STRIDE, Unit, VECTOR, WARPS, WINDOWS, Weights, compute,
    load_vector, reach, ring, taps, turn, warp_of_block,
};
use crate::gaussian_pool::{Axis, Geometry, SUMS_PER_GAUSSIAN};

/// Lanes of a tile before those that store: as many as windows reach over, and two of them copy 16 bytes of 16-bit elements.
pub(super) const fn before(size: u32) -> u32 {
    reach(size).next_multiple_of(2)
}
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(size: u32) -> u32 {
    if taps(size) == 6 { 3 } else { 5 }
}
/// Elements of a row of `dy` in shared memory, after those that lanes before the first have.
const ROW: u32 = WINDOWS as u32 * warp::WARP_SIZE;
/// Elements of shared memory of a warp for rows of `dy`: of a turn of the loop, and of this one and the one before.
const TURN_ROWS: u32 = EDGE + MOST_TAPS as u32 * ROW;
const ROWS: u32 = 2 * TURN_ROWS;
/// Elements that lanes before the first have; those of each turn's first row are its own, for no barrier is between who reads them last and
/// who writes the other turn's rows.
const EDGE: u32 = 8;

/// Bytes of the same.
pub(super) const fn staged_bytes() -> u32 {
    4 * ROWS
}

/// The backward pass for `dx`, where it is there, with each unit's part of the sums for the Gaussian of its plane, laid out
/// `[planes, tiles * parts, 4]`. The grid has a warp for each unit.
///
/// What each position of a window along one axis meets, `x` times `dy` with the weights of the other axis, is summed for the
/// position; the weights' derivatives come last. Rows of `dy` are in shared memory, for they are needed twice: when they are
/// spread, and when the windows' pixels are summed along y.
///
/// On an H200, 64×64×112×112: in f32 0.93 of the copy rate for 3×3 and 0.83 for 11×11 windows, in bf16 0.75 and 0.51
/// (docs/perf); large windows are bound by instructions.
///
/// # Safety
/// The module's, as for [`gaussian_pool_backward_lanes`](super::gaussian_pool_backward_lanes), for one Gaussian of each
/// channel; `x` holds the planes.
#[kernel(block = LANES_BLOCK, min_blocks = blocks(SIZE), instances(T = [f32, f16, bf16], (SIZE, TURN) = [(3, 4), (11, 6)]))]
pub unsafe fn gaussian_pool_backward_parameters_lanes<T: Storage, const SIZE: u32, const TURN: usize>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: GlobalMut<f32>,
    geometry: Geometry,
    lanes: Lanes,
) {
    let [vertical, horizontal] = &geometry.axes;
    let Some(unit) = Unit::of_warp(&lanes, before(SIZE)) else { return };
    let (taps, stored) = (taps(SIZE), unit.end - unit.begin);
    // The first row of `dy` whose step is stored, and the first that the part needs.
    let first = vertical.padding / STRIDE as u32 + unit.begin;
    let before = first.min(taps as u32 - 1);
    let start = first - before;
    // A pixel that no window covers is no term: its NaN times the zeros that it meets would be one.
    let covered = |axis: &Axis| ((axis.output - 1) * STRIDE as u32 + SIZE - axis.padding).min(axis.image);
    let of_part = rows_of_part(vertical, first, stored);
    let column = unit.column(&lanes, horizontal);
    let counts = |j: usize| unit.stores & (column.wrapping_add(j as u32) < covered(horizontal));

    let bytes = ring::bytes(TURN, size_of::<T>() as u32);
    // SAFETY: shared memory has each warp's vectors, its rows of `dy`, and its ring; the plane begins there, and so does its
    // map; the parameters are there.
    let (mut rows, mut from, mut to, weights, staged) = unsafe {
        let shared = dynamic_shared::<f32>();
        let staged = shared.offset(WARPS * 6 * VECTOR + warp_of_block() * ROWS);
        let ring = shared.offset(WARPS * (6 * VECTOR + ROWS)).cast::<T>();
        let ring = ring.offset(warp_of_block() * (bytes / size_of::<T>() as u32));
        let plane = unit.first_pixel(&geometry);
        let wanted = (of_part.0.min(covered(vertical)), of_part.1.min(covered(vertical)));
        let rows = Ring::<T, TURN>::new(x.offset(plane), ring, &geometry, &lanes, &unit, start, wanted);
        let from = From::new(dy, 1, &geometry, &lanes, &unit, start);
        let to = dx.map(|dx| Pixels::new(dx.offset(plane), &geometry, &lanes, &unit, start, of_part));
        (rows, from, to, shared.offset(warp_of_block() * 6 * VECTOR), staged)
    };
    // Those of the next turn.
    // SAFETY: zero bits are zeros.
    let mut ahead: [Own<T>; MOST_TAPS] = unsafe { core::mem::zeroed() };
    unrolled!(A in [0 1 2 3 4 5] {
        // SAFETY: the planes hold them.
        if A < turn(SIZE) { ahead[A] = unsafe { from.load(0) } }
    });
    // SAFETY: the vectors are this warp's, and so are the rows, before the first of which there are none.
    unsafe {
        compute(weights, [mean, var], &geometry, lanes.variances, unit.gaussian(&geometry), 3);
        let mut i = warp::lane_id();
        while i < ROWS {
            staged.store(i, 0.0);
            i += warp::WARP_SIZE;
        }
        warp::sync_warp(warp::FULL_MASK);
    }
    // SAFETY: the vectors were written before the barrier.
    let of = |vector: u32| unsafe { load_vector::<SIZE>(weights, vector * VECTOR) };
    // Where the lane's windows are in the rows of this turn, and in those of the one before.
    let place = |turn: u32| turn * TURN_ROWS + EDGE + warp::lane_id() * WINDOWS as u32;
    let (mut here, mut there) = (place(0), place(1));

    // Of the windows over a row: `dy` spread over the lane's columns, and the columns pooled along y so far.
    // SAFETY: zero bits are 0.0.
    let (mut spreads, mut pooled): ([Columns; MOST_TAPS], [Columns; MOST_TAPS]) = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let (mut of_y, mut of_x): (Weights, Weights) = unsafe { core::mem::zeroed() };
    // Windows that reach past the part's last row are met with what they have of it.
    let past = first + stored;
    let open = past.min(vertical.output).saturating_sub(past.saturating_sub(taps as u32 - 1));
    let steps = before + stored + open;
    let mut step = 0;
    while step < steps {
        unrolled!(A in [0 1 2 3 4 5] {
            if A < turn(SIZE) {
                let [left, right] = ahead[A].map(T::to_f32);
                // SAFETY: the warp has been past the rows that were there.
                unsafe { staged.store2(here + A as u32 * ROW, Vec2::new(left, right)) };
            }
        });
        unrolled!(A in [0 1 2 3 4 5] {
            // SAFETY: the planes hold them.
            if A < turn(SIZE) { ahead[A] = unsafe { from.load(step >> 31) } }
        });
        unrolled!(Q in [0 1 2 3 4 5] {
            // (Past the last is nothing to do; and the branch keeps the compiler from beginning several steps at once.)
            if Q < turn(SIZE) && step + (Q as u32) < steps {
                // 0, but the compiler cannot know that: it would keep weights and places in registers.
                let nothing = (step + Q as u32) >> 31;
                // SAFETY: one step after another. (Its barrier is that of the rows of `dy`, too.)
                let pixels = unsafe { rows.next(Q, nothing) };
                pooled[Q % taps] = [0.0; COLUMNS];
                let by_x = of(1 + nothing);
                let mut spread = [0.0; COLUMNS];
                // SAFETY: written before the barrier.
                let values = unsafe { neighbours::<SIZE>(staged, here + Q as u32 * ROW) };
                each_product::<SIZE>(|position, j, value| spread[j] = float::fma(by_x[position], values[value], spread[j]));
                spreads[Q % taps] = spread;
                let by_y = of(nothing);
                unrolled!(I in [0 1] {
                    if let Some(to) = &mut to {
                        let gradient = gather::<SIZE, COLUMNS>(&spreads, Q, I, &by_y);
                        // SAFETY: one lane of one warp has these pixels.
                        unsafe { to.put(gradient, dx_beta, nothing) };
                    }
                    unrolled!(J in [0 1 2 3] {
                        let pixel = if counts(J) { pixels[I][J].to_f32() } else { 0.0 };
                        unrolled!(M in [0 1 2 3 4 5] {
                            let position = M * STRIDE + I;
                            if M < taps && position < SIZE as usize {
                                let window = (Q + taps - M) % taps;
                                of_y[position] = float::fma(pixel, spreads[window][J], of_y[position]);
                                pooled[window][J] = float::fma(by_y[position], pixel, pooled[window][J]);
                            }
                        });
                    });
                });
                // The row of windows that is complete.
                let row = Q + 1 + turn(SIZE) - taps;
                let at = if row >= turn(SIZE) { here + (row - turn(SIZE)) as u32 * ROW } else { there + row as u32 * ROW };
                // SAFETY: written before the barrier.
                let values = unsafe { neighbours::<SIZE>(staged, at) };
                let columns = pooled[(Q + 1) % taps];
                each_product::<SIZE>(|position, j, value| of_x[position] = float::fma(values[value], columns[j], of_x[position]));
            }
        });
        (here, there) = (there, here);
        step += turn(SIZE) as u32;
    }

    let mut moments = [0.0; SUMS_PER_GAUSSIAN as usize];
    unrolled!(V in [0 1] {
        let (by_y, by_x) = (of(2 * V as u32 + 2), of(2 * V as u32 + 3));
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
            if (I as u32) < SIZE {
                moments[2 * V] = float::fma(by_y[I], of_y[I], moments[2 * V]);
                moments[2 * V + 1] = float::fma(by_x[I], of_x[I], moments[2 * V + 1]);
            }
        });
    });
    let sum = Vec4::from(moments.map(|sum| warp::reduce_sum(sum)));
    if warp::lane_id() == 0 {
        let at = unit.plane as usize * (lanes.tiles * lanes.parts) as usize + unit.number as usize;
        // SAFETY: each unit has four sums.
        unsafe { sums.store4(at * SUMS_PER_GAUSSIAN as usize, sum) };
    }
}

/// The values of a row of `dy` of the windows that begin in the lane's columns, at `at`, and in as many lanes before as windows
/// reach over, the furthest first.
///
/// # Safety
/// They are there.
#[device_inline]
unsafe fn neighbours<const SIZE: u32>(staged: Shared<f32>, at: u32) -> [f32; EDGE as usize] {
    let mut values = [0.0; EDGE as usize];
    unrolled!(L in [0 1 2 3] {
        if (L as u32) <= reach(SIZE) {
            // SAFETY: the caller's.
            let pair = unsafe { staged.load2(at - (reach(SIZE) - L as u32) * WINDOWS as u32) };
            (values[2 * L], values[2 * L + 1]) = (pair.x, pair.y);
        }
    });
    values
}

/// Calls `product` for each position of a window at which one of the lane's columns is for one of [`neighbours`]' windows, with
/// column and window.
#[device_inline]
fn each_product<const SIZE: u32>(mut product: impl FnMut(usize, usize, usize)) {
    let before = reach(SIZE) as usize * WINDOWS;
    unrolled!(W in [0 1 2 3 4 5 6 7] {
        if W < before + WINDOWS {
            unrolled!(J in [0 1 2 3] {
                let position = (J + STRIDE * before).wrapping_sub(STRIDE * W);
                if position < SIZE as usize {
                    product(position, J, W);
                }
            });
        }
    });
}
