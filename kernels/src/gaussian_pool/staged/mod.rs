//! Gaussian pooling with the channels last, of windows of 11×11 positions two pixels apart whose weights are the same everywhere
//! and which all channels share: blocks go down images, whose rows come by asynchronous copies.
//!
//! A block has some columns of windows, 32 at most, and 128 bytes of each pixel, 32 or 64 channels. What it needs of the rows of an
//! image comes into a ring in shared memory, two rows at a time, some steps ahead: no register waits for memory, and all warps
//! use what was copied once. Of each row a warp sums its windows along x ([`Pool`]), and adds these sums to the six windows that
//! are open along y, in registers. Windows that are complete go through shared memory, so that whole lines are stored whatever
//! the number of Gaussians. Backward it is the other way about: rows of windows come, a warp spreads them along x ([`Spread`])
//! and along y, and pixels are stored two rows at a time.
//!
//! - Of `f32` a lane has a channel, and sums along x by itself.
//! - Of 16-bit floats tensor cores sum along x: the matrix of a row's channels and columns by that of the weights, a band, which
//!   is the same for all columns. Elements are exact; a weight is the sum of two of their type, so that it has 16 bits at least
//!   (22 in `f16`, where weights are taken times 2¹⁵, that small ones keep theirs). Zeros of the band are multiplied too: where an
//!   element is infinite or NaN, windows that do not cover it become NaN, and a block that finds such a sum at its end computes
//!   all that are not finite again, one by one.
//!
//! Bound by memory forward in `f32`; by instructions in 16 bits and with several Gaussians, of which the products by weights along
//! y are half.

mod backward;
mod forward;
mod plan;
mod pool;
mod spread;
mod stage;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use plan::*;
pub use pool::Pool;
pub use spread::Spread;

use super::weights::{Shape, vector};
use super::{Geometry, divide};

/// Positions of a window along an axis, and pixels from one to the next.
pub const SIZE: usize = 11;
const STRIDE: usize = 2;
/// Windows over a pixel along an axis, at most.
const OPEN: usize = 6;
/// Bytes of each pixel that a block takes, and of a piece that is copied at once.
const LINE: u32 = 128;
const PIECE: u32 = 16;
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 12;
/// Values that a thread sums at once, at most.
const MOST_VALUES: usize = 16;

/// Channels that a block takes, of elements of so many bytes.
pub const fn channels(element: u32) -> u32 {
    LINE / element
}

/// How blocks take images apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Groups of channels.
    pub groups: u32,
    /// Parts of an image, down and across.
    pub parts: [u32; 2],
    /// Rows of a part: of windows, or of pairs of pixels.
    pub rows: u32,
    /// Its columns, likewise.
    pub columns: u32,
    /// What parts have in all, of rows and of columns.
    pub total: [u32; 2],
    /// Variances of each Gaussian, 1 or 2.
    pub variances: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Staged {}

/// What a block works on.
#[derive(Clone, Copy)]
struct Part {
    image: u32,
    /// Its first channel.
    channel: u32,
    /// The first window or pair of pixels, and how many there are, down and across.
    first: [u32; 2],
    count: [u32; 2],
}

impl Part {
    /// That of this block.
    #[device_inline]
    fn of_block<T: Pool>(parts: &Staged) -> Self {
        let (rest, group) = divide(thread::block_idx_x(), parts.groups);
        let (rest, right) = divide(rest, parts.parts[1]);
        let (image, below) = divide(rest, parts.parts[0]);
        let first = [below * parts.rows, right * parts.columns];
        let count = [parts.rows.min(parts.total[0] - first[0]), parts.columns.min(parts.total[1] - first[1])];
        Self { image, channel: group * (LINE / size_of::<T>() as u32), first, count }
    }
}

/// Computes the weights along y and x of all Gaussians, vector after vector. They are there after a barrier.
///
/// # Safety
/// Shared memory holds two vectors for each; the parameters are there.
#[device_inline]
unsafe fn compute(at: Shared<f32>, [mean, var]: [Global<f32>; 2], geometry: &Geometry, variances: u32, kernels: u32) {
    let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
    while number < 2 * kernels {
        let (kernel, vertical) = (number / 2, number.is_multiple_of(2));
        // SAFETY: the caller's.
        unsafe {
            let shape = Shape::load([mean, var], kernel, vertical, variances);
            let put = |i: u32, weight: f32| at.store(number * VECTOR + i, weight);
            let get = |i: u32| at.load(number * VECTOR + i);
            vector(&geometry.axis(vertical), 0, shape, false, put, get, |_, _, _| {});
        }
        number += thread::block_dim_x() / warp::WARP_SIZE;
    }
}

/// Takes the weights along y by what sums along x are too large.
///
/// # Safety
/// Shared memory holds two vectors for each Gaussian; nobody else uses those along y.
#[device_inline]
unsafe fn scale<T: Pool>(weights: Shared<f32>, kernels: u32) {
    let (kernel, position) = divide(thread::thread_idx_x(), VECTOR);
    if T::SCALE != 1.0 && kernel < kernels {
        let at = 2 * kernel * VECTOR + position;
        // SAFETY: the caller's.
        unsafe { weights.store(at, weights.load(at) * (1.0 / T::SCALE)) };
    }
}
