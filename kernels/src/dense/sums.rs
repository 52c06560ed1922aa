//! `dz` from `dy`, and sums over the batch.
//!
//! A matrix is cut into strips of [`STRIP`] columns, one for each lane of a warp, and a strip into chunks of rows, one
//! block each. A block's eight warps take every eighth row; their sums are added in order through shared memory. The
//! chunks' sums are added by a second kernel, the same way. Bound by memory.

use cuda_std::prelude::*;

use super::{PRELU_EACH, PRELU_SHARED, RELU};
use crate::elementwise::put;
use crate::reduce::block_sum;

/// Columns of a strip.
pub const STRIP: u32 = warp::WARP_SIZE;
/// Rows that a block takes at once, one for each warp.
pub const ROWS: u32 = 8;
/// Threads of a block.
pub const BLOCK: u32 = STRIP * ROWS;

/// Repeated reads in flight for each thread: loads first, arithmetic after.
const AT_ONCE: usize = 4;

/// Calls `load` and then `take` for this warp's rows from `begin` on, several loads ahead of their use. `load` is also
/// called for rows from `end` on, with `false`.
#[device_inline]
fn each_row<V: Copy>(begin: u32, end: u32, load: impl Fn(u32, bool) -> V, mut take: impl FnMut(u32, bool, V)) {
    let mut row = begin + thread::thread_idx_x() / STRIP;
    while row < end {
        let rows: [u32; AT_ONCE] = [row, row + ROWS, row + 2 * ROWS, row + 3 * ROWS];
        let values = rows.map(|row| load(row, row < end));
        take(rows[0], rows[0] < end, values[0]);
        take(rows[1], rows[1] < end, values[1]);
        take(rows[2], rows[2] < end, values[2]);
        take(rows[3], rows[3] < end, values[3]);
        row += AT_ONCE as u32 * ROWS;
    }
}

/// The warps' sums of a column, added in the warps' order.
///
/// # Safety
/// All warps have stored theirs, `sums[warp][lane]`, before a barrier.
#[device_inline]
unsafe fn over_warps(sums: Shared<f32>, lane: u32) -> f32 {
    let mut total = 0.0;
    let mut warp = 0;
    while warp < ROWS {
        // SAFETY: one of `ROWS * STRIP` elements, stored as the caller says.
        total += unsafe { sums.load(warp * STRIP + lane) };
        warp += 1;
    }
    total
}

/// Sizes of the matrix, and of a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows of the matrix.
    pub rows: u32,
    /// Its columns.
    pub columns: u32,
    /// Rows of a chunk.
    pub chunk: u32,
    /// The activation.
    pub activation: u32,
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Rows {}

/// `dz = act'(z) dy`, and each chunk's sums of `dz` and of `z dy where not z > 0`, over its rows: each where asked for.
///
/// `dz` is rounded to `T`, its sums are of what it was before. The slope comes of what was `saved`: `y` for ReLU, `z` for PReLU;
/// the identity has 1. `db` is `[chunks, columns]`; `dalpha` too, or `[chunks, strips]` for a shared slope. The grid
/// is `[strips, chunks]`.
///
/// # Safety
/// The module `dense`'s.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn dense_slope<T: Storage>(
    dy: Global<T>,
    saved: Option<Global<T>>,
    alpha: Option<Global<f32>>,
    dz: Option<GlobalMut<T>>,
    db: Option<GlobalMut<f32>>,
    dalpha: Option<GlobalMut<f32>>,
    sizes: Rows,
) {
    let Rows { rows, columns, chunk, activation } = sizes;
    let (lane, warp) = (thread::thread_idx_x() % STRIP, thread::thread_idx_x() / STRIP);
    let (strip, number) = (thread::block_idx_x(), thread::block_idx_y());
    let column = strip * STRIP + lane;
    let exists = column < columns;
    let begin = number * chunk;
    let end = rows.min(begin.saturating_add(chunk));
    let at = |row: u32| row as usize * columns as usize + column as usize;
    let slope = match alpha {
        // SAFETY: there is a slope for each column that exists.
        Some(alpha) if activation == PRELU_EACH => unsafe { alpha.load_if(exists, column as usize, 0.0) },
        // SAFETY: there is one slope.
        Some(alpha) => unsafe { alpha.load(0) },
        None => 0.0,
    };
    let (mut bias, mut slopes) = (0.0, 0.0);
    each_row(
        begin,
        end,
        |row, inside| {
            let (there, at) = (inside && exists, at(row));
            // SAFETY: the row is below `rows` where it is inside, the column exists.
            unsafe {
                let dy = dy.load_if(there, at, T::from_f32(0.0));
                // With 1 the slope is 1, whatever `alpha` is.
                let one = T::from_f32(1.0);
                (dy, saved.map_or(one, |saved| saved.load_if(there, at, one)))
            }
        },
        |row, inside, (dy, saved)| {
            let (dy, saved) = (dy.to_f32(), saved.to_f32());
            let value = if activation == RELU {
                if saved <= 0.0 { 0.0 } else { dy }
            } else if saved > 0.0 {
                dy
            } else {
                slopes += saved * dy;
                slope * dy
            };
            bias += value;
            if let Some(dz) = dz {
                // SAFETY: as above; each element is one thread's.
                unsafe { dz.store_if(inside && exists, at(row), T::from_f32(value)) };
            }
        },
    );
    let shared = shared_array![f32; 2 * BLOCK as usize];
    // SAFETY: each thread has its element of either half; they are read after the barrier. The results' places exist.
    unsafe {
        let sums_of_slopes = shared.offset(BLOCK);
        shared.store(thread::thread_idx_x(), bias);
        sums_of_slopes.store(thread::thread_idx_x(), slopes);
        thread::sync_threads();
        let place = number as usize * columns as usize + column as usize;
        if let Some(db) = db {
            let total = over_warps(shared.handle(), lane);
            db.store_if(warp == 0 && exists, place, total);
        }
        if let Some(dalpha) = dalpha {
            let total = over_warps(sums_of_slopes, lane);
            if activation == PRELU_SHARED {
                let total = warp::reduce_sum(total);
                let place = number as usize * thread::grid_dim_x() as usize + strip as usize;
                dalpha.store_if(thread::thread_idx_x() == 0, place, total);
            } else {
                dalpha.store_if(warp == 0 && exists, place, total);
            }
        }
    }
}

/// `out = sum over the rows of parts + beta * out`, `parts: [rows, columns]`; one block a strip.
///
/// # Safety
/// The module `dense`'s.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn dense_sum_columns<T: Storage>(parts: Global<f32>, out: GlobalMut<T>, rows: u32, columns: u32, beta: f32) {
    let (lane, warp) = (thread::thread_idx_x() % STRIP, thread::thread_idx_x() / STRIP);
    let column = thread::block_idx_x() * STRIP + lane;
    let exists = column < columns;
    let mut sum = 0.0;
    each_row(
        0,
        rows,
        |row, inside| {
            let at = row as usize * columns as usize + column as usize;
            // SAFETY: the row is below `rows` where it is inside, the column exists.
            unsafe { parts.load_if(inside && exists, at, 0.0) }
        },
        |_, _, part| sum += part,
    );
    let shared = shared_array![f32; BLOCK as usize];
    // SAFETY: each thread has its element, and they are read after the barrier; one thread writes each column.
    unsafe {
        shared.store(thread::thread_idx_x(), sum);
        thread::sync_threads();
        let total = over_warps(shared.handle(), lane);
        if warp == 0 && exists {
            put(out, column as usize, total, beta);
        }
    }
}

/// `out[0] = sum of the n parts + beta * out[0]`; one block.
///
/// # Safety
/// The module `dense`'s.
#[kernel(block = BLOCK)]
pub unsafe fn dense_sum_all(parts: Global<f32>, out: GlobalMut<f32>, n: u64, beta: f32) {
    let mut sum = 0.0;
    let mut i = thread::thread_idx_x() as u64;
    while i < n {
        // SAFETY: one of the `n`.
        sum += unsafe { parts.load(i as usize) };
        i += BLOCK as u64;
    }
    // SAFETY: `out` has one element, and one thread writes it; the block is as `block_sum` asks.
    unsafe {
        let total = block_sum(sum);
        if thread::thread_idx_x() == 0 {
            put(out, 0, total, beta);
        }
    }
}
