//! The blocks of a cluster that bring slices together.
//!
//! A launch's clusters have so many blocks one below the other (x of their shape) and so many side by side (y), as their tiles
//! lie: powers of two, so that nothing is divided before the first copy, which all wait for. Blocks one below the other have the same columns: of these each
//! brings a part, for all of them. So have blocks side by side the same rows. Less comes out of the L2 cache, and each multiprocessor
//! issues fewer copies.

use cuda_std::arch::sm_90a::{cluster_shape, rank_in_cluster};
use cuda_std::device_inline;

/// A block's cluster, and its place in it.
#[derive(Clone, Copy)]
pub struct Cluster {
    /// Blocks one below the other, and side by side: their logarithms to base 2.
    pub blocks: [u32; 2],
    /// Which of them this one is.
    pub place: [u32; 2],
}

impl Cluster {
    /// A block that brings all that it needs by itself, and that for no other.
    pub const ALONE: Self = Self { blocks: [0, 0], place: [0, 0] };

    /// Where `PARTS` blocks share a tile's depth, each brings what it needs by itself.
    #[device_inline]
    pub fn here<const PARTS: u32>() -> Self {
        if PARTS > 1 {
            return Self::ALONE;
        }
        let [down, across] = cluster_shape();
        // Blocks are numbered along x first.
        let (rank, below) = (rank_in_cluster(), down.trailing_zeros());
        Self { blocks: [below, across.trailing_zeros()], place: [rank & (down - 1), rank >> below] }
    }

    /// The blocks that bring something of what one block needs, itself among them: with the same columns, or the same rows.
    #[device_inline]
    pub fn sharers(self) -> u32 {
        let [down, across] = self.blocks;
        (1 << down) + (1 << across) - 1
    }

    /// The number in the cluster of one of them; the block itself is the first.
    #[device_inline]
    pub fn sharer(self, number: u32) -> u32 {
        let ([down, across], [row, column]) = (self.blocks, self.place);
        let (below, beside) = if number >> down == 0 { (number, 0) } else { (0, number + 1 - (1 << down)) };
        let turn = |place: u32, by: u32, of: u32| (place + by) & ((1 << of) - 1);
        turn(row, below, down) + (turn(column, beside, across) << down)
    }

    /// A bit for each block with the same rows, and for each with the same columns.
    #[device_inline]
    pub fn masks(self) -> [u16; 2] {
        let ([down, across], [row, column]) = (self.blocks, self.place);
        // As many bits as there are blocks side by side, each as far from the next as blocks one below the other take.
        let beside = |number: u32| if number >> across == 0 { 1 << (number << down) } else { 0 };
        let rows = beside(0) | beside(1) | beside(2) | beside(3);
        [rows << row, ((1 << (1 << down)) - 1) << (column << down)]
    }
}
