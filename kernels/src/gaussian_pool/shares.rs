//! Backward of row-major images by one Gaussian whose weights are the same everywhere, for windows that are far apart: the input's gradient alone,
//! by [runs of elements](crate::shares).
//!
//! Each block computes the weights once, for all of its runs.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::along_axes;
use crate::shares::{self, BLOCK, Shares, blocks};
use crate::window::{Nchw, Window};

/// `dx = sum over windows that cover the element of weight * dy + beta * dx`.
///
/// # Safety
/// The parent module's. `dy` and `dx` are what `window` says, whose windows are of `geometry`'s size, at most `OVER` of them over an element along an
/// axis; `mean` holds two and `var` `variances` elements; `shares` was planned of the window with room for the weights along both axes before
/// the tables, and the launch is the plan's.
#[kernel(block = BLOCK, min_blocks = blocks(OVER), instances(T = [f32, f16, bf16], OVER = [1, 2, 3]))]
pub unsafe fn gaussian_pool_backward_shares<T: Storage, const OVER: usize>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nchw>,
    shares: Shares,
) {
    // SAFETY: the caller's; all threads come here.
    unsafe {
        let weights = dynamic_shared::<f32>();
        along_axes(weights, [mean, var], &geometry, variances, 0, false);
        thread::sync_threads();
        let along = [weights, weights.offset(window.size[0])];
        let tables = weights.offset((window.size[0] + window.size[1]).next_multiple_of(4)).cast::<u32>();
        let weight = |axis: usize, _, position: u32| along[axis].load(position);
        shares::spread::<T, OVER>(dy, dx, beta, &window, &shares, tables, weight);
    }
}
