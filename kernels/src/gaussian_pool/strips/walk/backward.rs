//! Backward: the input's gradient.

use cuda_std::prelude::*;

use super::super::{MAX_STRIDE, load_quad};
use super::{AHEAD, BACKWARD_THREADS, Part, QUAD, Walk, Weights, ahead, has, in_step, vector};
use crate::gaussian_pool::{Axis, Geometry, get_if};

/// Windows of a step.
const STEP: u32 = 2 * QUAD;
/// Rows of the image that the windows of a step reach, at most.
pub(super) const MOST_REACHED: usize = 26;
/// A few columns of a thread.
pub(super) type Columns = [f32; MAX_STRIDE as usize];

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`. The grid has a block for each part
/// of each tile of each group of planes.
///
/// On an H200 0.79 of the copy rate for 3×3 and 0.70 for 11×11 windows, stride 2, f32 (docs/perf): less than half of the issue
/// slots are used, as registers leave room for few warps, which wait for `dy` and at the barrier.
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` as many of the output for each of `kernels`, `mean` two and `var` `variances`
/// elements for each Gaussian; `walk` is what [`WalkPlan::backward`](super::WalkPlan::backward) made of `geometry`, whose
/// strides are `STRIDE`, for one table.
#[kernel(
    max_threads = BACKWARD_THREADS,
    min_blocks = 2,
    instances(T = [f32, f16, bf16], (TAPS, STRIDE) = [(2, 2), (6, 2)])
)]
pub unsafe fn gaussian_pool_backward_walk<T: Storage, const TAPS: u32, const STRIDE: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    walk: Walk,
) {
    let [vertical, horizontal] = &geometry.axes;
    let part = Part::of_block(&geometry, &walk);
    let (kernels, step_rows) = (geometry.kernels, STEP * STRIDE);
    let (plane, cell) = walk.columns.divide(thread::thread_idx_x());
    let cells = Cells::new::<STRIDE>(&geometry, &walk, &part, plane, cell);
    // SAFETY: the block's planes begin there.
    let (dy, dx) = unsafe { (dy.offset(first_output(&geometry, &part)), dx.offset(first_pixel(&geometry, &part))) };

    let mut step = part.begin.wrapping_sub(before::<TAPS, STRIDE>(vertical, &part, STEP));
    let staging = Staging::new::<TAPS, STRIDE>(&geometry, &walk, &part, STEP / QUAD);
    // SAFETY: `dy` begins with the block's first map.
    let mut ahead = unsafe { staging.load::<T, STRIDE>(dy, &geometry, 0, step) };
    // SAFETY: shared memory holds the weights and the rows of two steps, as the plan says.
    let (weights, staged) = unsafe {
        let planes = [walk.planes, part.plane, part.planes];
        let at = dynamic_shared::<f32>();
        let weights = Weights::compute::<1>(at, mean, var, &geometry, planes, walk.variances, walk.kernels);
        (weights, at.offset(weights.len(1)))
    };
    let (line, buffer) = (walk.second.divisor, walk.planes * (STEP / QUAD) * walk.second.divisor);
    let mut turn = 0;

    // SAFETY: zero bits are 0.0.
    let mut gradient: [Columns; MOST_REACHED] = unsafe { core::mem::zeroed() };
    while step != part.end {
        for kernel in 0..kernels {
            let here = turn % 2 * buffer;
            // SAFETY: those that read of this buffer passed a barrier since.
            unsafe { staging.store(staged, here, &ahead) };
            thread::sync_threads();
            turn += 1;
            let (next_step, next_kernel) =
                if kernel + 1 < kernels { (step, kernel + 1) } else { (step.wrapping_add(1), 0) };
            if next_step != part.end {
                // SAFETY: as above.
                ahead = unsafe { staging.load::<T, STRIDE>(dy, &geometry, next_kernel, next_step) };
            }
            if plane < walk.planes {
                let [along_y, along_x] = weights.of(&geometry, plane, kernel);
                let from = here + plane * (STEP / QUAD) * line + cell + TAPS - 1;
                // SAFETY: the vector is there; the rows were put there before the barrier.
                let spreads = unsafe {
                    let by = vector::<TAPS, STRIDE>(weights.at, along_x, horizontal.size);
                    [from, from + line].map(|from| spread::<TAPS, STRIDE>(staged, from, &by, horizontal.size))
                };
                // SAFETY: the vector is there.
                let by = unsafe { vector::<TAPS, STRIDE>(weights.at, along_y, vertical.size) };
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                    if has::<TAPS, STRIDE>(vertical.size, I) {
                        unrolled!(R in [0 1 2 3 4 5 6 7] {
                            unrolled!(P in [0 1 2] {
                                if (P as u32) < STRIDE {
                                    let (row, of_row) = (R * STRIDE as usize + I, spreads[R / 4][P][R % 4]);
                                    gradient[row][P] = float::fma(by[I], of_row, gradient[row][P]);
                                }
                            });
                        });
                    }
                });
            }
        }
        if step.wrapping_sub(part.begin) < part.end {
            let rows = (Cells::top::<STRIDE>(&geometry, step * STEP), step_rows);
            // SAFETY: `dx` begins with the block's first plane; nobody else has this thread's columns.
            unsafe { cells.put::<T, STRIDE>(dx, dx_beta, &mut gradient, &geometry, rows, step) };
        }
        // What windows that reach on have so far.
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25] {
            let from = I + step_rows as usize;
            gradient[I] = if from < MOST_REACHED { gradient[from % MOST_REACHED] } else { [0.0; 3] };
        });
        step = step.wrapping_add(1);
    }
}

/// Steps before a part's first, which windows reach into it from.
#[device_inline]
pub(super) fn before<const TAPS: u32, const STRIDE: u32>(vertical: &Axis, part: &Part, step_windows: u32) -> u32 {
    let windows = if part.begin > 0 { TAPS - 1 } else { vertical.padding / STRIDE };
    windows.div_ceil(step_windows)
}

/// The first pixel of the block's planes.
#[device_inline]
pub(super) fn first_pixel(geometry: &Geometry, part: &Part) -> usize {
    let [vertical, horizontal] = &geometry.axes;
    part.plane as usize * vertical.image as usize * horizontal.image as usize
}

/// The first element of their maps in the output.
#[device_inline]
pub(super) fn first_output(geometry: &Geometry, part: &Part) -> usize {
    let [vertical, horizontal] = &geometry.axes;
    part.plane as usize * geometry.kernels as usize * vertical.output as usize * horizontal.output as usize
}

/// A thread's columns of the image: those in which its window begins and the next does not yet.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    /// Where the first column has row 0, from the block's first plane on.
    origin: u32,
    /// Which of them are in the image, and of a plane that is there.
    pub there: [bool; MAX_STRIDE as usize],
    /// Whether they go in pairs.
    pairs: bool,
}

impl Cells {
    #[device_inline]
    pub fn new<const STRIDE: u32>(geometry: &Geometry, walk: &Walk, part: &Part, plane: u32, cell: u32) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let window = horizontal.padding / STRIDE + part.window + cell;
        let column = (window * STRIDE).wrapping_sub(horizontal.padding);
        let present = (plane < part.planes) & (cell < walk.windows);
        let mut there = [false; 3];
        unrolled!(P in [0 1 2] {
            there[P] = present & ((P as u32) < STRIDE) & (column.wrapping_add(P as u32) < horizontal.image);
        });
        let origin = plane.wrapping_mul(vertical.image).wrapping_mul(horizontal.image).wrapping_add(column);
        let pairs = (STRIDE == 2) & (horizontal.image % 2 == 0) & (horizontal.padding % 2 == 0);
        Self { origin, there, pairs }
    }

    /// The row of the image in which the window that is so many after the first begins; wraps where it is above.
    #[device_inline]
    pub fn top<const STRIDE: u32>(geometry: &Geometry, window: u32) -> u32 {
        let vertical = &geometry.axes[0];
        ((vertical.padding / STRIDE + window) * STRIDE).wrapping_sub(vertical.padding)
    }

    /// Where row `top` is, and by how much the next one is on.
    #[device_inline]
    fn row(&self, geometry: &Geometry, top: u32, step: u32) -> (u32, usize) {
        let width = geometry.axes[1].image;
        (self.origin.wrapping_add(top.wrapping_mul(width)), in_step(width, step))
    }

    /// What the rows of `x` from `top` on hold that are before row `end`, in the columns that are asked for; zeros in others,
    /// but anything in the second.
    ///
    /// # Safety
    /// `x` begins with the block's first plane; `end` is within the image, and what is asked for among what is there.
    #[device_inline]
    pub unsafe fn load<T: Storage, const STRIDE: u32>(
        &self,
        x: Global<T>,
        geometry: &Geometry,
        (top, end): (u32, u32),
        asked: [bool; MAX_STRIDE as usize],
        step: u32,
    ) -> [[T; MAX_STRIDE as usize]; super::MOST] {
        // SAFETY: zero bits are zeros.
        let mut pixels: [[T; 3]; super::MOST] = unsafe { core::mem::zeroed() };
        let (at, width) = self.row(geometry, top, step);
        let all = asked[0] & (self.pairs | asked[STRIDE as usize - 1]);
        if all & (top < end) & (top.wrapping_add(STRIDE * QUAD) <= end) {
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if (I as u32) < STRIDE * QUAD {
                    // SAFETY: the caller's; columns that go in pairs are both in the image, and begin at an even element.
                    unsafe {
                        let row = x.offset(at as usize).offset(I * width);
                        if self.pairs {
                            let pair = row.load2(0);
                            pixels[I] = [pair.x, pair.y, T::from_f32(0.0)];
                        } else {
                            unrolled!(P in [0 1 2] { if (P as u32) < STRIDE { pixels[I][P] = row.load(P); } });
                        }
                    }
                }
            });
        } else {
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if (I as u32) < STRIDE * QUAD {
                    let counts = top.wrapping_add(I as u32) < end;
                    unrolled!(P in [0 1 2] {
                        if (P as u32) < STRIDE {
                            let at = at.wrapping_add(I as u32 * width as u32 + P as u32) as usize;
                            // SAFETY: the caller's.
                            pixels[I][P] = unsafe { x.load_if(counts & asked[P], at, T::from_f32(0.0)) };
                        }
                    });
                }
            });
        }
        pixels
    }

    /// `dx = gradient + beta * dx` in as many rows from `top` on.
    ///
    /// # Safety
    /// `dx` begins with the block's first plane; nobody else has these columns.
    #[device_inline]
    pub unsafe fn put<T: Storage, const STRIDE: u32>(
        &self,
        dx: GlobalMut<T>,
        beta: f32,
        gradient: &mut [Columns; MOST_REACHED],
        geometry: &Geometry,
        (top, rows): (u32, u32),
        step: u32,
    ) {
        let (at, width) = self.row(geometry, top, step);
        let height = geometry.axes[0].image;
        if beta != 0.0 {
            // (Not `width`, so that the compiler does not keep the places for what follows.)
            let width = geometry.axes[1].image + (step >> 30);
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                if (I as u32) < rows {
                    let there = top.wrapping_add(I as u32) < height;
                    unrolled!(P in [0 1 2] {
                        if (P as u32) < STRIDE {
                            let at = at.wrapping_add(I as u32 * width + P as u32) as usize;
                            // SAFETY: loaded only where the pixel is in the image.
                            let old = unsafe { get_if(dx.as_global(), there & self.there[P], at) };
                            gradient[I][P] = float::fma(beta, old, gradient[I][P]);
                        }
                    });
                }
            });
        }
        let all = self.there[STRIDE as usize - 1] & self.there[0];
        if all & (top < height) & (top.wrapping_add(rows) <= height) {
            if self.pairs {
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                    if (I as u32) < rows {
                        let pair = Vec2::new(T::from_f32(gradient[I][0]), T::from_f32(gradient[I][1]));
                        // SAFETY: the pixels are in the image, and begin at an even element.
                        unsafe { dx.offset(at as usize).store2(I * width, pair) };
                    }
                });
            } else {
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                    if (I as u32) < rows {
                        unrolled!(P in [0 1 2] {
                            if (P as u32) < STRIDE {
                                // SAFETY: the pixels are in the image.
                                unsafe { dx.offset(at as usize).offset(I * width).store(P, T::from_f32(gradient[I][P])) };
                            }
                        });
                    }
                });
            }
        } else {
            let width = geometry.axes[1].image + (step >> 29);
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                if (I as u32) < rows {
                    let there = top.wrapping_add(I as u32) < height;
                    unrolled!(P in [0 1 2] {
                        if (P as u32) < STRIDE {
                            let at = at.wrapping_add(I as u32 * width + P as u32) as usize;
                            // SAFETY: stored only where the pixel is in the image.
                            unsafe { dx.store_if(there & self.there[P], at, T::from_f32(gradient[I][P])) };
                        }
                    });
                }
            });
        }
    }
}

/// What a thread brings of `dy` to shared memory in each step: four rows of a few columns each.
#[derive(Clone, Copy)]
pub(super) struct Staging {
    /// Fours of windows of a step.
    quads: u32,
    /// Where the columns have the first row, from the block's first map on, and which of the step's rows that is.
    at: [u32; AHEAD],
    row: [u32; AHEAD],
    /// Which of them are to be brought, and which are in the output.
    brought: [bool; AHEAD],
    there: [bool; AHEAD],
}

impl Staging {
    #[device_inline]
    pub fn new<const TAPS: u32, const STRIDE: u32>(geometry: &Geometry, walk: &Walk, part: &Part, quads: u32) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let (brought, there) = ([false; AHEAD], [false; AHEAD]);
        let mut staging = Self { quads, at: [0; AHEAD], row: [0; AHEAD], brought, there };
        unrolled!(A in [0 1 2] {
            if (A as u32) < ahead(quads) {
                let (rest, column) = walk.second.divide(thread::thread_idx_x() + A as u32 * thread::block_dim_x());
                let (plane, quad) = (rest / quads, rest % quads);
                let ox = (horizontal.padding / STRIDE + part.window + column).wrapping_sub(TAPS - 1);
                staging.row[A] = quad * QUAD;
                staging.brought[A] = plane < walk.planes;
                staging.there[A] = (plane < part.planes) & (ox < horizontal.output);
                let row = plane.wrapping_mul(geometry.kernels).wrapping_mul(vertical.output).wrapping_add(staging.row[A]);
                staging.at[A] = row.wrapping_mul(horizontal.output).wrapping_add(ox);
            }
        });
        staging
    }

    /// Loads the rows of a step of a Gaussian: zeros where there is none.
    ///
    /// # Safety
    /// `dy` begins with the block's first map.
    #[device_inline]
    pub unsafe fn load<T: Storage, const STRIDE: u32>(
        &self,
        dy: Global<T>,
        geometry: &Geometry,
        kernel: u32,
        step: u32,
    ) -> [[T; QUAD as usize]; AHEAD] {
        let [vertical, horizontal] = &geometry.axes;
        // SAFETY: zero bits are zeros.
        let mut rows: [[T; QUAD as usize]; AHEAD] = unsafe { core::mem::zeroed() };
        // Counted from that of the output; wraps where it is before.
        let first = (vertical.padding / STRIDE).wrapping_add(step.wrapping_mul(self.quads * QUAD));
        // (A step before the first is the only one of which this is not `in_step`'s.)
        let width = horizontal.output + (step.wrapping_add(QUAD) >> 31);
        let from = (kernel * vertical.output).wrapping_add(first).wrapping_mul(width);
        unrolled!(A in [0 1 2] {
            if (A as u32) < ahead(self.quads) {
                unrolled!(R in [0 1 2 3] {
                    let there = self.there[A] & (first.wrapping_add(self.row[A] + R as u32) < vertical.output);
                    let at = self.at[A].wrapping_add(from).wrapping_add(R as u32 * width) as usize;
                    // SAFETY: loaded only where row and column are in the output.
                    rows[A][R] = unsafe { dy.load_if(there, at, T::from_f32(0.0)) };
                });
            }
        });
        rows
    }

    /// Puts them into shared memory, into the buffer that begins at place `buffer`.
    ///
    /// # Safety
    /// There is such a buffer, that nobody reads.
    #[device_inline]
    pub unsafe fn store<T: Storage>(&self, to: Shared<f32>, buffer: u32, rows: &[[T; QUAD as usize]; AHEAD]) {
        unrolled!(A in [0 1 2] {
            if (A as u32) < ahead(self.quads) && self.brought[A] {
                let i = thread::thread_idx_x() + A as u32 * thread::block_dim_x();
                let [a, b, c, d] = rows[A];
                let four = Vec4::new(a.to_f32(), b.to_f32(), c.to_f32(), d.to_f32());
                // SAFETY: each place has one thread.
                unsafe { to.store4((buffer + i) * QUAD, four) };
            }
        });
    }
}

/// Four rows of `dy` spread along x: what the columns of a thread, whose window's place is `from`, have of them.
///
/// # Safety
/// The rows are there, with zeros where `dy` ends.
#[device_inline]
pub(super) unsafe fn spread<const TAPS: u32, const STRIDE: u32>(
    staged: Shared<f32>,
    from: u32,
    by: &[f32; super::MOST],
    size: u32,
) -> [[f32; QUAD as usize]; MAX_STRIDE as usize] {
    // SAFETY: zero bits are 0.0.
    let mut spread: [[f32; QUAD as usize]; MAX_STRIDE as usize] = unsafe { core::mem::zeroed() };
    unrolled!(M in [0 1 2 3 4 5] {
        if (M as u32) < TAPS {
            // SAFETY: the caller's.
            let rows = unsafe { load_quad(staged, from - M as u32) };
            unrolled!(P in [0 1 2] {
                let position = M * STRIDE as usize + P;
                if (P as u32) < STRIDE && has::<TAPS, STRIDE>(size, position) {
                    unrolled!(R in [0 1 2 3] { spread[P][R] = float::fma(by[position], rows[R], spread[P][R]); });
                }
            });
        }
    });
    spread
}
