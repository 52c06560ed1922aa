//! Backward over row-major images of windows that are far apart.

use cuda_std::prelude::*;

use super::Divisor;
use crate::shares::{self, BLOCK, Shares, blocks};
use crate::window::{Nchw, Window};

/// As [`avg_pool_backward`](super::avg_pool_backward), by [runs of elements](crate::shares).
///
/// # Safety
/// The module's, but for the tiling; `shares` was planned of the window, of which at most `OVER` are over an element along an axis, with nothing
/// before the tables, and the launch is the plan's.
#[kernel(block = BLOCK, min_blocks = blocks(OVER), instances(T = [f32, f16, bf16], OVER = [1, 2, 3]))]
pub unsafe fn avg_pool_backward_shares<T: Storage, const OVER: usize>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    divisor: Divisor,
    shares: Shares,
) {
    // What is divided by is a product of what counts along each axis, or given.
    let weight = |axis: usize, output: u32, _| match divisor.given {
        0.0 => 1.0 / divisor.counted(&window, axis, output),
        given if axis == 0 => 1.0 / given,
        _ => 1.0,
    };
    // SAFETY: the caller's.
    unsafe { shares::spread::<T, OVER>(dy, dx, beta, &window, &shares, dynamic_shared::<u32>(), weight) };
}
