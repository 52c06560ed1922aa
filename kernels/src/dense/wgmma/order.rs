//! Which tile of which part of the depth a block takes when.
//!
//! Blocks that run at the same time take [`GROUP`] rows of tiles and as many columns as there are blocks for: they share
//! operands in the L2 cache. All tiles of one part of the depth come before those of the next.

use cuda_std::arch::sm_90a::rank_in_cluster;
use cuda_std::prelude::*;

use super::super::order::{GROUP, Tile, divide};
use super::super::product::Shape;
use super::{DEPTH, cluster, sharing, tile};

/// All that a launch has to do, and how far a thread has come with the block's part of it.
#[derive(Clone, Copy)]
pub struct Order<const COLUMNS: u32, const ACROSS: u32, const PARTS: u32> {
    shape: Shape,
    down: u32,
    across: u32,
    /// Tiles of all parts.
    count: u32,
    /// The block's next.
    number: u32,
}

impl<const COLUMNS: u32, const ACROSS: u32, const PARTS: u32> Order<COLUMNS, ACROSS, PARTS> {
    /// Rows of a cluster's tiles.
    const ROWS: u32 = tile(COLUMNS, ACROSS)[0] * sharing(COLUMNS, ACROSS, PARTS);
    /// Columns of a tile.
    const COLUMNS: u32 = tile(COLUMNS, ACROSS)[1];
    /// Rows of clusters' tiles that blocks which run at the same time take.
    const GROUP: u32 = GROUP / sharing(COLUMNS, ACROSS, PARTS);

    #[inline(always)]
    pub fn new(shape: Shape, splits: u32) -> Self {
        let (down, across) = (shape.rows.div_ceil(Self::ROWS), shape.columns.div_ceil(Self::COLUMNS));
        let number = thread::block_idx_x() / cluster(COLUMNS, ACROSS, PARTS);
        Self { shape, down, across, count: down * across * splits, number }
    }

    /// The block's next tile: the same ones in the same order in every thread.
    #[inline(always)]
    pub fn next(&mut self) -> Option<Tile> {
        if self.number >= self.count {
            return None;
        }
        let tile = self.tile(self.number);
        self.number += thread::grid_dim_x() / cluster(COLUMNS, ACROSS, PARTS);
        Some(tile)
    }

    #[inline(always)]
    fn tile(self, number: u32) -> Tile {
        let Self { shape, down, across, .. } = self;
        let rank = if cluster(COLUMNS, ACROSS, PARTS) > 1 { rank_in_cluster() } else { 0 };
        let (split, number) = if PARTS > 1 { (rank, number) } else { divide(number, down * across) };
        let (group, within) = divide(number, Self::GROUP * across);
        let first = group * Self::GROUP;
        let (column, row) = divide(within, Self::GROUP.min(down - first));
        let depth = split * shape.depth_per_split;
        let slices = shape.depth.saturating_sub(depth).min(shape.depth_per_split).div_ceil(DEPTH);
        let row = (first + row) * Self::ROWS
            + if sharing(COLUMNS, ACROSS, PARTS) > 1 { rank * tile(COLUMNS, ACROSS)[0] } else { 0 };
        Tile { row, column: column * Self::COLUMNS, split, depth, slices }
    }
}
