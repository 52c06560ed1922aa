//! The matrix product in tiles of [`SLICED`] × [`SLICED`] elements whose depth the warps of a block share (CUTLASS: sliced K), f32 FFMA:
//! for products of few elements, which larger tiles leave to a few blocks that wait for memory, slice after slice.
//!
//! Each of [`WARPS`] warps takes one part of the depth, and computes all of the tile over it: a lane four rows and two fours of columns. Its
//! slices of [`DEPTH`] go through shared memory of its own, widened to f32, depth-major, as [`product`](super::product) has them; two
//! alternate there while the two after them are on their way from global memory into registers. So no warp waits for
//! another until all are done; then each leaves its sums where its slices were, and every thread adds four elements of all warps,
//! in the order of the depth.
//!
//! Bound by the time that memory takes for the first slices, and from some hundred blocks on by FFMA.

use cuda_std::prelude::*;

use super::SLICED;
use super::product::{DEPTH, Epilogue, Shape, pitch};
use super::quad::Quad;

/// Warps of a block.
pub(super) const WARPS: u32 = 8;
/// Elements of a slice of an operand in shared memory.
const SLICE: u32 = DEPTH * pitch(SLICED);
/// Elements of a warp's shared memory: two slices of both operands, which is more than the tile's sums.
const ROOM: u32 = 4 * SLICE;

/// What a warp copies of an operand: of each slice a lane has four elements twice, as [`product`](super::product)'s threads have them
/// once.
///
/// With `DEPTH_INNER` the matrix is `[across, depth]`, fours are consecutive in depth, and the second is half a tile further across;
/// otherwise it is `[depth, across]`, they are consecutive across, and the second is half a slice deeper.
struct Operand<T, const DEPTH_INNER: bool> {
    source: Global<T>,
    /// The first of the next four.
    at: usize,
    /// Slices that begin before this depth have some for this lane.
    end: u32,
    /// Where they are across, and the matrix' sizes.
    across: u32,
    extent: u32,
    full_depth: u32,
    /// Where they go in a slice.
    target: u32,
}

impl<T: Storage, const DEPTH_INNER: bool> Operand<T, DEPTH_INNER> {
    /// The matrix has `extent` rows or columns, of which the tile's begin at `first`; of its depth the warp's part is from `begin` to `end`.
    #[device_inline]
    fn new(source: Global<T>, [first, extent]: [u32; 2], [begin, end]: [u32; 2], full_depth: u32) -> Self {
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        let (across, depth) = if DEPTH_INNER {
            (lane / (DEPTH / 4), lane % (DEPTH / 4) * 4)
        } else {
            (lane % (SLICED / 4) * 4, lane / (SLICED / 4))
        };
        let target = depth * pitch(SLICED) + across;
        let end = end.saturating_sub(depth);
        let (across, depth) = (first + across, begin + depth);
        let at = if DEPTH_INNER {
            across as usize * full_depth as usize + depth as usize
        } else {
            depth as usize * extent as usize + across as usize
        };
        Self { source, at, end, across, extent, full_depth, target }
    }

    /// The lane's elements of the next slice, which begins at `depth`, as they are in memory; 0 outside of the matrix and behind the
    /// warp's part.
    ///
    /// # Safety
    /// `source` holds the matrix.
    #[device_inline]
    unsafe fn fetch(&mut self, depth: u32) -> [Vec4<T>; 2] {
        let Self { source, at, end, across, extent, full_depth, .. } = *self;
        // SAFETY: the quads say which elements exist.
        unsafe {
            if DEPTH_INNER {
                self.at += DEPTH as usize;
                let quad = |across| Quad::until(across < extent, depth, end, full_depth);
                let more = SLICED / 2;
                [
                    quad(across).fetch(source, at),
                    quad(across + more).fetch(source, at + more as usize * full_depth as usize),
                ]
            } else {
                self.at += DEPTH as usize * extent as usize;
                let quad = |depth| Quad::of_row(depth < end, across, extent);
                let more = DEPTH / 2;
                [quad(depth).fetch(source, at), quad(depth + more).fetch(source, at + more as usize * extent as usize)]
            }
        }
    }

    /// Stores them to a slice, depth-major.
    ///
    /// # Safety
    /// No lane reads the slice meanwhile.
    #[device_inline]
    unsafe fn keep(&self, slice: Shared<f32>, elements: [Vec4<T>; 2]) {
        unrolled!(S in [0 1] {
            let Vec4 { x, y, z, w } = elements[S].map(T::to_f32);
            // SAFETY: the targets are inside the slice, and the lane's alone.
            unsafe {
                if DEPTH_INNER {
                    let target = self.target + S as u32 * (SLICED / 2);
                    slice.store(target, x);
                    slice.store(target + pitch(SLICED), y);
                    slice.store(target + 2 * pitch(SLICED), z);
                    slice.store(target + 3 * pitch(SLICED), w);
                } else {
                    slice.store4(self.target + S as u32 * (DEPTH / 2 * pitch(SLICED)), Vec4::new(x, y, z, w));
                }
            }
        });
    }
}

/// As [`product`](super::product::product), in such tiles.
///
/// # Safety
/// The module `dense`'s.
#[device_inline]
pub(super) unsafe fn product<T: Storage, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: Global<T>,
    b: Global<T>,
    epilogue: Epilogue<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
) {
    let room = shared_array![f32; (WARPS * ROOM) as usize].handle();
    let thread = thread::thread_idx_x();
    let (lane, warp) = (thread % warp::WARP_SIZE, thread / warp::WARP_SIZE);
    let [first_row, first_column] = [thread::block_idx_x(), thread::block_idx_y()].map(|tile| tile * SLICED);
    let split = thread::block_idx_z();

    // The warp's part of the split's part.
    let from = split * shape.depth_per_split;
    let until = shape.depth.min(from.saturating_add(shape.depth_per_split));
    let each = until.saturating_sub(from).div_ceil(WARPS * DEPTH) * DEPTH;
    let begin = until.min(from + warp * each);
    let end = until.min(begin + each);
    let mut a = Operand::<T, A_DEPTH_INNER>::new(a, [first_row, shape.rows], [begin, end], shape.depth);
    let mut b = Operand::<T, B_DEPTH_INNER>::new(b, [first_column, shape.columns], [begin, end], shape.depth);

    // SAFETY: all zeros is an array of floats. Not `[..; 4]`, which becomes a loop and then local memory.
    let mut sums: [[Vec4<f32>; 2]; 4] = unsafe { core::mem::zeroed() };
    let [row, column] = [lane / 4 * 4, lane % 4 * 4];
    // SAFETY: `fetch` and `keep` as they ask; all indices are inside the warp's room. A stage is written when all lanes have gone
    // past the meeting behind its last reading, and read behind the meeting that follows.
    unsafe {
        let stage = room.offset(warp * ROOM);
        let other = stage.offset(2 * SLICE);
        let mut depth = begin;
        let mut here = (a.fetch(depth), b.fetch(depth));
        let mut next = (a.fetch(depth + DEPTH), b.fetch(depth + DEPTH));
        while depth < end {
            a.keep(stage, here.0);
            b.keep(stage.offset(SLICE), here.1);
            depth += DEPTH;
            here = (a.fetch(depth + DEPTH), b.fetch(depth + DEPTH));
            warp::sync_warp(warp::FULL_MASK);
            multiply(stage.offset(row), stage.offset(SLICE + column), &mut sums);
            a.keep(other, next.0);
            b.keep(other.offset(SLICE), next.1);
            depth += DEPTH;
            next = (a.fetch(depth + DEPTH), b.fetch(depth + DEPTH));
            warp::sync_warp(warp::FULL_MASK);
            // Zeros, where the depth has ended.
            multiply(other.offset(row), other.offset(SLICE + column), &mut sums);
        }
        warp::sync_warp(warp::FULL_MASK);
        unrolled!(R in [0 1 2 3] {
            unrolled!(G in [0 1] {
                stage.store4((row + R as u32) * SLICED + column + G as u32 * SLICED / 2, sums[R][G]);
            });
        });
    }
    thread::sync_threads();

    let (row, column) = (thread / (SLICED / 4), thread % (SLICED / 4) * 4);
    let mut sum = Vec4::splat(0.0);
    unrolled!(W in [0 1 2 3 4 5 6 7] {
        // SAFETY: every warp has left its sums.
        let part = unsafe { room.load4(W as u32 * ROOM + row * SLICED + column) };
        sum = sum.zip_with(part, |sum, part| sum + part);
    });
    let (row, column) = (first_row + row, first_column + column);
    let quad = Quad::of_row(row < shape.rows, column, shape.columns);
    let at = row as usize * shape.columns as usize + column as usize;
    // SAFETY: the quad says which of the tile's elements exist, and each is one thread's.
    unsafe {
        match parts {
            Some(parts) => quad.store(parts, split as usize * shape.rows as usize * shape.columns as usize + at, sum),
            None => {
                let columns = Quad::of_row(true, column, shape.columns);
                epilogue.put(at, quad, sum, epilogue.column_values(column, columns));
            }
        }
    }
}

/// Adds what a slice gives to a lane's sums.
///
/// # Safety
/// `rows` and `columns` are the lane's of the slice's operands.
#[device_inline]
unsafe fn multiply(rows: Shared<f32>, columns: Shared<f32>, sums: &mut [[Vec4<f32>; 2]; 4]) {
    // Four depths at a time: of eight at once the compiler loads so much ahead that sums go to local memory.
    let mut at = 0;
    while at < SLICE {
        unrolled!(D in [0 1 2 3] {
            let at = at + D as u32 * pitch(SLICED);
            // SAFETY: inside the slice, half a tile further too.
            let (a, b) = unsafe { (rows.load4(at), [columns.load4(at), columns.load4(at + SLICED / 2)]) };
            let a = a.to_array();
            unrolled!(R in [0 1 2 3] {
                unrolled!(G in [0 1] { sums[R][G] = sums[R][G].zip_with(b[G], |sum, b| float::fma(a[R], b, sum)); });
            });
        });
        at += 4 * pitch(SLICED);
    }
}
