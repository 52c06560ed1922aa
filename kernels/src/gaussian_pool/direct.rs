//! Forward of planes that follow each other, for small windows of a known size that share little: a thread has [pieces](crate::pieces) of them, all
//! under way before the block's weights are computed. Blocks take pieces turn after turn, with the same weights, or those of channels of their own
//! for each turn's planes.
//!
//! Bound by memory, where windows overlap by instructions, and where there is little to do by what a launch and the weights take.

use core::ops::RangeInclusive;

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, unscaled, vector};
use crate::pieces::{BLOCK, Elements, Piece, Pieces, Planes, columns};
use crate::window::Divider;

/// Threads that a GPU has room for, about: up to as many pieces a thread takes one, so that more multiprocessors have some.
const ENOUGH: u32 = 1 << 18;
/// Rows of a window, at most.
const MOST: u32 = 8;
/// Elements of a Gaussian's two vectors in shared memory.
const OF_GAUSSIAN: u32 = 2 * MOST;
/// Gaussians of a map, at most: as many as shared memory holds that needs no leave of the driver.
const MAX_KERNELS: u32 = (48 << 10) / 4 / OF_GAUSSIAN;

/// Columns of a window, and rows, of which there are kernels.
pub const SIZES: RangeInclusive<u32> = 2..=MOST;

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
pub const fn blocks(size: u32) -> u32 {
    match size {
        7 => 2,
        6 | 8 => 3,
        _ => 4,
    }
}

/// How threads take windows apart, and how weights come from the parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    pieces: Pieces,
    /// Pieces of a thread, 1 or [`most_each`].
    each: u32,
    /// What blocks take at a time, of all pieces: the first one each, and then those a launch's blocks further.
    turns: u32,
    /// Variances of each Gaussian, 1 or 2.
    variances: u32,
    /// By the Gaussians of all channels, where each has its own.
    by_gaussians: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Direct {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub direct: Direct,
    /// Whether channels have Gaussians of their own.
    pub own: bool,
    /// Blocks, at most, of which each has a turn.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Direct {
    /// None for windows that there is no kernel for, for weights that vary, and where pieces are too many to count.
    pub fn plan(geometry: &Geometry, variances: u32) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let size = horizontal.size;
        let known = SIZES.contains(&size) && vertical.size == size;
        let same = vertical.cases == 1 && horizontal.cases == 1;
        if !known || !same || geometry.kernels > MAX_KERNELS {
            return None;
        }
        let count = |planes: u32| planes.checked_mul(geometry.kernels).filter(|&count| count < 1 << 30);
        count(geometry.planes)?;
        let pieces = Pieces::new(size, is_of_pairs(geometry), &planes_of(geometry))?;
        let each = if pieces.blocks(1) <= ENOUGH / BLOCK { 1 } else { most_each(size) as u32 };
        let turns = pieces.blocks(each);
        // The Gaussians of a turn's planes, of which the first and the last may be there in part.
        let own = geometry.sets > 1;
        let planes =
            if own { ((BLOCK * each - 1) / pieces.of_plane(&planes_of(geometry)) + 2).min(geometry.planes) } else { 1 };
        let gaussians = count(planes).filter(|&gaussians| gaussians <= MAX_KERNELS)?;
        let by_gaussians = Divider::new(count(geometry.sets)?);
        let direct = Self { pieces, each, turns, variances, by_gaussians };
        Some(Plan { direct, own, blocks: turns, shared_bytes: gaussians * OF_GAUSSIAN * 4 })
    }
}

/// Whether a thread has two windows beside each other.
pub fn is_of_pairs(geometry: &Geometry) -> bool {
    geometry.axes.iter().all(|axis| (axis.size, axis.stride) == (2, 2))
}

/// Pieces of a thread where there are many: what keeps memory busy without more registers than some.
const fn most_each(size: u32) -> usize {
    if size < 4 { 2 } else { 1 }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of those that all channels share or, with `OWN`, of the channel's. The grid has the plan's blocks, or fewer.
///
/// On an H200, on 64×64×111×113, 0.94 to 0.97 of the copy rate in f32 and 0.69 to 0.82 in bf16 for windows beside each other, 0.88 and 0.54 for 4×4 three
/// apart (docs/perf).
///
/// # Safety
/// The parent module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for
/// each Gaussian; `direct` is what [`Direct::plan`] made of `geometry`, whose windows are of this size, and `PAIRS` is
/// what [`is_of_pairs`] says.
#[kernel(
    block = BLOCK,
    min_blocks = blocks(SIZE),
    instances(
        T = [f32, f16, bf16],
        (SIZE, PAIRS) = [(2, true), (2, false), (3, false), (4, false), (5, false), (6, false), (7, false), (8, false)],
        OWN = [false, true]
    )
)]
pub unsafe fn gaussian_pool_forward_direct<T: Storage, const SIZE: u32, const PAIRS: bool, const OWN: bool>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
    direct: Direct,
) {
    // Each way by itself: where elements of vectors and single ones come together, they would be waited for.
    // SAFETY: passed on.
    unsafe {
        match (columns(SIZE, PAIRS) == 4 && direct.pieces.by_vectors(), most_each(SIZE) == 2 && direct.each == 2) {
            (false, false) => windows::<T, SIZE, PAIRS, false, 1, OWN>(x, [mean, var], y, &geometry, &direct),
            (false, true) => windows::<T, SIZE, PAIRS, false, 2, OWN>(x, [mean, var], y, &geometry, &direct),
            (true, false) => windows::<T, SIZE, PAIRS, true, 1, OWN>(x, [mean, var], y, &geometry, &direct),
            (true, true) => windows::<T, SIZE, PAIRS, true, 2, OWN>(x, [mean, var], y, &geometry, &direct),
        }
    }
}

/// This thread's `EACH` pieces, whose rows are loaded by `VECTORS` or one by one.
///
/// # Safety
/// [`gaussian_pool_forward_direct`]'s.
#[device_inline]
unsafe fn windows<
    T: Storage,
    const SIZE: u32,
    const PAIRS: bool,
    const VECTORS: bool,
    const EACH: usize,
    const OWN: bool,
>(
    x: Global<T>,
    parameters: [Global<f32>; 2],
    y: GlobalMut<T>,
    geometry: &Geometry,
    direct: &Direct,
) {
    let planes = planes_of(geometry);
    let shared = dynamic_shared::<f32>();
    let mut turn = thread::block_idx_x();
    while turn < direct.turns {
        // SAFETY: zero bits are zeros.
        let mut loaded: [Elements<T>; EACH] = unsafe { core::mem::zeroed() };
        unrolled!(P in [0 1] {
            if P < EACH {
                let piece = direct.pieces.piece::<SIZE, PAIRS>(&planes, turn, EACH, P);
                // SAFETY: the caller's.
                loaded[P] = unsafe { Pieces::load::<T, SIZE, PAIRS>(x, &planes, piece, T::from_f32(0.0), VECTORS) };
            }
        });

        // Behind the loads; what all channels share once.
        let first_plane = if OWN { direct.pieces.plane(turn * EACH as u32 * BLOCK) } else { 0 };
        if OWN {
            let last = direct.pieces.plane((turn + 1) * EACH as u32 * BLOCK - 1).min(geometry.planes - 1);
            let gaussian = |number: u32| {
                let number = first_plane * geometry.kernels + number;
                number - direct.by_gaussians.divide(number) * (geometry.sets * geometry.kernels)
            };
            let count = (last - first_plane + 1) * geometry.kernels;
            // SAFETY: the caller's; all threads of the block have the same turn.
            unsafe { put_unscaled(shared, parameters, SIZE, direct.variances, (count, gaussian)) };
        } else if turn == thread::block_idx_x() {
            // SAFETY: as above.
            unsafe { put_weights(shared, parameters, geometry, direct.variances) };
        }
        for kernel in 0..geometry.kernels {
            // SAFETY: the vectors were written before the barrier; what is after a window's weights is not used.
            let weights = |gaussian: u32| unsafe {
                let quad = |i: u32| shared.load4(gaussian * OF_GAUSSIAN + 4 * i).to_array();
                let rest = |number: u32| if SIZE > 4 { quad(number) } else { [0.0; 4] };
                let half = if SIZE == 8 { thread::thread_idx_x() % 2 } else { 0 };
                (join(quad(0), rest(1)), join(quad(2 + half), rest(3)))
            };
            let shared_by_all = if OWN { ([0.0; 8], [0.0; 8]) } else { weights(kernel) };
            unrolled!(P in [0 1] {
                if P < EACH {
                    let Piece { there, plane, row, number } = direct.pieces.piece::<SIZE, PAIRS>(&planes, turn, EACH, P);
                    // What is not there has the first plane's.
                    let own = if there { plane - first_plane } else { 0 };
                    let (by_y, by_x) = if OWN { weights(own * geometry.kernels + kernel) } else { shared_by_all };
                    let scale = if OWN { scale::<SIZE>(by_y, by_x) } else { 1.0 };
                    // Of two windows where these have two columns.
                    let mut totals = [0.0; 2];
                    unrolled!(I in [0 1 2 3 4 5 6 7] {
                        if (I as u32) < SIZE {
                            let mut sums = [0.0; 2];
                            unrolled!(J in [0 1 2 3 4 5 6] {
                                if (J as u32) < columns(SIZE, PAIRS) {
                                    let (window, position) = if PAIRS { (J / 2, J % 2) } else { (0, J) };
                                    sums[window] = float::fma(by_x[position], loaded[P][I][J].to_f32(), sums[window]);
                                }
                            });
                            totals[0] = float::fma(by_y[I], sums[0], totals[0]);
                            if PAIRS {
                                totals[1] = float::fma(by_y[I], sums[1], totals[1]);
                            }
                        }
                    });
                    totals = totals.map(|total| if OWN { total * scale } else { total });
                    let map = plane as usize * geometry.kernels as usize + kernel as usize;
                    let line = (map * planes.output[0] as usize + row as usize) * planes.output[1] as usize;
                    match SIZE {
                        2 if PAIRS => {
                            let (ox, [left, right]) = (2 * number, totals.map(T::from_f32));
                            let at = line + ox as usize;
                            // SAFETY: stored only where the windows are in the output, two at an even element; one thread has them.
                            unsafe {
                                if planes.output[1].is_multiple_of(2) {
                                    y.store2_if(there, at, Vec2::new(left, right));
                                } else {
                                    y.store_if(there, at, left);
                                    y.store_if(there & (ox + 1 < planes.output[1]), at + 1, right);
                                }
                            }
                        }
                        8 => {
                            let total = totals[0] + warp::shuffle_xor(totals[0], 1);
                            // SAFETY: stored only where the window is in the output; the first of its threads has it.
                            unsafe { y.store_if(there & number.is_multiple_of(2), line + (number / 2) as usize, T::from_f32(total)) };
                        }
                        // SAFETY: as above.
                        _ => unsafe { y.store_if(there, line + number as usize, T::from_f32(totals[0])) },
                    }
                }
            });
        }
        if OWN {
            // The next turn's weights come where these were.
            thread::sync_threads();
        }
        turn += thread::grid_dim_x();
    }
}

/// Computes each Gaussian's weights along y, then those along x; a warp each. They are there when this returns.
///
/// # Safety
/// [`gaussian_pool_forward_direct`]'s; all threads of the block come together.
#[device_inline]
unsafe fn put_weights(shared: Shared<f32>, parameters: [Global<f32>; 2], geometry: &Geometry, variances: u32) {
    let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
    while number < 2 * geometry.kernels {
        let down = number.is_multiple_of(2);
        // SAFETY: shared memory holds the vector, which is this warp's; the parameters are there.
        unsafe {
            let shape = Shape::load(parameters, number / 2, down, variances);
            let put = |i: u32, weight: f32| shared.store(number * MOST + i, weight);
            vector(&geometry.axis(down), 0, shape, false, put, |i| shared.load(number * MOST + i), |_, _, _| {});
        }
        number += BLOCK / warp::WARP_SIZE;
    }
    thread::sync_threads();
}

/// The same of so many Gaussians, of each of which the function gives the number, before they are divided by their sums; a thread each.
///
/// # Safety
/// As above.
#[device_inline]
unsafe fn put_unscaled(
    shared: Shared<f32>,
    parameters: [Global<f32>; 2],
    size: u32,
    variances: u32,
    (count, gaussian): (u32, impl Fn(u32) -> u32),
) {
    let mut number = thread::thread_idx_x();
    while number < count * OF_GAUSSIAN {
        let down = number % OF_GAUSSIAN < MOST;
        // SAFETY: shared memory holds the word, which is this thread's; the parameters are there.
        unsafe {
            let shape = Shape::load(parameters, gaussian(number / OF_GAUSSIAN), down, variances);
            shared.store(number, unscaled(size, number % MOST, shape));
        }
        number += BLOCK;
    }
    thread::sync_threads();
}

/// What a window's sum is multiplied with, by [unscaled](put_unscaled) weights. Of 8×8 windows two neighbouring threads have half of those along x each.
#[device_inline]
fn scale<const SIZE: u32>(by_y: [f32; 8], by_x: [f32; 8]) -> f32 {
    let (mut down, mut across) = (0.0, 0.0);
    unrolled!(I in [0 1 2 3 4 5 6 7] {
        if (I as u32) < SIZE {
            down += by_y[I];
        }
        if (I as u32) < columns(SIZE, false) {
            across += by_x[I];
        }
    });
    if SIZE == 8 {
        across += warp::shuffle_xor(across, 1);
    }
    1.0 / (down * across)
}

/// The planes of the geometry.
#[device_inline]
fn planes_of(geometry: &Geometry) -> Planes {
    let axes = &geometry.axes;
    Planes {
        count: geometry.planes,
        input: [axes[0].image, axes[1].image],
        output: [axes[0].output, axes[1].output],
        stride: [axes[0].stride, axes[1].stride],
        padding: [axes[0].padding, axes[1].padding],
    }
}

#[device_inline]
const fn join([a, b, c, d]: [f32; 4], [e, f, g, h]: [f32; 4]) -> [f32; 8] {
    [a, b, c, d, e, f, g, h]
}
