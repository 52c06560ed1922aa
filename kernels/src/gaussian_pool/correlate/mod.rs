//! Gradients of mean and variance that all channels share, of windows of 11×11 positions two pixels apart whose weights are the same
//! everywhere, with the channels last: `x` and `dy` are correlated by tensor cores.
//!
//! `C[a, b]` is the sum over windows and channels of `x` at position `(a, b)` of the window times the window's `dy`, 121 sums in all;
//! a gradient is the sum of these by the derivatives of the weights: `sum C[a, b] dw_y[a] w_x[b]` is that of the mean along y.
//! Weights do not take part in the large sum, so that products of 16-bit floats are exact, and nothing is spread or pooled on the
//! way. Elements of `f32` are none of its: as two `bf16` each they have 16 bits, an infinite one has none, and what that gains is
//! little (`docs/perf/log.md`).
//!
//! Where windows overlap as much as here, that is a matrix product: of 16 windows of a row by the 16 pixels of a row that they
//! all are over, summed over channels. The windows that cover a pixel are a band of this matrix, a third of it; the rest is not
//! used. A sum's place in the matrix is the same for all rows that are the same distance apart, so that sums stay in registers as
//! long as a block lives. A warp goes down 16 columns of 32 channels.
//!
//! The input's gradient is another pass's ([`staged`](super::staged)). Bound by memory, which gives three quarters
//! of the copy rate.

mod last;
mod plan;

use cuda_std::prelude::*;
pub use last::*;
pub use plan::*;

use super::weights::with_derivatives;
use super::{Axis, SUMS_PER_GAUSSIAN, leave};

/// Positions of a window along an axis, and pixels from one to the next.
pub const SIZE: usize = 11;
const STRIDE: usize = 2;
/// Windows over a pixel along an axis, at most.
const OPEN: usize = 6;
/// Pixels of a line that a product takes at once, and windows.
const PIXELS: u32 = 16;
const WINDOWS: u32 = 8;
/// Products that cover as many pixels: of eight each, by the windows over both.
const TILES: usize = 2;
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 12;
/// Vectors of weights and their derivatives by mean and variance, of both axes.
const VECTORS: u32 = 6;
/// Threads of a block, and its warps.
pub const CORRELATE_THREADS: u32 = 128;
const WARPS: u32 = CORRELATE_THREADS / warp::WARP_SIZE;

/// Sums of a warp: for each position of a window along y a matrix of windows by pixels.
type Sums = [[[f32; 4]; TILES]; SIZE];

/// How blocks share a pass.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correlate {
    /// Groups of channels.
    pub groups: u32,
    /// Tiles of a line.
    pub tiles: u32,
    /// Columns in all, of which each warp of a block has one at a time.
    pub columns: u32,
    /// Steps of a column.
    pub steps: u32,
    /// Steps of a block.
    pub each: u32,
    /// Steps of all blocks.
    pub total: u32,
    /// Variances of the Gaussian, 1 or 2.
    pub variances: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Correlate {}

/// Leaves the block's four sums, by `mu_y`, `mu_x`, `var_y` and `var_x`.
///
/// # Safety
/// Shared memory holds the vectors, written before a barrier, and after them room for four sums of each warp; `sums` holds four for
/// each block; all threads of the block come together.
#[device_inline]
unsafe fn finish(of_warp: &Sums, vectors: Shared<f32>, sums: GlobalMut<f32>) {
    // SAFETY: the caller's.
    let along_y = |of: u32, position: usize| unsafe { vectors.load(of * VECTOR + position as u32) };
    let (g, c) = (warp::lane_id() / 4, warp::lane_id() % 4);
    // By mean and variance along y, and along x.
    let (mut y, mut x) = ([0.0; 2], [0.0; 2]);
    unrolled!(T in [0 1] {
        unrolled!(J in [0 1 2 3] {
            // Where the pixel is in the window.
            let (pixel, window) = (T as u32 * WINDOWS + c * 2 + J as u32 % 2, g + J as u32 / 2 * WINDOWS);
            let position = (pixel + STRIDE as u32 * WINDOWS).wrapping_sub(window * STRIDE as u32);
            let there = position < SIZE as u32;
            let (mut weighted, mut derived) = (0.0, [0.0; 2]);
            unrolled!(P in [0 1 2 3 4 5 6 7 8 9 10] {
                // What lies beside the band is no term, and may be NaN.
                let sum = if there { of_warp[P][T][J] } else { 0.0 };
                weighted = float::fma(along_y(0, P), sum, weighted);
                derived[0] = float::fma(along_y(1, P), sum, derived[0]);
                derived[1] = float::fma(along_y(2, P), sum, derived[1]);
            });
            let along_x = |of: u32| {
                let at = ((3 + of) * VECTOR).wrapping_add(position);
                // SAFETY: the caller's.
                unsafe { vectors.load_if(there, at, 0.0) }
            };
            let weight = along_x(0);
            y = [float::fma(derived[0], weight, y[0]), float::fma(derived[1], weight, y[1])];
            x = [float::fma(weighted, along_x(1), x[0]), float::fma(weighted, along_x(2), x[1])];
        });
    });
    // SAFETY: the caller's.
    unsafe {
        let of_warps = vectors.offset(VECTORS * VECTOR);
        leave([y[0], x[0], y[1], x[1]], of_warps, sums, thread::block_idx_x() as usize);
    }
}

/// Pixels of the image along an axis that windows cover. Others are no terms: their NaN times a zero would be one.
#[device_inline]
fn covered(axis: &Axis) -> u32 {
    ((axis.output - 1) * STRIDE as u32 + SIZE as u32 - axis.padding).min(axis.image)
}
