//! Scaling and shifting by two numbers in device memory, `y = x * s + c`; backward `dx = dy * s`.
//!
//! The kernel reads `s` and `c` when it runs, so that a new value needs no new launch parameters: a captured graph sees it
//! at its next replay.
//!
//! Launch: one thread for 16 bytes of elements, [`tile`] a block. Bound by memory: two elements moved for each.
//!
//! # Safety
//! `s` and `c` hold one element, always `f32`; every other buffer holds `n` and begins at a multiple of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

use crate::elementwise::map;
pub use crate::elementwise::{BLOCK, tile};

/// `y = x * s + c`, rounded once.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn scale_add_forward<T: Storage>(x: Global<T>, s: Global<f32>, c: Global<f32>, y: GlobalMut<T>, n: u64) {
    // SAFETY: the module's contract.
    unsafe {
        let (s, c) = (s.load(0), c.load(0));
        map(x, y, 0.0, n, |x| float::fma(x, s, c));
    }
}

/// `dx = dy * s + beta * dx`.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn scale_add_backward<T: Storage>(dy: Global<T>, s: Global<f32>, dx: GlobalMut<T>, beta: f32, n: u64) {
    // SAFETY: the module's contract.
    unsafe {
        let s = s.load(0);
        map(dy, dx, beta, n, |dy| dy * s);
    }
}
