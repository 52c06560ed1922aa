//! Which tile a block takes when, and where the parts of its slices are in shared memory.
//!
//! Blocks that run at the same time take [`GROUP`] rows of tiles and as many columns as there are blocks for: they share operands
//! in the L2 cache. All tiles of one part of the depth come before those of the next.

use cuda_std::arch::sm_90a::{MBarrier, fence_barrier_init};
use cuda_std::prelude::*;

use super::super::order::{GROUP, Tile, divide};
use super::super::product::Shape;
use super::super::wgmma::{DEPTH, ROWS};
use super::{PARTS, STAGE, STAGES, STORED};

/// Warps that multiply.
const WARPS: u32 = ROWS / STORED[0];

/// All that a launch has to do, in tiles of so many columns, and how far a thread has come with the block's part of it.
#[derive(Clone, Copy)]
pub struct Order<const COLUMNS: u32> {
    shape: Shape,
    down: u32,
    across: u32,
    /// Tiles of all parts.
    count: u32,
    /// The block's next.
    number: u32,
}

impl<const COLUMNS: u32> Order<COLUMNS> {
    #[device_inline]
    pub fn new(shape: Shape, splits: u32) -> Self {
        let (down, across) = (shape.rows.div_ceil(ROWS), shape.columns.div_ceil(COLUMNS));
        Self { shape, down, across, count: down * across * splits, number: thread::block_idx_x() }
    }

    /// The block's next tile: the same ones in the same order in every thread.
    #[device_inline]
    pub fn next(&mut self) -> Option<Tile> {
        if self.number >= self.count {
            return None;
        }
        let tile = self.tile(self.number);
        self.number += thread::grid_dim_x();
        Some(tile)
    }

    #[device_inline]
    fn tile(self, number: u32) -> Tile {
        let Self { shape, down, across, .. } = self;
        let (split, number) = divide(number, down * across);
        let (group, within) = divide(number, GROUP * across);
        let first = group * GROUP;
        let (column, row) = divide(within, GROUP.min(down - first));
        let depth = split * shape.depth_per_split;
        let slices = (shape.depth - depth).min(shape.depth_per_split).div_ceil(DEPTH);
        Tile { row: (first + row) * ROWS, column: column * COLUMNS, split, depth, slices }
    }
}

/// A block's shared memory.
#[derive(Clone, Copy)]
pub struct Ring(Shared<bf16>);

impl Ring {
    #[device_inline]
    pub fn new() -> Self {
        Self(dynamic_shared())
    }

    /// Makes the barriers ready.
    ///
    /// # Safety
    /// One thread, once; the block's barrier comes before their use.
    #[device_inline]
    pub unsafe fn init(self) {
        let mut stage = 0;
        while stage < STAGES {
            // SAFETY: the caller's.
            unsafe {
                self.full(stage).init(1);
                self.empty(stage).init(WARPS);
            }
            stage += 1;
        }
        fence_barrier_init();
    }

    /// The first stage; the others follow.
    #[device_inline]
    pub fn slices(self) -> Shared<bf16> {
        self.0
    }

    /// The room for results, of all warps.
    #[device_inline]
    pub fn room(self) -> Shared<f32> {
        // SAFETY: inside the block's shared memory.
        unsafe { self.0.offset(STAGES * STAGE) }.cast()
    }

    /// The barrier at which the stage's bytes arrive.
    #[device_inline]
    pub fn full(self, stage: u32) -> MBarrier {
        self.barrier(stage)
    }

    /// The barrier at which warps arrive that are done with the stage.
    #[device_inline]
    pub fn empty(self, stage: u32) -> MBarrier {
        self.barrier(STAGES + stage)
    }

    #[device_inline]
    fn barrier(self, number: u32) -> MBarrier {
        // SAFETY: they come after the room for results, two a stage.
        MBarrier::at(unsafe { self.room().offset(ROWS * STORED[1]).cast::<u64>().offset(number) })
    }
}

/// The first of the stages that have the block's slice of this number, and the parity of their phase: the ring has room for two
/// slices.
#[device_inline]
pub fn stages_of(number: u32) -> (u32, u32) {
    (number % 2 * PARTS, number / 2 % 2)
}
