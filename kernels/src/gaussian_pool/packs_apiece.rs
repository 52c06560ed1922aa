//! Channels last, each of which has a Gaussian of its own: forward of 3×3, 5×5 and 7×7 windows one and two apart whose weights are the same everywhere, and the
//! input's gradient of such one apart and of 3×3 and 5×5 windows two apart. By [packs](super::packs) of 2 to 8 bytes of neighbouring channels, of
//! which a thread has that of an output or of a cell of 2×2 inputs, or of a few one below the other.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, with the weights of the channel
//!
//! Launch: blocks of [`PACKS_BLOCK`] threads, of a *group* of up to 32 neighbouring packs of a pixel: along x as [`Elements`] lays them over as
//! many packs a pixel, along y a row of blocks for each group. Neighbouring threads have neighbouring packs of neighbouring pixels of a row. Once
//! all that a thread needs is on its way, the block computes the weights of its group's channels into shared memory, a thread those of
//! one channel along one axis, or of two; then each thread takes those of its pack into registers.
//!
//! Bound by the time that memory takes to answer; `dx` two apart of many elements in f32 by memory (3×3 on 64×64×56×57 0.80 of the copy rate on an H200), in 16
//! bits, suspected, by instructions (0.57). Of many outputs the other passes go down [strips](super::falling_packs).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::packs::{blocks_of, lines, pool, spread};
use super::weights::{Shape, whole};
use crate::elements::{Elements, Place};
use crate::packs::{MOST_LANES, PACKS_BLOCK, PackWeights, VECTOR, channels, place};
use crate::vectors::{LANES, Lanes};
use crate::window::{Nhwc, Window};

/// Channels of a pack, at most.
const MOST_CHANNELS: u32 = 4;
/// Axes whose weights a thread computes, at most.
const TURNS: usize = (2 * MOST_LANES * MOST_CHANNELS / PACKS_BLOCK) as usize;

/// Outputs of a thread where there is much, of windows of so many positions each way and so far apart, in packs of so many bytes: as many as leave registers
/// for all that is loaded. Of 3×3 windows threads have [`FEWER_OUTPUTS`](super::packs::FEWER_OUTPUTS) or one where there is less.
pub const fn outputs(size: u32, stride: u32, bytes: u32) -> u32 {
    match (size, stride, bytes) {
        (3, 1, _) | (5, 1, ..=4) => 8,
        (_, 1, _) | (3, ..) | (5, _, ..=4) => 4,
        _ => 2,
    }
}

/// Bytes of a block's shared memory for windows of so many positions each way, of so many packs of so many channels each.
pub const fn shared_bytes(size: u32, lanes: u32, channels: u32) -> u32 {
    2 * size * lanes * channels * 4
}

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers for what it loads and its weights.
const fn min_blocks(bytes: usize, element: usize, size: usize, stride: usize, rows: usize) -> u32 {
    blocks_of(bytes.div_ceil(4) * size * lines(size, stride, rows) + 2 * size * (bytes / element))
}

/// Those of the backward kernel.
const fn backward_blocks(size: usize, rows: usize) -> u32 {
    match (size, rows) {
        (3, 1) => 8,
        (5, 4) => 4,
        _ => 5,
    }
}

/// The channels of a block's group, and what this thread has of them.
pub(super) struct Group {
    /// The first channel of them, and how many there are and in all: the last group has fewer.
    first: u32,
    count: u32,
    all: u32,
    /// This thread's place, if it has one, and the first channel of its pack among them.
    pub(super) place: Option<Place>,
    own: u32,
    /// The axes whose weights this thread computes: loaded, but not waited for.
    shapes: [Shape; TURNS],
}

impl Group {
    /// Of packs of so many channels.
    ///
    /// # Safety
    /// The kernels'.
    #[device_inline]
    pub(super) unsafe fn load(
        parameters: [Global<f32>; 2],
        variances: u32,
        window: &Window<Nhwc>,
        (elements, lanes, each): (Elements, u32, u32),
    ) -> Self {
        let pack = thread::block_idx_y() * lanes;
        let place = place(window, elements, PACKS_BLOCK, lanes);
        let own = place.map_or(0, |place| place.channel - pack) * each;
        let (first, count, all) = (pack * each, lanes * each, window.channels * each);
        let shapes = [0, 1].map(|turn| {
            let (there, channel, vertical) = Self::axis([first, count, all], turn);
            // SAFETY: the caller's.
            unsafe { Shape::load_if(there, parameters, first + channel, vertical, variances) }
        });
        Self { first, count, all, place, own, shapes }
    }

    /// Whether this thread computes an axis in such a turn; that of which channel of the group, and whether it is y.
    #[device_inline]
    fn axis([first, count, all]: [u32; 3], turn: u32) -> (bool, u32, bool) {
        let axis = thread::thread_idx_x() + turn * PACKS_BLOCK;
        let (channel, vertical) = (axis / 2, axis.is_multiple_of(2));
        ((channel < count) & (first + channel < all), channel, vertical)
    }

    /// The weights of the channels of this thread's pack, of windows of `SIZE` positions each way, turned round or not. All threads of the block come here, once.
    ///
    /// # Safety
    /// The kernels'.
    #[device_inline]
    pub(super) unsafe fn weights<const SIZE: usize>(&self, each: u32, turned: bool) -> PackWeights {
        let shared = dynamic_shared::<f32>();
        unrolled!(I in [0 1] {
            let (there, channel, vertical) = Self::axis([self.first, self.count, self.all], I as u32);
            if there {
                let weights: [f32; SIZE] = whole(self.shapes[I]);
                unrolled!(J in [0 1 2 3 4 5 6] { if J < SIZE {
                    let position = if turned { SIZE - 1 - J } else { J };
                    let vector = if vertical { position } else { SIZE + position };
                    // SAFETY: shared memory has an element for each position along each axis of each of these channels, of which this one's are
                    // this thread's until the barrier.
                    unsafe { shared.store(vector as u32 * self.count + channel, weights[J]) };
                } });
            }
        });
        thread::sync_threads();
        let mut weights: PackWeights = [[[0.0; LANES]; VECTOR as usize]; 2];
        unrolled!(A in [0 1] { unrolled!(J in [0 1 2 3 4 5 6] { if J < SIZE {
            let at = (A * SIZE + J) as u32 * self.count + self.own;
            // SAFETY: written before the barrier; of two or four channels the first is a multiple of as many.
            weights[A][J] = unsafe {
                match each {
                    1 => [shared.load(at), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                    2 => {
                        let Vec2 { x, y } = shared.load2(at);
                        [x, y, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
                    }
                    _ => {
                        let Vec4 { x, y, z, w } = shared.load4(at);
                        [x, y, z, w, 0.0, 0.0, 0.0, 0.0]
                    }
                }
            };
        } }); });
        weights
    }
}

/// `y` = `x` pooled by the channels' Gaussians, plus `beta * y`. Backward, of windows one apart, it is the pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose channels are packs of `BYTES` bytes and whose windows are `SIZE` by `SIZE`, and `STRIDE`
/// apart along y where `ROWS` is not 1; `mean` holds two and `var` `variances` elements for each channel; [groups](crate::packs::groups) have `lanes` packs; `elements` are the
/// window's outputs by as many, `ROWS` a thread, with the launch's grid for each group, and shared memory is what [`shared_bytes`] says.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = min_blocks(BYTES, size_of::<T>(), SIZE, STRIDE, ROWS),
    instances(
        (T, BYTES, SIZE, STRIDE, ROWS) = [
            (f32, 4, 3, 1, 1), (f32, 4, 3, 1, 4), (f32, 4, 3, 1, 8), (f32, 4, 3, 2, 4), (f32, 4, 5, 1, 8), (f32, 4, 5, 2, 4), (f32, 4, 7, 1, 4), (f32, 4, 7, 2, 2),
            (f32, 8, 3, 1, 1), (f32, 8, 3, 1, 4), (f32, 8, 3, 1, 8), (f32, 8, 3, 2, 4), (f32, 8, 5, 1, 4), (f32, 8, 5, 2, 2),
            (f16, 2, 3, 1, 1), (f16, 2, 3, 1, 4), (f16, 2, 3, 1, 8), (f16, 2, 3, 2, 4), (f16, 2, 5, 1, 8), (f16, 2, 5, 2, 4), (f16, 2, 7, 1, 4), (f16, 2, 7, 2, 2),
            (f16, 4, 3, 1, 1), (f16, 4, 3, 1, 4), (f16, 4, 3, 1, 8), (f16, 4, 3, 2, 4), (f16, 4, 5, 1, 8), (f16, 4, 5, 2, 4), (f16, 4, 7, 1, 4), (f16, 4, 7, 2, 2),
            (f16, 8, 3, 1, 1), (f16, 8, 3, 1, 4), (f16, 8, 3, 1, 8), (f16, 8, 3, 2, 4),
            (bf16, 2, 3, 1, 1), (bf16, 2, 3, 1, 4), (bf16, 2, 3, 1, 8), (bf16, 2, 3, 2, 4), (bf16, 2, 5, 1, 8), (bf16, 2, 5, 2, 4), (bf16, 2, 7, 1, 4), (bf16, 2, 7, 2, 2),
            (bf16, 4, 3, 1, 1), (bf16, 4, 3, 1, 4), (bf16, 4, 3, 1, 8), (bf16, 4, 3, 2, 4), (bf16, 4, 5, 1, 8), (bf16, 4, 5, 2, 4), (bf16, 4, 7, 1, 4), (bf16, 4, 7, 2, 2),
            (bf16, 8, 3, 1, 1), (bf16, 8, 3, 1, 4), (bf16, 8, 3, 1, 8), (bf16, 8, 3, 2, 4)
        ]
    )
)]
pub unsafe fn gaussian_pool_forward_packs_apiece<
    T: Lanes,
    const BYTES: usize,
    const SIZE: usize,
    const STRIDE: usize,
    const ROWS: usize,
>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    beta: f32,
    turned: u32,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
    lanes: u32,
) {
    let each = channels::<T>(BYTES);
    // SAFETY: the caller's.
    unsafe {
        let group = Group::load([mean, var], variances, &window, (elements, lanes, each));
        let weights = || group.weights::<SIZE>(each, turned != 0);
        pool::<T, BYTES, SIZE, STRIDE, ROWS>(x, (y, beta), &window, group.place, weights);
    }
}

/// `dx = sum over windows that cover the input of weight * dy + beta * dx`, of windows of `SIZE` positions each way, two apart, by cells as
/// [`gaussian_pool_backward_packs`](super::packs::gaussian_pool_backward_packs).
///
/// # Safety
/// As [`gaussian_pool_forward_packs_apiece`]'s, of `dy` and `dx`; windows are two apart both ways; `elements` are the
/// [cells](super::packs::cells) of the window.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = backward_blocks(SIZE, ROWS),
    instances(
        (T, BYTES, SIZE) = [
            (f32, 4, 3), (f32, 8, 3), (f32, 4, 5), (f32, 8, 5),
            (f16, 2, 3), (f16, 4, 3), (f16, 8, 3), (f16, 2, 5), (f16, 4, 5),
            (bf16, 2, 3), (bf16, 4, 3), (bf16, 8, 3), (bf16, 2, 5), (bf16, 4, 5)
        ],
        ROWS = [1, 4]
    )
)]
pub unsafe fn gaussian_pool_backward_packs_apiece<
    T: Lanes,
    const BYTES: usize,
    const SIZE: usize,
    const ROWS: usize,
>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
    lanes: u32,
) {
    let each = channels::<T>(BYTES);
    // SAFETY: the caller's.
    unsafe {
        let group = Group::load([mean, var], variances, &window, (elements, lanes, each));
        spread::<T, BYTES, SIZE, ROWS>(dy, (dx, beta), &window, group.place, || group.weights::<SIZE>(each, false));
    }
}
