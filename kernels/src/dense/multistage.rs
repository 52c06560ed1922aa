//! The product of f32 matrices in tiles of `SIDE × SIDE` elements by blocks of `2 · SIDE` threads, FFMA, of operands that asynchronous copies
//! bring (CUTLASS: multistage).
//!
//! **Copies.** Slices of both operands lie in a ring of [`STAGES`] in shared memory, depth-major. Threads copy them past the registers, element by
//! element (`cp.async` of 4 bytes): so an operand that has its depth innermost is turned on its way, and rows may begin anywhere. Depths lie
//! [`pitch`] apart, so that eight depths of four rows are in different banks. Of all slices the first is the one that may not be full:
//! no other copy looks at where the depth ends.
//!
//! **Products.** A warp computes 32 rows and 64 columns, a lane 8 × 8 of them (`fragments.rs`). Of small tiles that is two warps, which leave half of
//! a multiprocessor idle where it has one: so their blocks have four, each two of which take one half of every slice's depth; at the end two
//! threads add their sums, each half of them.
//!
//! **Protocol.** The last depth of a slice is multiplied behind a barrier, at which all threads' copies of the next slice have come, and all have
//! what they need of this one: its stage is then filled anew, while the next one is multiplied. One barrier a slice.
//!
//! The next grid's blocks are let in when all of this one have ended: there is room for two or four of them on a multiprocessor, and the first that
//! is free would get as many, so that a grid that does not fill all of them, as most do, would take as long as one that does.
//!
//! Bound by the instructions beside FFMA: of 600 and 640 for a slice 512 are FFMA, and loads from shared memory take their way to the
//! registers half of the time.

use cuda_std::arch::sm_80::{cp_async_commit, cp_async_wait, cp_async_wait_all, cp_async4, cp_async4_zero_fill};
use cuda_std::prelude::*;

use super::fragments::{Fragments, LANE_ROWS, Operands, QUADS_APART, Sums, lane_place, row_of};
use super::product::{DEPTH, Epilogue, Shape, first_of_tile, pitch};
use super::quad::Quad;
use super::{LARGE, SMALL};

/// Slices in shared memory.
const STAGES: u32 = 4;
/// Columns of a warp, and rows.
const WARP_COLUMNS: u32 = 64;
const WARP_ROWS: u32 = 32;
/// Fours of columns of a lane.
const QUADS: usize = 2;

/// Parts of a slice's depth that different warps multiply.
const fn halves(side: u32) -> u32 {
    2 * side / warp::WARP_SIZE * WARP_ROWS * WARP_COLUMNS / (side * side)
}

/// Depth of a slice.
const fn deep(side: u32) -> u32 {
    halves(side) * DEPTH
}

/// Elements of a slice of an operand.
const fn slice(side: u32) -> u32 {
    deep(side) * pitch(side)
}

/// Elements of the ring, which has room for half of the sums of all threads, too.
const fn shared_elements(side: u32) -> usize {
    (STAGES * 2 * slice(side)) as usize
}

/// An operand: this thread's part of the copies, `deep(SIDE) / 2` elements of each slice.
///
/// With `DEPTH_INNER` the matrix is `[across, depth]`: a warp copies eight depths of four rows at a time. Otherwise it is `[depth, across]`,
/// and neighbouring threads copy neighbours.
struct Operand<const SIDE: u32, const DEPTH_INNER: bool> {
    source: Global<f32>,
    /// The thread's first element of the next slice.
    at: usize,
    /// From one of its elements to the next, which is further across, or deeper if the depth is outermost.
    between: usize,
    /// How far the matrix goes on from the thread's first element across. What is outside is not copied: sums with it are never stored.
    across: u32,
    /// The thread's first depth in a slice.
    depth: u32,
    /// Where its first element goes in a slice.
    target: u32,
}

impl<const SIDE: u32, const DEPTH_INNER: bool> Operand<SIDE, DEPTH_INNER> {
    /// How far a thread's copies are apart: across with the depth innermost, otherwise in depth.
    const APART: u32 = if DEPTH_INNER { 2 * SIDE / DEPTH } else { 2 };

    /// Of a tile that begins at `first` of `extent`, the depths from `begin` on.
    #[device_inline]
    fn new(source: Global<f32>, [first, extent]: [u32; 2], begin: u32, full_depth: u32) -> Self {
        let thread = thread::thread_idx_x();
        let (over, depth) = if DEPTH_INNER { (thread / DEPTH, thread % DEPTH) } else { (thread % SIDE, thread / SIDE) };
        let target = depth * pitch(SIDE) + over;
        let over = first + over;
        let (row, column, length) =
            if DEPTH_INNER { (over, begin + depth, full_depth) } else { (begin + depth, over, extent) };
        let at = row as usize * length as usize + column as usize;
        let between = Self::APART as usize * length as usize;
        Self { source, at, between, across: extent.saturating_sub(over), depth, target }
    }

    /// Issues the copies of the next slice. Of the `FIRST` there is so much of `depth`, and zeros behind that; all others are full.
    ///
    /// # Safety
    /// `source` holds as much of the matrix; nobody uses the slice's stage before the copies have been waited for.
    #[device_inline]
    unsafe fn copy<const FIRST: bool>(&mut self, stage: Shared<f32>, depth: u32) {
        let Self { source, at, between, across, target, .. } = *self;
        let mut from = at;
        // SAFETY: what is copied exists; the targets are inside the slice.
        unsafe {
            if DEPTH_INNER {
                unrolled!(P in [0 1 2 3] {
                    let over = P as u32 * Self::APART;
                    if P > 0 {
                        from += between;
                    }
                    if over < across {
                        unrolled!(H in [0 1] {
                            let down = H as u32 * DEPTH;
                            if down < deep(SIDE) {
                                let to = target + over + down * pitch(SIDE);
                                let (from, is_there) = (from + down as usize, self.depth + down < depth);
                                if FIRST {
                                    cp_async4_zero_fill(stage, to, source, from, is_there);
                                } else {
                                    cp_async4(stage, to, source, from);
                                }
                            }
                        });
                    }
                });
                self.at += depth as usize;
            } else {
                if across > 0 {
                    unrolled!(P in [0 1 2 3 4 5 6 7] {
                        let down = P as u32 * Self::APART;
                        if down < deep(SIDE) {
                            let to = target + down * pitch(SIDE);
                            if P > 0 {
                                from += between;
                            }
                            if FIRST {
                                cp_async4_zero_fill(stage, to, source, from, self.depth + down < depth);
                            } else {
                                cp_async4(stage, to, source, from);
                            }
                        }
                    });
                }
                self.at += depth as usize * (between / Self::APART as usize);
            }
        }
    }
}

/// As [`product`](super::product::product), of f32 operands.
///
/// # Safety
/// The module `dense`'s.
#[device_inline]
pub(super) unsafe fn product<T: Storage, const SIDE: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: Global<f32>,
    b: Global<f32>,
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
    let [first_row, first_column] = first_of_tile::<SIDE>(shape.columns);
    let split = thread::block_idx_z();
    let begin = split * shape.depth_per_split;
    let end = shape.depth.min(begin.saturating_add(shape.depth_per_split));
    let mut a = Operand::<SIDE, A_DEPTH_INNER>::new(a, [first_row, shape.rows], begin, shape.depth);
    let mut b = Operand::<SIDE, B_DEPTH_INNER>::new(b, [first_column, shape.columns], begin, shape.depth);

    let warp = thread::thread_idx_x() / warp::WARP_SIZE;
    let (beside, each) = (SIDE / WARP_COLUMNS, 2 * SIDE / warp::WARP_SIZE / halves(SIDE));
    let half = warp / each;
    let [row, column] = lane_place();
    let (row, column) = (warp % each / beside * WARP_ROWS + row, warp % beside * WARP_COLUMNS + column);

    // SAFETY: all zeros is an array of floats. Not `[..; 8]`, which becomes a loop and then local memory.
    let mut sums: Sums<QUADS> = unsafe { core::mem::zeroed() };
    let stage_elements = 2 * slice(SIDE);
    // SAFETY: the copies as they ask: a stage is filled behind a barrier that stands behind its last reading, and read behind the
    // barrier that follows the wait of every thread.
    unsafe {
        // The first slice has what is left when all others are full.
        let depth = end.saturating_sub(begin);
        let mut slices = depth.div_ceil(deep(SIDE));
        let mut to_copy = slices.saturating_sub(1);
        let first = depth - to_copy * deep(SIDE);
        a.copy::<true>(shared, first);
        b.copy::<true>(shared.offset(slice(SIDE)), first);
        cp_async_commit();
        let mut at = stage_elements;
        while at < STAGES * stage_elements {
            if to_copy > 0 {
                a.copy::<false>(shared.offset(at), deep(SIDE));
                b.copy::<false>(shared.offset(at + slice(SIDE)), deep(SIDE));
                to_copy -= 1;
            }
            cp_async_commit();
            at += stage_elements;
        }
        cp_async_wait::<{ STAGES - 1 }>();
        thread::sync_threads();
        let operands = |at: u32| Operands {
            rows: shared.offset(at + half * DEPTH * pitch(SIDE) + row),
            columns: shared.offset(at + slice(SIDE) + half * DEPTH * pitch(SIDE) + column),
            pitches: [pitch(SIDE); 2],
        };
        let mut at = 0;
        let mut here = operands(at);
        let mut fragments = Fragments::<QUADS>::load(here, 0);
        while slices > 0 {
            unrolled!(D in [1 2 3 4 5 6 7] {
                fragments.multiply(&mut sums, here, D as u32);
            });
            cp_async_wait::<{ STAGES - 2 }>();
            thread::sync_threads();
            if to_copy > 0 {
                a.copy::<false>(shared.offset(at), deep(SIDE));
                b.copy::<false>(shared.offset(at + slice(SIDE)), deep(SIDE));
                to_copy -= 1;
            }
            cp_async_commit();
            at = if at + stage_elements == STAGES * stage_elements { 0 } else { at + stage_elements };
            here = operands(at);
            fragments.multiply(&mut sums, here, 0);
            slices -= 1;
        }
    }
    cp_async_wait_all();
    let mut rows = [0, LANE_ROWS];
    if halves(SIDE) > 1 {
        // SAFETY: behind the barrier nobody uses the ring any more, nor is anything copied to it.
        unsafe {
            thread::sync_threads();
            add_halves(shared, half, &mut sums);
        }
        rows = [half * LANE_ROWS / 2, LANE_ROWS / 2];
    }
    let [first, count] = rows;
    let part = split as usize * shape.rows as usize * shape.columns as usize;
    let columns = [0, 1].map(|quad| first_column + column + quad * QUADS_APART);
    // SAFETY: the quads say which of the tile's elements exist, and each is one thread's.
    unsafe {
        let values = columns.map(|column| epilogue.column_values(column, Quad::of_row(true, column, shape.columns)));
        // A loop, and the next row's sums moved to where constants find them: unrolled, what follows a sum would be most
        // of the kernel.
        let mut r = 0;
        while r < count {
            let row = first_row + row_of(row, first + r);
            unrolled!(Q in [0 1] {
                let quad = Quad::of_row(row < shape.rows, columns[Q], shape.columns);
                let at = row as usize * shape.columns as usize + columns[Q] as usize;
                let sum = Vec4::from(sums[0][Q]);
                match parts {
                    Some(parts) => quad.store(parts, part + at, sum),
                    None => epilogue.put(at, quad, sum, values[Q]),
                }
            });
            unrolled!(R in [0 1 2 3 4 5 6] { sums[R] = sums[R + 1]; });
            r += 1;
        }
    }
}

/// Adds the sums of both halves of the depth: of a lane's rows the first four to the first half's, the others to the second's, where they become
/// the first.
///
/// # Safety
/// All threads of a block for small tiles together; nobody uses the shared memory.
#[device_inline]
unsafe fn add_halves(shared: Shared<f32>, half: u32, sums: &mut Sums<QUADS>) {
    let thread = thread::thread_idx_x();
    let place = |r: usize, quad: usize, thread: u32| 4 * ((r * QUADS + quad) as u32 * 2 * SMALL + thread);
    let choose = |first: bool, low: [f32; 4], high: [f32; 4]| Vec4::from(if first { low } else { high });
    // SAFETY: inside the ring, each place one thread's before the barrier, and another's after it.
    unsafe {
        unrolled!(R in [0 1 2 3] {
            unrolled!(Q in [0 1] {
                shared.store4(place(R, Q, thread), choose(half > 0, sums[R][Q], sums[R + 4][Q]));
            });
        });
        thread::sync_threads();
        unrolled!(R in [0 1 2 3] {
            unrolled!(Q in [0 1] {
                let other = shared.load4(place(R, Q, thread ^ SMALL));
                let own = choose(half == 0, sums[R][Q], sums[R + 4][Q]);
                sums[R][Q] = own.zip_with(other, |own, other| own + other).to_array();
            });
        });
    }
}
