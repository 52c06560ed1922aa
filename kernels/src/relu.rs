//! Rectified linear unit: `y = x` where `x > 0`, else 0; NaN stays NaN (Nair & Hinton, ICML 2010).
//!
//! Backward from the output: `dx = dy` where `y > 0` or NaN, else 0.
//!
//! Launch: one thread for 16 bytes of elements, [`tile`] a block. Bound by memory: two elements moved for each
//! forward, three backward.
//!
//! # Safety
//! Every buffer holds `n` elements and begins at a multiple of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, tile};
use crate::elementwise::{map, map2};

/// `y = relu(x)`; without `x`, of what `y` holds.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn relu_forward<T: Storage>(x: Option<Global<T>>, y: GlobalMut<T>, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map(x.unwrap_or(y.as_global()), y, 0.0, n, |x| if x <= 0.0 { 0.0 } else { x }) }
}

/// `dx = dy` where `y > 0`, plus `beta * dx`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn relu_backward<T: Storage>(y: Global<T>, dy: Global<T>, dx: GlobalMut<T>, beta: f32, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map2(y, dy, dx, beta, n, |y, dy| if y <= 0.0 { 0.0 } else { dy }) }
}
