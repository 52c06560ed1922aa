//! Forward of windows whose weights are the same everywhere, where each channel has Gaussians of its own, in either order of memory: by
//! [elements](super::elements), of which a thread takes one after another, with all channels' weights in shared memory.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`
//!
//! Launch: blocks of [`APIECE_BLOCK`] threads in one dimension, as many as work at a time. A block computes the weights once, a thread one of them at a time,
//! those of all Gaussians side by side for each position: neighbouring threads, which have neighbouring channels where these are last, take neighbouring words.
//!
//! For few channels, and windows that share little: no input is kept for a neighbour but in the caches. Bound by the time that memory takes
//! to answer; of many elements by instructions.

use cuda_std::prelude::*;

use super::Geometry;
use super::elements::Maps;
use super::weights::{Shape, unscaled};
use crate::elements::{AHEAD, Elements, Place, sums};
use crate::elementwise::put;
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
pub const APIECE_BLOCK: u32 = 256;
/// Blocks that fit on a multiprocessor.
pub const APIECE_BLOCKS: u32 = 4;

/// How blocks take elements one turn after another, and weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Turns of a block's threads over all elements.
    count: u32,
    /// Gaussians of all channels.
    gaussians: u32,
    by_gaussians: Divider,
    by_channels: Divider,
    /// Whether channels are last.
    channels_last: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Turns {}

impl Turns {
    /// Of so many turns, channels, and Gaussians of each.
    pub fn new(count: u32, [channels, each]: [u32; 2], channels_last: bool) -> Self {
        let gaussians = channels * each;
        let [by_gaussians, by_channels] = [gaussians, channels].map(Divider::new);
        Self { count, gaussians, by_gaussians, by_channels, channels_last: u32::from(channels_last) }
    }

    /// Bytes of a block's shared memory for windows of so many rows and columns, if there are not too many to count.
    pub fn shared_bytes([height, width]: [u32; 2], [channels, each]: [u32; 2]) -> Option<u32> {
        height.checked_add(width)?.checked_mul(channels.checked_mul(each)?)?.checked_mul(4)
    }

    /// Computes all Gaussians' weights, along y and then along x, those of a position side by side. They are there when this returns.
    ///
    /// # Safety
    /// Shared memory is as large as [`shared_bytes`](Self::shared_bytes) says; the parameters hold the Gaussians; all threads of the block come together.
    #[device_inline]
    unsafe fn put_weights(&self, to: Shared<f32>, parameters: [Global<f32>; 2], size: [u32; 2], variances: u32) {
        let mut number = thread::thread_idx_x();
        while number < (size[0] + size[1]) * self.gaussians {
            let position = self.by_gaussians.divide(number);
            let vertical = position < size[0];
            let [own, of] = if vertical { [position, size[0]] } else { [position - size[0], size[1]] };
            // SAFETY: the caller's; the word is this thread's until the barrier.
            unsafe {
                let shape = Shape::load(parameters, number - position * self.gaussians, vertical, variances);
                to.store(number, unscaled(of, own, shape));
            }
            number += APIECE_BLOCK;
        }
        thread::sync_threads();
        let mut number = thread::thread_idx_x();
        while number < 2 * self.gaussians {
            let vertical = number < self.gaussians;
            let [first, count] =
                if vertical { [number, size[0]] } else { [number + (size[0] - 1) * self.gaussians, size[1]] };
            let at = |i: u32| first + i * self.gaussians;
            let mut sum = 0.0;
            for i in 0..count {
                // SAFETY: written before the barrier.
                sum += unsafe { to.load(at(i)) };
            }
            let reciprocal = 1.0 / sum;
            for i in 0..count {
                // SAFETY: as above; the Gaussian's weights along this axis are this thread's.
                unsafe { to.store(at(i), reciprocal * to.load(at(i))) };
            }
            number += APIECE_BLOCK;
        }
        thread::sync_threads();
    }

    /// The first Gaussian of an element's channel, of so many each.
    #[device_inline]
    fn first(&self, place: Place, channels: u32, each: u32) -> u32 {
        let channel = if self.channels_last != 0 {
            place.channel
        } else {
            place.plane - self.by_channels.divide(place.plane) * channels
        };
        channel * each
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's.
///
/// On an H200, 5×5 five apart on 64×64×56×57 with the channels last in bf16, 0.24 of the copy rate (docs/perf).
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` and `maps` say, whose windows are of `geometry`'s size; `mean` holds two and `var`
/// `variances` elements for each Gaussian of each of `geometry`'s channels; `elements` are the window's outputs, one a thread, in as many turns as
/// `turns` says, and shared memory is what [`Turns::shared_bytes`] says.
#[kernel(block = APIECE_BLOCK, min_blocks = APIECE_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward_apiece<T: Storage>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    elements: Elements,
    maps: Maps,
    turns: Turns,
) {
    let weights = dynamic_shared::<f32>();
    // SAFETY: the caller's; all threads come here.
    unsafe {
        turns.put_weights(weights, [mean, var], window.size, variances);
        let mut turn = thread::block_idx_x();
        while turn < turns.count {
            if let Some(place) = elements.nth(turn * APIECE_BLOCK + thread::thread_idx_x(), window.channels) {
                let y = y.offset(maps.first(&window, place.plane, place.channel));
                let first = turns.first(place, geometry.channels, geometry.kernels);
                for map in 0..geometry.kernels {
                    let weight = |_: usize, position: u32| weights.load(position * turns.gaussians + first + map);
                    let [[sum]] = sums::<T, 1, 1, AHEAD>(x, &window, place, weight);
                    put(y, maps.at(&window, [place.row, place.column]) + maps.of(map), sum, 0.0);
                }
            }
            turn += thread::grid_dim_x();
        }
    }
}
