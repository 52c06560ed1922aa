//! Forward of planes that follow each other, for small windows of a known size: a thread has [pieces](crate::pieces) of them, all
//! under way before the block's weights are computed.
//!
//! Bound by memory, and where there is little to do by what a launch and the weights take.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::pieces::{BLOCK, Elements, Piece, Pieces, Planes, blocks, columns};

/// Threads that a GPU has room for, about: up to as many pieces a thread takes one, so that more multiprocessors have some.
const ENOUGH: u32 = 1 << 18;
/// Rows of a window, at most.
const MOST: u32 = 8;
/// Elements of a Gaussian's two vectors in shared memory.
const OF_GAUSSIAN: u32 = 2 * MOST;
/// Gaussians of a map, at most: as many as shared memory holds that needs no leave of the driver.
const MAX_KERNELS: u32 = (48 << 10) / 4 / OF_GAUSSIAN;

/// The windows, of both axes alike, that there are kernels for: size and stride.
pub const SIZES: [(u32, u32); 5] = [(2, 2), (3, 3), (4, 4), (8, 8), (3, 2)];

/// How threads take windows apart, and how weights come from the parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    pieces: Pieces,
    /// Pieces of a thread, 1 or [`most_each`].
    each: u32,
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
    /// Blocks.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Direct {
    /// None for windows that there is no kernel for, for weights that vary, and where pieces are too many to count.
    pub fn plan(geometry: &Geometry, variances: u32) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let (size, stride) = (horizontal.size, horizontal.stride);
        let known = SIZES.contains(&(size, stride)) && (vertical.size, vertical.stride) == (size, stride);
        let same = geometry.sets == 1 && vertical.cases == 1 && horizontal.cases == 1;
        if !known || !same || geometry.kernels > MAX_KERNELS {
            return None;
        }
        let pieces = Pieces::new(size, &planes_of(geometry))?;
        let each = if pieces.blocks(1) <= ENOUGH / BLOCK { 1 } else { most_each(size) as u32 };
        let (direct, blocks) = (Self { pieces, each, variances }, pieces.blocks(each));
        Some(Plan { direct, blocks, shared_bytes: geometry.kernels * OF_GAUSSIAN * 4 })
    }
}

/// Pieces of a thread where there are many: what keeps memory busy without more registers than some.
const fn most_each(size: u32) -> usize {
    if size < 4 { 2 } else { 1 }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k`, which all channels share. The grid is the plan's.
///
/// On an H200, in f32, 0.90 to 0.97 of the copy rate for 2×2 windows on 28×28 to 111×113, 0.80 for 4×4 and 8×8 (docs/perf).
///
/// # Safety
/// The parent module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for
/// each Gaussian; `direct` is what [`Direct::plan`] made of `geometry`, whose windows are of this size and stride.
#[kernel(
    block = BLOCK,
    min_blocks = blocks(SIZE),
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 3), (4, 4), (8, 8), (3, 2)])
)]
pub unsafe fn gaussian_pool_forward_direct<T: Storage, const SIZE: u32, const STRIDE: u32>(
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
        match (SIZE != 3 && direct.pieces.by_vectors(), most_each(SIZE) == 2 && direct.each == 2) {
            (false, false) => windows::<T, SIZE, STRIDE, false, 1>(x, [mean, var], y, &geometry, &direct),
            (false, true) => windows::<T, SIZE, STRIDE, false, 2>(x, [mean, var], y, &geometry, &direct),
            (true, false) => windows::<T, SIZE, STRIDE, true, 1>(x, [mean, var], y, &geometry, &direct),
            (true, true) => windows::<T, SIZE, STRIDE, true, 2>(x, [mean, var], y, &geometry, &direct),
        }
    }
}

/// This thread's `EACH` pieces, whose rows are loaded by `VECTORS` or one by one.
///
/// # Safety
/// [`gaussian_pool_forward_direct`]'s.
#[device_inline]
unsafe fn windows<T: Storage, const SIZE: u32, const STRIDE: u32, const VECTORS: bool, const EACH: usize>(
    x: Global<T>,
    parameters: [Global<f32>; 2],
    y: GlobalMut<T>,
    geometry: &Geometry,
    direct: &Direct,
) {
    let planes = planes_of(geometry);
    // SAFETY: zero bits are zeros.
    let mut loaded: [Elements<T>; EACH] = unsafe { core::mem::zeroed() };
    unrolled!(P in [0 1] {
        if P < EACH {
            let piece = direct.pieces.piece::<SIZE>(&planes, EACH, P);
            // SAFETY: the caller's.
            loaded[P] = unsafe { Pieces::load::<T, SIZE, STRIDE>(x, &planes, piece, T::from_f32(0.0), VECTORS) };
        }
    });

    // A Gaussian's weights along y, then those along x; a warp each.
    let shared = dynamic_shared::<f32>();
    let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
    while number < 2 * geometry.kernels {
        let down = number.is_multiple_of(2);
        // SAFETY: shared memory holds the vector, which is this warp's; the parameters are there.
        unsafe {
            let shape = Shape::load(parameters, number / 2, down, direct.variances);
            let put = |i: u32, weight: f32| shared.store(number * MOST + i, weight);
            vector(&geometry.axis(down), 0, shape, false, put, |i| shared.load(number * MOST + i), |_, _, _| {});
        }
        number += BLOCK / warp::WARP_SIZE;
    }
    thread::sync_threads();

    for kernel in 0..geometry.kernels {
        // SAFETY: the vectors were written before the barrier; what is after a window's weights is not used.
        let (by_y, by_x) = unsafe {
            let quad = |i: u32| shared.load4(kernel * OF_GAUSSIAN + 4 * i).to_array();
            let (upper, lower) = (quad(0), if SIZE > 4 { quad(1) } else { [0.0; 4] });
            let half = if SIZE == 8 { thread::thread_idx_x() % 2 } else { 0 };
            (join(upper, lower), quad(2 + half))
        };
        unrolled!(P in [0 1] {
            if P < EACH {
                let Piece { there, plane, row, number } = direct.pieces.piece::<SIZE>(&planes, EACH, P);
                // Of two windows where these have two columns.
                let mut totals = [0.0; 2];
                unrolled!(I in [0 1 2 3 4 5 6 7] {
                    if (I as u32) < SIZE {
                        let mut sums = [0.0; 2];
                        unrolled!(J in [0 1 2 3] {
                            if (J as u32) < columns(SIZE) {
                                let (window, position) = if SIZE == 2 { (J / 2, J % 2) } else { (0, J) };
                                sums[window] = float::fma(by_x[position], loaded[P][I][J].to_f32(), sums[window]);
                            }
                        });
                        totals[0] = float::fma(by_y[I], sums[0], totals[0]);
                        if SIZE == 2 {
                            totals[1] = float::fma(by_y[I], sums[1], totals[1]);
                        }
                    }
                });
                let map = plane as usize * geometry.kernels as usize + kernel as usize;
                let line = (map * planes.output[0] as usize + row as usize) * planes.output[1] as usize;
                match SIZE {
                    2 => {
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
}

/// The planes of the geometry.
#[device_inline]
fn planes_of(geometry: &Geometry) -> Planes {
    let axes = &geometry.axes;
    Planes {
        count: geometry.planes,
        input: [axes[0].image, axes[1].image],
        output: [axes[0].output, axes[1].output],
        padding: [axes[0].padding, axes[1].padding],
    }
}

#[device_inline]
const fn join([a, b, c, d]: [f32; 4], [e, f, g, h]: [f32; 4]) -> [f32; 8] {
    [a, b, c, d, e, f, g, h]
}
