//! A warp's sums on their way out: through shared memory, so that it writes whole rows of its part.

use cuda_std::arch::sm_80::Half;
use cuda_std::prelude::*;

use super::super::product::{Epilogue, Shape};
use super::super::quad::Quad;
use super::{Row, groups, part};

/// Puts the warp's part of the tile, which begins at `first`, where it belongs.
///
/// # Safety
/// All lanes together; nobody uses `shared`, which has room for 16 rows of each warp; the module's contract.
#[device_inline]
pub(super) unsafe fn put<T: Half, const TILE: u32>(
    shared: Shared<f32>,
    [first_row, first_column]: [u32; 2],
    mut sums: [Row; 4],
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
