//! Backward with the gradients of the parameters, of planes that follow each other, over windows three apart of a few known sizes and
//! whose weights are the same everywhere and which all channels share, in `f32`: a lane goes down a column of meshes of 3×3 inputs.
//!
//! Of the rows of windows over a mesh a lane keeps `dy`, what that gives along x (`h`), and what the inputs sum to along y (`p`): each
//! weight along y meets `sum h x` and each along x `sum p dy`; these sums meet the weights' derivatives once, when a lane is done. What a
//! mesh needs of memory is on its way while the mesh above it is worked with. What is kept lies in rings of rows, with a copy
//! of the loop's code for each place where a ring may begin, so that nothing is moved. A warp's part of `dx` goes through its own shared memory, so
//! that neighbouring lanes store neighbouring elements. No barrier is in the loop.
//!
//! Launch: lanes have neighbouring columns, of one plane after another; the grid's x has these, its y the parts of a column.
//!
//! Bound by memory and by instructions.

use cuda_std::prelude::*;

use super::weights::{Shape, vector};
use super::{Geometry, SUMS_PER_GAUSSIAN, leave};
use crate::band::least;
use crate::window::{Divider, Nchw, Window};

/// Pixels from a window to the next.
pub const STRIDE: usize = 3;
/// The sizes, of both axes alike, that there are kernels for.
pub const SIZES: [u32; 4] = [5, 7, 9, 11];
/// Threads of a block.
pub const PLANES_BLOCK: u32 = 128;
/// Elements of a tensor, at most.
const MOST_ELEMENTS: u64 = 1 << 30;
/// Blocks that a GPU has room for: three on each multiprocessor.
const AT_ONCE: u64 = 3 * 132;
/// Parts of a column, at most.
const MOST_PARTS: u32 = 64;
/// What a block does once, in rows of meshes.
const BEFORE: u32 = 5;
/// A row or column that no image has.
const FAR: u32 = 1 << 31;
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 12;
/// Meshes after the next whose elements are on their way from memory: registers have no room for them, and by its instructions a mesh
/// takes less time than memory.
const AHEAD: u32 = 2;
/// Elements of a row of a warp's meshes.
const ROW: u32 = STRIDE as u32 * warp::WARP_SIZE;

/// Rows of meshes of a block, of so many where as many blocks have others beside them: as many as let blocks end together, each of
/// which begins with as much as [`BEFORE`] rows take.
pub(super) fn rows_of_block(height: u32, beside: u64) -> u32 {
    let cost = |rows: u32| {
        let rounds = (beside * u64::from(height.div_ceil(rows))).div_ceil(AT_ONCE);
        rounds * u64::from(rows + BEFORE)
    };
    let of_parts = (1..=MOST_PARTS.min(height)).map(|parts| height.div_ceil(parts));
    of_parts.min_by_key(|&rows| cost(rows)).unwrap_or(height)
}

/// How blocks are laid over columns of meshes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Rows of meshes of a block.
    rows: u32,
    /// The numbers of the first row and column of meshes, and of the row past the last.
    first: [u32; 2],
    end: u32,
    /// Columns of meshes of a plane, and of all.
    width: u32,
    count: u32,
    by_width: Divider,
    /// Variances of the Gaussian, 1 or 2.
    variances: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Columns {}

impl Columns {
    /// Over the window's inputs, and the grid; none where there are too many to count.
    pub fn new(window: &Window<Nchw>, variances: u32) -> Option<(Self, [u32; 2])> {
        let stride = STRIDE as u32;
        let first = window.padding.map(|padding| padding / stride);
        let [end, right] = [0, 1].map(|axis| (window.input[axis] - 1 + window.padding[axis]) / stride + 1);
        let (width, height) = (right - first[1], end - first[0]);
        let of = |size: [u32; 2]| u64::from(size[0]) * u64::from(size[1]) * u64::from(window.planes);
        let count = window.planes.checked_mul(width)?;
        if of(window.input).max(of(window.output)) > MOST_ELEMENTS {
            return None;
        }
        let across = count.div_ceil(PLANES_BLOCK);
        let rows = rows_of_block(height, across.into());
        let columns = Self { rows, first, end, width, count, by_width: Divider::new(width), variances };
        Some((columns, [across, height.div_ceil(rows)]))
    }

    /// The plane, and the number in the padded image, of a column.
    #[device_inline]
    fn find(&self, number: u32) -> [u32; 2] {
        let plane = self.by_width.divide(number);
        [plane, number - plane * self.width + self.first[1]]
    }
}

/// `dx = sum over windows that cover the pixel of weight * dy`, where it is there, written and not added to what is there; and for each block
/// its part of the sums that are the gradients of the parameters, `[blocks, 4]`.
///
/// # Safety
/// The parent module's. `x` and `dx` hold the window's inputs, `dy` its outputs, `mean` two and `var` as many elements as `columns` says, `sums`
/// four elements for each block; `geometry` and `window` are of the same windows, of `SIZE` positions both ways, three apart; `OVER` is a third of
/// the size, rounded up, and `RING` one more; `columns` is what [`Columns::new`] made of the window, with the grid.
#[kernel(block = PLANES_BLOCK, min_blocks = 3, instances((SIZE, OVER, RING) = [(5, 2, 3), (7, 3, 4), (9, 3, 4), (11, 4, 5)]))]
pub unsafe fn gaussian_pool_backward_parameters_planes<const SIZE: usize, const OVER: usize, const RING: usize>(
    x: Global<f32>,
    dy: Global<f32>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: Option<GlobalMut<f32>>,
    sums: GlobalMut<f32>,
    geometry: Geometry,
    window: Window<Nchw>,
    columns: Columns,
) {
    const WARPS: u32 = PLANES_BLOCK / warp::WARP_SIZE;
    let room = shared_array![f32; 6 * VECTOR as usize].handle();
    let staged = shared_array![f32; 4 * 9 * 32].handle();
    let of_warps = shared_array![f32; 4 * SUMS_PER_GAUSSIAN as usize].handle();
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
    let number = thread::block_idx_x() * PLANES_BLOCK + thread::thread_idx_x();
    let there = number < columns.count;
    let [plane, across] = columns.find(if there { number } else { 0 });
    let first_mesh = columns.first[0] + thread::block_idx_y() * columns.rows;
    let meshes = least(columns.rows, columns.end - first_mesh);
    let (line, below) = (window.input[1], window.output[1]);
    let left = (across * STRIDE as u32).wrapping_sub(window.padding[1]);
    let mut top = (first_mesh * STRIDE as u32).wrapping_sub(window.padding[0]);
    let first = first_mesh.wrapping_sub(OVER as u32 - 1);
    let mut from = (plane * window.output[0]).wrapping_add(first).wrapping_mul(below).wrapping_add(across);
    // The lane's mesh, and where its plane's columns begin of the elements that it stores.
    let mut at = (plane * window.input[0]).wrapping_add(top).wrapping_mul(line).wrapping_add(left);
    let mut to = [0; STRIDE];
    // A pixel that no window covers is no term: its NaN times the zeros beside `dy` would be one.
    let covered = [0, 1].map(|axis| {
        let reach = (window.output[axis] - 1) * STRIDE as u32 + SIZE as u32 - window.padding[axis];
        least(window.input[axis], reach)
    });
    // Far after the image where there is no column.
    let (across, left) = if there { (across, left) } else { (FAR, FAR) };
    let mut stored = [FAR; STRIDE];
    unrolled!(J in [0 1 2] {
        let element = J as u32 * warp::WARP_SIZE + lane;
        let owner = element / STRIDE as u32;
        let number = number - lane + owner;
        let [plane, across] = columns.find(if number < columns.count { number } else { 0 });
        let column = (across * STRIDE as u32 + element - owner * STRIDE as u32).wrapping_sub(window.padding[1]);
        if number < columns.count { stored[J] = column; }
        to[J] = (plane * window.input[0]).wrapping_add(top).wrapping_mul(line).wrapping_add(column);
    });
    // SAFETY: the caller's; outputs and inputs are loaded and stored where they are there; a warp's shared memory is its own.
    unsafe {
        let staged = staged.offset(warp * STRIDE as u32 * ROW);
        let load = |row: u32, from: u32| {
            let mut loaded = [0.0; OVER];
            let inside = row < window.output[0];
            unrolled!(G in [0 1 2 3] {
                if G < OVER {
                    let inside = inside & (across.wrapping_sub(G as u32) < window.output[1]);
                    loaded[G] = dy.load_if(inside, from.wrapping_sub(G as u32) as usize, 0.0);
                }
            });
            loaded
        };
        let load_inputs = |wanted: bool, top: u32, at: u32| {
            let mut loaded = [[0.0; STRIDE]; STRIDE];
            unrolled!(I in [0 1 2] {
                let inside = wanted & (top.wrapping_add(I as u32) < covered[0]);
                let at = at.wrapping_add(I as u32 * line);
                unrolled!(J in [0 1 2] {
                    let inside = inside & (left.wrapping_add(J as u32) < covered[1]);
                    loaded[I][J] = x.load_if(inside, at.wrapping_add(J as u32) as usize, 0.0);
                });
            });
            loaded
        };
        // What meshes further below will load, of the columns whose elements come from memory together by the first.
        let fetch = |row: u32, from: u32, mesh: u32, top: u32, at: u32| {
            let inside =
                lane.is_multiple_of(8) & (row.wrapping_add(AHEAD) < window.output[0]) & (across < window.output[1]);
            dy.prefetch_if(inside, from.wrapping_add(AHEAD * below) as usize);
            let inside = lane.is_multiple_of(2) & (mesh.wrapping_add(AHEAD) < meshes) & (left < covered[1]);
            unrolled!(I in [0 1 2] {
                let below = AHEAD * STRIDE as u32 + I as u32;
                let inside = inside & (top.wrapping_add(below) < covered[0]);
                x.prefetch_if(inside, at.wrapping_add(below * line) as usize);
            });
        };
        let mut rows = [[0.0; OVER]; RING];
        let mut inputs = [[[0.0; STRIDE]; STRIDE]; RING];
        rows[0] = load(first, from);
        let mut axis = warp;
        while axis < 2 {
            let own = room.offset(axis * VECTOR);
            let shape = Shape::load([mean, var], 0, axis == 0, columns.variances);
            vector(
                &geometry.axis(axis == 0),
                0,
                shape,
                true,
                |i, weight| own.store(i, weight),
                |i| own.load(i),
                |i, _, [by_mean, by_var]| {
                    own.store(2 * VECTOR + i, by_mean);
                    own.store(4 * VECTOR + i, by_var);
                },
            );
            axis += WARPS;
        }
        thread::sync_threads();
        let vector = |number: u32| {
            let [a, b, c] = [0, 4, 8].map(|i| room.load4(number * VECTOR + i).to_array());
            [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3]]
        };
        let (by_y, by_x) = (vector(0), vector(1));
        let (mut sums_y, mut sums_x) = ([0.0; SIZE], [0.0; SIZE]);
        let mut spread = [[0.0; STRIDE]; RING];
        let mut pooled = [[0.0; STRIDE]; RING];
        let finish = |sums_x: &mut [f32; SIZE], pooled: [f32; STRIDE], row: &[f32; OVER]| {
            unrolled!(G in [0 1 2 3] { unrolled!(J in [0 1 2] {
                if G < OVER && G * STRIDE + J < SIZE {
                    sums_x[G * STRIDE + J] = float::fma(pooled[J], row[G], sums_x[G * STRIDE + J]);
                }
            }); });
        };
        // The mesh's number of this row's; rows of windows before the first have none.
        let (mut row, mut mesh) = (first, 0u32.wrapping_sub(OVER as u32 - 1));
        'rows: loop {
            unrolled!(K in [0 1 2 3 4] {
                if K < RING {
                    let next = (K + 1) % RING;
                    from = from.wrapping_add(below);
                    rows[next] = load(row.wrapping_add(1), from);
                    let begun = mesh < meshes;
                    let next_mesh = mesh.wrapping_add(1);
                    if begun {
                        at = at.wrapping_add(STRIDE as u32 * line);
                        top = top.wrapping_add(STRIDE as u32);
                    }
                    inputs[next] = load_inputs(next_mesh < meshes, top, at);
                    fetch(row.wrapping_add(1), from, next_mesh, top, at);
                    spread[K] = [0.0; STRIDE];
                    unrolled!(G in [0 1 2 3] { unrolled!(J in [0 1 2] {
                        if G < OVER && G * STRIDE + J < SIZE {
                            spread[K][J] = float::fma(by_x[G * STRIDE + J], rows[K][G], spread[K][J]);
                        }
                    }); });
                    pooled[K] = [0.0; STRIDE];
                    if begun {
                        let x = inputs[K];
                        let mut values = [[0.0; STRIDE]; STRIDE];
                        unrolled!(G in [0 1 2 3] { unrolled!(I in [0 1 2] {
                            if G < OVER && G * STRIDE + I < SIZE {
                                let place = (K + RING - G) % RING;
                                let (weight, position) = (by_y[G * STRIDE + I], G * STRIDE + I);
                                unrolled!(J in [0 1 2] {
                                    values[I][J] = float::fma(weight, spread[place][J], values[I][J]);
                                    sums_y[position] = float::fma(spread[place][J], x[I][J], sums_y[position]);
                                    pooled[place][J] = float::fma(weight, x[I][J], pooled[place][J]);
                                });
                            }
                        }); });
                        // The first row of windows over the mesh is done.
                        let done = (K + RING - (OVER - 1)) % RING;
                        finish(&mut sums_x, pooled[done], &rows[done]);
                        if let Some(dx) = dx {
                            warp::sync_warp(warp::FULL_MASK);
                            unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
                                staged.store(I as u32 * ROW + lane * STRIDE as u32 + J as u32, values[I][J]);
                            }); });
                            warp::sync_warp(warp::FULL_MASK);
                            unrolled!(I in [0 1 2] {
                                // The mesh's rows are a stride above where `top` is now.
                                let inside = top.wrapping_sub(STRIDE as u32 - I as u32) < window.input[0];
                                unrolled!(J in [0 1 2] {
                                    let value = staged.load(I as u32 * ROW + J as u32 * warp::WARP_SIZE + lane);
                                    let to = to[J].wrapping_add(I as u32 * line);
                                    dx.store_if(inside & (stored[J] < line), to as usize, value);
                                });
                            });
                            unrolled!(J in [0 1 2] { to[J] = to[J].wrapping_add(STRIDE as u32 * line); });
                        }
                    }
                    mesh = next_mesh;
                    row = row.wrapping_add(1);
                    if mesh == meshes {
                        // Others have the meshes of the rest of what these rows of windows pool.
                        unrolled!(G in [0 1 2] {
                            if G + 1 < OVER {
                                let place = (K + RING - G) % RING;
                                finish(&mut sums_x, pooled[place], &rows[place]);
                            }
                        });
                        break 'rows;
                    }
                }
            });
        }
        let mut of_thread = [0.0; SUMS_PER_GAUSSIAN as usize];
        unrolled!(T in [0 1] {
            let [along_y, along_x] = [0, 1].map(|axis| vector(2 * (T as u32 + 1) + axis));
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] {
                if I < SIZE {
                    of_thread[2 * T] = float::fma(along_y[I], sums_y[I], of_thread[2 * T]);
                    of_thread[2 * T + 1] = float::fma(along_x[I], sums_x[I], of_thread[2 * T + 1]);
                }
            });
        });
        let block = thread::block_idx_y() as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize;
        leave(of_thread, of_warps, sums, block);
    }
}
