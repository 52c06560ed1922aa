//! Rectified linear unit: `y = x` where `x > 0`, else 0; NaN stays NaN (Nair & Hinton, ICML 2010).
//!
//! Backward from the output: `dx = dy` where `y > 0` or NaN, else 0.
//!
//! Launch: one thread for four elements, [`TILE`] a block. Bound by memory: 8 bytes an element
//! forward, 12 backward.
//!
//! # Safety
//! Every buffer holds `n` elements and begins at a multiple of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE};
use crate::elementwise::{map, map2};

/// `y = relu(x)`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn relu_forward_f32(x: Global<f32>, y: GlobalMut<f32>, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map(x, y, 0.0, n, |x| if x <= 0.0 { 0.0 } else { x }) }
}

/// `dx = dy` where `y > 0`, plus `beta * dx`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn relu_backward_f32(y: Global<f32>, dy: Global<f32>, dx: GlobalMut<f32>, beta: f32, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map2(y, dy, dx, beta, n, |y, dy| if y <= 0.0 { 0.0 } else { dy }) }
}
