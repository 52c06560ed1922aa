//! The matrix product of 16-bit floats on tensor cores: a tile of [`rows`] × [`columns`] elements by a block, `mma.sync`
//! with sums in f32. Each warp has a part of the tile, of 64 × 64 elements or, of the small tile, 32 × 32.
//!
//! **Copy in.** A slice of [`DEPTH`] of both operands goes into shared memory past the registers (`cp.async`), in pieces of
//! 16 bytes, zeros where the matrix ends. There are [`stages`] slices: while one is multiplied, the others are on their way.
//! An operand lies in shared memory as it lies in global memory, its pieces swapped within a row so that the eight rows that
//! a matrix of `ldmatrix` takes are in different banks: nothing is transposed in memory, `ldmatrix` does it for the operand
//! whose depth is not innermost.
//!
//! **Multiply.** For each 16 of depth a warp loads the fragments of its part's rows and columns and multiplies each with
//! each. The fragments of the next 16 are loaded before those at hand are multiplied, across the barrier too.
//!
//! **Protocol.** One barrier a slice. Before it each thread has waited for its copies of the next slice, so after it that
//! slice is whole; and each has loaded the last fragments of this slice, so after it the copies of a later one may take its
//! place. Every thread closes one group of copies a slice, empty or not, so that counting groups counts slices.
//!
//! **Store.** Each warp puts 16 rows at a time through shared memory, so that it writes whole rows of its part.
//!
//! **Order.** Blocks that run at the same time take sixteen rows of tiles and as many columns as there are blocks
//! for: they share operands in the L2 cache.
//!
//! With parts of 64 × 64 a thread keeps 128 sums, so that a multiprocessor has eight warps. Bound by the tensor cores where
//! shared memory and the L2 cache keep up.

use cuda_std::arch::sm_80::{
    Half, cp_async_commit, cp_async_wait, cp_async_wait_all, cp_async16_zero_fill, ldmatrix_x4, ldmatrix_x4_trans,
    mma_m16n8k16,
};
use cuda_std::prelude::*;

use super::LARGE;
use super::order::{GROUP, divide};
use super::product::{Epilogue, Shape};
use super::quad::Quad;

/// Columns of the wide tiles, of [`LARGE`] rows.
pub const WIDE: u32 = 256;
/// Depth of a slice.
pub const DEPTH: u32 = 32;
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

/// Rows, and columns, of a warp's part of a tile.
const fn part(tile: u32) -> u32 {
    if tile < LARGE { 32 } else { 64 }
}

/// Threads of a block: a warp for each part.
pub const fn block(tile: u32) -> u32 {
    rows(tile) / part(tile) * (columns(tile) / part(tile)) * warp::WARP_SIZE
}

/// Slices in shared memory. Three of a large tile leave room for two blocks on every GPU since Ampere, four of a wide tile
/// for one.
pub const fn stages(tile: u32) -> u32 {
    if tile == LARGE { 3 } else { 4 }
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
    (rows(tile) + columns(tile)) * DEPTH
}

/// Groups of 16 rows, or of 16 columns, of a warp's part.
const fn groups(tile: u32) -> usize {
    part(tile) as usize / 16
}

/// A warp's part of a tile: the sums of this thread, of each group of 16 rows and each 8 columns.
type Sums = [[[f32; 4]; 8]; 4];
/// The fragments of an operand for 16 of depth, of each group of 16 rows or columns.
type Fragments = [[u32; 4]; 4];

/// One operand: this thread's pieces on their way into shared memory, and its warp's fragments out of it.
///
/// With `ROWS` it is the left one, whose rows are across, otherwise the right one, whose columns are. With `DEPTH_INNER` the
/// matrix is `[across, depth]`; otherwise it is `[depth, across]`.
struct Operand<T, const TILE: u32, const ROWS: bool, const DEPTH_INNER: bool> {
    source: Global<T>,
    /// This thread's first piece of the next slice; from one of its pieces to the next, and from one slice to the next.
    at: usize,
    between: usize,
    step: usize,
    /// How far across the matrix goes on from its first piece.
    across: u32,
    /// It has pieces of slices that begin before this depth.
    end: u32,
    /// Where its first piece goes in a slice.
    target: u32,
    /// Where its row of the warp's first fragment is in a slice.
    fragment: u32,
}

impl<T: Half, const TILE: u32, const ROWS: bool, const DEPTH_INNER: bool> Operand<T, TILE, ROWS, DEPTH_INNER> {
    /// How far across a tile goes.
    const SIDE: u32 = if ROWS { rows(TILE) } else { columns(TILE) };
    /// Elements of a row of a slice.
    const ROW: u32 = if DEPTH_INNER { DEPTH } else { Self::SIDE };
    /// Rows of a slice from one piece of a thread to the next.
    const BETWEEN: u32 = block(TILE) * PIECE / Self::ROW;
    /// Pieces of a slice that a thread copies.
    const PIECES: u32 = Self::SIDE * DEPTH / PIECE / block(TILE);

    /// Where piece `piece` of row `row` of a slice is.
    #[inline(always)]
    fn place(row: u32, piece: u32) -> u32 {
        // Two rows of 64 bytes are all banks, of longer ones one.
        let swap = if DEPTH_INNER { row / 2 % 4 } else { row % 8 };
        row * Self::ROW + (piece ^ swap) * PIECE
    }

    /// For the tile that begins at `first`, the part that begins `part` on, and the depths from `begin` up to `end`.
    #[inline(always)]
    fn new(source: Global<T>, first: u32, part: u32, extent: u32, [begin, end]: [u32; 2], full_depth: u32) -> Self {
        let (thread, lane) = (thread::thread_idx_x(), thread::thread_idx_x() % warp::WARP_SIZE);
        let pieces = Self::ROW / PIECE;
        let (row, piece) = (thread / pieces, thread % pieces);
        let (across, depth) = if DEPTH_INNER { (row, piece * PIECE) } else { (piece * PIECE, row) };
        let length = if DEPTH_INNER { full_depth } else { extent } as usize;
        let (first_row, first_column) =
            if DEPTH_INNER { (first + across, begin + depth) } else { (begin + depth, first + across) };
        // Lane 8j + r names row r of matrix j. Of the rows' fragments matrix 1 is that 8 across, 2 that 8 deep, as a product
        // takes them; of the columns' it is the other way, so that the first two words are of 8 columns, the others of the
        // next 8.
        let (r, low, high) = (lane % 8, lane / 8 % 2, lane / 16);
        let (over, deep) = if ROWS { (low, high) } else { (high, low) };
        let fragment = if DEPTH_INNER {
            Self::place(part + 8 * over + r, deep)
        } else {
            Self::place(8 * deep + r, part / PIECE + over)
        };
        Self {
            source,
            at: first_row as usize * length + first_column as usize,
            between: Self::BETWEEN as usize * length,
            step: if DEPTH_INNER { DEPTH as usize } else { DEPTH as usize * length },
            across: extent.saturating_sub(first + across),
            end: end.saturating_sub(depth),
            target: Self::place(row, piece),
            fragment,
        }
    }

    /// Issues the copies of this thread's pieces of the next slice, which begins at `depth`. Zeros outside the matrix and
    /// past the split's part.
    ///
    /// # Safety
    /// `source` holds the matrix; no thread uses the slice before the copies have been waited for.
    #[inline(always)]
    unsafe fn copy(&mut self, slice: Shared<T>, depth: u32) {
        unrolled!(P in [0 1 2 3] {
            if (P as u32) < Self::PIECES {
                let on = P as u32 * Self::BETWEEN;
                let exists = if DEPTH_INNER {
                    on < self.across && depth < self.end
                } else {
                    self.across > 0 && depth + on < self.end
                };
                let to = self.target + on * Self::ROW;
                // SAFETY: the rows of the matrix are whole pieces, so this one exists or does not; it is inside the slice.
                unsafe {
                    let from = self.at + P * self.between;
                    cp_async16_zero_fill(slice, to, self.source, from, if exists { PIECE } else { 0 });
                }
            }
        });
        self.at += self.step;
    }

    /// The warp's fragments of the `half`th 16 of depth of a slice.
    ///
    /// # Safety
    /// All lanes together; the slice is whole, and nobody writes it.
    #[inline(always)]
    unsafe fn load(&self, slice: Shared<T>, half: u32) -> Fragments {
        // SAFETY: all zeros is an array of integers.
        let mut fragments: Fragments = unsafe { core::mem::zeroed() };
        unrolled!(G in [0 1 2 3] {
            if G < groups(TILE) {
                let group = G as u32;
                // What is added to a piece's number goes into its swapped number by `xor`: neither carries.
                // SAFETY: inside the slice; the rest is the caller's.
                fragments[G] = unsafe {
                    if DEPTH_INNER {
                        ldmatrix_x4(slice.offset(self.fragment ^ (half * 2 * PIECE)), group * 16 * DEPTH)
                    } else {
                        ldmatrix_x4_trans(slice.offset(self.fragment ^ (group * 2 * PIECE)), half * 16 * Self::SIDE)
                    }
                };
            }
        });
        fragments
    }
}

/// The first row and column of the block's tile.
#[inline(always)]
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
#[inline(always)]
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
    let (depths, depth) = ([begin, end], shape.depth);
    let mut a = Operand::<T, TILE, true, A_DEPTH_INNER>::new(a, first_row, part_row, shape.rows, depths, depth);
    let mut b =
        Operand::<T, TILE, false, B_DEPTH_INNER>::new(b, first_column, part_column, shape.columns, depths, depth);

    // SAFETY: all zeros is an array of floats. Not `[..; 4]`, which becomes a loop and then local memory.
    let mut sums: Sums = unsafe { core::mem::zeroed() };
    // The columns' slice comes after the rows'.
    let slice = rows(TILE) * DEPTH;
    // SAFETY: the protocol at the top of this file; all places are inside the stages.
    unsafe {
        let mut coming = begin;
        unrolled!(S in [0 1 2] {
            if S as u32 + 1 < stages(TILE) {
                let at = S as u32 * stage(TILE);
                a.copy(shared.offset(at), coming);
                b.copy(shared.offset(at + slice), coming);
                cp_async_commit();
                coming += DEPTH;
            }
        });
        wait_for_next::<TILE>();
        let (mut here, mut there) = (0, (stages(TILE) - 1) * stage(TILE));
        let mut rows = a.load(shared, 0);
        let mut columns = b.load(shared.offset(slice), 0);
        let mut depth = begin;
        while depth < end {
            let more_rows = a.load(shared.offset(here), 1);
            let more_columns = b.load(shared.offset(here + slice), 1);
            a.copy(shared.offset(there), coming);
            b.copy(shared.offset(there + slice), coming);
            cp_async_commit();
            multiply::<T, TILE>(&rows, &columns, &mut sums);
            there = here;
            here = if here == (stages(TILE) - 1) * stage(TILE) { 0 } else { here + stage(TILE) };
            wait_for_next::<TILE>();
            rows = a.load(shared.offset(here), 0);
            columns = b.load(shared.offset(here + slice), 0);
            multiply::<T, TILE>(&more_rows, &more_columns, &mut sums);
            coming += DEPTH;
            depth += DEPTH;
        }
        // What is still on its way are zeros, into the stages that the sums go through now.
        cp_async_wait_all();
        thread::sync_threads();
        let first = [first_row + part_row, first_column + part_column];
        let part = split as usize * shape.rows as usize * shape.columns as usize;
        put::<T, TILE>(shared.cast(), first, sums, epilogue, parts.map(|parts| (parts, part)), shape);
    }
}

/// Until the next slice is whole, for all threads.
#[inline(always)]
fn wait_for_next<const TILE: u32>() {
    if stages(TILE) == 3 {
        cp_async_wait::<1>();
    } else {
        cp_async_wait::<2>();
    }
    thread::sync_threads();
}

/// Adds the products of all rows and columns of the warp's part over 16 of depth.
///
/// # Safety
/// All lanes together.
#[inline(always)]
unsafe fn multiply<T: Half, const TILE: u32>(rows: &Fragments, columns: &Fragments, sums: &mut Sums) {
    unrolled!(R in [0 1 2 3] {
        unrolled!(C in [0 1 2 3] {
            if R < groups(TILE) && C < groups(TILE) {
                let [x, y, next_x, next_y] = columns[C];
                // SAFETY: the caller's.
                unsafe {
                    sums[R][2 * C] = mma_m16n8k16::<T>(rows[R], [x, y], sums[R][2 * C]);
                    sums[R][2 * C + 1] = mma_m16n8k16::<T>(rows[R], [next_x, next_y], sums[R][2 * C + 1]);
                }
            }
        });
    });
}

/// Puts the warp's part of the tile, which begins at `first`, where it belongs.
///
/// # Safety
/// All lanes together; nobody uses `shared`, which has room for 16 rows of each warp; the module's contract.
#[inline(always)]
unsafe fn put<T: Half, const TILE: u32>(
    shared: Shared<f32>,
    [first_row, first_column]: [u32; 2],
    mut sums: Sums,
    epilogue: Epilogue<T>,
    parts: Option<(GlobalMut<f32>, usize)>,
    shape: Shape,
) {
    // Eight elements more than a row: the rows that a warp stores to at once are in different banks.
    let pitch = part(TILE) + 8;
    let (lane, warp) = (thread::thread_idx_x() % warp::WARP_SIZE, thread::thread_idx_x() / warp::WARP_SIZE);
    // Each lane stores pairs, and takes quads, of which a row has this many.
    let quads = part(TILE) / 4;
    let column = first_column + lane % quads * 4;
    // SAFETY: as the caller says; the quad says which elements exist, and each is one lane's.
    unsafe {
        let room = shared.offset(warp * 16 * pitch);
        let pair = lane / 4 * pitch + lane % 4 * 2;
        let taken = lane / quads * pitch + lane % quads * 4;
        let values = epilogue.column_values(column, Quad::of_row(true, column, shape.columns));
        let mut group = 0;
        while group < groups(TILE) as u32 {
            unrolled!(C in [0 1 2 3 4 5 6 7] {
                if C < 2 * groups(TILE) {
                    let [x, y, below_x, below_y] = sums[0][C];
                    let at = pair + 8 * C as u32;
                    room.store2(at, Vec2::new(x, y));
                    room.store2(at + 8 * pitch, Vec2::new(below_x, below_y));
                }
            });
            warp::sync_warp(warp::FULL_MASK);
            let mut below = 0;
            while below < 16 {
                let row = first_row + 16 * group + below + lane / quads;
                let quad = Quad::of_row(row < shape.rows, column, shape.columns);
                let at = row as usize * shape.columns as usize + column as usize;
                let sum = room.load4(taken + below * pitch);
                match parts {
                    Some((parts, part)) => quad.store(parts, part + at, sum),
                    None => epilogue.put(at, quad, sum, values),
                }
                below += warp::WARP_SIZE / quads;
            }
            warp::sync_warp(warp::FULL_MASK);
            unrolled!(R in [0 1 2] { sums[R] = sums[R + 1]; });
            group += 1;
        }
    }
}
