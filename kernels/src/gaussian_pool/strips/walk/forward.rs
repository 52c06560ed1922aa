//! Forward.

use cuda_std::prelude::*;

use super::super::load_quad;
use super::{FORWARD_THREADS, MOST_ROWS, Part, QUAD, Walk, Weights, has, in_step, vector};
use crate::gaussian_pool::Geometry;

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(stride: u32) -> u32 {
    if stride == 3 { 3 } else { 4 }
}

/// Windows of a step.
const ROWS: u32 = 2 * QUAD;
/// Windows over a step's rows, at most: those that begin in it, and those that reach into it.
const MOST_WINDOWS: usize = 13;

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. The grid has a block for each part of each tile
/// of each group of planes.
///
/// On an H200 0.90 of the copy rate for 3×3 and 0.86 for 11×11 windows, stride 2, f32 (docs/perf): warps wait for each other at
/// the step's barrier; in 16 bits, and for several Gaussians a plane, what is issued is the limit.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for each
/// Gaussian; `walk` is what [`WalkPlan::forward`](super::WalkPlan::forward) made of `geometry`, whose strides are `STRIDE`.
#[kernel(
    max_threads = FORWARD_THREADS,
    min_blocks = blocks(STRIDE),
    instances(T = [f32, f16, bf16], (TAPS, STRIDE) = [(2, 2), (6, 2), (4, 3)])
)]
pub unsafe fn gaussian_pool_forward_walk<T: Storage, const TAPS: u32, const STRIDE: u32>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
    walk: Walk,
) {
    let thread = thread::thread_idx_x();
    let [vertical, horizontal] = &geometry.axes;
    let part = Part::of_block(&geometry, &walk);
    let (kernels, shared) = (geometry.kernels, dynamic_shared::<f32>());
    let (plane, column) = walk.columns.divide(thread);
    let image_column = (part.window * STRIDE + column).wrapping_sub(horizontal.padding);
    // Columns outside of the image stay zeros.
    let loads = (plane < part.planes) & (image_column < horizontal.image);
    // SAFETY: the block's planes begin there.
    let x = unsafe { x.offset(part.plane as usize * vertical.image as usize * horizontal.image as usize) };
    let origin = plane.wrapping_mul(vertical.image).wrapping_mul(horizontal.image).wrapping_add(image_column);
    // The rows of a step. As memory holds them: what converts them would wait for them.
    let load = |rows: &mut [T; MOST_ROWS], step: u32| {
        let first = (step * ROWS * STRIDE).wrapping_sub(vertical.padding);
        let (at, width) = (origin.wrapping_add(first.wrapping_mul(horizontal.image)), in_step(horizontal.image, step));
        let inside = (first < vertical.image) & (first.wrapping_add(ROWS * STRIDE) <= vertical.image);
        if loads & inside {
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23] {
                if (I as u32) < ROWS * STRIDE {
                    // SAFETY: the rows are in the image, as the column is.
                    rows[I] = unsafe { x.offset(at as usize).load(I * width) };
                }
            });
        } else {
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23] {
                if (I as u32) < ROWS * STRIDE {
                    let there = loads & (first.wrapping_add(I as u32) < vertical.image);
                    // SAFETY: loaded only where the row is in the image, as the column is.
                    rows[I] = unsafe { x.load_if(there, at.wrapping_add(I as u32 * width as u32) as usize, T::from_f32(0.0)) };
                }
            });
        }
    };

    // What reaches into the first step comes from the one before.
    let first = part.begin.saturating_sub(1);
    // SAFETY: zero bits are zeros.
    let mut rows: [T; MOST_ROWS] = unsafe { core::mem::zeroed() };
    load(&mut rows, first);
    // SAFETY: shared memory holds the weights, what threads keep from one step to the next, and the sums of two steps, as the
    // plan says.
    let (weights, kept, sums) = unsafe {
        let planes = [walk.planes, part.plane, part.planes];
        let weights = Weights::compute::<1>(shared, mean, var, &geometry, planes, walk.variances, walk.kernels);
        let kept = shared.offset(weights.len(1));
        (weights, kept, kept.offset(kernels * (TAPS - 1) * FORWARD_THREADS))
    };
    let kept_at = |kernel: u32, window: u32| (kernel * (TAPS - 1) + window) * FORWARD_THREADS + thread;
    for i in 0..kernels * (TAPS - 1) {
        // SAFETY: each thread has its own.
        unsafe { kept.store(kept_at(0, i), 0.0) };
    }
    // Places of four rows of the block's planes, of one step.
    let four = STRIDE * walk.places;
    let sums_at = |step: u32, kernel: u32, plane: u32| ((step % 2 * kernels + kernel) * walk.planes + plane) * 2 * four;
    let own = column % STRIDE * walk.places + column / STRIDE;

    // What this thread sums along x in each step: a window in four rows.
    let (rest, window) = walk.second.divide(thread);
    let (x_plane, lower) = (rest / 2, rest % 2);
    let ox = part.window + window;
    let sums_along_x = (x_plane < part.planes) & (ox < horizontal.output);
    // SAFETY: the maps of the block's planes begin there.
    let y = unsafe {
        y.offset((part.plane as usize * kernels as usize) * vertical.output as usize * horizontal.output as usize)
    };
    thread::sync_threads();

    let mut step = first;
    while step < part.end {
        if plane < walk.planes {
            for kernel in 0..kernels {
                let [along_y, _] = weights.of(&geometry, plane, kernel);
                // SAFETY: the vector is there.
                let by = unsafe { vector::<TAPS, STRIDE>(weights.at, along_y, vertical.size) };
                // SAFETY: zero bits are 0.0.
                let mut windows: [f32; MOST_WINDOWS] = unsafe { core::mem::zeroed() };
                unrolled!(I in [0 1 2 3 4] {
                    if (I as u32) < TAPS - 1 {
                        // SAFETY: as above.
                        windows[I] = unsafe { kept.load(kept_at(kernel, I as u32)) };
                    }
                });
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23] {
                    if (I as u32) < ROWS * STRIDE {
                        let row = rows[I].to_f32();
                        unrolled!(M in [0 1 2 3 4 5] {
                            let position = M * STRIDE as usize + I % STRIDE as usize;
                            if (M as u32) < TAPS && has::<TAPS, STRIDE>(vertical.size, position) {
                                let window = I / STRIDE as usize + TAPS as usize - 1 - M;
                                windows[window] = float::fma(by[position], row, windows[window]);
                            }
                        });
                    }
                });
                unrolled!(I in [0 1 2 3 4] {
                    if (I as u32) < TAPS - 1 {
                        // SAFETY: as above.
                        unsafe { kept.store(kept_at(kernel, I as u32), windows[I + ROWS as usize]) };
                    }
                });
                let at = (sums_at(step, kernel, plane) + own) * QUAD;
                let [a, b, c, d, e, f, g, h, ..] = windows;
                // SAFETY: each column of a plane has a place, and one thread; those that read of this buffer passed a barrier
                // since.
                unsafe {
                    sums.store4(at, Vec4::new(a, b, c, d));
                    sums.store4(at + four * QUAD, Vec4::new(e, f, g, h));
                }
            }
        }
        if step + 1 < part.end {
            load(&mut rows, step + 1);
        }
        thread::sync_threads();
        if sums_along_x & (step >= part.begin) {
            for kernel in 0..kernels {
                let [_, along_x] = weights.of(&geometry, x_plane, kernel);
                // SAFETY: the vector is there.
                let by = unsafe { vector::<TAPS, STRIDE>(weights.at, along_x, horizontal.size) };
                let from = sums_at(step, kernel, x_plane) + lower * four + window;
                let mut totals = [0.0; QUAD as usize];
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                    if has::<TAPS, STRIDE>(horizontal.size, I) {
                        let line = I as u32 % STRIDE * in_step(walk.places, step) as u32;
                        // SAFETY: the place's four were written before the barrier.
                        let rows = unsafe { load_quad(sums, from + line + I as u32 / STRIDE) };
                        unrolled!(R in [0 1 2 3] { totals[R] = float::fma(by[I], rows[R], totals[R]); });
                    }
                });
                let row = (step * ROWS + lower * QUAD).wrapping_sub(TAPS - 1);
                let first = (x_plane * kernels + kernel) * vertical.output;
                let at = first.wrapping_add(row).wrapping_mul(horizontal.output).wrapping_add(ox);
                let width = in_step(horizontal.output, step);
                if (row < vertical.output) & (row.wrapping_add(QUAD) <= vertical.output) {
                    unrolled!(R in [0 1 2 3] {
                        // SAFETY: the windows are in the output; one thread has them.
                        unsafe { y.offset(at as usize).store(R * width, T::from_f32(totals[R])) };
                    });
                } else {
                    unrolled!(R in [0 1 2 3] {
                        let there = row.wrapping_add(R as u32) < vertical.output;
                        let at = at.wrapping_add(R as u32 * width as u32) as usize;
                        // SAFETY: stored only where the window is in the output.
                        unsafe { y.store_if(there, at, T::from_f32(totals[R])) };
                    });
                }
            }
        }
        step += 1;
    }
}
