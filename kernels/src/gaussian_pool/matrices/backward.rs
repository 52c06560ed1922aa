//! Backward: the input's gradient.

#![allow(unused_assignments, reason = "of what a tile leaves for the next one, the last tile's is for none")]

use cuda_std::arch::sm_80::{Half, Paired, mma_m16n8k16};
use cuda_std::prelude::*;

use super::maps::{Maps, PITCH, REACH, Rows, last};
use super::ring::{Ring, VECTOR};
use super::{
    Fragment, Known, MATRICES_BLOCK, MOST_KERNELS, Matrices, PIECES, PIXELS, STRIDE, TILES, Unit, WARPS, WINDOWS,
    Weights, is_wrong, of_warp, parts, place, scales,
};
use crate::gaussian_pool::staged::Pool;
use crate::gaussian_pool::{Geometry, divide, get_if};

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(kernels: usize) -> u32 {
    if kernels == 1 { 4 } else { 3 }
}

/// Elements from one row to the next of a step's rows of pixels where they wait to be stored: what eight rows have of a column is in different banks.
const STAGED_PITCH: u32 = PIECES as u32 * PIXELS;
/// Words of shared memory of a warp beside weights: rows of windows, and rows of the image, of two steps each.
pub(super) const fn words(kernels: usize) -> u32 {
    let bytes = kernels as u32 * Rows::<f16, WINDOWS>::BYTES + 2 * PIXELS * STAGED_PITCH * 2;
    bytes / 4
}

/// What a lane has of the sums along x of a tile, as the second product wants it: the higher parts, and the lower, of its two fragments of columns,
/// of two steps.
type Sums = [[[u32; 2]; 2]; 2];

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy`, for `KERNELS` Gaussians of each channel, whose maps have `ROWS` rows
/// of a step, eight each. Warps take one unit after another. `EVEN` says that rows of windows are of an even number, so that two are loaded at once.
///
/// The first product has the weights along x on its left, for the 16 columns of a tile, by two fragments for their parts, and on its right eight
/// rows of windows; the second one the weights along y on its left, for 16 rows of the image, and on its right what the first one gave of 16 rows of
/// windows, eight of them of the step before. The columns of a tile are in such an order that a lane has four neighbours in the end.
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` `KERNELS` maps of each, `mean` two and `var` `variances` elements for each Gaussian; `matrices` is what
/// [`MatricesPlan::backward`](super::MatricesPlan::backward) made of `geometry`.
#[kernel(
    block = MATRICES_BLOCK,
    min_blocks = blocks(KERNELS),
    instances(T = [f16, bf16], (KERNELS, ROWS) = [(1, 8), (3, 24)], EVEN = [false, true])
)]
pub unsafe fn gaussian_pool_backward_matrices<
    T: Half + Pool,
    const KERNELS: usize,
    const ROWS: u32,
    const EVEN: bool,
>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    geometry: Geometry,
    matrices: Matrices,
) {
    let [vertical, horizontal] = &geometry.axes;
    let [g, c] = place();
    // SAFETY: shared memory is the plan's.
    let (weights, ring, staged) = unsafe {
        let (weights, rows) = of_warp(&geometry, KERNELS as u32, words(KERNELS));
        let staged = rows.offset(Rows::<T, ROWS>::BYTES / 4).cast::<u32>();
        (
            weights,
            Ring::<T, ROWS, PITCH>(rows.cast()),
            [0, 1].map(|place| staged.offset(place * PIXELS * STAGED_PITCH / 2)),
        )
    };
    let prepare = |weights: Weights, gaussian: u32| {
        // SAFETY: the parameters are there; the warp's lanes are here.
        unsafe { prepare::<T>(weights, [mean, var], &geometry, matrices.variances, gaussian) };
    };
    // SAFETY: shared memory has them.
    let mut known = unsafe { Known::of_block::<KERNELS>(&geometry, weights, prepare) };
    let mut next = thread::block_idx_x() * WARPS + thread::thread_idx_x() / warp::WARP_SIZE;
    while next < matrices.units {
        let unit = Unit::new(&matrices, next);
        next += thread::grid_dim_x() * WARPS;
        // The step before the first one counts if it has rows; whichever is even comes first, so that each step's place is known.
        let first = unit.begin.saturating_sub(1) & !1;
        let mut maps = Maps::new(&geometry, &unit, KERNELS as u32, first);
        // SAFETY: nobody reads there; the maps are there.
        unsafe { maps.begin::<T, KERNELS, ROWS>(0, ring, 0, dy) };
        // SAFETY: shared memory has them; the warp's lanes are here, and past those of the unit before.
        unsafe { known.of_plane::<KERNELS>(&geometry, weights, unit.plane, prepare) };
        // SAFETY: the plane begins there.
        let plane = unsafe { dx.offset(unit.plane as usize * vertical.image as usize * horizontal.image as usize) };

        // What the steps before and now have given, even ones first.
        // SAFETY: zero bits are 0.
        let mut sums: [[Sums; TILES]; MOST_KERNELS] = unsafe { core::mem::zeroed() };
        let mut wrong = 0;
        let mut step = first;
        'steps: while step < unit.end {
            // 0, which the compiler cannot know to be the same in every turn of the loop: it would keep what follows in registers.
            let nothing = step >> 31;
            unrolled!(P in [0 1] {
                let now = step + P as u32;
                if now >= unit.end {
                    break 'steps;
                }
                ring.wait();
                if maps.ends {
                    // SAFETY: zeros have been copied to where these go; the next barrier is before whoever reads them.
                    unsafe { maps.put_last::<T, KERNELS, ROWS>(now * WINDOWS, ring, P, dy) };
                    warp::sync_warp(warp::FULL_MASK);
                }
                if now > unit.begin {
                    // SAFETY: staged before the barrier.
                    unsafe { store(plane, staged[1 - P], &geometry, &unit, now - 1) };
                }
                // SAFETY: all lanes have read what was there; the maps are there.
                unsafe { maps.begin::<T, KERNELS, ROWS>(nothing, ring, 1 - P, dy) };
                let own = g * (STAGED_PITCH / 2) + 2 * c;
                let load = |kernel: usize| {
                    // SAFETY: prepared.
                    unsafe {
                        let weights = Weights::of(weights, kernel as u32);
                        (weights.get(0), weights.get(2 + 2 * P as u32))
                    }
                };
                let of_one = if KERNELS == 1 { load(0) } else { Default::default() };
                // The last piece of the tiles before.
                let mut beside = [0; MOST_KERNELS];
                // Tiles by twos: of several Gaussians, weights that are loaded once for all would take too many registers.
                unrolled!(D in [0 1] {
                    if KERNELS > 1 && D > 0 {
                        // No load from shared memory is done once for both sides of this.
                        warp::sync_warp(warp::FULL_MASK);
                    }
                    // Sums of the tiles' two fragments of columns.
                    let mut four = [[[0.0; 4]; 2]; 2];
                    unrolled!(K in [0 1 2] {
                        if K < KERNELS {
                            // SAFETY: prepared, and copied; all lanes are here.
                            unsafe {
                                let (across, [high, low]) = if KERNELS == 1 { of_one } else { load(K) };
                                let rows = ring.rows(P, K as u32 * WINDOWS + g);
                                let piece = |i: usize| maps.pair::<T, EVEN>(rows, K, nothing, i, [g, c]);
                                let first = if D == 0 { piece(0) } else { beside[K] };
                                let pieces = [first, piece(2 * D + 1), piece(2 * D + 2)];
                                beside[K] = pieces[2];
                                unrolled!(E in [0 1] {
                                    let [upper, lower] = &mut sums[K][2 * D + E];
                                    let own = along_x::<T>(across, [pieces[E], pieces[E + 1]]);
                                    unrolled!(F in [0 1] { [upper[F][P], lower[F][P]] = own[F]; });
                                    wrong = bf16::sum(bf16::sum(own[0][1], own[1][1]), wrong);
                                    unrolled!(F in [0 1] {
                                        let four = &mut four[E][F];
                                        *four = mma_m16n8k16::<bf16>(high, upper[F], *four);
                                        *four = mma_m16n8k16::<bf16>(low, upper[F], *four);
                                        *four = mma_m16n8k16::<bf16>(high, lower[F], *four);
                                    });
                                });
                            }
                        }
                    });
                    unrolled!(E in [0 1] {
                        unrolled!(R in [0 1] {
                            let words = four[E].map(|four| T::join([four[2 * R], four[2 * R + 1]]));
                            let at = own + R as u32 * WINDOWS * (STAGED_PITCH / 2) + (2 * D + E) as u32 * (PIXELS / 2);
                            // SAFETY: the warp's, of which this lane has these.
                            unsafe { staged[P].store2(at, Vec2::from(words)) };
                        });
                    });
                });
            });
            step += 2;
        }
        // What was begun to be copied is not wanted, but its place is.
        ring.wait();
        // SAFETY: staged before the barrier; the next unit stages after another one.
        unsafe {
            let last = if unit.end % 2 == 1 { staged[0] } else { staged[1] };
            store(plane, last, &geometry, &unit, unit.end - 1);
        }
        warp::sync_warp(warp::FULL_MASK);
        if is_wrong(wrong) {
            // SAFETY: the unit's pixels are stored, and seen by the warp after the barrier.
            unsafe { again::<T, KERNELS>(dy, plane, weights, &geometry, &unit) };
            // The next unit may have other weights.
            warp::sync_warp(warp::FULL_MASK);
        }
    }
}

/// Stores the staged rows of a step.
///
/// # Safety
/// They are staged; the plane is there, and such pixels are the warp's.
#[device_inline]
unsafe fn store<T: Half>(plane: GlobalMut<T>, staged: Shared<u32>, geometry: &Geometry, unit: &Unit, step: u32) {
    let [vertical, horizontal] = &geometry.axes;
    let (below, beside) = (warp::lane_id() / VECTOR, warp::lane_id() % VECTOR);
    let top = (step * PIXELS + below).wrapping_sub(vertical.padding);
    let column = unit.strip * TILES as u32 * PIXELS + beside * VECTOR;
    let height = if column < horizontal.image { vertical.image } else { 0 };
    let at = top.wrapping_mul(horizontal.image).wrapping_add(column).cast_signed() as isize >> 1;
    unrolled!(R in [0 1 2 3] {
        let down = R as u32 * (warp::WARP_SIZE / VECTOR);
        let from = (below + down) * (STAGED_PITCH / 2) + beside * (VECTOR / 2);
        let to = at + (down / 2 * horizontal.image) as isize;
        let there = top.wrapping_add(down) < height;
        // SAFETY: the caller's; stored only where the pixels, eight as columns and the width are multiples of it, are in the image; one
        // lane has them.
        unsafe { plane.cast::<u32>().store4_if(there, to.cast_unsigned(), staged.load4(from)) };
    });
}

/// Computes a Gaussian's weights and their fragments.
///
/// # Safety
/// As [`Weights::compute`].
#[device_inline]
unsafe fn prepare<T: Half + Pool>(
    weights: Weights,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    gaussian: u32,
) {
    let [g, c] = place();
    let horizontal = &geometry.axes[1];
    let [by, back] = scales::<T>();
    // A pixel's position in the window after it is two less.
    let step = STRIDE.wrapping_neg();
    // SAFETY: the caller's.
    unsafe {
        weights.compute(parameters, geometry, variances, gaussian);
        let (mut high, mut low) = ([0; 4], [0; 4]);
        unrolled!(J in [0 1 2 3] {
            // Rows 2c and 2c + 1 of both fragments of the second product are to be columns 4c to 4c + 3.
            let pixel = g / 2 * 4 + g % 2 + J as u32 % 2 * 2;
            let window = J as u32 / 2 * WINDOWS + 2 * c;
            let of_first = pixel + horizontal.padding + STRIDE * (REACH - 1);
            let first = of_first.wrapping_sub(STRIDE * (last(horizontal) + window));
            [high[J], low[J]] = weights.two::<T>(geometry, false, by, first, step);
        });
        weights.put(0, high);
        weights.put(1, low);
        unrolled!(J in [0 1 2 3] {
            let (pixel, window) = (J as u32 % 2 * WINDOWS + g, J as u32 / 2 * WINDOWS + 2 * c);
            let first = (pixel + PIXELS).wrapping_sub(STRIDE * window);
            [high[J], low[J]] = weights.two::<bf16>(geometry, true, back, first, step);
        });
        // At odd steps the rows of the step before come second.
        let turned = |[a, b, c, d]: Fragment| [c, d, a, b];
        weights.put(2, turned(high));
        weights.put(3, turned(low));
        weights.put(4, high);
        weights.put(5, low);
    }
}

/// Sums along x of a tile's columns by eight rows of windows, of 16 neighbouring windows of each: those of each fragment of columns in two parts.
///
/// # Safety
/// All lanes of the warp come together.
#[device_inline]
unsafe fn along_x<T: Half>([high, low]: [Fragment; 2], windows: [u32; 2]) -> [[u32; 2]; 2] {
    // SAFETY: the caller's.
    let [a, b, c, d] = unsafe {
        let sums = mma_m16n8k16::<T>(low, windows, [0.0; 4]);
        mma_m16n8k16::<T>(high, windows, sums)
    };
    [parts::<bf16>([a, b]), parts::<bf16>([c, d])]
}

/// Computes those of a unit's pixels again that are not finite, one by one.
///
/// # Safety
/// They are stored, and the weights are where they were computed; the warp's lanes come together.
#[device_inline]
unsafe fn again<T: Half + Pool, const KERNELS: usize>(
    dy: Global<T>,
    plane: GlobalMut<T>,
    weights: Shared<f32>,
    geometry: &Geometry,
    unit: &Unit,
) {
    let [vertical, horizontal] = &geometry.axes;
    let first = unit.strip * TILES as u32 * PIXELS;
    let columns = (horizontal.image - first).min(TILES as u32 * PIXELS);
    let of_step = |step: u32| (step * PIXELS).saturating_sub(vertical.padding).min(vertical.image);
    let (begin, end) = (of_step(unit.begin), of_step(unit.end));
    let maps = unit.plane as usize * KERNELS * (vertical.output * horizontal.output) as usize;
    let mut i = warp::lane_id();
    while i < (end - begin) * columns {
        let (below, right) = divide(i, columns);
        let (row, column) = (begin + below, first + right);
        let to = (row * horizontal.image + column) as usize;
        // SAFETY: the unit's.
        if unsafe { plane.as_global().load(to) }.to_f32() * 0.0 != 0.0 {
            let mut sum = 0.0;
            let [rows, columns] = [vertical.covering(row, 1), horizontal.covering(column, 1)];
            let mut kernel = 0;
            while kernel < KERNELS as u32 {
                // SAFETY: shared memory has them.
                let weights = unsafe { Weights::of(weights, kernel) };
                let mut oy = rows.0;
                while oy < rows.1 {
                    let mut of_row = 0.0;
                    let mut ox = columns.0;
                    while ox < columns.1 {
                        let at = maps + ((kernel * vertical.output + oy) * horizontal.output + ox) as usize;
                        // SAFETY: such windows are in the map, and cover the pixel; the weights are there.
                        unsafe {
                            let weight = weights.at(false, column + horizontal.padding - ox * STRIDE);
                            of_row = float::fma(weight, get_if(dy, true, at), of_row);
                        }
                        ox += 1;
                    }
                    // SAFETY: as above.
                    let weight = unsafe { weights.at(true, row + vertical.padding - oy * STRIDE) };
                    sum = float::fma(weight, of_row, sum);
                    oy += 1;
                }
                kernel += 1;
            }
            // SAFETY: the unit's, and this lane's now.
            unsafe { plane.store(to, T::from_f32(sum)) };
        }
        i += warp::WARP_SIZE;
    }
}
