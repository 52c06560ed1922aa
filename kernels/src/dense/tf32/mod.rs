//! Products of f32 matrices as tf32, on Hopper's tensor cores: of each element 11 digits of 24 are multiplied, sums are f32.
//!
//! Copies into shared memory round to the nearest tf32: tensor maps have a type for that. `wgmma` takes operands of tf32 with the depth
//! innermost, as `x` and `w` of the forward pass lie: `dense_tf32` is [`wgmma`](super::wgmma) over slices of 32 of depth, that are as
//! many bytes as 64 of 16-bit floats, and only the instruction and how results are stored differ. Or one operand comes from registers:
//! `dense_tf32_turning`, for `dx` of `w` and `dz`, and for `dw` of `x` and of `dz`, the smaller of which [`dense_tf32_turn`] has turned, in a
//! workspace, or which the kernel itself turns, in shared memory.
//!
//! Bound by the tensor cores, at half the rate of 16-bit floats; turning, by memory, 8 bytes for each element.

use cuda_std::prelude::*;

use super::Sizes;
use super::order::divide;
use super::quad::Quad;

#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod turning;

/// Threads of a block that turns.
pub const BLOCK: u32 = 256;
/// Blocks of such a launch: as many as run at once.
pub const BLOCKS: u32 = PER_MULTIPROCESSOR * 132;
const PER_MULTIPROCESSOR: u32 = 5;
/// Depth of a slice of a product: 128 bytes.
pub const DEPTH: u32 = 32;
/// Elements of a piece of 16 bytes. Rows of all of a product's matrices are a multiple of it.
pub const PIECE: u32 = 4;

/// Rows and columns, as they lie in memory, of the box of an operand's matrix that one copy brings: of `across` rows or columns
/// of a tile, of which `blocks` bring a part each.
pub const fn operand_box(across: u32, depth_inner: bool, blocks: u32) -> [u32; 2] {
    if depth_inner { [across / blocks, DEPTH] } else { [DEPTH / blocks, 32] }
}

/// Rows and columns of a warp's tile.
const SIDE: u32 = warp::WARP_SIZE;
/// Elements from a row of it to the next in shared memory: odd, so that a column's are in banks of their own.
const PITCH: u32 = SIDE + 1;
const WARPS: u32 = BLOCK / warp::WARP_SIZE;

impl Sizes {
    /// Rows and columns of the turned matrix in memory: rows are whole pieces, with zeros at their ends.
    pub const fn turned(self) -> [u32; 2] {
        [self.columns, self.rows.next_multiple_of(PIECE)]
    }

    /// Elements of the turned matrix in memory.
    pub const fn room(self) -> u64 {
        let [rows, columns] = self.turned();
        rows as u64 * columns as u64
    }
}

/// A matrix turned: columns as rows, in the sizes of [`Sizes::turned`].
///
/// The grid is [`BLOCKS`] blocks, for any sizes. Each warp takes tiles of 32 × 32, through shared memory of its own; the warps of a
/// block take tiles beside each other.
///
/// # Safety
/// The module `dense`'s; both matrices are of their sizes, of which [`Sizes::room`] is below 2³⁴.
#[kernel(block = BLOCK, min_blocks = PER_MULTIPROCESSOR)]
pub unsafe fn dense_tf32_turn(matrix: Global<f32>, turned: GlobalMut<f32>, sizes: Sizes) {
    let room = shared_array![f32; (WARPS * SIDE * PITCH) as usize].handle();
    let (lane, warp) = (thread::thread_idx_x() % warp::WARP_SIZE, thread::thread_idx_x() / warp::WARP_SIZE);
    // SAFETY: the warp's own part of it.
    let room = unsafe { room.offset(warp * SIDE * PITCH) };
    let Sizes { rows, columns } = sizes;
    let [_, length] = sizes.turned();
    let across = columns.div_ceil(SIDE);
    let tiles = rows.div_ceil(SIDE) * across;
    // Eight lanes take a row of the tile, four elements each; four rows at a time.
    let (line, four) = (lane / 8, lane % 8 * 4);
    let mut tile = thread::block_idx_x() * WARPS + warp;
    while tile < tiles {
        let (down, right) = divide(tile, across);
        let (row, column) = (SIDE * down, SIDE * right);
        // SAFETY: quads say what exists; a tile's place is inside of the room, where no lane stores before all have loaded, nor
        // loads before all have stored. Each element of the turned matrix is one lane's.
        unsafe {
            // Not `[..; 8]`, which becomes a loop and then local memory.
            let mut values: [Vec4<f32>; 8] = core::mem::zeroed();
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                let row = row + line + 4 * R as u32;
                let quad = Quad::of_row(row < rows, column + four, columns);
                values[R] = quad.fetch(matrix, row as usize * columns as usize + (column + four) as usize);
            });
            warp::sync_warp(warp::FULL_MASK);
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                let at = (line + 4 * R as u32) * PITCH + four;
                let value = values[R];
                room.store(at, value.x);
                room.store(at + 1, value.y);
                room.store(at + 2, value.z);
                room.store(at + 3, value.w);
            });
            warp::sync_warp(warp::FULL_MASK);
            unrolled!(R in [0 1 2 3 4 5 6 7] {
                let across = line + 4 * R as u32;
                let at = four * PITCH + across;
                let value = Vec4::new(
                    room.load(at),
                    room.load(at + PITCH),
                    room.load(at + 2 * PITCH),
                    room.load(at + 3 * PITCH),
                );
                let (turned_row, turned_column) = (column + across, row + four);
                let exists = turned_row < columns && turned_column < length;
                turned.store4_if(exists, turned_row as usize * length as usize + turned_column as usize, value);
            });
        }
        tile += WARPS * thread::grid_dim_x();
    }
}

/// `out = act(a · b + bias)` and `z`, before the activation, where it is asked for, as
/// [`dense_forward_wgmma`](super::dense_forward_wgmma): of `a: [rows, depth]` and `b: [columns, depth]`.
/// [`Shape::depth_per_split`](super::Shape::depth_per_split) is a multiple of [`DEPTH`].
///
/// # Safety
/// As [`dense_forward_wgmma`](super::dense_forward_wgmma); the maps are of type tf32, with boxes of [`operand_box`].
#[kernel(
    block = super::wgmma::BLOCK,
    min_blocks = 1,
    begins = "itself",
    only = "sm_90a",
    instances((COLUMNS, PARTS) = [(64, 1), (64, 2), (64, 4), (128, 1), (128, 2), (128, 4), (192, 1), (256, 1)])
)]
pub unsafe fn dense_tf32<const COLUMNS: u32, const PARTS: u32>(
    a: Global<f32>,
    b: Global<f32>,
    out: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    bias: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    activation: u32,
    a_map: TensorMap,
    a_edge: TensorMap,
    b_map: TensorMap,
    b_edge: TensorMap,
) {
    let _ = (a, b);
    let epilogue = super::product::Epilogue { out, beta: 0.0, z, b: bias, alpha, activation };
    // SAFETY: the module's contract.
    unsafe {
        super::wgmma::product::<super::wgmma::Tf32, COLUMNS, 2, PARTS, false, true, true>(
            COLUMNS,
            [[a_map, a_edge], [b_map, b_edge]],
            epilogue,
            parts,
            shape,
            splits,
        )
    }
}

/// `out = a · b + beta * out`, of `a: [depth, rows]` as it lies and `b: [columns, depth]`; `out` is `[rows, columns]`, or, where it is
/// `TURNED`, `[columns, rows]`, and so is each of `parts`. Of `a` there may be fewer rows in memory than the depth, where `b` has zeros.
/// Where `BOTH` have their depth outermost, `b` is `[depth, columns]`, and is turned in shared memory.
///
/// # Safety
/// As [`dense_tf32`], but that what need be a multiple of [`PIECE`] is `rows`, and `columns` where `out` is not `TURNED`.
#[kernel(
    block = super::wgmma::BLOCK,
    min_blocks = 1,
    begins = "itself",
    only = "sm_90a",
    instances((COLUMNS, TURNED, BOTH) = [
        (64, false, false), (64, true, false), (128, false, false), (128, true, false),
        (192, false, false), (192, true, false), (256, false, false), (256, true, false),
        (64, false, true), (64, true, true), (128, false, true), (128, true, true)
    ])
)]
pub unsafe fn dense_tf32_turning<const COLUMNS: u32, const TURNED: bool, const BOTH: bool>(
    a: Global<f32>,
    b: Global<f32>,
    out: GlobalMut<f32>,
    beta: f32,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    a_map: TensorMap,
    b_map: TensorMap,
    b_edge: TensorMap,
) {
    let _ = (a, b);
    let store = turning::Store { out, beta, parts, shape };
    // SAFETY: the module's contract.
    unsafe { turning::product::<COLUMNS, TURNED, BOTH>(a_map, [b_map, b_edge], store, splits) }
}
