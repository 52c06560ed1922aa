//! Fully connected layer: `y = act(x · wᵀ + b)`, `x: [N, I]`, `w: [O, I]`, `b: [O]`; backward `dx = dz · w`,
//! `dw = dzᵀ · x`, `db = sum over n of dz`, `dalpha = sum of z dy where not z > 0`, with `dz = act'(z) dy`.
//!
//! Memory holds f32, f16 or bf16; arithmetic is f32, and each result is rounded once, so are `z`, which waits for the backward
//! pass, and `dz`, which is of the type that the products take. Parts of a sum are f32, as the slopes are.
//!
//! The three products are one body over operands that are read as they lie, rows or columns first: nothing is transposed in memory. Each
//! has an entry for tiles of 128 × 128 and one for 64 × 64, which small products need to fill the GPU (of f32 by `multistage.rs`, of 16-bit floats,
//! which are widened on their way, by [`product`](mod@product)), and one for 32 × 32 (`sliced.rs`), for still smaller ones. Of 16-bit
//! floats there is another body ([`mma`]), by tensor cores, where rows are whole pieces of 16 bytes, with entries for
//! tiles of 128 × 256 too; and one by Hopper's tensor cores ([`wgmma`]), in PTX for `sm_90a` alone, where rows of the
//! result are whole pieces too. There f32 goes by parts of bf16 ([`split`]) or as tf32 ([`tf32`](mod@tf32)), where these are
//! asked for, or else by a body of its own ([`ffma`]). The depth can be split over the grid's z: then each split
//! writes its sums to a part of its own, and [`dense_finish`] adds the parts in order and does the rest.
//! `dz` is made once, with the sums of `db` and `dalpha` ([`sums`]); of the identity it is `dy`.
//!
//! Resources: the products by f32 arithmetic are bound by FFMA (each element one chain of fused multiply-adds in the order of the depth, or
//! two or eight such chains), the others by memory; [`mma`] and [`wgmma`] say what bounds their own.
//!
//! # Safety
//! Buffers begin at multiples of 16 bytes and hold what their shapes say; every size but the depth and the batch is at
//! least 1, and all are below 2³¹; [`Shape::depth_per_split`] is a multiple of [`DEPTH`] ([`mma::depth`], [`wgmma::DEPTH`]); the grid is
//! as each kernel says, that of small tiles with x and y swapped where [`columns_along_x`].

pub mod ffma;
mod finish;
mod fragments;
pub mod mma;
mod multistage;
mod order;
pub mod product;
mod quad;
mod sliced;
pub mod split;
pub mod sums;
pub mod tf32;
pub mod wgmma;

use cuda_std::arch::sm_80::Half;
use cuda_std::grid;
use cuda_std::prelude::*;

pub use self::finish::*;
use self::product::Epilogue;
pub use self::product::{DEPTH, MAX_GRID_Y, Shape, columns_along_x};

/// `act` is the identity.
pub const IDENTITY: u32 = 0;
/// `act` is ReLU.
pub const RELU: u32 = 1;
/// `act` is PReLU with one slope for all outputs.
pub const PRELU_SHARED: u32 = 2;
/// `act` is PReLU with one slope for each output.
pub const PRELU_EACH: u32 = 3;

/// Side of the large tiles: a thread computes 8 × 8 elements.
pub const LARGE: u32 = 128;
/// Side of the small tiles: a thread computes 8 × 4 elements, or of f32 8 × 8 over half of the depth.
pub const SMALL: u32 = 64;
/// Side of the tiles whose depth a block's warps share.
pub const SLICED: u32 = 32;

/// The sizes of a matrix that a kernel splits or turns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Its rows.
    pub rows: u32,
    /// Its columns.
    pub columns: u32,
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Sizes {}

/// Threads of a block that computes a tile.
pub const fn block(side: u32) -> u32 {
    if side == SLICED { sliced::WARPS * warp::WARP_SIZE } else { 2 * side }
}

/// Blocks that a multiprocessor holds at once; fixes how many registers a thread may use.
pub const fn per_multiprocessor(side: u32) -> u32 {
    if side == SMALL { 4 } else { 2 }
}

/// Barriers in the source of such an entry.
pub const fn barriers(side: u32) -> u32 {
    match side {
        SLICED => 1,
        SMALL => 4,
        _ => 2,
    }
}

/// The block's tile of a product, by the body for tiles of this side. Where there is `refused` and it is 0, nothing is done: another
/// kernel has made the product.
///
/// # Safety
/// The module's.
#[device_inline]
unsafe fn tile<T: Storage, const SIDE: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: Global<T>,
    b: Global<T>,
    refused: Option<Global<u32>>,
    epilogue: Epilogue<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
) {
    let by_copies = SIDE != SLICED && size_of::<T>() == size_of::<f32>();
    if by_copies {
        grid::wait()
    } else {
        grid::begin()
    }
    if let Some(refused) = refused {
        // SAFETY: one word, which a kernel before this one wrote.
        if unsafe { refused.load(0) } == 0 {
            return;
        }
    }
    // SAFETY: the caller's.
    unsafe {
        if SIDE == SLICED {
            sliced::product::<T, A_DEPTH_INNER, B_DEPTH_INNER>(a, b, epilogue, parts, shape);
        } else if by_copies {
            // Of the types in memory one has 4 bytes.
            multistage::product::<T, SIDE, A_DEPTH_INNER, B_DEPTH_INNER>(a.cast(), b.cast(), epilogue, parts, shape);
        } else {
            product::product::<T, SIDE, A_DEPTH_INNER, B_DEPTH_INNER>(a, b, epilogue, parts, shape);
        }
    }
}

/// `y = act(x · wᵀ + b)`, and `z`, before the activation, where it is asked for. `shape` is `[N, O, I]`; the grid is
/// `[tiles of N, tiles of O, splits]`.
///
/// With splits there are `parts: [splits, N, O]`, and the sums go there and nowhere else. Where there is `refused` and it is
/// 0, nothing is done: another kernel has made the product ([`split`]).
///
/// # Safety
/// The module's.
#[kernel(
    block = block(SIDE),
    min_blocks = per_multiprocessor(SIDE),
    barriers = barriers(SIDE),
    begins = "itself",
    instances(T = [f32, f16, bf16], SIDE = [32, 64, 128])
)]
pub unsafe fn dense_forward<T: Storage, const SIDE: u32>(
    x: Global<T>,
    w: Global<T>,
    y: GlobalMut<T>,
    z: Option<GlobalMut<T>>,
    b: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    parts: Option<GlobalMut<f32>>,
    refused: Option<Global<u32>>,
    shape: Shape,
    activation: u32,
) {
    let epilogue = Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    // SAFETY: the module's contract.
    unsafe { tile::<T, SIDE, true, true>(x, w, refused, epilogue, parts, shape) }
}

/// `dx = dz · w + beta * dx`. `shape` is `[N, I, O]`; the grid is `[tiles of N, tiles of I, splits]`.
///
/// With splits there are `parts: [splits, N, I]`, and the sums go there and nowhere else.
///
/// # Safety
/// The module's.
#[kernel(
    block = block(SIDE),
    min_blocks = per_multiprocessor(SIDE),
    barriers = barriers(SIDE),
    begins = "itself",
    instances(T = [f32, f16, bf16], SIDE = [32, 64, 128])
)]
pub unsafe fn dense_dx<T: Storage, const SIDE: u32>(
    dz: Global<T>,
    w: Global<T>,
    dx: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    refused: Option<Global<u32>>,
    shape: Shape,
    beta: f32,
) {
    // SAFETY: the module's contract.
    unsafe { tile::<T, SIDE, true, false>(dz, w, refused, Epilogue::sum(dx, beta), parts, shape) }
}

/// `dw = dzᵀ · x + beta * dw`. `shape` is `[O, I, N]`; the grid is `[tiles of O, tiles of I, splits]`.
///
/// With splits there are `parts: [splits, O, I]`, and the sums go there and nowhere else.
///
/// # Safety
/// The module's.
#[kernel(
    block = block(SIDE),
    min_blocks = per_multiprocessor(SIDE),
    barriers = barriers(SIDE),
    begins = "itself",
    instances(T = [f32, f16, bf16], SIDE = [32, 64, 128])
)]
pub unsafe fn dense_dw<T: Storage, const SIDE: u32>(
    dz: Global<T>,
    x: Global<T>,
    dw: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    refused: Option<Global<u32>>,
    shape: Shape,
    beta: f32,
) {
    // SAFETY: the module's contract.
    unsafe { tile::<T, SIDE, false, false>(dz, x, refused, Epilogue::sum(dw, beta), parts, shape) }
}

/// [`dense_forward`] on tensor cores. `I` is a multiple of [`mma::PIECE`], [`Shape::depth_per_split`] of [`mma::depth`];
/// the grid is `[tiles, 1, splits]`, the block has [`mma::shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// The module's.
#[kernel(
    block = mma::block(TILE),
    min_blocks = mma::per_multiprocessor(TILE),
    barriers = 3,
    instances(T = [f16, bf16], TILE = [64, 128, 256])
)]
pub unsafe fn dense_forward_mma<T: Half, const TILE: u32>(
    x: Global<T>,
    w: Global<T>,
    y: GlobalMut<T>,
    z: Option<GlobalMut<T>>,
    b: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    activation: u32,
) {
    let epilogue = Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    // SAFETY: the module's contract.
    unsafe { mma::product::<T, TILE, true, true>(x, w, epilogue, parts, shape) }
}

/// [`dense_dx`] on tensor cores, as [`dense_forward_mma`]; `O` and `I` are multiples of [`mma::PIECE`].
///
/// # Safety
/// The module's.
#[kernel(
    block = mma::block(TILE),
    min_blocks = mma::per_multiprocessor(TILE),
    barriers = 3,
    instances(T = [f16, bf16], TILE = [64, 128, 256])
)]
pub unsafe fn dense_dx_mma<T: Half, const TILE: u32>(
    dz: Global<T>,
    w: Global<T>,
    dx: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    beta: f32,
) {
    // SAFETY: the module's contract.
    unsafe { mma::product::<T, TILE, true, false>(dz, w, Epilogue::sum(dx, beta), parts, shape) }
}

/// [`dense_dw`] on tensor cores, as [`dense_forward_mma`]; `O` and `I` are multiples of [`mma::PIECE`].
///
/// # Safety
/// The module's.
#[kernel(
    block = mma::block(TILE),
    min_blocks = mma::per_multiprocessor(TILE),
    barriers = 3,
    instances(T = [f16, bf16], TILE = [64, 128, 256])
)]
pub unsafe fn dense_dw_mma<T: Half, const TILE: u32>(
    dz: Global<T>,
    x: Global<T>,
    dw: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    beta: f32,
) {
    // SAFETY: the module's contract.
    unsafe { mma::product::<T, TILE, false, false>(dz, x, Epilogue::sum(dw, beta), parts, shape) }
}

/// [`dense_forward`] on Hopper's tensor cores. `I` and `O` are multiples of [`wgmma::PIECE`], [`Shape::depth_per_split`] of
/// [`wgmma::DEPTH`]. Clusters are of blocks one below the other (x) and side by side (y) which
/// share what they copy ([`wgmma::may_share`]), and so is the grid: any number along x does all tiles, and y is one cluster's. With `PARTS`
/// clusters are of as many blocks along x, one cluster for each tile. The block has [`wgmma::shared_bytes`] of dynamic shared memory.
///
/// `COLUMNS` and `HEIGHT` make a tile ([`wgmma::tile`]). `PARTS` blocks of a cluster share its depth, [`Shape::depth_per_split`]
/// each; `splits` is then 1.
///
/// # Safety
/// The module's; `N` and `I` are at least 1 too; the maps are of the operands, with the boxes of [`wgmma::operand_box`] for a tile's
/// rows and columns, or for the part of them that a block brings, or for the [`wgmma::edge`] of what the matrix has of them, pieces swapped
/// within 128 bytes.
#[kernel(
    block = wgmma::block(HEIGHT),
    min_blocks = 1,
    begins = "itself",
    only = "sm_90a",
    instances(
        T = [f16, bf16],
        (COLUMNS, HEIGHT, PARTS) = [
            (64, 2, 1), (64, 2, 2), (64, 2, 4), (64, 1, 1), (64, 1, 2), (64, 1, 4),
            (96, 2, 1), (128, 2, 1), (128, 2, 2), (128, 2, 4), (144, 2, 1), (168, 2, 1), (192, 2, 1),
            (224, 2, 1), (256, 2, 1), (128, 3, 1), (192, 3, 1)
        ]
    )
)]
pub unsafe fn dense_forward_wgmma<T: Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
    x: Global<T>,
    w: Global<T>,
    y: GlobalMut<T>,
    z: Option<GlobalMut<T>>,
    b: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
    activation: u32,
    x_map: TensorMap,
    x_edge: TensorMap,
    w_map: TensorMap,
    w_edge: TensorMap,
) {
    let _ = (x, w);
    let epilogue = Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    let maps = [[x_map, x_edge], [w_map, w_edge]];
    // SAFETY: the module's contract.
    unsafe {
        wgmma::product::<T, COLUMNS, HEIGHT, PARTS, false, true, true>(COLUMNS, maps, epilogue, parts, shape, splits)
    }
}

/// [`dense_dx`] on Hopper's tensor cores, as [`dense_forward_wgmma`].
///
/// # Safety
/// As [`dense_forward_wgmma`], with `O` in place of `I`.
#[kernel(
    block = wgmma::block(HEIGHT),
    min_blocks = 1,
    begins = "itself",
    only = "sm_90a",
    instances(
        T = [f16, bf16],
        (COLUMNS, HEIGHT, PARTS) = [
            (64, 2, 1), (64, 2, 2), (64, 2, 4), (64, 1, 1), (64, 1, 2), (64, 1, 4),
            (96, 2, 1), (128, 2, 1), (128, 2, 2), (128, 2, 4), (192, 2, 1), (224, 2, 1), (256, 2, 1),
            (128, 3, 1), (192, 3, 1)
        ]
    )
)]
pub unsafe fn dense_dx_wgmma<T: Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
    dz: Global<T>,
    w: Global<T>,
    dx: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
    beta: f32,
    dz_map: TensorMap,
    dz_edge: TensorMap,
    w_map: TensorMap,
) {
    let _ = (dz, w);
    let maps = [[dz_map, dz_edge], [w_map, w_map]];
    // SAFETY: the module's contract.
    unsafe {
        let epilogue = Epilogue::sum(dx, beta);
        wgmma::product::<T, COLUMNS, HEIGHT, PARTS, false, true, false>(COLUMNS, maps, epilogue, parts, shape, splits)
    }
}

/// [`dense_dw`] on Hopper's tensor cores, as [`dense_forward_wgmma`].
///
/// # Safety
/// As [`dense_forward_wgmma`].
#[kernel(
    block = wgmma::block(HEIGHT),
    min_blocks = 1,
    begins = "itself",
    only = "sm_90a",
    instances(
        T = [f16, bf16],
        (COLUMNS, HEIGHT, PARTS) = [
            (64, 2, 1), (64, 2, 2), (64, 2, 4), (64, 1, 1), (64, 1, 2), (64, 1, 4),
            (96, 2, 1), (128, 2, 1), (128, 2, 2), (128, 2, 4), (144, 2, 1), (168, 2, 1), (192, 2, 1),
            (224, 2, 1), (256, 2, 1), (128, 3, 1), (192, 3, 1)
        ]
    )
)]
pub unsafe fn dense_dw_wgmma<T: Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
    dz: Global<T>,
    x: Global<T>,
    dw: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
    beta: f32,
    dz_map: TensorMap,
    x_map: TensorMap,
) {
    let _ = (dz, x);
    let maps = [[dz_map, dz_map], [x_map, x_map]];
    // SAFETY: the module's contract.
    unsafe {
        let epilogue = Epilogue::sum(dw, beta);
        wgmma::product::<T, COLUMNS, HEIGHT, PARTS, false, false, false>(COLUMNS, maps, epilogue, parts, shape, splits)
    }
}

/// [`dense_dx_wgmma`] by tiles whose warpgroups have `width` columns, one of the [`wgmma::widths`] up to `MOST`.
///
/// # Safety
/// As [`dense_dx_wgmma`]; `width` is as it says.
#[kernel(
    block = wgmma::block(HEIGHT),
    min_blocks = 1,
    begins = "itself",
    only = "sm_90a",
    instances(T = [f16, bf16], (MOST, HEIGHT) = [(256, 2), (200, 3)])
)]
pub unsafe fn dense_dx_widths<T: Half, const MOST: u32, const HEIGHT: u32>(
    dz: Global<T>,
    w: Global<T>,
    dx: GlobalMut<T>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
    width: u32,
    beta: f32,
    dz_map: TensorMap,
    dz_edge: TensorMap,
    w_map: TensorMap,
) {
    let _ = (dz, w);
    let maps = [[dz_map, dz_edge], [w_map, w_map]];
    // SAFETY: the module's contract.
    unsafe {
        let epilogue = Epilogue::sum(dx, beta);
        wgmma::product::<T, MOST, HEIGHT, 1, true, true, false>(width, maps, epilogue, parts, shape, splits)
    }
}
