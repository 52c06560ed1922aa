//! The matrix product of 16-bit floats that tensor cores do not take: a tile of `SIDE × SIDE` elements by a block of `2 · SIDE` threads, f32
//! FFMA; and what products by FFMA have in common.
//!
//! Both operands go through shared memory, widened to f32, a slice of [`DEPTH`] at a time, stored depth-major so that a
//! thread reads four rows (or columns) at once. While a slice is multiplied, the next one is on its way from global memory into registers;
//! two slices alternate in shared memory, so that one barrier a slice is enough. Each thread computes 8 rows and 4 or 8
//! columns in groups of four, half a tile apart: a warp's accesses to shared memory are then consecutive.

use cuda_std::prelude::*;

use super::quad::Quad;
use super::{IDENTITY, LARGE, PRELU_EACH, RELU, SMALL};

/// Depth of a slice: with `2 · SIDE` threads, each loads four elements of each operand.
pub const DEPTH: u32 = 8;

/// Elements from one depth to the next in shared memory. An operand whose depth is innermost is stored by a warp as 16
/// consecutive elements at one depth and 16 at the depth 4 further: four elements more than `side` put these 16 banks
/// apart, and leave every depth aligned to 16 bytes.
pub(super) const fn pitch(side: u32) -> u32 {
    side + 4
}

/// Shared memory of a block: two slices of two operands.
const fn shared_elements(side: u32) -> usize {
    (4 * DEPTH * pitch(side)) as usize
}

/// Blocks that a grid can have along y.
pub const MAX_GRID_Y: u32 = 65_535;

/// Whether the columns of small tiles go along the grid's x and their rows along y, instead of the other way: only along x
/// can a grid have more than [`MAX_GRID_Y`] blocks, and a product that has more tiles both ways fits into no memory.
pub const fn columns_along_x(columns: u32) -> bool {
    columns > MAX_GRID_Y * SMALL
}

/// Groups of four columns that a thread computes.
const fn column_groups(side: u32) -> usize {
    side as usize / 64
}

/// Sizes of a product, and of the part of its depth that each split takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Rows of the result.
    pub rows: u32,
    /// Columns of the result.
    pub columns: u32,
    /// Products that each element sums.
    pub depth: u32,
    /// How many of them one split takes, a multiple of [`DEPTH`]; the last may take fewer.
    pub depth_per_split: u32,
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Shape {}

/// One operand on its way into shared memory: this thread's four elements of each slice.
///
/// With `DEPTH_INNER` the matrix is `[across, depth]` and the four are consecutive in depth; otherwise it is
/// `[depth, across]` and they are consecutive across.
struct Operand<T, const SIDE: u32, const DEPTH_INNER: bool> {
    source: Global<T>,
    /// The first of the next four, and from one slice to the next.
    at: usize,
    step: usize,
    /// Slices that begin before this depth have one for this thread.
    end: u32,
    /// Where they are across, and the matrix' sizes.
    across: u32,
    extent: u32,
    full_depth: u32,
    /// Where they go in a slice.
    target: u32,
}

impl<T: Storage, const SIDE: u32, const DEPTH_INNER: bool> Operand<T, SIDE, DEPTH_INNER> {
    #[device_inline]
    fn new(source: Global<T>, first: u32, extent: u32, depths: [u32; 2], full_depth: u32) -> Self {
        let [begin, end] = depths;
        let thread = thread::thread_idx_x();
        let (across, depth) = if DEPTH_INNER {
            (thread / (DEPTH / 4), thread % (DEPTH / 4) * 4)
        } else {
            (thread % (SIDE / 4) * 4, thread / (SIDE / 4))
        };
        let target = depth * pitch(SIDE) + across;
        let end = end.saturating_sub(depth);
        let (across, depth) = (first + across, begin + depth);
        let (at, step) = if DEPTH_INNER {
            (across as usize * full_depth as usize + depth as usize, DEPTH as usize)
        } else {
            (depth as usize * extent as usize + across as usize, DEPTH as usize * extent as usize)
        };
        Self { source, at, step, end, across, extent, full_depth, target }
    }

    /// This thread's elements of the next slice, which begins at `depth`, as they are in memory: what widens them would
    /// wait for them. 0 outside the matrix and past the split's part.
    ///
    /// # Safety
    /// `source` holds the matrix.
    #[device_inline]
    unsafe fn fetch(&mut self, depth: u32) -> Vec4<T> {
        let quad = if DEPTH_INNER {
            Quad::until(self.across < self.extent, depth, self.end, self.full_depth)
        } else {
            Quad::of_row(depth < self.end, self.across, self.extent)
        };
        // SAFETY: the quad says which elements exist.
        let elements = unsafe { quad.fetch(self.source, self.at) };
        self.at += self.step;
        elements
    }

    /// Stores them to a slice, depth-major.
    ///
    /// # Safety
    /// No thread reads the slice meanwhile.
    #[device_inline]
    unsafe fn keep(&self, slice: Shared<f32>, elements: Vec4<T>) {
        let elements = elements.map(T::to_f32);
        // SAFETY: `target` is inside the slice, and these four are this thread's alone.
        unsafe {
            if DEPTH_INNER {
                slice.store(self.target, elements.x);
                slice.store(self.target + pitch(SIDE), elements.y);
                slice.store(self.target + 2 * pitch(SIDE), elements.z);
                slice.store(self.target + 3 * pitch(SIDE), elements.w);
            } else {
                slice.store4(self.target, elements);
            }
        }
    }
}

/// Where a result goes, and what happens to it on the way.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<T> {
    pub out: GlobalMut<T>,
    /// The factor of what `out` held; not read when 0.
    pub beta: f32,
    /// Takes the value before the activation.
    pub z: Option<GlobalMut<T>>,
    pub b: Option<Global<T>>,
    /// Slopes, for PReLU.
    pub alpha: Option<Global<f32>>,
    pub activation: u32,
}

impl<T: Storage> Epilogue<T> {
    /// `out = sum + beta * out`.
    #[device_inline]
    pub fn sum(out: GlobalMut<T>, beta: f32) -> Self {
        Self { out, beta, z: None, b: None, alpha: None, activation: IDENTITY }
    }

    /// The bias and the slopes of four columns.
    ///
    /// # Safety
    /// `b` and `alpha` hold the quad's columns (`alpha` one element, for a shared slope).
    #[device_inline]
    pub unsafe fn column_values(self, column: u32, quad: Quad) -> [Vec4<f32>; 2] {
        // SAFETY: the caller's.
        unsafe {
            let b = match self.b {
                Some(b) => quad.load(b, column as usize),
                None => Vec4::splat(0.0),
            };
            let alpha = match self.alpha {
                Some(alpha) if self.activation == PRELU_EACH => quad.load(alpha, column as usize),
                Some(alpha) => Vec4::splat(alpha.load(0)),
                None => Vec4::splat(0.0),
            };
            [b, alpha]
        }
    }

    /// Puts four results of a row to element `at` of `out` and on.
    ///
    /// # Safety
    /// `out` and `z` hold those that exist, which are this thread's alone.
    #[device_inline]
    pub unsafe fn put(self, at: usize, quad: Quad, sum: Vec4<f32>, [b, alpha]: [Vec4<f32>; 2]) {
        // SAFETY: the caller's.
        unsafe {
            let z = match self.b {
                Some(_) => sum.zip_with(b, |sum, b| sum + b),
                None => sum,
            };
            if let Some(target) = self.z {
                quad.store(target, at, z);
            }
            let y = match self.activation {
                IDENTITY => z,
                // So that NaN stays.
                RELU => z.map(|z| if z <= 0.0 { 0.0 } else { z }),
                _ => z.zip_with(alpha, |z, alpha| if z > 0.0 { z } else { alpha * z }),
            };
            let y = if self.beta == 0.0 {
                y
            } else {
                quad.load(self.out.as_global(), at).zip_with(y, |old, new| float::fma(self.beta, old, new))
            };
            quad.store(self.out, at, y);
        }
    }
}

/// The block's tile of `a · b`, `a: [rows, depth]`, `b: [depth, columns]`, into `epilogue`, or into `parts`,
/// `[splits, rows, columns]`, where they are given.
///
/// `A_DEPTH_INNER` says that `a` lies row by row, `B_DEPTH_INNER` that `b` lies column by column; otherwise the other way.
///
/// # Safety
/// The module `dense`'s.
#[device_inline]
pub(super) unsafe fn product<T: Storage, const SIDE: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: Global<T>,
    b: Global<T>,
    epilogue: Epilogue<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
) {
    // Of the two one is left in each entry.
    let shared = if SIDE == LARGE {
        shared_array![f32; shared_elements(LARGE)].handle()
    } else {
        shared_array![f32; shared_elements(SMALL)].handle()
    };
    let slice = DEPTH * pitch(SIDE);
    let [first_row, first_column] = first_of_tile::<SIDE>(shape.columns);
    let split = thread::block_idx_z();
    let begin = split * shape.depth_per_split;
    let end = shape.depth.min(begin.saturating_add(shape.depth_per_split));
    let mut a = Operand::<T, SIDE, A_DEPTH_INNER>::new(a, first_row, shape.rows, [begin, end], shape.depth);
    let mut b = Operand::<T, SIDE, B_DEPTH_INNER>::new(b, first_column, shape.columns, [begin, end], shape.depth);

    // A warp's lanes are 4 rows of 8 columns of threads, the warps two such side by side.
    let (lane, warp) = (thread::thread_idx_x() % warp::WARP_SIZE, thread::thread_idx_x() / warp::WARP_SIZE);
    let row = (warp / 2 * 4 + lane / 8) * 4;
    let column = (warp % 2 * 8 + lane % 8) * 4;

    // SAFETY: all zeros is an array of floats. Not `[..; 8]`, which becomes a loop and then local memory.
    let mut sums: [[Vec4<f32>; 2]; 8] = unsafe { core::mem::zeroed() };
    // SAFETY: `fetch` and `keep` as they ask; all indices are below two slices from either stage. A stage is written
    // before the barrier that precedes its reading, and read before the one that precedes its next writing.
    unsafe {
        let mut stage = shared;
        let mut other = shared.offset(2 * slice);
        let (first_a, first_b) = (a.fetch(begin), b.fetch(begin));
        a.keep(stage, first_a);
        b.keep(stage.offset(slice), first_b);
        thread::sync_threads();
        let mut depth = begin;
        while depth < end {
            depth += DEPTH;
            let (rows, columns) = (stage.offset(row), stage.offset(slice + column));
            // The operands' next slices come one after the other, each while half of this one is multiplied: both at once
            // take more registers than there are.
            let next = b.fetch(depth);
            unrolled!(D in [0 1 2 3] {
                multiply::<SIDE>(rows, columns, D, &mut sums);
            });
            b.keep(other.offset(slice), next);
            let next = a.fetch(depth);
            unrolled!(D in [4 5 6 7] {
                multiply::<SIDE>(rows, columns, D, &mut sums);
            });
            a.keep(other, next);
            thread::sync_threads();
            (stage, other) = (other, stage);
        }
    }

    let part = split as usize * shape.rows as usize * shape.columns as usize;
    let columns = [0, 1].map(|group| first_column + column + group * SIDE / 2);
    // SAFETY: the quads say which of the tile's elements exist, and each is one thread's.
    unsafe {
        let values = columns.map(|column| epilogue.column_values(column, Quad::of_row(true, column, shape.columns)));
        // A loop, and the next row's sums moved to where constants find them: unrolled, what follows a sum would be most
        // of the kernel, and take more registers than the sums leave.
        let mut r = 0;
        while r < 8 {
            let row = first_row + row + if r < 4 { r } else { SIDE / 2 + r - 4 };
            unrolled!(G in [0 1] {
                if G < column_groups(SIDE) {
                    let quad = Quad::of_row(row < shape.rows, columns[G], shape.columns);
                    let at = row as usize * shape.columns as usize + columns[G] as usize;
                    match parts {
                        Some(parts) => quad.store(parts, part + at, sums[0][G]),
                        None => epilogue.put(at, quad, sums[0][G], values[G]),
                    }
                }
            });
            unrolled!(R in [0 1 2 3 4 5 6] { sums[R] = sums[R + 1]; });
            r += 1;
        }
    }
}

/// Adds what depth `d` of a slice gives to a thread's sums.
///
/// # Safety
/// `rows` and `columns` are the thread's of the slice's operands.
#[device_inline]
unsafe fn multiply<const SIDE: u32>(rows: Shared<f32>, columns: Shared<f32>, d: usize, sums: &mut [[Vec4<f32>; 2]; 8]) {
    let at = d as u32 * pitch(SIDE);
    // SAFETY: half a tile further is inside the slice too.
    let (low, high) = unsafe { (rows.load4(at), rows.load4(at + SIDE / 2)) };
    let a = [low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w];
    unrolled!(G in [0 1] {
        if G < column_groups(SIDE) {
            // SAFETY: as above.
            let b = unsafe { columns.load4(at + G as u32 * SIDE / 2) };
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                sums[R][G] = sums[R][G].zip_with(b, |sum, b| float::fma(a[R], b, sum));
            });
        }
    });
}

/// The first row and column of the block's tile.
#[device_inline]
pub(super) fn first_of_tile<const SIDE: u32>(columns: u32) -> [u32; 2] {
    let (x, y) = (thread::block_idx_x() * SIDE, thread::block_idx_y() * SIDE);
    // Large tiles leave no register for the choice.
    if SIDE == SMALL && columns_along_x(columns) { [y, x] } else { [x, y] }
}
