//! What a warp does with its 16 rows of a tile's sums: they become 16 columns of the result, or, of a product that is split, of a part.

use cuda_std::prelude::*;

use super::super::PRODUCT_SCALE;
use super::super::product::Total;
use crate::dense::order::Tile;
use crate::dense::product::{Epilogue, Shape};
use crate::dense::quad::Quad;

/// Where results go.
#[derive(Clone, Copy)]
pub struct Store {
    pub epilogue: Epilogue<f32>,
    pub parts: Option<GlobalMut<f32>>,
    pub shape: Shape,
}

impl Store {
    /// Puts the warp's 16 rows of the tile where they belong, as columns: by way of its room in shared memory, 32 of the tile's columns
    /// at a time, after which each lane has four elements of a row of the result.
    ///
    /// # Safety
    /// All lanes together; the module's contract.
    #[device_inline]
    pub unsafe fn put<const COLUMNS: u32>(&self, total: &Total, tile: Tile, warp: u32, room: Shared<f32>) {
        let Shape { rows, columns, .. } = self.shape;
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        let (g, c) = (lane / 4, lane % 4);
        // Fours of a row of 16, in an order in which neither those meet in a bank that are stored together nor those that are loaded.
        let place = |row: u32, four: u32| {
            let pair = row / 2;
            pair * 32 + (row % 2 ^ pair / 2 % 2) * 16 + (four ^ pair % 2 * 2) * 4
        };
        let column = tile.row + 16 * warp + 4 * c;
        let quad = Quad::of_row(true, column, columns);
        let part = tile.split as usize * rows as usize * columns as usize;
        // SAFETY: no lane goes on before all have come. The quads say which elements exist, and each is one lane's.
        unsafe {
            let none = Vec4::splat(0.0);
            let values = if column < columns { self.epilogue.column_values(column, quad) } else { [none, none] };
            unrolled!(B in [0 1 2 3] {
                if 32 * (B as u32) < COLUMNS {
                    warp::sync_warp(warp::FULL_MASK);
                    unrolled!(J in [0 1 2 3] {
                        unrolled!(I in [0 1] {
                            let pair = Vec2::new(total[16 * B + 4 * J + I], total[16 * B + 4 * J + 2 + I]);
                            let at = place(8 * J as u32 + 2 * c + I as u32, g / 2) + g % 2 * 2;
                            room.store2(at, pair.map(|sum| sum * PRODUCT_SCALE));
                        });
                    });
                    warp::sync_warp(warp::FULL_MASK);
                    let mut row = g;
                    let first = tile.column + 32 * B as u32;
                    while row < 32 && first + row < rows && column < columns {
                        let sum = room.load4(place(row, c));
                        let at = (first + row) as usize * columns as usize + column as usize;
                        match self.parts {
                            Some(parts) => quad.store(parts, part + at, sum),
                            None => self.epilogue.put(at, quad, sum, values),
                        }
                        row += 8;
                    }
                }
            });
        }
    }
}
