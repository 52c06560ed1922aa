//! Forward of planes that follow each other, for small windows of a known size: a thread has whole windows in registers.
//!
//! A *piece* is what a thread loads of a window's rows: up to four columns, which are two windows of two columns, one of three
//! or four, or half of one of eight. A piece whose rows begin at multiples of four elements is loaded by vectors. Neighbouring
//! threads have neighbouring pieces. All that a thread loads is under way before the block's weights are computed, and
//! nothing waits for another thread but for these.
//!
//! Bound by memory, and where there is little to do by what a launch and the weights take.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::window::Divider;

/// Threads of a block.
pub const DIRECT_BLOCK: u32 = 256;
/// Rows of a window, at most.
const MOST: u32 = 8;
/// Columns of a piece, at most.
const COLUMNS: usize = 4;
/// Elements of a Gaussian's two vectors in shared memory.
const OF_GAUSSIAN: u32 = 2 * MOST;
/// Gaussians of a map, at most: as many as shared memory holds that needs no leave of the driver.
const MAX_KERNELS: u32 = (48 << 10) / 4 / OF_GAUSSIAN;

/// The windows, of both axes alike, that there are kernels for: size and stride.
pub const SIZES: [(u32, u32); 5] = [(2, 2), (3, 3), (4, 4), (8, 8), (3, 2)];

/// Columns of a piece.
const fn columns(size: u32) -> u32 {
    if size == 3 { 3 } else { 4 }
}

/// Pieces that a thread has: what keeps memory busy without more registers than some.
const fn pieces(size: u32) -> usize {
    if size < 4 { 2 } else { 1 }
}

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(size: u32) -> u32 {
    if size == 8 { 3 } else { 4 }
}

/// How threads take windows apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Pieces of all planes.
    total: u32,
    /// Variances of each Gaussian, 1 or 2.
    variances: u32,
    /// Whether each row of a piece begins at a multiple of four elements and is in the image whole or not at all.
    vectors: u32,
    /// By the pieces of a row of windows.
    by_pieces: Divider,
    /// By the rows of windows of a plane.
    by_rows: Divider,
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
        let of_row = match size {
            2 => horizontal.output.div_ceil(2),
            8 => horizontal.output.checked_mul(2)?,
            _ => horizontal.output,
        };
        let limit = i32::MAX as u32 - DIRECT_BLOCK * 8;
        let lines = geometry.planes.checked_mul(vertical.output)?;
        let total = lines.checked_mul(of_row).filter(|&total| total <= limit)?;
        let direct = Self {
            total,
            variances,
            vectors: u32::from(size != 3 && horizontal.image.is_multiple_of(4) && horizontal.padding == 0),
            by_pieces: Divider::new(of_row),
            by_rows: Divider::new(vertical.output),
        };
        let blocks = total.div_ceil(DIRECT_BLOCK * pieces(size) as u32);
        Some(Plan { direct, blocks, shared_bytes: geometry.kernels * OF_GAUSSIAN * 4 })
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k`, which all channels share. The grid is the plan's.
///
/// On an H200, in f32, 0.90 to 0.97 of the copy rate for 2×2 windows on 28×28 to 111×113, 0.80 for 4×4 and 8×8 (docs/perf).
///
/// # Safety
/// The parent module's. `x` holds the planes, `y` as many for each of `kernels`, `mean` two and `var` `variances` elements for
/// each Gaussian; `direct` is what [`Direct::plan`] made of `geometry`, whose windows are of this size and stride.
#[kernel(
    block = DIRECT_BLOCK,
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
    let [vertical, horizontal] = &geometry.axes;
    let first = thread::block_idx_x() * DIRECT_BLOCK * pieces(SIZE) as u32 + thread::thread_idx_x();
    // Where a piece is: its plane, row of windows, and number there. Past the last is nowhere.
    let find = |piece: usize| {
        let task = first + piece as u32 * DIRECT_BLOCK;
        let line = direct.by_pieces.divide(task);
        let plane = direct.by_rows.divide(line);
        (
            task < direct.total,
            plane,
            line - plane * vertical.output,
            task - line * pieces_of_row::<SIZE>(horizontal.output),
        )
    };

    // SAFETY: zero bits are zeros.
    let mut loaded: [[[T; COLUMNS]; MOST as usize]; 4] = unsafe { core::mem::zeroed() };
    unrolled!(P in [0 1 2 3] {
        if P < pieces(SIZE) {
            let (there, plane, oy, piece) = find(P);
            let column = if SIZE == 2 || SIZE == 8 { piece * 4 } else { piece * STRIDE };
            let (row, column) = ((oy * STRIDE).wrapping_sub(vertical.padding), column.wrapping_sub(horizontal.padding));
            let at = (plane as usize * vertical.image as usize)
                .wrapping_add_signed(row.cast_signed() as isize)
                .wrapping_mul(horizontal.image as usize)
                .wrapping_add_signed(column.cast_signed() as isize);
            if SIZE != 3 && direct.vectors != 0 {
                unrolled!(I in [0 1 2 3 4 5 6 7] {
                    if (I as u32) < SIZE {
                        let inside = there & (row + (I as u32) < vertical.image) & (column < horizontal.image);
                        // SAFETY: loaded only where row and columns are in the image, at a multiple of four elements.
                        let four = unsafe {
                            x.load4_if(inside, at.wrapping_add(I * horizontal.image as usize), Vec4::splat(T::from_f32(0.0)))
                        };
                        loaded[P][I] = four.to_array();
                    }
                });
            } else {
                unrolled!(I in [0 1 2 3 4 5 6 7] {
                    if (I as u32) < SIZE {
                        let inside = there & (row.wrapping_add(I as u32) < vertical.image);
                        unrolled!(J in [0 1 2 3] {
                            if (J as u32) < columns(SIZE) {
                                let inside = inside & (column.wrapping_add(J as u32) < horizontal.image);
                                let at = at.wrapping_add(I * horizontal.image as usize + J);
                                // SAFETY: loaded only where row and column are in the image.
                                loaded[P][I][J] = unsafe { x.load_if(inside, at, T::from_f32(0.0)) };
                            }
                        });
                    }
                });
            }
        }
    });

    // A Gaussian's weights along y, then those along x; a warp each.
    let shared = dynamic_shared::<f32>();
    let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
    while number < 2 * geometry.kernels {
        let down = number.is_multiple_of(2);
        // SAFETY: shared memory holds the vector, which is this warp's; the parameters are there.
        unsafe {
            let shape = Shape::load([mean, var], number / 2, down, direct.variances);
            let put = |i: u32, weight: f32| shared.store(number * MOST + i, weight);
            vector(&geometry.axis(down), 0, shape, false, put, |i| shared.load(number * MOST + i), |_, _, _| {});
        }
        number += DIRECT_BLOCK / warp::WARP_SIZE;
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
        unrolled!(P in [0 1 2 3] {
            if P < pieces(SIZE) {
                let (there, plane, oy, piece) = find(P);
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
                let line = (map * vertical.output as usize + oy as usize) * horizontal.output as usize;
                match SIZE {
                    2 => {
                        let (ox, [left, right]) = (2 * piece, totals.map(T::from_f32));
                        let at = line + ox as usize;
                        // SAFETY: stored only where the windows are in the output, two at an even element; one thread has them.
                        unsafe {
                            if horizontal.output.is_multiple_of(2) {
                                y.store2_if(there, at, Vec2::new(left, right));
                            } else {
                                y.store_if(there, at, left);
                                y.store_if(there & (ox + 1 < horizontal.output), at + 1, right);
                            }
                        }
                    }
                    8 => {
                        let total = totals[0] + warp::shuffle_xor(totals[0], 1);
                        // SAFETY: stored only where the window is in the output; the first of its threads has it.
                        unsafe { y.store_if(there & piece.is_multiple_of(2), line + (piece / 2) as usize, T::from_f32(total)) };
                    }
                    // SAFETY: as above.
                    _ => unsafe { y.store_if(there, line + piece as usize, T::from_f32(totals[0])) },
                }
            }
        });
    }
}

/// Pieces of a row of so many windows.
#[inline(always)]
const fn pieces_of_row<const SIZE: u32>(output: u32) -> u32 {
    match SIZE {
        2 => output.div_ceil(2),
        8 => 2 * output,
        _ => output,
    }
}

#[inline(always)]
const fn join([a, b, c, d]: [f32; 4], [e, f, g, h]: [f32; 4]) -> [f32; 8] {
    [a, b, c, d, e, f, g, h]
}
