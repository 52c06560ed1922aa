//! Which tile of which part of the depth a block takes when.
//!
//! Blocks that run at the same time take [`GROUP`] rows of tiles and as many columns as there are blocks for: they share
//! operands in the L2 cache. All tiles of one part of the depth come before those of the next.

use cuda_std::arch::sm_90a::rank_in_cluster;
use cuda_std::prelude::*;

use super::super::order::{GROUP, Tile, divide};
use super::super::product::Shape;
use super::cluster::Cluster;
use super::{DEPTH, tile};

/// All that a launch has to do, and how far a thread has come with the block's part of it.
#[derive(Clone, Copy)]
pub struct Order<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> {
    shape: Shape,
    cluster: Cluster,
    /// Columns of a warpgroup's tile.
    columns: u32,
    /// Clusters' tiles, one below the other and side by side, and of all parts.
    down: u32,
    across: u32,
    count: u32,
    /// The block's next, and from one to the one after.
    number: u32,
    step: u32,
}

impl<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> Order<COLUMNS, HEIGHT, PARTS> {
    #[device_inline]
    pub fn new(columns: u32, shape: Shape, splits: u32, cluster: Cluster) -> Self {
        let together = if PARTS > 1 { PARTS.trailing_zeros() } else { cluster.blocks[0] };
        let [number, step] = [thread::block_idx_x() >> together, thread::grid_dim_x() >> together];
        let ([rows, width], [below, beside]) = (tile(columns, HEIGHT), cluster.blocks);
        let whole = |tiles: u32, blocks: u32| (tiles + (1 << blocks) - 1) >> blocks;
        let down = whole(shape.rows.div_ceil(rows), below);
        // Never 0, which kernels that are told the columns cannot see.
        let across = whole(if width == 0 { 0 } else { shape.columns.div_ceil(width) }, beside);
        Self { shape, cluster, columns, down, across, count: down * across * splits, number, step }
    }

    /// The same of a block whose cluster is known to be this.
    #[device_inline]
    pub fn within(self, cluster: Cluster) -> Self {
        Self { cluster, ..self }
    }

    /// The block's next tile: the same ones in the same order in every thread.
    #[device_inline]
    pub fn next(&mut self) -> Option<Tile> {
        if self.number >= self.count {
            return None;
        }
        let tile = self.tile(self.number);
        self.number += self.step;
        Some(tile)
    }

    #[device_inline]
    fn tile(self, number: u32) -> Tile {
        let Self { shape, cluster, down, across, .. } = self;
        let ([below, beside], [place, place_beside]) = (cluster.blocks, cluster.place);
        // The first tile is found before the first copy, which all wait for: mostly nothing is divided but once.
        let divide_larger = |a: u32, b: u32| if a < b { (0, a) } else { divide(a, b) };
        let (split, number) =
            if PARTS > 1 { (rank_in_cluster(), number) } else { divide_larger(number, down * across) };
        // Rows of clusters' tiles that blocks which run at the same time take.
        let rows = GROUP >> below;
        let (group, within) = divide_larger(number, rows * across);
        let first = group * rows;
        let (column, row) = divide(within, rows.min(down - first));
        let depth = split * shape.depth_per_split;
        let slices = shape.depth.saturating_sub(depth).min(shape.depth_per_split).div_ceil(DEPTH);
        let [rows, columns] = tile(self.columns, HEIGHT);
        let row = (((first + row) << below) + place) * rows;
        let column = ((column << beside) + place_beside) * columns;
        Tile { row, column, split, depth, slices }
    }
}
