//! What the orders in which blocks take tiles have in common: those that run at the same time take [`GROUP`] rows of tiles and
//! as many columns as there are blocks for, and so share operands in the L2 cache.

use core::num::NonZeroU32;

use cuda_std::device_inline;

/// Rows of tiles that blocks which run at the same time take.
pub const GROUP: u32 = 16;

/// A tile, over a part of the depth.
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
#[derive(Clone, Copy)]
pub struct Tile {
    pub row: u32,
    pub column: u32,
    /// Which part.
    pub split: u32,
    /// Where it begins.
    pub depth: u32,
    /// Its slices, at least one but in a cluster that shares the depth.
    pub slices: u32,
}

/// `a / b` and the rest; of 0, which there is none of, 0.
#[device_inline]
pub fn divide(a: u32, b: u32) -> (u32, u32) {
    match NonZeroU32::new(b) {
        Some(b) => (a / b, a % b),
        None => (0, 0),
    }
}
