//! One operand: its pieces on their way into shared memory, and a warp's fragments out of it.
//!
//! With the depth innermost a slice lies in shared memory row by row. With the depth outermost it lies in boxes of [`BOX`] across, one
//! after the other, each a row for each depth. A row's pieces are swapped so that the eight rows that a matrix of `ldmatrix` takes are
//! in different banks.

use cuda_std::arch::sm_80::{Half, cp_async16_zero_fill, ldmatrix_x4_near, ldmatrix_x4_near_trans};
use cuda_std::prelude::*;

use super::{Fragment, PIECE, block, columns, depth, rows};

/// Elements across of a box: what lies together of an operand whose depth is not innermost, rows of 128 bytes.
const BOX: u32 = 64;

/// One operand: this thread's pieces, and its warp's fragments.
///
/// With `ROWS` it is the left one, whose rows are across, otherwise the right one, whose columns are. With `DEPTH_INNER` the
/// matrix is `[across, depth]`; otherwise it is `[depth, across]`.
pub(super) struct Operand<T, const TILE: u32, const ROWS: bool, const DEPTH_INNER: bool> {
    source: Global<T>,
    /// This thread's first piece of the next slice; from one of its pieces to the next, and from one slice to the next.
    at: usize,
    between: usize,
    step: usize,
    /// How far across the matrix goes on from its first piece, in each pass; 0 past the end.
    across: [u32; 4],
    /// It has pieces of slices that begin before this depth.
    end: u32,
    /// Where its first piece goes in a slice.
    target: u32,
    /// Where this lane's row of the warp's first fragment is in a slice.
    fragment: u32,
}

impl<T: Half, const TILE: u32, const ROWS: bool, const DEPTH_INNER: bool> Operand<T, TILE, ROWS, DEPTH_INNER> {
    /// How far across a tile goes.
    const SIDE: u32 = if ROWS { rows(TILE) } else { columns(TILE) };
    /// Elements of a row of a slice.
    const ROW: u32 = if DEPTH_INNER { depth(TILE) } else { BOX };
    /// Rows of a slice that all threads copy at once.
    const BETWEEN: u32 = block(TILE) * PIECE / Self::ROW;
    /// Such passes over a box.
    const PASSES: u32 = if DEPTH_INNER { 1 } else { depth(TILE) / Self::BETWEEN };
    /// Pieces of a slice that a thread copies.
    pub const PIECES: usize = (Self::SIDE * depth(TILE) / PIECE / block(TILE)) as usize;

    /// Where piece `piece` of row `row` of a slice, or of a box of it, is.
    #[device_inline]
    fn place(row: u32, piece: u32) -> u32 {
        // Two rows of 64 bytes are all banks, of 128 bytes one.
        let swap = if Self::ROW == 32 { row / 2 % 4 } else { row % 8 };
        row * Self::ROW + (piece ^ swap) * PIECE
    }

    /// Where the fragment that begins so far across, a multiple of 32, has this lane's row, at depth 0.
    #[device_inline]
    fn fragment(across: u32) -> u32 {
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        // Lane 8j + r names row r of matrix j. Of the rows' fragments matrix 1 is that 8 across, 2 that 8 deep, as a product
        // takes them; of the columns' it is the other way, so that the first two words are of 8 columns, the others of the
        // next 8.
        let (r, low, high) = (lane % 8, lane / 8 % 2, lane / 16);
        let (over, deep) = if ROWS { (low, high) } else { (high, low) };
        if DEPTH_INNER {
            Self::place(across + 8 * over + r, deep)
        } else {
            across / BOX * BOX * depth(TILE) + Self::place(8 * deep + r, across % BOX / PIECE + over)
        }
    }

    /// For the tile that begins at `first`, the part that begins `part` on, and the depths from `begin` up to `end`.
    #[device_inline]
    pub fn new(source: Global<T>, first: u32, part: u32, extent: u32, [begin, end]: [u32; 2], full_depth: u32) -> Self {
        let thread = thread::thread_idx_x();
        let pieces = Self::ROW / PIECE;
        let (row, piece) = (thread / pieces, thread % pieces);
        let (across, deep) = if DEPTH_INNER { (row, piece * PIECE) } else { (piece * PIECE, row) };
        let length = if DEPTH_INNER { full_depth } else { extent } as usize;
        let (first_row, first_column) =
            if DEPTH_INNER { (first + across, begin + deep) } else { (begin + deep, first + across) };
        let mut operand = Self {
            source,
            at: first_row as usize * length + first_column as usize,
            between: Self::BETWEEN as usize * length,
            step: if DEPTH_INNER { depth(TILE) as usize } else { depth(TILE) as usize * length },
            across: [extent.saturating_sub(first + across); 4],
            end: end.saturating_sub(deep),
            target: Self::place(row, piece),
            fragment: Self::fragment(part),
        };
        operand.look(begin);
        operand
    }

    /// Issues the copy of this thread's piece `piece` of the slice that comes next. Zeros outside the matrix and past the split's
    /// part.
    ///
    /// # Safety
    /// `source` holds the matrix; no thread uses the slice before the copies have been waited for.
    #[device_inline]
    pub unsafe fn copy(&self, slice: Shared<T>, piece: usize) {
        let passes = Self::PASSES as usize;
        let (over, pass) = (piece / passes, piece % passes);
        let (across, to, from) = if DEPTH_INNER {
            let across = piece as u32 * Self::BETWEEN;
            (across, across * Self::ROW, piece * self.between)
        } else {
            let to = (over as u32 * depth(TILE) + pass as u32 * Self::BETWEEN) * BOX;
            (over as u32 * BOX, to, pass * self.between + over * BOX as usize)
        };
        // SAFETY: the rows of the matrix are whole pieces, so this one exists or does not; it is inside the slice.
        unsafe {
            let valid = if across < self.across[pass] { PIECE } else { 0 };
            cp_async16_zero_fill(slice, self.target + to, self.source, self.at + from, valid);
        }
    }

    /// On to the slice that begins at `depth`.
    #[device_inline]
    pub fn advance(&mut self, depth: u32) {
        self.at += self.step;
        self.look(depth);
    }

    /// How far the slice that begins at `depth` goes on, in each pass.
    #[device_inline]
    fn look(&mut self, depth: u32) {
        unrolled!(P in [0 1 2 3] {
            if P < Self::PASSES as usize && depth + P as u32 * Self::BETWEEN * u32::from(!DEPTH_INNER) >= self.end {
                self.across[P] = 0;
            }
        });
    }

    /// The warp's fragment of its `group`th 16 across and the `step`th 16 of depth of a slice.
    ///
    /// # Safety
    /// All lanes together; the slice is whole, and nobody writes it.
    #[device_inline]
    pub unsafe fn load(&self, slice: Shared<T>, step: usize, group: usize) -> Fragment {
        let (step, group) = (step as u32, group as u32);
        // What is added to a piece's number goes into its swapped number by `xor`: neither carries.
        // SAFETY: inside the slice; a barrier stands in each block of code that this is in. The rest is the caller's.
        unsafe {
            if DEPTH_INNER {
                ldmatrix_x4_near(slice.offset(self.fragment ^ (step * 2 * PIECE)), group * 16 * Self::ROW)
            } else {
                ldmatrix_x4_near_trans(slice.offset(self.fragment ^ (group * 2 * PIECE)), step * 16 * Self::ROW)
            }
        }
    }
}
