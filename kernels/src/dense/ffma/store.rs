//! Where a lane's sums belong, and what becomes of them: results, or a piece for [`dense_finish_ffma`](super::dense_finish_ffma).

use cuda_std::prelude::*;

use super::super::fragments::{LANE_ROWS, QUADS_APART, ROWS_APART, lane_place, row_of};
use super::super::product::Epilogue;
use super::super::quad::Quad;
use super::multiply::Sums;
use super::order::{Tile, WHOLE, piece};
use super::{BLOCK, Work};

/// Warps of a block beside each other, and columns of each.
const ACROSS: u32 = 2;
const WARP_COLUMNS: u32 = 128;
/// Quads of columns of a lane.
pub const QUADS: u32 = 4;

/// A lane's place in a tile.
#[derive(Clone, Copy)]
pub struct Lane {
    /// The first row of its first four.
    pub row: u32,
    /// The first column of its first quad.
    pub column: u32,
}

impl Lane {
    #[device_inline]
    pub fn this() -> Self {
        let ([row, column], warp) = (lane_place(), thread::thread_idx_x() / warp::WARP_SIZE);
        Self { row: warp / ACROSS * (2 * ROWS_APART) + row, column: warp % ACROSS * WARP_COLUMNS + column }
    }
}

/// Where results go.
#[derive(Clone, Copy)]
pub struct Store {
    pub epilogue: Epilogue<f32>,
    /// `[2, blocks, SUMS]`: of each piece a lane's first row, and of that its first quad, come first, those of all threads together.
    pub pieces: Option<GlobalMut<f32>>,
    pub work: Work,
}

/// Where this thread's quad of a row is among the pieces.
#[device_inline]
fn place_of(piece: u32, row: u32, quad: u32) -> usize {
    4 * (((piece * LANE_ROWS + row) * QUADS + quad) * BLOCK + thread::thread_idx_x()) as usize
}

impl Store {
    /// Puts this lane's sums of a tile where they belong.
    ///
    /// # Safety
    /// The module's contract.
    #[device_inline]
    pub unsafe fn put<const PLAIN: bool>(&self, mut sums: Sums, tile: Tile, lane: Lane) {
        let Self { epilogue, pieces, work } = *self;
        let Work { rows, columns, .. } = work;
        let [first_row, first_column] = tile.place;
        // SAFETY: the quads say which of the tile's elements exist, and each is one thread's; so are those of the piece.
        unsafe {
            // A loop, and the next row's sums moved to where constants find them: unrolled, what follows a sum would be most
            // of the kernel.
            let mut r = 0;
            while r < LANE_ROWS {
                let row = first_row + row_of(lane.row, r);
                unrolled!(Q in [0 1 2 3] {
                    let sum = Vec4::from(sums[0][Q]);
                    let column = first_column + lane.column + QUADS_APART * Q as u32;
                    let at = row as usize * columns as usize + column as usize;
                    match pieces {
                        Some(pieces) if tile.piece != WHOLE => {
                            pieces.store4_if(true, place_of(tile.piece, r, Q as u32), sum);
                        }
                        _ if PLAIN => epilogue.out.store4_if(row < rows && column < columns, at, sum),
                        _ => {
                            let quad = Quad::of_row(row < rows, column, columns);
                            epilogue.put(at, quad, sum, epilogue.column_values(column, quad));
                        }
                    }
                });
                unrolled!(R in [0 1 2 3 4 5 6] { sums[R] = sums[R + 1]; });
                r += 1;
            }
        }
    }
}

/// Adds one row's pieces of a lane, and does what the product asks for with the sums.
///
/// # Safety
/// [`dense_finish_ffma`](super::dense_finish_ffma)'s.
#[device_inline]
pub unsafe fn finish(epilogue: Epilogue<f32>, pieces: Global<f32>, work: Work, blocks: u32) {
    let (tile, r) = (thread::block_idx_x(), thread::block_idx_y());
    let (begin, end) = (tile * work.slices(), (tile + 1) * work.slices());
    // SAFETY: all zeros is an array of floats.
    let mut sums: [Vec4<f32>; QUADS as usize] = unsafe { core::mem::zeroed() };
    let mut block = work.block_of(begin);
    while block < blocks {
        let [first, last] = work.share_of(block);
        if first >= end {
            break;
        }
        if first <= begin && last >= end {
            // It had the whole tile.
            return;
        }
        let piece = piece(block, first <= begin);
        unrolled!(Q in [0 1 2 3] {
            // SAFETY: the block wrote this piece.
            let more = unsafe { pieces.load4(place_of(piece, r, Q as u32)) };
            sums[Q] = sums[Q].zip_with(more, |sum, more| sum + more);
        });
        block += 1;
    }
    let lane = Lane::this();
    let [row, column] = work.place(work.alone + tile);
    let row = row + row_of(lane.row, r);
    unrolled!(Q in [0 1 2 3] {
        let column = column + lane.column + QUADS_APART * Q as u32;
        let quad = Quad::of_row(row < work.rows, column, work.columns);
        // SAFETY: the quad says which elements exist, and each is one thread's.
        unsafe {
            let values = epilogue.column_values(column, quad);
            epilogue.put(row as usize * work.columns as usize + column as usize, quad, sums[Q], values);
        }
    });
}
