//! Swish, `y = x * sigmoid(beta * x)` (Ramachandran et al., arXiv 1710.05941); `beta` is one number, to be learnt.
//!
//! Backward, with `s = sigmoid(beta * x)`: `dx = dy * s * (1 + beta * x * (1 - s))`, `dbeta = sum of dy * x² * s * (1 - s)`.
//!
//! Bound by memory: two elements moved for each forward, three backward. `beta` and the sums are `f32` whatever the elements are.
//!
//! - [`swish_forward`]: one thread for 16 bytes of elements, [`tile`] a block.
//! - [`swish_backward`]: one thread for four times four elements, [`PART`] a block, all loaded before the first is used; the block
//!   leaves its part of `dbeta`, and another launch sums these. The order is fixed.
//!
//! # Safety
//! Buffers hold `n` elements (`beta` one, `parts` one for each block) and begin at multiples of 16 bytes; the grid covers `n`.

use core::cell::Cell;

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, tile};
use crate::elementwise::{TILE, get, map, put, put4};
use crate::reduce::block_sum;

/// Elements of a block backward.
pub const PART: u32 = 4 * TILE;

/// Of what is to be stored as a `T`: 16 bits have no room for what the GPU's own instructions leave out, and half the time.
#[device_inline]
fn sigmoid<T>(x: f32) -> f32 {
    if size_of::<T>() == 2 {
        float::reciprocal_approx(1.0 + float::exp2_approx(x * -core::f32::consts::LOG2_E))
    } else {
        1.0 / (1.0 + float::exp(-x))
    }
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
        map(x, y, 0.0, n, |x| x * sigmoid::<T>(beta * x));
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
        let s = sigmoid::<T>(beta * x);
        sum.set(sum.get() + dy * (x * s) * (x * (1.0 - s)));
        dy * s * (1.0 + beta * x * (1.0 - s))
    };
    let first = thread::block_idx_x() as u64 * PART as u64 + thread::thread_idx_x() as u64 * 4;
    let mut loaded = [[Vec4::splat(T::from_f32(0.0)); 2]; 4];
    // SAFETY: loaded, used and stored where the four elements from `i` on are among the `n`; `i` is a multiple of 4. What is left
    // of `n` are fewer than four elements, which one block's first threads take.
    unsafe {
        unrolled!(K in [0 1 2 3] {
            let i = first + K as u64 * TILE as u64;
            loaded[K] = [x, dy].map(|from| from.load4_if(i + 4 <= n, i as usize, loaded[K][0]));
        });
        unrolled!(K in [0 1 2 3] {
            let i = first + K as u64 * TILE as u64;
            if i + 4 <= n {
                let [x, dy] = loaded[K].map(|four| four.map(T::to_f32));
                let gradients = x.zip_with(dy, gradient);
                if let Some(dx) = dx {
                    put4(dx, i as usize, gradients, dx_beta);
                }
            }
        });
        let i = n / 4 * 4 + thread::thread_idx_x() as u64;
        if thread::block_idx_x() == 0 && i < n {
            let gradient = gradient(get(x, i as usize), get(dy, i as usize));
            if let Some(dx) = dx {
                put(dx, i as usize, gradient, dx_beta);
            }
        }
    }
    // SAFETY: all threads come to the sum, and one writes it; there is a part for each block.
    unsafe {
        let sum = block_sum(sum.get());
        parts.store_if(thread::thread_idx_x() == 0, thread::block_idx_x() as usize, sum);
    }
}
