//! Backward with the gradients of mean and variance.

use cuda_std::prelude::*;

use super::super::load_quad;
use super::backward::{Cells, Columns, MOST_REACHED, Staging, before, first_output, first_pixel, spread};
use super::{MOST, Part, QUAD, RING, Walk, Weights, has, parameters_threads, vector};
use crate::gaussian_pool::{Axis, Geometry, SUMS_PER_GAUSSIAN};

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(taps: u32, stride: u32) -> u32 {
    match (taps, stride) {
        (2, _) => 8,
        (_, 2) => 6,
        _ => 2,
    }
}

/// Windows over a step's rows, at most: those that begin in it, and those that reach into it.
const MOST_WINDOWS: usize = 9;

/// The backward pass for `dx`, where it is there, with each block's part of the sums for the Gaussian of each of its planes,
/// laid out `[planes, tiles * parts, 4]`. The grid is that of
/// [`gaussian_pool_backward_walk`](super::gaussian_pool_backward_walk).
///
/// On an H200 0.85 of the copy rate for 3×3 and 0.63 for 11×11 windows, stride 2, f32 (docs/perf), bound as that kernel.
///
/// # Safety
/// The module's, as for that kernel, with three tables and one Gaussian for each plane; `x` holds the planes.
#[kernel(
    max_threads = parameters_threads(STRIDE),
    min_blocks = blocks(TAPS, STRIDE),
    instances(T = [f32, f16, bf16], (TAPS, STRIDE) = [(2, 2), (6, 2), (4, 3)])
)]
pub unsafe fn gaussian_pool_backward_parameters_walk<T: Storage, const TAPS: u32, const STRIDE: u32>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: GlobalMut<f32>,
    geometry: Geometry,
    walk: Walk,
) {
    let [vertical, horizontal] = &geometry.axes;
    let part = Part::of_block(&geometry, &walk);
    let (thread, step_rows) = (thread::thread_idx_x(), QUAD * STRIDE);
    let (plane, cell) = walk.columns.divide(thread);
    let cells = Cells::new::<STRIDE>(&geometry, &walk, &part, plane, cell);
    let staging = Staging::new::<TAPS, STRIDE>(&geometry, &walk, &part, 1);
    // A pixel that no window covers is no term: its NaN times the zeros that it meets would be one.
    let covered = |axis: &Axis| ((axis.output - 1) * STRIDE + axis.size - axis.padding).min(axis.image);
    let (last_row, last_column) = (covered(vertical), covered(horizontal));
    let column = ((horizontal.padding / STRIDE + part.window + cell) * STRIDE).wrapping_sub(horizontal.padding);
    let mut counts = cells.there;
    unrolled!(P in [0 1 2] { counts[P] &= column.wrapping_add(P as u32) < last_column; });

    let mut step = part.begin.wrapping_sub(before::<TAPS, STRIDE>(vertical, &part, QUAD));
    let is_of_part = |step: u32| step.wrapping_sub(part.begin) < part.end;
    // SAFETY: the block's planes begin there.
    let (dy, x, dx) = unsafe {
        let first = first_pixel(&geometry, &part);
        (dy.offset(first_output(&geometry, &part)), x.offset(first), dx.map(|dx| dx.offset(first)))
    };
    // SAFETY: that is where these begin.
    let (mut ahead, mut pixels) = unsafe {
        let ahead = staging.load::<T, STRIDE>(dy, &geometry, 0, step);
        let top = Cells::top::<STRIDE>(&geometry, part.begin * QUAD);
        (ahead, cells.load::<T, STRIDE>(x, &geometry, (top, last_row), counts, part.begin))
    };
    // SAFETY: shared memory holds the weights and the rows of some steps, as the plan says.
    let (weights, staged) = unsafe {
        let planes = [walk.planes, part.plane, part.planes];
        let at = dynamic_shared::<f32>();
        let weights = Weights::compute::<3>(at, mean, var, &geometry, planes, walk.variances, walk.kernels);
        (weights, at.offset(weights.len(3)))
    };
    let line = walk.second.divisor;
    let buffer = walk.planes * line;
    // Steps before the first have no rows.
    let mut i = thread;
    while i < RING * buffer {
        // SAFETY: the rows of as many steps.
        unsafe { staged.store4(i * QUAD, Vec4::splat(0.0)) };
        i += thread::block_dim_x();
    }
    thread::sync_threads();

    // Any weights do for threads without a plane.
    let [along_y, along_x] = weights.of(&geometry, if plane < walk.planes { plane } else { 0 }, 0);
    // SAFETY: zero bits are 0.0.
    let (mut spreads, mut of_y, mut of_x): ([Columns; MOST_WINDOWS], [f32; MOST], [f32; MOST]) =
        unsafe { core::mem::zeroed() };
    while step != part.end {
        // SAFETY: those that read of this buffer passed a barrier since.
        unsafe { staging.store(staged, step % RING * buffer, &ahead) };
        thread::sync_threads();
        let next = step.wrapping_add(1);
        if next != part.end {
            // SAFETY: as above.
            ahead = unsafe { staging.load::<T, STRIDE>(dy, &geometry, 0, next) };
        }
        if plane < walk.planes {
            let from = |back: u32| step.wrapping_sub(back) % RING * buffer + plane * line + cell + TAPS - 1;
            // SAFETY: the vector is there; the rows were put there before the barrier.
            let new = unsafe {
                let by_x = vector::<TAPS, STRIDE>(weights.at, along_x, horizontal.size);
                spread::<TAPS, STRIDE>(staged, from(0), &by_x, horizontal.size)
            };
            unrolled!(R in [0 1 2 3] {
                unrolled!(P in [0 1 2] { spreads[R + TAPS as usize - 1][P] = new[P][R]; });
            });
            if is_of_part(step) {
                // SAFETY: the vector is there.
                let by_y = unsafe { vector::<TAPS, STRIDE>(weights.at, along_y, vertical.size) };
                // SAFETY: zero bits are 0.0.
                let (mut gradient, mut pooled): ([Columns; MOST_REACHED], [Columns; MOST_WINDOWS]) =
                    unsafe { core::mem::zeroed() };
                unrolled!(A in [0 1 2 3] {
                    unrolled!(H in [0 1 2] {
                        if (H as u32) < STRIDE {
                            let row = A * STRIDE as usize + H;
                            unrolled!(M in [0 1 2 3 4 5] {
                                let position = M * STRIDE as usize + H;
                                if (M as u32) < TAPS && has::<TAPS, STRIDE>(vertical.size, position) {
                                    let window = TAPS as usize - 1 + A - M;
                                    unrolled!(P in [0 1 2] {
                                        if (P as u32) < STRIDE {
                                            // The second column may have come with the first.
                                            let counts = P != 1 || counts[P];
                                            let pixel = if counts { pixels[row][P].to_f32() } else { 0.0 };
                                            let spread = spreads[window][P];
                                            gradient[row][P] = float::fma(by_y[position], spread, gradient[row][P]);
                                            of_y[position] = float::fma(pixel, spread, of_y[position]);
                                            pooled[window][P] = float::fma(by_y[position], pixel, pooled[window][P]);
                                        }
                                    });
                                }
                            });
                        }
                    });
                });
                if let Some(dx) = dx {
                    let top = Cells::top::<STRIDE>(&geometry, step * QUAD);
                    // SAFETY: `dx` is what the geometry says; nobody else has this thread's columns.
                    unsafe { cells.put::<T, STRIDE>(dx, dx_beta, &mut gradient, &geometry, (top, step_rows), step) };
                }
                if next != part.end {
                    let top = Cells::top::<STRIDE>(&geometry, next * QUAD);
                    // SAFETY: as above.
                    pixels = unsafe { cells.load::<T, STRIDE>(x, &geometry, (top, last_row), counts, step) };
                }
                // The rows of `dy` of these windows: of this step, and of one or two before.
                unrolled!(M in [0 1 2 3 4 5] {
                    if (M as u32) < TAPS {
                        unrolled!(B in [0 1 2] {
                            if (B as u32) * QUAD < TAPS - 1 + QUAD {
                                // SAFETY: as above; before the first step are zeros.
                                let rows = unsafe { load_quad(staged, from(B as u32) - M as u32) };
                                unrolled!(R in [0 1 2 3] {
                                    // The window's number, counted as `pooled` has it.
                                    let window = (TAPS as usize - 1 + R).wrapping_sub(4 * B);
                                    unrolled!(P in [0 1 2] {
                                        let position = M * STRIDE as usize + P;
                                        if (P as u32) < STRIDE
                                            && window < MOST_WINDOWS
                                            && has::<TAPS, STRIDE>(horizontal.size, position)
                                        {
                                            of_x[position] = float::fma(rows[R], pooled[window][P], of_x[position]);
                                        }
                                    });
                                });
                            }
                        });
                    }
                });
            }
            unrolled!(I in [0 1 2 3 4] {
                if (I as u32) < TAPS - 1 { spreads[I] = spreads[I + QUAD as usize]; }
            });
        }
        step = next;
    }

    let mut moments = [0.0; SUMS_PER_GAUSSIAN as usize];
    unrolled!(V in [0 1] {
        let table = (V as u32 + 1) * weights.of_table;
        // SAFETY: the vectors are there.
        let (by_y, by_x) = unsafe {
            let by_y = vector::<TAPS, STRIDE>(weights.at, table + along_y, vertical.size);
            (by_y, vector::<TAPS, STRIDE>(weights.at, table + along_x, horizontal.size))
        };
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
            if has::<TAPS, STRIDE>(vertical.size, I) {
                moments[2 * V] = float::fma(by_y[I], of_y[I], moments[2 * V]);
            }
            if has::<TAPS, STRIDE>(horizontal.size, I) {
                moments[2 * V + 1] = float::fma(by_x[I], of_x[I], moments[2 * V + 1]);
            }
        });
    });
    // By planes, in the place of the rows: each has sums of its own.
    thread::sync_threads();
    // SAFETY: there is room for four sums of each thread.
    unsafe { staged.store4(thread * SUMS_PER_GAUSSIAN, Vec4::from(moments)) };
    thread::sync_threads();
    let mut plane = thread / warp::WARP_SIZE;
    while plane < part.planes {
        let mut sum = Vec4::splat(0.0);
        let mut i = warp::lane_id();
        while i < walk.windows {
            // SAFETY: written before the barrier.
            let of_thread = unsafe { staged.load4((plane * walk.windows + i) * SUMS_PER_GAUSSIAN) };
            sum = sum.zip_with(of_thread, |sum, term| sum + term);
            i += warp::WARP_SIZE;
        }
        let sum = sum.map(|sum| warp::reduce_sum(sum));
        if warp::lane_id() == 0 {
            let at = (part.plane + plane) as usize * (walk.tiles * walk.parts) as usize + part.number as usize;
            // SAFETY: each part of each tile of a plane has four sums.
            unsafe { sums.store4(at * SUMS_PER_GAUSSIAN as usize, sum) };
        }
        plane += thread::block_dim_x() / warp::WARP_SIZE;
    }
}
