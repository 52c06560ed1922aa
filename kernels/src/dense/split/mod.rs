//! An f32 matrix as three matrices of bf16 whose sum it is, so that tensor cores multiply it without losing digits:
//! `high = bf16(s)`, `middle = bf16(s - high)`, `low = bf16(s - high - middle)`, of `s = x · 2²⁴`.
//!
//! Each of the three has 8 digits of 24, and what they leave is exact: nothing is lost. Scaling keeps the low parts of the
//! smallest floats above bf16's own smallest. What no parts can stand for, infinities, NaN and elements of 2²⁸ and more, whose
//! products' sums might leave f32's range, is reported: then a product is to be made of the matrix itself.
//!
//! The parts lie one after the other, each in [`padded_rows`] rows of [`padded_columns`], zeros where the matrix has no
//! element, so that tensor maps can describe matrices of any size, and boxes of whole slices of depth stay in one part.
//!
//! A product takes both operands in parts (`product.rs`), or the right one as it lies, whose parts it makes in registers (`registers`).
//!
//! Threads take eight elements at a time, twice, one block's worth apart, and all blocks go over a matrix together.
//! Bound by memory: 4 bytes are read for an element and 6 written.

use cuda_std::prelude::*;

use super::Sizes;
use super::order::divide;
use super::quad::Quad;
use super::wgmma::{DEPTH, ROWS};

#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) mod product;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub(super) mod registers;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod ring;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
mod store;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Blocks of a launch: each says in a word of its own where it met what has no parts.
pub const BLOCKS: u32 = 4 * 132;
/// Parts of an element.
pub const PARTS: u32 = 3;
/// Columns of a tile of a product of parts; it has [`ROWS`] rows.
pub const COLUMNS: u32 = 128;
/// Stages of the product: room for two slices of depth.
const STAGES: u32 = 2 * PARTS;
/// Elements of a stage: a part of a slice of both operands.
const STAGE: u32 = (ROWS + COLUMNS) * DEPTH;
/// Rows and columns of results that a warp stores at a time.
const STORED: [u32; 2] = [16, 64];

/// Shared memory of a block of the product, in bytes: the stages, each warp's room for results, two barriers a stage.
pub const fn shared_bytes() -> u32 {
    2 * STAGES * STAGE + 4 * ROWS * STORED[1] + 16 * STAGES
}

/// Elements of 64 rows of a slice of an operand that is taken apart in registers.
const LEFT: u32 = 64 * DEPTH;
/// Of results that a warp of such a product stores at a time: 32 rows of 16.
const ROOM: u32 = 32 * 16;

/// Elements of all parts of a slice of the other operand.
const fn right(columns: u32) -> u32 {
    PARTS * columns * DEPTH
}

/// Slots of such a product, of tiles of so many columns: of each warpgroup for the left operand, and for the right one.
const fn slots(columns: u32) -> [u32; 2] {
    if columns == 128 { [2, 3] } else { [3, 4] }
}

/// Shared memory of a block of such a product, in bytes: the slots, each warp's room for results, two barriers a slot and two more.
pub const fn shared_bytes_in_registers(columns: u32) -> u32 {
    let [left, right_slots] = slots(columns);
    2 * right_slots * right(columns) + 4 * (2 * left * LEFT + 8 * ROOM) + 8 * (2 * right_slots + 4 * left + 2)
}

/// Rows and columns, as they lie in memory, of the box of an operand that is taken apart in registers: 64 rows of the product, or half of
/// them, over half of a slice of depth, or all of it.
pub const LEFT_BOX: [u32; 2] = [64, 32];

/// Elements that a thread takes and stores at once, and how often before it goes on.
const PIECE: u32 = 8;
const UNROLLED: u32 = 2;

impl Sizes {
    /// Rows and columns of each part in memory.
    pub const fn padded_each(self) -> [u32; 2] {
        [padded_rows(self.rows), padded_columns(self.columns)]
    }

    /// Elements of each part in memory.
    pub const fn padded(self) -> u64 {
        let [rows, columns] = self.padded_each();
        rows as u64 * columns as u64
    }
}

/// What elements are multiplied by: 2²⁴.
const SCALE: f32 = (1 << 24) as f32;
/// What a sum of products of parts is to be multiplied by.
pub const PRODUCT_SCALE: f32 = 1.0 / (SCALE * SCALE);
/// Elements below this in magnitude have parts: 2²⁸.
pub const LIMIT: f32 = (1 << 28) as f32;
/// Sums of fewer products stay in f32's range: products of parts are below 2¹⁰⁴.
pub const MOST_DEPTH: u32 = 1 << 23;

/// Rows of each part in memory.
pub const fn padded_rows(rows: u32) -> u32 {
    rows.next_multiple_of(64)
}

/// Columns of each part in memory.
pub const fn padded_columns(columns: u32) -> u32 {
    columns.next_multiple_of(8)
}

/// The parts of up to three matrices, and for each block which matrices have elements that it met and that have none: 1 for
/// `a`, 2 for `b` and 4 for `c`, together.
///
/// The grid is [`BLOCKS`] blocks, for any sizes. `first` and `second` become 0, for two products, which make it 1 where they refuse.
///
/// # Safety
/// The module `dense`'s; each matrix is of its sizes, of which [`Sizes::padded`] is below 2³³; its parts are
/// `[PARTS, padded_rows, padded_columns]` of bf16, two in a word; `refused` is `[BLOCKS]`,
/// `first` and `second` are one word each.
#[kernel(block = BLOCK, min_blocks = 4, barriers = 3)]
pub unsafe fn dense_split(
    a: Global<f32>,
    b: Option<Global<f32>>,
    c: Option<Global<f32>>,
    a_parts: GlobalMut<u32>,
    b_parts: Option<GlobalMut<u32>>,
    c_parts: Option<GlobalMut<u32>>,
    refused: GlobalMut<u32>,
    first: GlobalMut<u32>,
    second: GlobalMut<u32>,
    a_sizes: Sizes,
    b_sizes: Sizes,
    c_sizes: Sizes,
) {
    // SAFETY: the kernel's contract.
    let of_a = unsafe { split(a, a_parts, a_sizes) };
    let of_b = match (b, b_parts) {
        // SAFETY: as above.
        (Some(b), Some(parts)) => unsafe { split(b, parts, b_sizes) },
        _ => false,
    };
    let of_c = match (c, c_parts) {
        // SAFETY: as above.
        (Some(c), Some(parts)) => unsafe { split(c, parts, c_sizes) },
        _ => false,
    };
    let each = [of_a, of_b, of_c].map(|refuses| u32::from(thread::sync_threads_or(refuses)));
    if thread::thread_idx_x() == 0 {
        // SAFETY: the block's own word.
        unsafe { refused.store(thread::block_idx_x() as usize, each[0] | each[1] << 1 | each[2] << 2) };
        if thread::block_idx_x() == 0 {
            // SAFETY: one thread's of all.
            unsafe {
                first.store(0, 0);
                second.store(0, 0);
            }
        }
    }
}

/// This thread's elements of a matrix; whether any has no parts.
///
/// # Safety
/// [`dense_split`]'s, of this matrix.
#[device_inline]
unsafe fn split(source: Global<f32>, parts: GlobalMut<u32>, sizes: Sizes) -> bool {
    let Sizes { rows, columns } = sizes;
    let part = sizes.padded();
    let pieces_of_row = padded_columns(columns) / PIECE;
    let pieces = (part / PIECE as u64) as u32;
    // Then elements lie in a part as in the matrix.
    let alike = columns % PIECE == 0;
    let elements = rows as u64 * columns as u64;
    let mut refuses = false;
    let mut first = thread::block_idx_x() * (BLOCK * UNROLLED) + thread::thread_idx_x();
    while first < pieces {
        // SAFETY: all zeros is an array of floats.
        let mut values: [[Vec4<f32>; 2]; UNROLLED as usize] = unsafe { core::mem::zeroed() };
        unrolled!(U in [0 1] {
            let piece = first + U as u32 * BLOCK;
            let place = if alike { (0, 0) } else { divide(piece, pieces_of_row) };
            unrolled!(H in [0 1] {
                // SAFETY: what exists is in the matrix.
                values[U][H] = unsafe {
                    if alike {
                        let at = PIECE as u64 * piece as u64 + 4 * H as u64;
                        source.load4_if(at < elements, at as usize, Vec4::splat(0.0))
                    } else {
                        let (row, column) = (place.0, PIECE * place.1 + 4 * H as u32);
                        let quad = Quad::of_row(row < rows, column, columns);
                        quad.fetch(source, row as usize * columns as usize + column as usize)
                    }
                };
            });
        });
        unrolled!(U in [0 1] {
            // SAFETY: all zeros is an array of words.
            let mut words: [[[u32; 2]; 2]; PARTS as usize] = unsafe { core::mem::zeroed() };
            unrolled!(H in [0 1] {
                let value = values[U][H];
                // NaN is not below the limit either.
                let has_parts = value.map(|x| x.abs() < LIMIT);
                refuses |= !(has_parts.x & has_parts.y & has_parts.z & has_parts.w);
                let scaled = value.map(|x| x * SCALE);
                let (high, rest) = take(scaled);
                let (middle, rest) = take(rest);
                let (low, _) = take(rest);
                words[0][H] = high;
                words[1][H] = middle;
                words[2][H] = low;
            });
            let piece = first + U as u32 * BLOCK;
            unrolled!(P in [0 1 2] {
                let [[a, b], [c, d]] = words[P];
                let at = (P as u64 * part + PIECE as u64 * piece as u64) / 2;
                // SAFETY: the piece is this thread's in each part.
                unsafe { parts.store4_if(piece < pieces, at as usize, Vec4::new(a, b, c, d)) };
            });
        });
        // Of 2³⁰ pieces and 2¹⁹ a step the sum stays below 2³².
        first += BLOCK * UNROLLED * thread::grid_dim_x();
    }
    refuses
}

/// What bf16 holds of four numbers, as two words, and what it leaves of them.
#[device_inline]
fn take(values: Vec4<f32>) -> ([u32; 2], Vec4<f32>) {
    let words = [(values.x, values.y), (values.z, values.w)].map(|(low, high)| float::f32_to_bf16_pair(low, high));
    let [a, b] = words.map(|word| [word << 16, word & 0xffff_0000].map(f32::from_bits));
    let taken = Vec4::new(a[0], a[1], b[0], b[1]);
    (words, values.zip_with(taken, |value, taken| value - taken))
}

/// [`dense_forward`](super::dense_forward) of f32 on Hopper's tensor cores, of the parts that [`dense_split`] made of `x` first and
/// of `w` second. A grid of any size does all tiles, the block has [`shared_bytes`] of dynamic shared memory;
/// [`Shape::depth_per_split`](super::Shape::depth_per_split) is a multiple of [`DEPTH`].
///
/// Where one of the split's blocks refused, as its `refusals` say, it writes a 1 to `refused` and nothing else, otherwise a 0.
///
/// # Safety
/// The module's; `N` and `I` are at least 1 too, `I` is below [`MOST_DEPTH`], and the maps are as [`wgmma`](super::wgmma) says, of the
/// parts as one matrix.
#[kernel(block = super::wgmma::BLOCK, min_blocks = 1, barriers = 1, only = "sm_90a")]
pub unsafe fn dense_forward_split(
    x: Global<u32>,
    w: Global<u32>,
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    y: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    b: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    activation: u32,
    x_map: TensorMap,
    w_map: TensorMap,
) {
    let _ = (x, w);
    let epilogue = super::product::Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    let a = product::Parts { map: x_map, rows: padded_rows(shape.rows) };
    let b = product::Parts { map: w_map, rows: padded_rows(shape.columns) };
    // SAFETY: the module's contract.
    unsafe { product::product::<true, true, 0b011>([a, b], refusals, refused, epilogue, parts, shape, splits) }
}

/// [`dense_dx`](super::dense_dx) of f32 on Hopper's tensor cores, as [`dense_forward_split`]: of `dz` first and of `w` second.
///
/// # Safety
/// As [`dense_forward_split`], with `O` in place of `I`.
#[kernel(block = super::wgmma::BLOCK, min_blocks = 1, barriers = 1, only = "sm_90a")]
pub unsafe fn dense_dx_split(
    dz: Global<u32>,
    w: Global<u32>,
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    dx: GlobalMut<f32>,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    beta: f32,
    dz_map: TensorMap,
    w_map: TensorMap,
) {
    let _ = (dz, w);
    let a = product::Parts { map: dz_map, rows: padded_rows(shape.rows) };
    let b = product::Parts { map: w_map, rows: padded_rows(shape.depth) };
    // SAFETY: the module's contract.
    unsafe {
        product::product::<true, false, 0b011>(
            [a, b],
            refusals,
            refused,
            super::product::Epilogue::sum(dx, beta),
            parts,
            shape,
            splits,
        )
    }
}

/// [`dense_dw`](super::dense_dw) of f32 on Hopper's tensor cores, as [`dense_forward_split`]: of `dz` first and of `x` third.
///
/// # Safety
/// As [`dense_forward_split`], with `N` in place of `I`.
#[kernel(block = super::wgmma::BLOCK, min_blocks = 1, barriers = 1, only = "sm_90a")]
pub unsafe fn dense_dw_split(
    dz: Global<u32>,
    x: Global<u32>,
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    dw: GlobalMut<f32>,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    beta: f32,
    dz_map: TensorMap,
    x_map: TensorMap,
) {
    let _ = (dz, x);
    let a = product::Parts { map: dz_map, rows: padded_rows(shape.depth) };
    let b = product::Parts { map: x_map, rows: padded_rows(shape.depth) };
    // SAFETY: the module's contract.
    unsafe {
        product::product::<false, false, 0b101>(
            [a, b],
            refusals,
            refused,
            super::product::Epilogue::sum(dw, beta),
            parts,
            shape,
            splits,
        )
    }
}

/// [`dense_forward_split`] of the parts of `x`, which [`dense_split`] made of it first, and of `w` as it lies: its parts are made in registers.
/// In tiles of 128 outputs and so many of the batch; the block has [`shared_bytes_in_registers`] of dynamic shared memory.
///
/// Where `x` is refused, or an element of `w` has no parts, it writes a 1 to `refused`, which was 0, and anything or nothing to `y`, `z` and `parts`.
///
/// # Safety
/// As [`dense_forward_split`], but that `I` is a multiple of 4, and the map of `w` is its own, with boxes of [`LEFT_BOX`].
#[kernel(
    block = super::wgmma::BLOCK,
    min_blocks = 1,
    barriers = 1,
    begins = "itself",
    only = "sm_90a",
    instances(COLUMNS = [64, 128])
)]
pub unsafe fn dense_forward_split_registers<const COLUMNS: u32>(
    x: Global<u32>,
    w: Global<f32>,
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    y: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    b: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    activation: u32,
    x_map: TensorMap,
    w_map: TensorMap,
) {
    let _ = (x, w);
    let epilogue = super::product::Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    let x = product::Parts { map: x_map, rows: padded_rows(shape.rows) };
    // SAFETY: the module's contract.
    unsafe { registers::product::<COLUMNS, true, true>(w_map, x, refusals, refused, epilogue, parts, shape, splits) }
}

/// [`dense_dx_split`], or else [`dense_dw_split`], of the parts of `dz`, which [`dense_split`] made of it first, and of `w`, or `x`, as it lies, as
/// [`dense_forward_split_registers`].
///
/// # Safety
/// As [`dense_forward_split_registers`], with the map of `other` in place of that of `w`; `beta` is 0, or there are `parts`.
#[kernel(
    block = super::wgmma::BLOCK,
    min_blocks = 1,
    barriers = 1,
    begins = "itself",
    only = "sm_90a",
    instances(COLUMNS = [64, 128], OF_DX = [true, false])
)]
pub unsafe fn dense_gradient_split_registers<const COLUMNS: u32, const OF_DX: bool>(
    dz: Global<u32>,
    other: Global<f32>,
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    out: GlobalMut<f32>,
    parts: Option<GlobalMut<f32>>,
    shape: super::Shape,
    splits: u32,
    beta: f32,
    dz_map: TensorMap,
    other_map: TensorMap,
) {
    let _ = (dz, other);
    let epilogue = super::product::Epilogue::sum(out, beta);
    let dz = product::Parts { map: dz_map, rows: padded_rows(if OF_DX { shape.rows } else { shape.depth }) };
    // SAFETY: the module's contract.
    unsafe {
        registers::product::<COLUMNS, false, OF_DX>(other_map, dz, refusals, refused, epilogue, parts, shape, splits)
    }
}
