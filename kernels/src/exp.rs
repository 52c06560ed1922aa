//! The exponential function kept within bounds, `y = exp(min(max(x, -LIMIT), LIMIT))`.
//!
//! Backward from input and output: `dx = dy * y` within the bounds, else 0.
//!
//! Launch: one thread for four elements, [`TILE`] a block. Bound by memory: 8 bytes an element
//! forward, 16 backward.
//!
//! # Safety
//! Every buffer holds `n` elements and begins at a multiple of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

pub use crate::elementwise::{BLOCK, TILE};
use crate::elementwise::{for_each4, map, put, put4};

/// Beyond this magnitude `x` changes nothing more. e⁴⁰ is 2.4e17: it, its reciprocal and their squares are normal `f32`
/// numbers.
pub const LIMIT: f32 = 40.0;

#[device_inline]
fn bounded_exp(x: f32) -> f32 {
    // Comparisons, not `min` and `max`, which would drop a NaN.
    let above = if x > LIMIT { LIMIT } else { x };
    float::exp(if above < -LIMIT { -LIMIT } else { above })
}

#[device_inline]
fn gradient(x: f32, y: f32, dy: f32) -> f32 {
    if x.abs() > LIMIT { 0.0 } else { dy * y }
}

/// `y = exp(x)` within the bounds.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn exp_forward_f32(x: Global<f32>, y: GlobalMut<f32>, n: u64) {
    // SAFETY: the module's contract.
    unsafe { map(x, y, 0.0, n, bounded_exp) }
}

/// `dx = dy * y` within the bounds, plus `beta * dx`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn exp_backward_f32(x: Global<f32>, y: Global<f32>, dy: Global<f32>, dx: GlobalMut<f32>, beta: f32, n: u64) {
    for_each4(
        n,
        // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
        |i| unsafe {
            let (x, y, dy) = (x.load4(i), y.load4(i), dy.load4(i));
            let result = Vec4::new(
                gradient(x.x, y.x, dy.x),
                gradient(x.y, y.y, dy.y),
                gradient(x.z, y.z, dy.z),
                gradient(x.w, y.w, dy.w),
            );
            put4(dx, i, result, beta);
        },
        // SAFETY: `i < n`.
        |i| unsafe { put(dx, i, gradient(x.load(i), y.load(i), dy.load(i)), beta) },
    );
}
