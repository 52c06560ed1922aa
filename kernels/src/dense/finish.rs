//! What a product that was split leaves to do: `out = act(sum of the parts + b) + beta * out`, the parts in order, four columns a thread.
//!
//! Two kernels, which differ in when the next grid's blocks are let in. Bound by memory.

use cuda_std::grid;
use cuda_std::prelude::*;

use super::product::{Epilogue, Shape};
use super::quad::Quad;

/// Threads of a block of [`dense_finish`].
pub const FINISH_BLOCK: u32 = 256;
/// Columns of its tile: four for each lane of a warp.
pub const FINISH_COLUMNS: u32 = 4 * warp::WARP_SIZE;
/// Rows of its tile: one for each warp.
pub const FINISH_ROWS: u32 = FINISH_BLOCK / warp::WARP_SIZE;

/// Parts that a thread of it loads before it adds them.
const FINISH_AT_ONCE: u32 = 8;

/// What a product that was split leaves to do.
///
/// `shape` is the product's; the grid is `[rows / FINISH_ROWS, columns / FINISH_COLUMNS]`, rounded up. Where there is `refused`
/// and it is not 0, there are `splits_if_refused` parts instead. Of a single part there is nothing left to do.
///
/// # Safety
/// The module `dense`'s; `parts` is `[splits, rows, columns]`.
#[kernel(block = FINISH_BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn dense_finish<T: Storage>(
    parts: Global<f32>,
    out: GlobalMut<T>,
    z: Option<GlobalMut<T>>,
    b: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    refused: Option<Global<u32>>,
    shape: Shape,
    splits: u32,
    splits_if_refused: u32,
    activation: u32,
    beta: f32,
) {
    // SAFETY: the kernel's contract.
    unsafe { finish(parts, out, z, b, alpha, refused, shape, splits, splits_if_refused, activation, beta) }
}

/// [`dense_finish`], which lets the next grid in when it ends: of parts of products by f32 arithmetic, for what comes next is then often such a
/// product, whose blocks would sit together on a few multiprocessors (`multistage.rs`).
///
/// # Safety
/// [`dense_finish`]'s.
#[kernel(block = FINISH_BLOCK, begins = "itself", instances(T = [f32, f16, bf16]))]
pub unsafe fn dense_finish_late<T: Storage>(
    parts: Global<f32>,
    out: GlobalMut<T>,
    z: Option<GlobalMut<T>>,
    b: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    refused: Option<Global<u32>>,
    shape: Shape,
    splits: u32,
    splits_if_refused: u32,
    activation: u32,
    beta: f32,
) {
    grid::wait();
    // SAFETY: the kernel's contract.
    unsafe { finish(parts, out, z, b, alpha, refused, shape, splits, splits_if_refused, activation, beta) }
}

/// Adds this thread's parts, of as many `splits` as were made, or as there are if the product of operands' parts was refused.
///
/// # Safety
/// [`dense_finish`]'s.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "what two kernels take")]
unsafe fn finish<T: Storage>(
    parts: Global<f32>,
    out: GlobalMut<T>,
    z: Option<GlobalMut<T>>,
    b: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    refused: Option<Global<u32>>,
    shape: Shape,
    splits: u32,
    splits_if_refused: u32,
    activation: u32,
    beta: f32,
) {
    let splits = match refused {
        // SAFETY: one word, which a kernel before this one wrote.
        Some(refused) if unsafe { refused.load(0) } != 0 => splits_if_refused,
        _ => splits,
    };
    if splits < 2 {
        return;
    }
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
        // Several on their way at a time: one after another, each would be waited for.
        while split < splits {
            let mut loaded = [sum; FINISH_AT_ONCE as usize];
            unrolled!(S in [0 1 2 3 4 5 6 7] {
                let split = split + S as u32;
                if split < splits { loaded[S] = quad.load(parts, split as usize * size + at); }
            });
            unrolled!(S in [0 1 2 3 4 5 6 7] {
                if split + (S as u32) < splits { sum = sum.zip_with(loaded[S], |sum, part| sum + part); }
            });
            split += FINISH_AT_ONCE;
        }
        let epilogue = Epilogue { out, beta, z, b, alpha, activation };
        epilogue.put(at, quad, sum, epilogue.column_values(column, quad));
    }
}
