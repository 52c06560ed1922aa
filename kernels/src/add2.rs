//! The sum of two tensors, `y = a + b`; backward passes `dy` on.
//!
//! Launch: one thread for four elements, [`TILE`] a block. Bound by memory: 12 bytes an element
//! forward, 8 backward for each gradient.
//!
//! # Safety
//! Every buffer holds `n` elements and begins at a multiple of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE};
use crate::elementwise::{map, map2};

/// `y = a + b`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn add2_forward_f32(a: Global<f32>, b: Global<f32>, y: GlobalMut<f32>, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map2(a, b, y, 0.0, n, |a, b| a + b) }
}

/// `dx = dy + beta * dx`, for either input.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn add2_backward_f32(dy: Global<f32>, dx: GlobalMut<f32>, beta: f32, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map(dy, dx, beta, n, |dy| dy) }
}
