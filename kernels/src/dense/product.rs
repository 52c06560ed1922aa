//! The matrix product: a tile of `SIDE × SIDE` elements by a block of `2 · SIDE` threads, f32 FFMA.
//!
//! Both operands go through shared memory, a slice of [`DEPTH`] at a time, stored depth-major so that a thread reads four
//! rows (or columns) at once. While a slice is multiplied, the next one is on its way from global memory into registers;
//! two slices alternate in shared memory, so that one barrier a slice is enough. Each thread computes 8 rows and 4 or 8
//! columns in groups of four, half a tile apart: a warp's accesses to shared memory are then consecutive.

use cuda_std::prelude::*;

use super::quad::Quad;
use super::{IDENTITY, PRELU_EACH, RELU};

/// Depth of a slice: with `2 · SIDE` threads, each loads four elements of each operand.
pub const DEPTH: u32 = 8;

/// Elements from one depth to the next in shared memory. An operand whose depth is innermost is stored by a warp as 16
/// consecutive elements at one depth and 16 at the depth 4 further: four elements more than `side` put these 16 banks
/// apart, and leave every depth aligned to 16 bytes.
const fn pitch(side: u32) -> u32 {
    side + 4
}

/// Shared memory of a block: two slices of two operands.
pub const fn shared_elements(side: u32) -> usize {
    (4 * DEPTH * pitch(side)) as usize
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

/// Repeats a block with a constant in place of the index: arrays indexed otherwise would go to local memory.
macro_rules! unrolled {
    ($i:ident in [$($n:literal)*] $body:block) => { $({ const $i: usize = $n; $body })* };
}

/// One operand on its way into shared memory: this thread's four elements of each slice.
///
/// With `DEPTH_INNER` the matrix is `[across, depth]` and the four are consecutive in depth; otherwise it is
/// `[depth, across]` and they are consecutive across.
struct Operand<const SIDE: u32, const DEPTH_INNER: bool> {
    source: Global<f32>,
    /// The first of the four.
    at: usize,
    /// From one slice to the next.
    step: usize,
    /// Where they are in the matrix.
    across: u32,
    depth: u32,
    /// The matrix' sizes, and where the split's part ends.
    extent: u32,
    full_depth: u32,
    end: u32,
    /// Where they go in a slice.
    target: u32,
}

impl<const SIDE: u32, const DEPTH_INNER: bool> Operand<SIDE, DEPTH_INNER> {
    #[inline(always)]
    fn new(source: Global<f32>, first: u32, extent: u32, depths: [u32; 2], full_depth: u32) -> Self {
        let [begin, end] = depths;
        let thread = thread::thread_idx_x();
        let (across, depth) = if DEPTH_INNER {
            (thread / (DEPTH / 4), thread % (DEPTH / 4) * 4)
        } else {
            (thread % (SIDE / 4) * 4, thread / (SIDE / 4))
        };
        let target = depth * pitch(SIDE) + across;
        let (across, depth) = (first + across, begin + depth);
        let (at, step) = if DEPTH_INNER {
            (across as usize * full_depth as usize + depth as usize, DEPTH as usize)
        } else {
            (depth as usize * extent as usize + across as usize, DEPTH as usize * extent as usize)
        };
        Self { source, at, step, across, depth, extent, full_depth, end, target }
    }

    /// This thread's elements of the next slice; 0 outside the matrix and past the split's part.
    ///
    /// # Safety
    /// `source` holds the matrix.
    #[inline(always)]
    unsafe fn fetch(&mut self) -> Vec4<f32> {
        let quad = if DEPTH_INNER {
            Quad::until(self.across < self.extent, self.depth, self.end, self.full_depth)
        } else {
            Quad::of_row(self.depth < self.end, self.across, self.extent)
        };
        // SAFETY: the quad says which elements exist.
        let elements = unsafe { quad.load(self.source, self.at) };
        self.at += self.step;
        self.depth += DEPTH;
        elements
    }

    /// Stores them to a slice, depth-major.
    ///
    /// # Safety
    /// No thread reads the slice meanwhile.
    #[inline(always)]
    unsafe fn keep(&self, slice: Shared<f32>, elements: Vec4<f32>) {
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
pub(super) struct Epilogue {
    pub out: GlobalMut<f32>,
    /// The factor of what `out` held; not read when 0.
    pub beta: f32,
    /// Takes the value before the activation.
    pub z: Option<GlobalMut<f32>>,
    pub b: Option<Global<f32>>,
    /// Slopes, for PReLU.
    pub alpha: Option<Global<f32>>,
    pub activation: u32,
}

impl Epilogue {
    /// `out = sum + beta * out`.
    #[inline(always)]
    pub fn sum(out: GlobalMut<f32>, beta: f32) -> Self {
        Self { out, beta, z: None, b: None, alpha: None, activation: IDENTITY }
    }

    /// The bias and the slopes of four columns.
    ///
    /// # Safety
    /// `b` and `alpha` hold the quad's columns (`alpha` one element, for a shared slope).
    #[inline(always)]
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
    #[inline(always)]
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

/// The block's tile of `a · b`, `a: [rows, depth]`, `b: [depth, columns]`.
///
/// `A_DEPTH_INNER` says that `a` lies row by row, `B_DEPTH_INNER` that `b` lies column by column; otherwise the other way.
/// `COLUMN_GROUPS` is how many groups of four columns a thread computes: `SIDE / 64`.
///
/// # Safety
/// The module `dense`'s; `shared` has [`shared_elements`] of `SIDE`.
#[inline(always)]
pub(super) unsafe fn product<
    const SIDE: u32,
    const COLUMN_GROUPS: usize,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
>(
    a: Global<f32>,
    b: Global<f32>,
    epilogue: Epilogue,
    shape: Shape,
    shared: Shared<f32>,
) {
    let slice = DEPTH * pitch(SIDE);
    let (first_row, first_column) = (thread::block_idx_x() * SIDE, thread::block_idx_y() * SIDE);
    let split = thread::block_idx_z();
    let begin = split * shape.depth_per_split;
    let end = shape.depth.min(begin.saturating_add(shape.depth_per_split));
    let mut a = Operand::<SIDE, A_DEPTH_INNER>::new(a, first_row, shape.rows, [begin, end], shape.depth);
    let mut b = Operand::<SIDE, B_DEPTH_INNER>::new(b, first_column, shape.columns, [begin, end], shape.depth);

    // A warp's lanes are 4 rows of 8 columns of threads, the warps two such side by side.
    let (lane, warp) = (thread::thread_idx_x() % warp::WARP_SIZE, thread::thread_idx_x() / warp::WARP_SIZE);
    let row = (warp / 2 * 4 + lane / 8) * 4;
    let column = (warp % 2 * 8 + lane % 8) * 4;

    // SAFETY: all zeros is an array of floats. Not `[..; 8]`, which becomes a loop and then local memory.
    let mut sums: [[Vec4<f32>; COLUMN_GROUPS]; 8] = unsafe { core::mem::zeroed() };
    // SAFETY: `fetch` and `keep` as they ask; all indices are below two slices from either stage. A stage is written
    // before the barrier that precedes its reading, and read before the one that precedes its next writing.
    unsafe {
        let mut stage = shared;
        let mut other = shared.offset(2 * slice);
        let (first_a, first_b) = (a.fetch(), b.fetch());
        a.keep(stage, first_a);
        b.keep(stage.offset(slice), first_b);
        thread::sync_threads();
        let mut depth = begin;
        while depth < end {
            let (next_a, next_b) = (a.fetch(), b.fetch());
            let (rows, columns) = (stage.offset(row), stage.offset(slice + column));
            unrolled!(D in [0 1 2 3 4 5 6 7] {
                let at = D as u32 * pitch(SIDE);
                let (low, high) = (rows.load4(at), rows.load4(at + SIDE / 2));
                let a = [low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w];
                unrolled!(G in [0 1] {
                    if G < COLUMN_GROUPS {
                        let b = columns.load4(at + G as u32 * SIDE / 2);
                        unrolled!(R in [0 1 2 3 4 5 6 7] {
                            sums[R][G] = sums[R][G].zip_with(b, |sum, b| float::fma(a[R], b, sum));
                        });
                    }
                });
            });
            a.keep(other, next_a);
            b.keep(other.offset(slice), next_b);
            thread::sync_threads();
            (stage, other) = (other, stage);
            depth += DEPTH;
        }
    }

    let part = split as usize * shape.rows as usize * shape.columns as usize;
    // SAFETY: the quads say which of the tile's elements exist, and each is one thread's.
    unsafe {
        unrolled!(G in [0 1] {
            if G < COLUMN_GROUPS {
                let column = first_column + column + G as u32 * SIDE / 2;
                let quad = Quad::of_row(true, column, shape.columns);
                let values = epilogue.column_values(column, quad);
                unrolled!(R in [0 1 2 3 4 5 6 7] {
                    let row = first_row + row + if R < 4 { R as u32 } else { SIDE / 2 + R as u32 - 4 };
                    let quad = Quad::of_row(row < shape.rows, column, shape.columns);
                    let at = part + row as usize * shape.columns as usize + column as usize;
                    epilogue.put(at, quad, sums[R][G], values);
                });
            }
        });
    }
}
