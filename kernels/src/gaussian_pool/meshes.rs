//! Backward of planes that follow each other, over windows three apart of a few known sizes, by [meshes](crate::band::spread).
//!
//! A thread goes down a column of meshes of 3×3 inputs. `dx` of a mesh is what the rows of `dy` over it give along x, three columns
//! each, times the weights along y: `SIZE` products a row of `dy` and three times as many a mesh.
//!
//! Bound by memory.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::band;
use crate::band::spread::{Along, Spread};
use crate::window::{Nchw, Window};

/// How far windows are apart.
pub const STRIDE: usize = 3;
/// The sizes, of both axes alike, that there are kernels for.
pub const SIZES: [u32; 4] = [5, 7, 9, 11];
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 12;

/// Rows of windows over a mesh before the last, of windows of this size.
pub const fn before(size: u32) -> u32 {
    (size - 1) / STRIDE as u32
}

/// Computes the weights along y and x; a barrier is to follow. All threads of a block come here.
///
/// # Safety
/// `at` holds two vectors, and `parameters` the Gaussian.
#[device_inline]
unsafe fn compute(at: Shared<f32>, parameters: [Global<f32>; 2], variances: u32, geometry: &Geometry) {
    let mut axis = thread::thread_idx_x() / warp::WARP_SIZE;
    while axis < 2 {
        // SAFETY: the caller's; the vector is this warp's until the barrier.
        unsafe {
            let own = at.offset(axis * VECTOR);
            let shape = Shape::load(parameters, 0, axis == 0, variances);
            let put = |i: u32, weight: f32| own.store(i, weight);
            vector(&geometry.axis(axis == 0), 0, shape, false, put, |i| own.load(i), |_, _, _| {});
        }
        axis += thread::block_dim_x() / warp::WARP_SIZE;
    }
}

/// The vector along an axis. What is after the window's size is not to be used.
///
/// # Safety
/// It was computed, a barrier ago.
#[device_inline]
unsafe fn weights(at: Shared<f32>, axis: u32) -> [f32; VECTOR as usize] {
    // SAFETY: the caller's; vectors begin at multiples of four.
    let [a, b, c] = [0, 4, 8].map(|i| unsafe { at.load4(axis * VECTOR + i) }.to_array());
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3]]
}

/// What a row of `dy` gives along x to the columns of a mesh.
///
/// # Safety
/// As [`Along::by`]'s.
#[device_inline]
unsafe fn along<const SIZE: usize, const OVER: usize>(outputs: Along, by_x: &[f32; VECTOR as usize]) -> [f32; STRIDE] {
    let mut given = [0.0; STRIDE];
    unrolled!(G in [0 1 2 3] {
        if G < OVER {
            // SAFETY: the caller's.
            let dy = unsafe { outputs.by(OVER - 1 - G) };
            unrolled!(J in [0 1 2] {
                if G * STRIDE + J < SIZE { given[J] = float::fma(by_x[G * STRIDE + J], dy, given[J]); }
            });
        }
    });
    given
}

/// A mesh's part of `dx` by the rows of `dy` over it, the last of which is `last`.
#[device_inline]
fn gather<const SIZE: usize, const GROUPS: usize, const OVER: usize>(
    before: [[f32; STRIDE]; GROUPS],
    last: [f32; STRIDE],
    by_y: &[f32; VECTOR as usize],
) -> [[f32; STRIDE]; STRIDE] {
    let mut values = [[0.0; STRIDE]; STRIDE];
    unrolled!(G in [0 1 2 3] {
        if G < OVER {
            let row = if G == 0 { last } else { before[GROUPS - G] };
            unrolled!(I in [0 1 2] {
                if G * STRIDE + I < SIZE {
                    unrolled!(J in [0 1 2] {
                        values[I][J] = float::fma(by_y[G * STRIDE + I], row[J], values[I][J]);
                    });
                }
            });
        }
    });
    values
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, for windows of `SIZE` positions both ways, three apart.
///
/// # Safety
/// The parent module's. `dx` holds the window's inputs, `dy` its outputs, `mean` two and `var` `variances` elements; `geometry` and
/// `window` are of the same windows, which are such, of one Gaussian whose weights are the same everywhere; `OVER` is one more than
/// `GROUPS`, which is [`before`] of the size; `spread` is the window's, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = 4,
    instances(T = [f32, f16, bf16], (SIZE, GROUPS, OVER) = [(5, 1, 2), (7, 2, 3), (9, 2, 3), (11, 3, 4)])
)]
pub unsafe fn gaussian_pool_backward_meshes<T: Storage, const SIZE: usize, const GROUPS: usize, const OVER: usize>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nchw>,
    spread: Spread,
) {
    let room = shared_array![f32; 2 * VECTOR as usize].handle();
    // SAFETY: the caller's; outputs are there if inside.
    unsafe {
        let laid = spread.laid::<STRIDE, GROUPS>(&window);
        laid.put(dy, &window, |dy, _, _| dy);
        compute(room, [mean, var], variances, &geometry);
        thread::sync_threads();
        let (by_y, by_x) = (weights(room, 0), weights(room, 1));
        let along = |outputs: Along| along::<SIZE, OVER>(outputs, &by_x);
        laid.store(dx, beta, &window, along, |before, last| gather::<SIZE, GROUPS, OVER>(before, last, &by_y));
    }
}
