//! What a warp does with its 16 rows of a tile's sums: bias, activation, what was there before; or, of a product that is split,
//! the sums themselves. Rows in global memory may have any length: four columns are stored at once where it is a multiple of
//! four.

use cuda_std::prelude::*;

use super::super::order::Tile;
use super::super::product::{Epilogue, Shape};
use super::super::quad::Quad;
use super::product::Total;
use super::{PRODUCT_SCALE, STORED};

/// Where results go.
#[derive(Clone, Copy)]
pub struct Store {
    pub epilogue: Epilogue<f32>,
    pub parts: Option<GlobalMut<f32>>,
    pub shape: Shape,
    /// Of all warps.
    pub room: Shared<f32>,
}

impl Store {
    /// Puts the tile's rows of warp `warp` where they belong: by way of the warp's room in shared memory, after which each lane
    /// has four columns.
    ///
    /// # Safety
    /// All lanes together; the module's contract.
    #[device_inline]
    pub unsafe fn put(&self, total: &Total, tile: Tile, warp: u32) {
        let Shape { rows, columns, .. } = self.shape;
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        let first = tile.row + STORED[0] * warp;
        let part = tile.split as usize * rows as usize * columns as usize;
        // Eights of a row are swapped by the row's number: else rows would meet in the same banks.
        let place = |row: u32, eight: u32| row * STORED[1] + (eight ^ (row % 4)) * 8;
        // SAFETY: each warp has its room, and no lane goes on before all have come. The quads say which elements exist, and
        // each is one lane's.
        unsafe {
            let room = self.room.offset(warp * STORED[0] * STORED[1]);
            unrolled!(B in [0 1] {
                warp::sync_warp(warp::FULL_MASK);
                let places = [0, 1, 2, 3].map(|eight| place(lane / 4, eight) + lane % 4 * 2);
                unrolled!(J in [0 1 2 3 4 5 6 7] {
                    unrolled!(R in [0 1] {
                        let pair = Vec2::new(total[32 * B + 4 * J + 2 * R], total[32 * B + 4 * J + 2 * R + 1]);
                        let at = places[J % 4] + 32 * (J as u32 / 4) + 8 * STORED[1] * R as u32;
                        room.store2(at, pair.map(|sum| sum * PRODUCT_SCALE));
                    });
                });
                warp::sync_warp(warp::FULL_MASK);
                let column = tile.column + B as u32 * STORED[1] + lane % 16 * 4;
                let quad = Quad::of_row(true, column, columns);
                let mut row = lane / 16;
                if column < columns {
                    let values = self.epilogue.column_values(column, quad);
                    while row < STORED[0] && first + row < rows {
                        let sum = room.load4(place(row, lane % 16 / 2) + lane % 2 * 4);
                        let at = (first + row) as usize * columns as usize + column as usize;
                        match self.parts {
                            Some(parts) => quad.store(parts, part + at, sum),
                            None => self.epilogue.put(at, quad, sum, values),
                        }
                        row += 2;
                    }
                }
            });
        }
    }
}
