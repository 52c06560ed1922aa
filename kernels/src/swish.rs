//! Swish, `y = x * sigmoid(beta * x)` (Ramachandran et al., arXiv 1710.05941); `beta` is one number, to be learnt.
//!
//! Backward, with `s = sigmoid(beta * x)`: `dx = dy * s * (1 + beta * x * (1 - s))`, `dbeta = sum of dy * x² * s * (1 - s)`.
//!
//! Bound by memory: two elements moved for each forward, three backward. `beta` and the sums are `f32` whatever the elements are.
//!
//! - [`swish_forward`]: one thread for 16 bytes of elements, [`tile`] a block.
//! - [`swish_backward`]: one thread for four elements, [`TILE`] a block, which leaves its part of `dbeta`; another launch sums
//!   these. The order is fixed.
//!
//! # Safety
//! Buffers hold `n` elements (`beta` one, `parts` one for each block) and begin at multiples of 16 bytes; the grid covers `n`.

use core::cell::Cell;

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE, tile};
use crate::elementwise::{for_each4, get, get4, map, put, put4};
use crate::reduce::block_sum;

#[device_inline]
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
    // SAFETY: the module's contract.
    let beta = unsafe { beta.load(0) };
    let sum = Cell::new(0.0);
    let gradient = |x: f32, dy: f32| {
        let s = sigmoid(beta * x);
        sum.set(sum.get() + dy * (x * s) * (x * (1.0 - s)));
        dy * s * (1.0 + beta * x * (1.0 - s))
    };
    for_each4(
        n,
        // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
        |i| unsafe {
            let gradients = get4(x, i).zip_with(get4(dy, i), gradient);
            if let Some(dx) = dx {
                put4(dx, i, gradients, dx_beta);
            }
        },
        // SAFETY: `i < n`.
        |i| unsafe {
            let gradient = gradient(get(x, i), get(dy, i));
            if let Some(dx) = dx {
                put(dx, i, gradient, dx_beta);
            }
        },
    );
    // SAFETY: all threads come to the sum, and one writes it; there is a part for each block.
    unsafe {
        let sum = block_sum(sum.get());
        parts.store_if(thread::thread_idx_x() == 0, thread::block_idx_x() as usize, sum);
    }
}
