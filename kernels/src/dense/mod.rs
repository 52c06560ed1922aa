//! Fully connected layer: `y = act(x · wᵀ + b)`, `x: [N, I]`, `w: [O, I]`, `b: [O]`; backward `dx = dz · w`,
//! `dw = dzᵀ · x`, `db = sum over n of dz`, `dalpha = sum of z dy where not z > 0`, with `dz = act'(z) dy`.
//!
//! The three products are one body ([`product`](mod@product)) over operands that are read as they lie, rows or columns
//! first: nothing is transposed in memory. Each has a kernel for tiles of 128 × 128 and one for 64 × 64, which small
//! products need to fill the GPU. The depth can be split over the grid's z: then each split writes its sums to a part of
//! its own, and [`dense_finish_f32`] adds the parts in order and does the rest. `dz` is made once, with the sums of `db`
//! and `dalpha` ([`sums`]).
//!
//! Resources: the products are bound by FFMA (f32, each element one chain of fused multiply-adds in the order of the
//! depth), the others by memory.
//!
//! # Safety
//! Buffers begin at multiples of 16 bytes and hold what their shapes say; every size but the depth and the batch is at
//! least 1 and below 2³¹; [`Shape::depth_per_split`] is a multiple of [`DEPTH`]; the grid is as each kernel says.

pub mod product;
mod quad;
pub mod sums;

use cuda_std::prelude::*;

pub use self::product::{DEPTH, Shape};
use self::product::{Epilogue, product};
use self::quad::Quad;

/// `act` is the identity.
pub const IDENTITY: u32 = 0;
/// `act` is ReLU.
pub const RELU: u32 = 1;
/// `act` is PReLU with one slope for all outputs.
pub const PRELU_SHARED: u32 = 2;
/// `act` is PReLU with one slope for each output.
pub const PRELU_EACH: u32 = 3;

/// Side of the large tiles.
pub const LARGE: u32 = 128;
/// Side of the small tiles.
pub const SMALL: u32 = 64;
/// Threads of a block that computes a large tile: 8 × 8 elements each.
pub const LARGE_BLOCK: u32 = 2 * LARGE;
/// Threads of a block that computes a small tile: 8 × 4 elements each.
pub const SMALL_BLOCK: u32 = 2 * SMALL;

/// Blocks of each kind that a multiprocessor holds at once; fixes how many registers a thread may use.
pub const LARGE_PER_MULTIPROCESSOR: u32 = 2;
/// As [`LARGE_PER_MULTIPROCESSOR`].
pub const SMALL_PER_MULTIPROCESSOR: u32 = 5;

/// `y = act(x · wᵀ + b)`, and `z`, before the activation, where it is asked for. `shape` is `[N, O, I]`; the grid is
/// `[N / 128, O / 128, splits]`, rounded up.
///
/// With splits, `y` is the parts `[splits, N, O]`, and there is no `b`, no `z` and no activation.
///
/// # Safety
/// The module's.
#[kernel(block = LARGE_BLOCK, min_blocks = LARGE_PER_MULTIPROCESSOR, barriers = 2)]
pub unsafe fn dense_forward_f32_t128(
    x: Global<f32>,
    w: Global<f32>,
    y: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    b: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    shape: Shape,
    activation: u32,
) {
    let shared = shared_array![f32; product::shared_elements(LARGE)];
    let epilogue = Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    // SAFETY: the module's contract.
    unsafe { product::<{ LARGE }, 2, true, true>(x, w, epilogue, shape, shared.handle()) }
}

/// [`dense_forward_f32_t128`] in tiles of 64 × 64.
///
/// # Safety
/// The module's.
#[kernel(block = SMALL_BLOCK, min_blocks = SMALL_PER_MULTIPROCESSOR, barriers = 2)]
pub unsafe fn dense_forward_f32_t64(
    x: Global<f32>,
    w: Global<f32>,
    y: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    b: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    shape: Shape,
    activation: u32,
) {
    let shared = shared_array![f32; product::shared_elements(SMALL)];
    let epilogue = Epilogue { out: y, beta: 0.0, z, b, alpha, activation };
    // SAFETY: the module's contract.
    unsafe { product::<{ SMALL }, 1, true, true>(x, w, epilogue, shape, shared.handle()) }
}

/// `dx = dz · w + beta * dx`. `shape` is `[N, I, O]`; the grid is `[N / 128, I / 128, splits]`, rounded up.
///
/// With splits, `dx` is the parts `[splits, N, I]`, and `beta` is 0.
///
/// # Safety
/// The module's.
#[kernel(block = LARGE_BLOCK, min_blocks = LARGE_PER_MULTIPROCESSOR, barriers = 2)]
pub unsafe fn dense_dx_f32_t128(dz: Global<f32>, w: Global<f32>, dx: GlobalMut<f32>, shape: Shape, beta: f32) {
    let shared = shared_array![f32; product::shared_elements(LARGE)];
    // SAFETY: the module's contract.
    unsafe { product::<{ LARGE }, 2, true, false>(dz, w, Epilogue::sum(dx, beta), shape, shared.handle()) }
}

/// [`dense_dx_f32_t128`] in tiles of 64 × 64.
///
/// # Safety
/// The module's.
#[kernel(block = SMALL_BLOCK, min_blocks = SMALL_PER_MULTIPROCESSOR, barriers = 2)]
pub unsafe fn dense_dx_f32_t64(dz: Global<f32>, w: Global<f32>, dx: GlobalMut<f32>, shape: Shape, beta: f32) {
    let shared = shared_array![f32; product::shared_elements(SMALL)];
    // SAFETY: the module's contract.
    unsafe { product::<{ SMALL }, 1, true, false>(dz, w, Epilogue::sum(dx, beta), shape, shared.handle()) }
}

/// `dw = dzᵀ · x + beta * dw`. `shape` is `[O, I, N]`; the grid is `[O / 128, I / 128, splits]`, rounded up.
///
/// With splits, `dw` is the parts `[splits, O, I]`, and `beta` is 0.
///
/// # Safety
/// The module's.
#[kernel(block = LARGE_BLOCK, min_blocks = LARGE_PER_MULTIPROCESSOR, barriers = 2)]
pub unsafe fn dense_dw_f32_t128(dz: Global<f32>, x: Global<f32>, dw: GlobalMut<f32>, shape: Shape, beta: f32) {
    let shared = shared_array![f32; product::shared_elements(LARGE)];
    // SAFETY: the module's contract.
    unsafe { product::<{ LARGE }, 2, false, false>(dz, x, Epilogue::sum(dw, beta), shape, shared.handle()) }
}

/// [`dense_dw_f32_t128`] in tiles of 64 × 64.
///
/// # Safety
/// The module's.
#[kernel(block = SMALL_BLOCK, min_blocks = SMALL_PER_MULTIPROCESSOR, barriers = 2)]
pub unsafe fn dense_dw_f32_t64(dz: Global<f32>, x: Global<f32>, dw: GlobalMut<f32>, shape: Shape, beta: f32) {
    let shared = shared_array![f32; product::shared_elements(SMALL)];
    // SAFETY: the module's contract.
    unsafe { product::<{ SMALL }, 1, false, false>(dz, x, Epilogue::sum(dw, beta), shape, shared.handle()) }
}

/// Threads of a block of [`dense_finish_f32`].
pub const FINISH_BLOCK: u32 = 256;
/// Columns of its tile: four for each lane of a warp.
pub const FINISH_COLUMNS: u32 = 4 * warp::WARP_SIZE;
/// Rows of its tile: one for each warp.
pub const FINISH_ROWS: u32 = FINISH_BLOCK / warp::WARP_SIZE;

/// What a product that was split leaves to do: `out = act(sum of the parts + b) + beta * out`, the parts in order.
///
/// `shape` is the product's; the grid is `[rows / FINISH_ROWS, columns / FINISH_COLUMNS]`, rounded up.
///
/// # Safety
/// The module's; `parts` is `[splits, rows, columns]`.
#[kernel(block = FINISH_BLOCK)]
pub unsafe fn dense_finish_f32(
    parts: Global<f32>,
    out: GlobalMut<f32>,
    z: Option<GlobalMut<f32>>,
    b: Option<Global<f32>>,
    alpha: Option<Global<f32>>,
    shape: Shape,
    splits: u32,
    activation: u32,
    beta: f32,
) {
    let (lane, warp) = (thread::thread_idx_x() % warp::WARP_SIZE, thread::thread_idx_x() / warp::WARP_SIZE);
    let row = thread::block_idx_x() * FINISH_ROWS + warp;
    let column = thread::block_idx_y() * FINISH_COLUMNS + 4 * lane;
    if row >= shape.rows || column >= shape.columns {
        return;
    }
    let quad = Quad::of_row(true, column, shape.columns);
    let at = row as usize * shape.columns as usize + column as usize;
    let size = shape.rows as usize * shape.columns as usize;
    let mut sum = Vec4::splat(0.0);
    let mut split = 0;
    // SAFETY: the row and the quad's columns exist, in each of the parts.
    unsafe {
        while split < splits {
            sum = sum.zip_with(quad.load(parts, split as usize * size + at), |sum, part| sum + part);
            split += 1;
        }
        let epilogue = Epilogue { out, beta, z, b, alpha, activation };
        epilogue.put(at, quad, sum, epilogue.column_values(column, quad));
    }
}
