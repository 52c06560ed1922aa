//! Bands one after another, for kernels whose blocks take several.

use cuda_std::prelude::*;

use super::{Bands, Block, Span};
use crate::window::Divider;

/// All bands of all planes, or groups of planes, one after another, for kernels whose blocks take some of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    block: Block,
    /// How many there are, and of each plane or group of planes.
    count: u32,
    of_plane: u32,
    by_plane: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Series {}

impl Series {
    /// Of these bands.
    pub fn new(bands: &Bands) -> Self {
        let block = bands.block;
        let of_plane = block.height.div_ceil(block.rows);
        let count = block.planes.div_ceil(block.depth) * of_plane;
        Self { block, count, of_plane, by_plane: Divider::new(of_plane) }
    }

    /// How many bands there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bands of a plane or a group of planes.
    pub fn of_plane(&self) -> u32 {
        self.of_plane
    }

    /// What a block takes that takes the band of this number.
    #[device_inline]
    pub(crate) fn span(&self, number: u32) -> Span {
        let plane = self.by_plane.divide(number);
        self.block.span_of(plane, number - plane * self.of_plane)
    }
}
