//! The matrix product of 16-bit floats on tensor cores: a tile of [`rows`] × [`columns`] elements by a block, `mma.sync`
//! with sums in f32. Each warp has a part of the tile, of 64 × 64 elements or, of the small tile, 32 × 32.
//!
//! **Copy in** (`operand.rs`). A slice of [`depth`] of both operands goes into shared memory past the registers (`cp.async`), in
//! pieces of 16 bytes, zeros where the matrix ends. There are [`stages`] slices: while one is multiplied, the others are on their
//! way. Nothing is transposed in memory, `ldmatrix` does it for the operand whose depth is not innermost.
//!
//! **Multiply.** For each 16 of depth a warp loads the fragments of its part's rows and columns and multiplies each with each, 16
//! rows after the other, whose next fragment is then loaded; with the last 16 rows each fragment of the columns is replaced by the
//! next 16 of depth's as soon as it has been used, across the barrier too. Every other row goes through the columns backwards, so
//! that it begins with the fragment that the one before ended with. A slice's copies are issued in few groups between the first
//! rows' products: before each copy that comes after a fragment's load the compiler puts three loads of nothing.
//!
//! **Protocol.** One barrier a slice, before the products of its last rows. Before it each thread has waited for its copies of the
//! next slice, so after it that slice is whole; and each has loaded the last fragments of this slice, so after it the copies of a
//! later one may take its place. Every thread closes one group of copies a slice, empty or not, so that counting groups counts
//! slices.
//!
//! **Store** (`store.rs`). Each warp puts 16 rows at a time through shared memory, so that it writes whole rows of its part.
//!
//! **Order.** Blocks that run at the same time take sixteen rows of tiles and as many columns as there are blocks
//! for: they share operands in the L2 cache.
//!
//! With parts of 64 × 64 a thread keeps 128 sums, so that a multiprocessor has eight warps. Bound by the tensor cores where
//! shared memory and the L2 cache keep up.

mod operand;
mod store;

use cuda_std::arch::sm_80::{Half, cp_async_commit, cp_async_wait, cp_async_wait_all, mma_m16n8k16};
use cuda_std::prelude::*;

use self::operand::Operand;
use super::LARGE;
use super::order::{GROUP, divide};
use super::product::{Epilogue, Shape};

/// Columns of the wide tiles, of [`LARGE`] rows.
pub const WIDE: u32 = 256;
/// Elements of a piece, 16 bytes. Rows of both operands are a multiple of it.
pub const PIECE: u32 = 8;

/// Rows of a tile.
pub const fn rows(tile: u32) -> u32 {
    if tile < LARGE { tile } else { LARGE }
}

/// Columns of a tile, which it is named by: [`SMALL`](super::SMALL), [`LARGE`] or [`WIDE`].
pub const fn columns(tile: u32) -> u32 {
    tile
}

/// Depth of a slice: rows of 128 bytes, where the depth is innermost; half of that where tiles are small and blocks many.
pub const fn depth(tile: u32) -> u32 {
    if tile < LARGE { 32 } else { 64 }
}

/// Rows, and columns, of a warp's part of a tile.
const fn part(tile: u32) -> u32 {
    if tile < LARGE { 32 } else { 64 }
}

/// Threads of a block: a warp for each part.
pub const fn block(tile: u32) -> u32 {
    rows(tile) / part(tile) * (columns(tile) / part(tile)) * warp::WARP_SIZE
}

/// Slices in shared memory. Two of a wide tile fit every GPU since Ampere.
pub const fn stages(tile: u32) -> u32 {
    if tile < LARGE { 4 } else { 2 }
}

/// Shared memory of a block, in bytes.
pub const fn shared_bytes(tile: u32) -> u32 {
    2 * stages(tile) * stage(tile)
}

/// Blocks that a multiprocessor holds at once; fixes how many registers a thread may use.
pub const fn per_multiprocessor(tile: u32) -> u32 {
    match tile {
        WIDE => 1,
        LARGE => 2,
        _ => 4,
    }
}

/// Elements of a slice of both operands.
const fn stage(tile: u32) -> u32 {
    (rows(tile) + columns(tile)) * depth(tile)
}

/// Groups of 16 rows, or of 16 columns, of a warp's part.
const fn groups(tile: u32) -> usize {
    part(tile) as usize / 16
}

/// Sixteens of depth of a slice.
const fn steps(tile: u32) -> usize {
    depth(tile) as usize / 16
}

/// After how many of a slice's groups of rows copies are issued: five or six at a time, of a small tile two.
const fn bursts(tile: u32) -> usize {
    let all = (stage(tile) / PIECE / block(tile)) as usize;
    if tile < LARGE { all.div_ceil(2) } else { all.div_ceil(6) }
}

/// The sums of this thread of 16 rows and each 8 columns of a warp's part.
type Row = [[f32; 4]; 8];
/// A fragment: of 16 rows or columns and 16 of depth.
type Fragment = [u32; 4];

/// The first row and column of the block's tile.
#[device_inline]
fn first_of_tile<const TILE: u32>(shape: Shape) -> [u32; 2] {
    let (down, across) = (shape.rows.div_ceil(rows(TILE)), shape.columns.div_ceil(columns(TILE)));
    let (group, within) = divide(thread::block_idx_x(), GROUP * across);
    let first = group * GROUP;
    let (column, row) = divide(within, GROUP.min(down - first));
    [(first + row) * rows(TILE), column * columns(TILE)]
}

/// The block's tile of `a · b`, `a: [rows, depth]`, `b: [depth, columns]`, into `epilogue`, or into `parts`,
/// `[splits, rows, columns]`, where they are given.
///
/// `A_DEPTH_INNER` says that `a` lies row by row, `B_DEPTH_INNER` that `b` lies column by column; otherwise the other way.
///
/// # Safety
/// The module `dense`'s; what rows in memory are of, the operands' depth or their extents, is a multiple of [`PIECE`].
#[device_inline]
pub(super) unsafe fn product<T: Half, const TILE: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: Global<T>,
    b: Global<T>,
    epilogue: Epilogue<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
) {
    let shared = dynamic_shared::<T>();
    let [first_row, first_column] = first_of_tile::<TILE>(shape);
    let warp = thread::thread_idx_x() / warp::WARP_SIZE;
    let (row, column) = (warp / (columns(TILE) / part(TILE)), warp % (columns(TILE) / part(TILE)));
    let (part_row, part_column) = (row * part(TILE), column * part(TILE));
    let split = thread::block_idx_z();
    let begin = split * shape.depth_per_split;
    let end = shape.depth.min(begin.saturating_add(shape.depth_per_split));
    let (depths, full) = ([begin, end], shape.depth);
    let mut a = Operand::<T, TILE, true, A_DEPTH_INNER>::new(a, first_row, part_row, shape.rows, depths, full);
    let mut b =
        Operand::<T, TILE, false, B_DEPTH_INNER>::new(b, first_column, part_column, shape.columns, depths, full);

    // SAFETY: all zeros is an array of floats. Not `[..; 4]`, which becomes a loop and then local memory.
    let mut sums: [Row; 4] = unsafe { core::mem::zeroed() };
    // The columns' slice comes after the rows'.
    let slice = rows(TILE) * depth(TILE);
    // SAFETY: the protocol at the top of this file; all places are inside the stages.
    unsafe {
        let mut coming = begin;
        unrolled!(S in [0 1 2] {
            if S as u32 + 1 < stages(TILE) {
                copy(&a, &b, shared.offset(S as u32 * stage(TILE)), 0, 1);
                cp_async_commit();
                coming += depth(TILE);
                a.advance(coming);
                b.advance(coming);
            }
        });
        wait_for_next::<TILE>();
        let (mut here, mut there) = (0, (stages(TILE) - 1) * stage(TILE));
        let mut rows = a.load(shared, 0, 0);
        let mut columns: [Fragment; 4] = core::mem::zeroed();
        unrolled!(C in [0 1 2 3] {
            if C < groups(TILE) {
                columns[C] = b.load(shared.offset(slice), 0, C);
            }
        });
        let mut done = begin;
        while done < end {
            let mut next = here;
            unrolled!(K in [0 1 2 3] {
                unrolled!(R in [0 1 2 3] {
                    if K < steps(TILE) && R < groups(TILE) {
                        let last = R + 1 == groups(TILE);
                        if last && K + 1 == steps(TILE) {
                            cp_async_commit();
                            next = if here == (stages(TILE) - 1) * stage(TILE) { 0 } else { here + stage(TILE) };
                            wait_for_next::<TILE>();
                        }
                        let step = if last { (K + 1) % steps(TILE) } else { K };
                        let next_rows = a.load(shared.offset(next), step, if last { 0 } else { R + 1 });
                        if (K + R).is_multiple_of(2) {
                            unrolled!(C in [0 1 2 3] {
                                if C < groups(TILE) {
                                    multiply::<T, false>(rows, columns[C], &mut sums[R], C);
                                    if last {
                                        columns[C] = b.load(shared.offset(next + slice), step, C);
                                    }
                                }
                            });
                        } else {
                            unrolled!(C in [3 2 1 0] {
                                if C < groups(TILE) {
                                    multiply::<T, true>(rows, columns[C], &mut sums[R], C);
                                    if last {
                                        columns[C] = b.load(shared.offset(next + slice), step, C);
                                    }
                                }
                            });
                        }
                        rows = next_rows;
                        copy(&a, &b, shared.offset(there), K * groups(TILE) + R, bursts(TILE));
                    }
                });
            });
            (there, here) = (here, next);
            coming += depth(TILE);
            a.advance(coming);
            b.advance(coming);
            done += depth(TILE);
        }
        // What is still on its way are zeros, into the stages that the sums go through now.
        cp_async_wait_all();
        thread::sync_threads();
        let first = [first_row + part_row, first_column + part_column];
        let part = split as usize * shape.rows as usize * shape.columns as usize;
        store::put::<T, TILE>(shared.cast(), first, sums, epilogue, parts.map(|parts| (parts, part)), shape);
    }
}

/// Issues burst `burst` of `of` of this thread's copies of a slice.
///
/// # Safety
/// [`Operand::copy`]'s, of both.
#[device_inline]
unsafe fn copy<T: Half, const TILE: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: &Operand<T, TILE, true, A_DEPTH_INNER>,
    b: &Operand<T, TILE, false, B_DEPTH_INNER>,
    slice: Shared<T>,
    burst: usize,
    of: usize,
) {
    let of_a = Operand::<T, TILE, true, A_DEPTH_INNER>::PIECES;
    let all = of_a + Operand::<T, TILE, false, B_DEPTH_INNER>::PIECES;
    unrolled!(P in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
        if P < all && P * of / all == burst {
            // SAFETY: the caller's.
            unsafe {
                if P < of_a {
                    a.copy(slice, P);
                } else {
                    b.copy(slice.offset(rows(TILE) * depth(TILE)), P.wrapping_sub(of_a));
                }
            }
        }
    });
}

/// Until the next slice is whole, for all threads.
#[device_inline]
fn wait_for_next<const TILE: u32>() {
    if stages(TILE) == 2 {
        cp_async_wait::<0>();
    } else {
        cp_async_wait::<2>();
    }
    thread::sync_threads();
}

/// Adds the products of 16 rows and the 16 columns of group `group` over 16 of depth; the second 8 columns first, if `BACKWARDS`.
///
/// # Safety
/// All lanes together.
#[device_inline]
unsafe fn multiply<T: Half, const BACKWARDS: bool>(rows: Fragment, columns: Fragment, sums: &mut Row, group: usize) {
    let [x, y, next_x, next_y] = columns;
    // SAFETY: the caller's.
    unsafe {
        if BACKWARDS {
            sums[2 * group + 1] = mma_m16n8k16::<T>(rows, [next_x, next_y], sums[2 * group + 1]);
            sums[2 * group] = mma_m16n8k16::<T>(rows, [x, y], sums[2 * group]);
        } else {
            sums[2 * group] = mma_m16n8k16::<T>(rows, [x, y], sums[2 * group]);
            sums[2 * group + 1] = mma_m16n8k16::<T>(rows, [next_x, next_y], sums[2 * group + 1]);
        }
    }
}
