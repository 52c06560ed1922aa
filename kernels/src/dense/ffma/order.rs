//! Which tile a block takes when, and over which part of the depth; and who has the pieces of a tile that several blocks share.
//!
//! Blocks that run at the same time take [`GROUP`] rows of tiles and as many columns as there are blocks for: they share operands
//! in the L2 cache.

use cuda_std::prelude::*;

use super::super::order::{GROUP, divide};
use super::{COLUMNS, DEPTH, ROWS, Work};

/// A tile, or a piece of its depth.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Its first row and column.
    pub place: [u32; 2],
    /// Where its depth begins.
    pub depth: u32,
    /// Its slices, at least one.
    pub slices: u32,
    /// Which of the product's pieces it is, or [`WHOLE`].
    pub piece: u32,
}

/// No piece: a tile with all its depth.
pub const WHOLE: u32 = u32::MAX;

/// The block's work, and how far a thread has come with it.
#[derive(Clone, Copy)]
pub struct Order {
    work: Work,
    /// The next of the tiles that blocks take whole.
    number: u32,
    /// The next slice of the block's share, and the end of it.
    slice: u32,
    end: u32,
}

impl Order {
    #[device_inline]
    pub fn new(work: Work) -> Self {
        let block = thread::block_idx_x();
        let [slice, end] = work.share_of(block);
        Self { work, number: block, slice, end }
    }

    /// The block's next tile or piece: the same ones in the same order in every thread.
    #[device_inline]
    pub fn next(&mut self) -> Option<Tile> {
        let each = self.work.slices();
        let (number, first, slices);
        if self.number < self.work.alone {
            (number, first, slices) = (self.number, 0, each);
            self.number += thread::grid_dim_x();
        } else if self.slice < self.end {
            let (tile, within) = divide(self.slice, each);
            (number, first, slices) = (self.work.alone + tile, within, (each - within).min(self.end - self.slice));
            self.slice += slices;
        } else {
            return None;
        }
        let piece = if slices == each { WHOLE } else { piece(thread::block_idx_x(), first == 0) };
        Some(Tile { place: self.work.place(number), depth: first * DEPTH, slices, piece })
    }
}

/// The number of a block's piece: of its share's last tile, which it begins, or of its first, which another began.
#[device_inline]
pub fn piece(block: u32, begins: bool) -> u32 {
    2 * block + u32::from(begins)
}

impl Work {
    /// Slices of a tile.
    #[device_inline]
    pub fn slices(self) -> u32 {
        self.depth.div_ceil(DEPTH)
    }

    /// Begin and end of a block's share, counted in slices of all shared tiles.
    #[device_inline]
    pub fn share_of(self, block: u32) -> [u32; 2] {
        let begin = block * self.share + block.min(self.more);
        [begin, begin + self.share + u32::from(block < self.more)]
    }

    /// The block whose share has a slice.
    #[device_inline]
    pub fn block_of(self, slice: u32) -> u32 {
        let longer = self.more * (self.share + 1);
        if slice < longer { divide(slice, self.share + 1).0 } else { self.more + divide(slice - longer, self.share).0 }
    }

    /// The first row and column of a tile.
    #[device_inline]
    pub fn place(self, number: u32) -> [u32; 2] {
        let (down, across) = (self.rows.div_ceil(ROWS), self.columns.div_ceil(COLUMNS));
        let (group, within) = divide(number, GROUP * across);
        let first = group * GROUP;
        let (column, row) = divide(within, GROUP.min(down - first));
        [(first + row) * ROWS, column * COLUMNS]
    }
}
