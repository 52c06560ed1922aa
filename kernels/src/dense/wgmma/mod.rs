//! The matrix product of 16-bit floats on Hopper's tensor cores: tiles of 128 or 192 rows and 32 to 256
//! columns, or of 64 × 128 ([`tile`]), `wgmma` with sums in f32, operands brought by bulk tensor copies. In PTX for `sm_90a` alone; the emulated grid
//! does not run it.
//!
//! **Roles.** A block of three or four warpgroups ([`block`]) stays on its multiprocessor and takes tile after tile (`order.rs`). Of the first
//! warpgroup one thread issues all copies (`copy.rs`); each of the others multiplies 64 rows of the tile, or of a
//! tile of 64 rows half of the columns (`multiply.rs`), and then does with its sums what the product asks for (`epilogue.rs`).
//! They need the registers that the first gives away. What the epilogue needs of the columns, bias and slopes, is fetched
//! under the last products, and under the epilogue of the columns before, but for three warpgroups, which have no registers left for it.
//!
//! **The beginning.** Barriers are made and the first tile is found before a role waits for the grid before. The copying thread
//! waits last of all: what follows is the first copy, whose way from the L2 cache all others wait for.
//!
//! **Stages.** Shared memory has a ring of [`stages`] slices of [`DEPTH`] of both operands (`ring.rs`). An operand lies there as
//! it lies in global memory, in rows of 128 bytes whose pieces of 16 bytes are swapped by the row's number: nothing is
//! transposed, `wgmma` takes either way. A tile's slices follow those of the tile before: while a tile's results are stored,
//! the next one's slices come.
//!
//! **Protocol.** A stage has two barriers. Its copies count their bytes at `full`; the multiplying warps wait for it, and each
//! arrives at `empty` when the products that read the stage are done, that is a slice later, for one slice's products are
//! under way while the next ones are begun. The copying thread waits for `empty` before it fills the stage again. Both
//! sides go round the ring at the same places, so that a phase's parity says which time round it is. Warps that multiply
//! meet in `wgmma` alone; each stores its own 16 rows.
//!
//! **Clusters.** Blocks with tiles one below the other bring the columns' slices together, each a part for all, and blocks with
//! tiles side by side the rows' (`cluster.rs`): less comes out of the L2 cache, most where rows are not whole lines of it. A
//! stage is then empty when the warps of all that share it are done with it. Or two or four blocks share the depth of one tile, of which
//! there are then too few to fill the GPU: each copies its sums into the others' shared memory, to each a share of the columns, and adds the sums of
//! its own share in the order of the blocks. A warp's sums go by one bulk copy to each block, by way of the ring, which is no
//! longer needed; at the other end the same warp waits for them, and no thread for all memory of a block.
//!
//! **Edges.** Beyond the depth copies bring zeros. Beyond the rows or columns nothing is copied ([`edge`]), so that what is multiplied
//! there is anything; nothing of it is stored.
//!
//! **Widths.** `wgmma` has the columns in its instruction, so most kernels are of one width. One of `dx` is told it at launch: it has the loop
//! over slices once for each width, chosen anew for each tile, and all else once (`multiply.rs`); sums are the same registers in all. A
//! slice takes it 1 to 2 % longer, which a last wave of tiles that is full pays for.
//!
//! **Element types.** f32 goes the same way, multiplied as tf32 (`element.rs`, [`tf32`](super::tf32)): sizes here are of 16-bit floats.
//!
//! A slice of 128 × 256 and of 192 × 192 takes as many clocks of the tensor cores as of shared memory, of fewer columns more of shared
//! memory, less so with 192 rows; large products draw so much power that the clock falls.

use super::LARGE;

/// Rows of a tile of two warpgroups one below the other.
pub const ROWS: u32 = LARGE;
/// Depth of a slice: 128 bytes, as far as pieces are swapped.
pub const DEPTH: u32 = 64;
/// Elements of a piece of 16 bytes. Rows of all matrices are a multiple of it.
pub const PIECE: u32 = 8;
/// Threads of a block with two warpgroups that multiply.
pub const BLOCK: u32 = block(2);

/// Rows within which pieces are swapped, always in the same way.
const SWAPPED: u32 = 8;
/// Rows of a warp's part of a tile.
const WARP_ROWS: u32 = 16;
/// Columns of what is stored at a time: 128 bytes.
const STORED: u32 = 64;
/// Elements of 64 rows, or columns, of a slice.
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
const PANEL: u32 = 64 * DEPTH;
/// The most stages.
const MOST_STAGES: u32 = 8;

/// Rows and columns of a tile: each warpgroup multiplies 64 rows and `columns` columns; `height` of them stand one below the other, or,
/// where that is 1, two side by side.
pub const fn tile(columns: u32, height: u32) -> [u32; 2] {
    [64 * height, if height == 1 { 2 * columns } else { columns }]
}

/// The least and the most columns of a warpgroup where the launch says how many, and what lies between two such numbers.
pub const fn widths(height: u32) -> [u32; 3] {
    if height == 2 { [32, 256, 8] } else { [104, 200, 8] }
}

/// Whether a launch may say so many columns, of `most`.
pub const fn in_widths(columns: u32, most: u32, height: u32) -> bool {
    let [least, _, apart] = widths(height);
    least <= columns && columns <= most && columns.is_multiple_of(apart)
}

/// Threads of a block: the warpgroup that copies, and those that multiply.
pub const fn block(height: u32) -> u32 {
    (4 + warps(height)) * 32
}

/// Warps that multiply.
const fn warps(height: u32) -> u32 {
    if height == 1 { 2 * 4 } else { height * 4 }
}

/// Stages of such tiles: as many as there is room for.
pub const fn stages(columns: u32, height: u32, parts: u32) -> u32 {
    let room = (227 * 1024 - 1024) / 2 - out(columns, height, parts);
    // A stage is never nothing, which kernels that are told the columns cannot see.
    match room.checked_div(stage(columns, height)) {
        Some(stages) if stages < MOST_STAGES => stages,
        _ => MOST_STAGES,
    }
}

/// Whether so many blocks of a cluster, one below the other and side by side, can share what they copy of such tiles of a matrix of so many
/// rows and columns: powers of two up to 4, by which parts of a side are whole rows of those within which pieces are swapped.
///
/// Of blocks that share both sides, no two that do not share a side with each other may both have tiles outside of the matrix: such a block
/// gets nothing from one that it tells of the end of each stage, so that nothing keeps it from telling it twice before the block with the
/// one tile inside has done so once, whose stage is then filled while it is in use.
pub const fn may_share(columns: u32, height: u32, [down, beside]: [u32; 2], matrix: [u32; 2]) -> bool {
    let [rows, columns] = tile(columns, height);
    let whole = (columns / SWAPPED).is_multiple_of(down) && (rows / SWAPPED).is_multiple_of(beside);
    let all_inside =
        matrix[0].div_ceil(rows).is_multiple_of(down) || matrix[1].div_ceil(columns).is_multiple_of(beside);
    let held_back = down == 1 || beside == 1 || all_inside;
    whole && held_back && matches!(down, 1 | 2 | 4) && matches!(beside, 1 | 2 | 4)
}

/// Shared memory of a block, in bytes: the stages, room for results, two barriers a stage and one for each warp's sums.
pub const fn shared_bytes(columns: u32, height: u32, parts: u32) -> u32 {
    let stages = stages(columns, height, parts);
    2 * (stages * stage(columns, height) + out(columns, height, parts)) + 16 * stages + 8 * warps(height)
}

/// Rows and columns, as they lie in memory, of the box of an operand's matrix that one copy brings: of `across` rows or columns
/// of a tile, of which `blocks` bring a part each.
pub const fn operand_box(across: u32, depth_inner: bool, blocks: u32) -> [u32; 2] {
    if depth_inner { [across / blocks, DEPTH] } else { [DEPTH / blocks, 64] }
}

/// Rows of the boxes in which a matrix of so many rows ends whose depth is innermost, of whole boxes of `side` rows, or columns:
/// those that are left, and as many more as pieces are swapped within.
pub const fn edge(count: u32, side: u32) -> u32 {
    let left = count % side;
    if left == 0 { side } else { left.next_multiple_of(SWAPPED) }
}

/// Elements of a slice of both operands. Where the depth is not innermost copies bring 64 columns at a time.
pub(super) const fn stage(columns: u32, height: u32) -> u32 {
    let [rows, columns] = tile(columns, height);
    (rows + columns.next_multiple_of(64)) * DEPTH
}

/// Elements of the room for results: boxes, or the sums of a cluster's blocks.
const fn out(columns: u32, height: u32, parts: u32) -> u32 {
    warps(height) * WARP_ROWS * if parts == 1 { STORED } else { 2 * columns }
}

#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod cluster;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) mod copy;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) mod element;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod epilogue;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod multiply;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) mod order;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) mod ring;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) use element::Tf32;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) use multiply::product;
