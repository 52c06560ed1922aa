//! Forward of planes that follow each other, for small windows of a known size that share little: a thread has [pieces](crate::pieces) of them, all
//! under way before the block's weights are computed. Blocks take pieces turn after turn, with the same weights.
//!
//! Bound by memory, where windows overlap by instructions, and where there is little to do by what a launch and the weights take.

use core::ops::RangeInclusive;

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::pieces::{BLOCK, Elements, Piece, Pieces, Planes, columns};

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
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Direct {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub direct: Direct,
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
        let same = geometry.sets == 1 && vertical.cases == 1 && horizontal.cases == 1;
        if !known || !same || geometry.kernels > MAX_KERNELS {
            return None;
        }
        let pieces = Pieces::new(size, is_of_pairs(geometry), &planes_of(geometry))?;
        let each = if pieces.blocks(1) <= ENOUGH / BLOCK { 1 } else { most_each(size) as u32 };
        let turns = pieces.blocks(each);
        let direct = Self { pieces, each, turns, variances };
        Some(Plan { direct, blocks: turns, shared_bytes: geometry.kernels * OF_GAUSSIAN * 4 })
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

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k`, which all channels share. The grid has the plan's blocks, or fewer.
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
        (SIZE, PAIRS) = [(2, true), (2, false), (3, false), (4, false), (5, false), (6, false), (7, false), (8, false)]
    )
)]
pub unsafe fn gaussian_pool_forward_direct<T: Storage, const SIZE: u32, const PAIRS: bool>(
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
            (false, false) => windows::<T, SIZE, PAIRS, false, 1>(x, [mean, var], y, &geometry, &direct),
            (false, true) => windows::<T, SIZE, PAIRS, false, 2>(x, [mean, var], y, &geometry, &direct),
            (true, false) => windows::<T, SIZE, PAIRS, true, 1>(x, [mean, var], y, &geometry, &direct),
            (true, true) => windows::<T, SIZE, PAIRS, true, 2>(x, [mean, var], y, &geometry, &direct),
        }
    }
}

/// This thread's `EACH` pieces, whose rows are loaded by `VECTORS` or one by one.
///
/// # Safety
/// [`gaussian_pool_forward_direct`]'s.
#[device_inline]
unsafe fn windows<T: Storage, const SIZE: u32, const PAIRS: bool, const VECTORS: bool, const EACH: usize>(
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

        // Once, behind the first loads.
        if turn == thread::block_idx_x() {
            // SAFETY: the caller's; all threads of the block have the same turn.
            unsafe { put_weights(shared, parameters, geometry, direct.variances) };
        }
        for kernel in 0..geometry.kernels {
            // SAFETY: the vectors were written before the barrier; what is after a window's weights is not used.
            let (by_y, by_x) = unsafe {
                let quad = |i: u32| shared.load4(kernel * OF_GAUSSIAN + 4 * i).to_array();
                let rest = |number: u32| if SIZE > 4 { quad(number) } else { [0.0; 4] };
                let half = if SIZE == 8 { thread::thread_idx_x() % 2 } else { 0 };
                (join(quad(0), rest(1)), join(quad(2 + half), rest(3)))
            };
            unrolled!(P in [0 1] {
                if P < EACH {
                    let Piece { there, plane, row, number } = direct.pieces.piece::<SIZE, PAIRS>(&planes, turn, EACH, P);
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
        turn += thread::grid_dim_x();
    }
}

/// Computes a Gaussian's weights along y, then those along x; a warp each. They are there when this returns.
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
