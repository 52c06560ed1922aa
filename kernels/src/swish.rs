//! Swish, `y = x * sigmoid(beta * x)` (Ramachandran et al., arXiv 1710.05941); `beta` is one number, to be learnt.
//!
//! Backward, with `s = sigmoid(beta * x)`: `dx = dy * s * (1 + beta * x * (1 - s))`, `dbeta = sum of dy * x² * s * (1 - s)`.
//!
//! Launch: [`TILE`] elements a block. Bound by memory: two elements moved for each forward, three backward. `beta` and the
//! sums are `f32` whatever the elements are.
//!
//! - [`swish_forward`]: one thread for four elements.
//! - [`swish_backward`]: a thread takes each [`BLOCK`]th element of the tile, and the block leaves its part of `dbeta`, which
//!   another launch sums. The order is fixed.
//!
//! # Safety
//! Buffers hold `n` elements (`beta` one, `parts` one for each block) and begin at multiples of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE};
use crate::elementwise::{get, map, put};
use crate::reduce::block_sum;

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + float::exp(-x))
}

/// `y = swish(x)`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn swish_forward<T: Storage>(x: Global<T>, beta: Global<f32>, y: GlobalMut<T>, n: u64) {
    // SAFETY: the module's contract.
    unsafe {
        let beta = beta.load(0);
        map(x, y, 0.0, n, |x| x * sigmoid(beta * x));
    }
}

/// `dx` plus `dx_beta` of what it holds, and each block's part of `dbeta`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn swish_backward<T: Storage>(
    x: Global<T>,
    beta: Global<f32>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    parts: GlobalMut<f32>,
    n: u64,
) {
    let begin = thread::block_idx_x() as u64 * TILE as u64;
    let end = if n - begin < TILE as u64 { n } else { begin + TILE as u64 };
    let mut i = begin + thread::thread_idx_x() as u64;
    let mut sum = 0.0;
    // SAFETY: `i < end <= n`; all threads come to the sum, and one writes it.
    unsafe {
        let beta = beta.load(0);
        while i < end {
            let (x, dy) = (get(x, i as usize), get(dy, i as usize));
            let s = sigmoid(beta * x);
            sum += dy * (x * s) * (x * (1.0 - s));
            if let Some(dx) = dx {
                put(dx, i as usize, dy * s * (1.0 + beta * x * (1.0 - s)), dx_beta);
            }
            i += BLOCK as u64;
        }
        let sum = block_sum(sum);
        parts.store_if(thread::thread_idx_x() == 0, thread::block_idx_x() as usize, sum);
    }
}
