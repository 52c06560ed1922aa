//! The product of f32 matrices by FFMA on Hopper, of operands that bulk tensor copies bring: tiles of 128 × 256, 8 × 16 sums a thread. In
//! PTX for `sm_90a` alone; the emulated grid does not run it.
//!
//! Both operands have their depth outermost, or were turned before ([`dense_tf32_turn`](super::tf32::dense_tf32_turn)): a lane then takes
//! four rows or columns at one depth out of shared memory at once. With the depth innermost it would take four depths, whose registers
//! lie in the banks by the depth, and each FFMA would take two of the same.
//!
//! **Roles.** A block of eight warps stays on its multiprocessor. A warp computes 32 rows and 128 columns, each lane two fours of rows and
//! four quads of columns: for 128 FFMA six instructions load 16 bytes each from shared memory. One thread of them issues the copies too.
//!
//! **Stages.** Shared memory has a ring of four slices of [`DEPTH`] of both operands (`ring.rs`), which lie there as in global memory.
//!
//! **Protocol.** A stage has two barriers. Its copies count their bytes at `full`; warps wait for it under the last products of the slice
//! before, and each arrives at `empty` a slice after it is done with the stage. The copying thread then waits for `empty` of the stage
//! that all were done with one slice ago, and fills it with the slice after the next: no warp waits for another unless it is a slice
//! ahead. Both sides go round the ring at the same places, so that a phase's parity says which time round it is.
//!
//! **Shares.** Tiles that fill all blocks evenly are taken whole, in turns. The slices of the others are shared out evenly, in one row
//! from tile to tile, so that all blocks end at the same time: a block's share begins and ends within a tile, of which it
//! writes a piece of its sums, and `dense_finish_ffma` adds a tile's pieces in the order of the depth ([`Work`]).
//!
//! **Edges.** Copies bring zeros where the matrix ends; nothing is stored there.
//!
//! Each sum, of a piece or of a whole tile, is one chain of fused multiply-adds in the order of the depth. Bound by FFMA.

use cuda_std::prelude::*;

/// Rows of a tile.
pub const ROWS: u32 = 128;
/// Columns of a tile.
pub const COLUMNS: u32 = 256;
/// Depth of a slice.
pub const DEPTH: u32 = 32;
/// Elements of a piece of 16 bytes. Rows of both operands in memory are a multiple of it.
pub const PIECE: u32 = 4;
/// Threads of a block.
pub const BLOCK: u32 = WARPS * warp::WARP_SIZE;
/// Elements of a piece of a tile: all of it.
pub const SUMS: u32 = ROWS * COLUMNS;
pub use super::fragments::LANE_ROWS;

const WARPS: u32 = 8;
/// Slices in shared memory.
const STAGES: u32 = 4;

/// Shared memory of a block, in bytes: the stages, two barriers each.
pub const fn shared_bytes() -> u32 {
    4 * STAGES * (ROWS + COLUMNS) * DEPTH + 16 * STAGES
}

/// Rows and columns, as they lie in memory, of the box of an operand's matrix that one copy brings: of `across` rows or columns
/// of a tile.
pub const fn operand_box(across: u32) -> [u32; 2] {
    [DEPTH, across]
}

/// Sizes of a product, and which block does what of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows of the result.
    pub rows: u32,
    /// Columns of the result.
    pub columns: u32,
    /// Products that each element sums.
    pub depth: u32,
    /// Tiles that blocks take whole, in turns: the first ones.
    pub alone: u32,
    /// Slices of the others that each block takes.
    pub share: u32,
    /// How many blocks, the first ones, take one more.
    pub more: u32,
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Work {}

#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod multiply;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod order;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod ring;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod store;

/// `out = act(a · b + bias) + beta * out` and `z`, before the activation, where it is asked for, of `a: [depth, rows]` and
/// `b: [depth, columns]`. The grid is of as many blocks as the work was shared out to; each has [`shared_bytes`] of dynamic shared memory.
///
/// `pieces` is `[2, blocks, SUMS]`, where there are shared tiles, whose sums [`dense_finish_ffma`] then adds.
///
/// `PLAIN` is for `out = a · b` alone, and columns that are a multiple of [`PIECE`]: with anything between sum and result the compiler
/// chooses registers that make the products' loop 4 % slower.
///
/// # Safety
/// The module `dense`'s; all sizes are at least 1; the maps are of the operands, with the boxes of [`operand_box`].
#[kernel(block = BLOCK, min_blocks = 1, barriers = 1, only = "sm_90a", instances(PLAIN = [false, true]))]
pub unsafe fn dense_ffma<const PLAIN: bool>(
    a: Global<f32>,
    b: Global<f32>,
    out: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    bias: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    pieces: Option<GlobalMut<f32>>,
    work: Work,
    activation: u32,
    beta: f32,
    a_map: TensorMap,
    b_map: TensorMap,
) {
    let _ = (a, b);
    let epilogue = super::product::Epilogue { out, beta, z, b: bias, alpha, activation };
    // SAFETY: the kernel's contract.
    unsafe { multiply::product::<PLAIN>([a_map, b_map], store::Store { epilogue, pieces, work }) }
}

/// What a product with shared tiles leaves to do, of these: the pieces that `blocks` blocks made are added in the order of the depth.
///
/// The grid is `[shared tiles, LANE_ROWS]`: a block does one of the rows that each lane had, with lanes as they were.
///
/// # Safety
/// [`dense_ffma`]'s; `pieces` is `[2, blocks, SUMS]`.
#[kernel(block = BLOCK, only = "sm_90a")]
pub unsafe fn dense_finish_ffma(
    pieces: Global<f32>,
    out: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    bias: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    work: Work,
    blocks: u32,
    activation: u32,
    beta: f32,
) {
    let epilogue = super::product::Epilogue { out, beta, z, b: bias, alpha, activation };
    // SAFETY: the kernel's contract.
    unsafe { store::finish(epilogue, pieces, work, blocks) }
}
