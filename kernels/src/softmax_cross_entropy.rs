//! Softmax and cross entropy in one, averaged over the batch:
//! `loss = mean over n of (log_sum[n] - x[n, label[n]])`, `log_sum[n] = log(sum over c of exp(x[n, c]))`, and
//! `dx[n, c] = (exp(x[n, c] - log_sum[n]) - [c = label[n]]) * dloss / N`.
//!
//! Launch: a warp takes a row, its lanes every 32nd class, [`ROWS`] rows a block. Forward reads a row twice, the second
//! time from cache: first its maximum, which is subtracted before `exp`, then the sum. It leaves each row's loss for a
//! second kernel of one block, which sums them in a fixed order. Bound by memory: 4 bytes an element forward, 8
//! backward; for few classes by the launches.
//!
//! A label that is no class makes its row's loss and gradient NaN: it must not be read past the row.
//!
//! # Safety
//! `x` and `dx` hold `rows * classes` elements, `labels`, `losses` and `log_sum` `rows`, `loss` and `dloss` one;
//! `classes` is not zero; the grid covers the rows.

use cuda_std::prelude::*;

use crate::elementwise::put;
use crate::reduce::block_sum;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Rows of a block: one for each warp.
pub const ROWS: u32 = BLOCK / warp::WARP_SIZE;

/// This warp's row.
#[device_inline]
fn row() -> u64 {
    thread::block_idx_x() as u64 * ROWS as u64 + (thread::thread_idx_x() / warp::WARP_SIZE) as u64
}

/// The larger, NaN winning.
#[device_inline]
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// `log_sum` and each row's own loss.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn softmax_cross_entropy_rows_f32(
    x: Global<f32>,
    labels: Global<u32>,
    losses: GlobalMut<f32>,
    log_sum: GlobalMut<f32>,
    rows: u64,
    classes: u32,
) {
    let (row, lane) = (row(), warp::lane_id());
    // The whole warp goes: nothing below waits for more than the warp.
    if row >= rows {
        return;
    }
    // SAFETY: the row exists and classes are below `classes`.
    unsafe {
        let x = x.offset((row * classes as u64) as usize);
        let mut maximum = f32::NEG_INFINITY;
        let mut class = lane;
        while class < classes {
            maximum = larger(maximum, x.load(class as usize));
            class += warp::WARP_SIZE;
        }
        let mut distance = warp::WARP_SIZE / 2;
        while distance > 0 {
            maximum = larger(maximum, warp::shuffle_xor(maximum, distance));
            distance /= 2;
        }
        let mut sum = 0.0;
        class = lane;
        while class < classes {
            sum += float::exp(x.load(class as usize) - maximum);
            class += warp::WARP_SIZE;
        }
        let logarithm = maximum + float::ln(warp::reduce_sum(sum));
        if lane == 0 {
            let label = labels.load(row as usize);
            let right = if label < classes { x.load(label as usize) } else { f32::NAN };
            losses.store(row as usize, logarithm - right);
            log_sum.store(row as usize, logarithm);
        }
    }
}

/// `loss = sum of losses / rows`; a grid of one block.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn softmax_cross_entropy_mean_f32(losses: Global<f32>, loss: GlobalMut<f32>, rows: u64) {
    let mut sum = 0.0;
    let mut row = thread::thread_idx_x() as u64;
    // SAFETY: `row < rows`; the block is one-dimensional, of whole warps, and sums once.
    unsafe {
        while row < rows {
            sum += losses.load(row as usize);
            row += BLOCK as u64;
        }
        let sum = block_sum(sum);
        loss.store_if(thread::thread_idx_x() == 0, 0, if rows == 0 { 0.0 } else { sum / rows as f32 });
    }
}

/// `dx`, plus `beta * dx`; `dloss` is 1 where it is not given.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn softmax_cross_entropy_backward_f32(
    x: Global<f32>,
    labels: Global<u32>,
    log_sum: Global<f32>,
    dloss: Option<Global<f32>>,
    dx: GlobalMut<f32>,
    beta: f32,
    rows: u64,
    classes: u32,
) {
    let row = row();
    if row >= rows {
        return;
    }
    // SAFETY: the row exists and classes are below `classes`.
    unsafe {
        let dloss = match dloss {
            Some(dloss) => dloss.load(0),
            None => 1.0,
        };
        let label = labels.load(row as usize);
        let scale = if label < classes { dloss / rows as f32 } else { f32::NAN };
        let logarithm = log_sum.load(row as usize);
        let first = (row * classes as u64) as usize;
        let mut class = warp::lane_id();
        while class < classes {
            let hit = if class == label { 1.0 } else { 0.0 };
            let probability = float::exp(x.load(first + class as usize) - logarithm);
            put(dx, first + class as usize, (probability - hit) * scale, beta);
            class += warp::WARP_SIZE;
        }
    }
}
