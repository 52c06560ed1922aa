//! The sum of two tensors, `y = a + b`; backward passes `dy` on.
//!
//! Launch: one thread for 16 bytes of elements, [`tile`] a block. Bound by memory: three elements moved
//! for each forward, two backward for each gradient.
//!
//! # Safety
//! Every buffer holds `n` elements and begins at a multiple of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, tile};
use crate::elementwise::{map, map2};

/// `y = a + b`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn add2_forward<T: Storage>(a: Global<T>, b: Global<T>, y: GlobalMut<T>, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map2(a, b, y, 0.0, n, |a, b| a + b) }
}

/// `dx = dy + beta * dx`, for either input.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn add2_backward<T: Storage>(dy: Global<T>, dx: GlobalMut<T>, beta: f32, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map(dy, dx, beta, n, |dy| dy) }
}
