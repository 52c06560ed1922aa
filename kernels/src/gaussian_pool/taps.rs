//! Gaussian pooling of windows of few positions, their *taps*, whose weights are the same everywhere: of up to [`MOST_SIZE`] rows and columns, any way apart,
//! whether all channels share a Gaussian or each has one; forward, and backward the input's gradient. By packs of 2 to 8 bytes of neighbouring channels, which
//! are last; row-major images by elements.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, and `dx` likewise over the windows that cover an input: of an element an axis has as
//! many taps as windows have positions, or, backward, as windows are over an input at most.
//!
//! Launch: blocks of [`TAPS_BLOCK`] threads, as many as work at a time, of a [group](crate::packs::groups) of neighbouring packs of a pixel: along x the
//! turns of [`Elements`] over as many packs a pixel, one or [`TAPS_ROWS`] rows a thread, along y a row of blocks for each group. Neighbouring threads have neighbouring
//! packs of neighbouring pixels of a row. Once the first inputs of threads with one row are on their way, a block computes the weights of its group's channels, a thread those
//! of one channel along one axis, those of a position side by side, so that neighbouring threads take neighbouring words. Of a thread with several rows, a tap of
//! each row is where the others are along x, and weighs as much.
//!
//! No input is kept for a neighbour but in the caches. Bound by the time that memory takes to answer, and of many elements, suspected, by instructions: on an H200, 1×2
//! two columns apart, a Gaussian for each of 96 channels of 32 images of 112×112, forward 0.71 of the copy rate in f32 and 0.69 in bf16 (docs/perf).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::weights::{Shape, few};
use crate::elements::{Elements, Place};
use crate::packs::{add_each, channels, load, put};
use crate::vectors::{LANES, Lanes, Numbers, Words};
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
pub const TAPS_BLOCK: u32 = 256;
/// Rows of a thread that has several.
pub const TAPS_ROWS: u32 = 4;
/// Positions of a window along an axis, at most.
pub const MOST_SIZE: u32 = 8;
/// Taps along x that are under way at a time: of a thread with one row, and of each of several rows.
const AHEAD: [usize; 2] = [4, 2];
const MOST_AHEAD: usize = 4;
const MOST_ROWS: usize = TAPS_ROWS as usize;

/// Taps along x that a thread of so many rows has under way.
const fn ahead(rows: usize) -> usize {
    if rows == 1 { AHEAD[0] } else { AHEAD[1] }
}

/// Blocks that fit on a multiprocessor, of packs of so many bytes and threads of so many rows.
pub const fn taps_blocks(bytes: usize, rows: usize) -> u32 {
    match (bytes, rows) {
        (8, MOST_ROWS) => 2,
        (_, MOST_ROWS) => 4,
        _ => 5,
    }
}

/// A window's way along an axis, in a pass from one image to another.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    size: u32,
    stride: u32,
    padding: u32,
    by_stride: Divider,
    /// Pixels of the source.
    source: u32,
    /// Packs from one of these to the next.
    packs: u32,
    /// Taps of an element, at most.
    reach: u32,
    /// How far the source goes from a tap to the next, in packs, and the position in the window.
    source_step: u32,
    position_step: u32,
}

/// How blocks take packs one turn after another, and weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taps {
    /// Along y and along x.
    ways: [Way; 2],
    /// Turns of a block's threads over all packs of a group.
    turns: u32,
    /// Packs of a group.
    lanes: u32,
    /// Channels that a block has weights of: those of its group; of row-major images all.
    count: u32,
    by_count: Divider,
    /// Channels that have Gaussians of their own, or 1 where all share one.
    gaussians: u32,
    backward: u32,
    /// Whether planes have one channel each, whose number is the plane's among `count`.
    row_major: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Taps {}

impl Taps {
    /// Of so many turns and packs of a group, a block of which has weights of so many channels, of so many Gaussians.
    pub fn new(
        window: &Window<Nhwc>,
        [turns, lanes]: [u32; 2],
        [count, gaussians]: [u32; 2],
        [backward, row_major]: [bool; 2],
    ) -> Self {
        let source = if backward { window.output } else { window.input };
        let ways = [0, 1].map(|axis| {
            let [size, stride, padding] = [window.size[axis], window.stride[axis], window.padding[axis]];
            let packs = if axis == 0 { source[1] * window.channels } else { window.channels };
            let (reach, source_step, position_step) =
                if backward { (size.div_ceil(stride), packs.wrapping_neg(), stride) } else { (size, packs, 1) };
            let (source, by_stride) = (source[axis], Divider::new(stride));
            Way { size, stride, padding, by_stride, source, packs, reach, source_step, position_step }
        });
        let by_count = Divider::new(count);
        let [backward, row_major] = [backward, row_major].map(u32::from);
        Self { ways, turns, lanes, count, by_count, gaussians, backward, row_major }
    }

    /// Bytes of a block's shared memory for weights of so many channels, if there are not too many to count.
    pub fn shared_bytes([height, width]: [u32; 2], count: u32) -> Option<u32> {
        height.checked_add(width)?.checked_mul(count)?.checked_mul(4)
    }

    /// Computes the weights of the channels from `first` on along y and then along x, those of a position side by side. They are there when this
    /// returns.
    ///
    /// # Safety
    /// Shared memory is as large as [`shared_bytes`](Self::shared_bytes) says; the parameters hold the Gaussians; all threads of the block come together.
    #[device_inline]
    unsafe fn put_weights(&self, to: Shared<f32>, parameters: [Global<f32>; 2], first: u32, variances: u32) {
        let mut number = thread::thread_idx_x();
        while number < 2 * self.count {
            let vertical = number < self.count;
            let channel = if vertical { number } else { number - self.count };
            let [begin, size] = if vertical { [0, self.ways[0].size] } else { [self.ways[0].size, self.ways[1].size] };
            // Of channels past the last, which nobody asks for, any.
            let gaussian = (first + channel).min(self.gaussians - 1);
            // SAFETY: the caller's.
            let weights = few(size, unsafe { Shape::load(parameters, gaussian, vertical, variances) });
            unrolled!(I in [0 1 2 3 4 5 6 7] {
                if (I as u32) < size {
                    // SAFETY: the channel's weights along this axis are this thread's until the barrier.
                    unsafe { to.store((begin + I as u32) * self.count + channel, weights[I]) };
                }
            });
            number += TAPS_BLOCK;
        }
        thread::sync_threads();
    }

    /// What an element's first tap along an axis takes, and the tap's position in its window.
    #[device_inline]
    fn first(&self, way: usize, element: u32) -> [u32; 2] {
        let Way { stride, padding, by_stride, .. } = self.ways[way];
        if self.backward == 0 {
            // What is before the image wraps round to far after it.
            return [(element * stride).wrapping_sub(padding), 0];
        }
        let last = element + padding;
        let output = by_stride.divide(last);
        [output, last - output * stride]
    }

    /// Whether a thread's tap, so many after the first, is in the image and in the window, along an axis.
    #[device_inline]
    fn is_there(&self, way: usize, [source, position]: [u32; 2], tap: u32) -> bool {
        let Way { source: end, position_step, size, .. } = self.ways[way];
        let source = if self.backward == 0 { source.wrapping_add(tap) } else { source.wrapping_sub(tap) };
        (source < end) & (position + tap * position_step < size)
    }
}

/// What a thread has of a turn.
#[derive(Clone, Copy)]
struct Own {
    place: Place,
    /// Along x, of the first tap the source's pixel, and its position in the window.
    along: [u32; 2],
    /// That pixel's pack, within its row; wraps round where there is none.
    at: u32,
    /// The plane's first, in the source.
    plane: usize,
    /// The first word of its channels' weights of a position.
    channel: u32,
}

/// Taps one after another along x, of one along y of each of a thread's rows.
#[derive(Clone, Copy)]
struct Loaded {
    packs: [[Words; MOST_AHEAD]; MOST_ROWS],
    /// Whether those of a row are in the image and in the window, and those of a tap along x.
    rows: [bool; MOST_ROWS],
    columns: [bool; MOST_AHEAD],
}

/// Pools `from` into `to` by the channels' Gaussians: `x` into `y`, or, backward, the gradient of `y` into that of `x`, plus `beta` times what is there.
///
/// # Safety
/// The parent module's. `from` and `to` are what `window` says, whose channels are packs of `BYTES` bytes; a plane of either has less than 2³¹ elements. `mean` holds
/// two and `var` `variances` elements for each of the Gaussians of `taps`, which is of this window; `elements` are the outputs, or, backward, the inputs, of
/// as many packs a pixel as a group has, `ROWS` rows a thread, in as many turns as `taps` says; and shared memory is what [`Taps::shared_bytes`] says.
#[kernel(
    block = TAPS_BLOCK,
    min_blocks = taps_blocks(BYTES, ROWS),
    instances((T, BYTES) = [(f32, 4), (f32, 8), (f16, 2), (f16, 8), (bf16, 2), (bf16, 8)], ROWS = [1, 4])
)]
pub unsafe fn gaussian_pool_taps<T: Lanes, const BYTES: usize, const ROWS: usize>(
    from: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    to: GlobalMut<T>,
    beta: f32,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
    taps: Taps,
) {
    let each = channels::<T>(BYTES);
    let weights = dynamic_shared::<f32>();
    let group = thread::block_idx_y() * taps.lanes;
    let [source, target] =
        if taps.backward == 0 { [window.input, window.output] } else { [window.output, window.input] };
    let plane_of = |plane: u32, [height, width]: [u32; 2]| plane as usize * (height * width * window.channels) as usize;
    let own = |turn: u32| {
        let place = elements.nth(turn * TAPS_BLOCK + thread::thread_idx_x(), taps.lanes)?;
        let lane = place.channel;
        let place = Place { channel: group + lane, ..place };
        let along = taps.first(1, place.column);
        let at = along[0].wrapping_mul(taps.ways[1].packs).wrapping_add(place.channel);
        let channel = if taps.row_major == 0 {
            lane * each
        } else {
            place.plane - taps.by_count.divide(place.plane) * taps.count
        };
        let own = Own { place, along, at, plane: plane_of(place.plane, source), channel };
        (place.channel < window.channels).then_some(own)
    };
    let nothing =
        Loaded { packs: [[[0; 4]; MOST_AHEAD]; MOST_ROWS], rows: [false; MOST_ROWS], columns: [false; MOST_AHEAD] };
    let fetch = |own: &Own, [down, along]: [u32; 2]| {
        let mut loaded = nothing;
        let mut at = [0; MOST_AHEAD];
        unrolled!(K in [0 1 2 3] { if K < ahead(ROWS) {
            let tap = along + K as u32;
            at[K] = own.at.wrapping_add(tap.wrapping_mul(taps.ways[1].source_step));
            loaded.columns[K] = (tap < taps.ways[1].reach) & taps.is_there(1, own.along, tap);
        } });
        unrolled!(R in [0 1 2 3] { if R < ROWS {
            let row = own.place.row + R as u32;
            let first = taps.first(0, row);
            let line = first[0].wrapping_mul(taps.ways[0].packs).wrapping_add(down.wrapping_mul(taps.ways[0].source_step));
            loaded.rows[R] = (row < target[0]) & taps.is_there(0, first, down);
            unrolled!(K in [0 1 2 3] { if K < ahead(ROWS) {
                let there = loaded.rows[R] & loaded.columns[K];
                // SAFETY: a pack of the source where it is loaded.
                loaded.packs[R][K] = unsafe { load::<T, BYTES>(from, there, own.plane + line.wrapping_add(at[K]) as usize) };
            } });
        } });
        loaded
    };
    let weights_at = |own: &Own, way: usize, position: u32| {
        let [begin, size] = if way == 0 { [0, taps.ways[0].size] } else { [taps.ways[0].size, taps.ways[1].size] };
        // SAFETY: a position of the window, of this thread's channels; of two or four channels the first is a multiple of as many.
        unsafe { weights_of(weights, (begin + position.min(size - 1)) * taps.count + own.channel, each) }
    };
    let add = |own: &Own, loaded: &Loaded, [down, along]: [u32; 2], mut sums: [Numbers; MOST_ROWS]| {
        let mut rows = [[0.0; LANES]; MOST_ROWS];
        unrolled!(K in [0 1 2 3] { if K < ahead(ROWS) {
            let mut weights = weights_at(own, 1, own.along[1] + (along + K as u32) * taps.ways[1].position_step);
            // What is not there counts as nothing, even of a Gaussian that is none.
            unrolled!(C in [0 1 2 3] { weights[C] = if loaded.columns[K] { weights[C] } else { 0.0 }; });
            unrolled!(R in [0 1 2 3] { if R < ROWS {
                rows[R] = add_each::<T, BYTES>(rows[R], weights, T::numbers(loaded.packs[R][K]));
            } });
        } });
        unrolled!(R in [0 1 2 3] { if R < ROWS {
            let position = taps.first(0, own.place.row + R as u32)[1] + down * taps.ways[0].position_step;
            let sum = add_each::<T, BYTES>(sums[R], weights_at(own, 0, position), rows[R]);
            unrolled!(C in [0 1 2 3] { sums[R][C] = if loaded.rows[R] { sum[C] } else { sums[R][C] }; });
        } });
        sums
    };

    let mut turn = thread::block_idx_x();
    let mut mine = own(turn);
    let mut loaded = nothing;
    let mut fetched = ROWS == 1;
    if fetched && let Some(own) = &mine {
        loaded = fetch(own, [0; 2]);
    }
    // SAFETY: the caller's; all threads come here.
    unsafe { taps.put_weights(weights, [mean, var], group * each, variances) };
    let nothing: [Numbers; MOST_ROWS] = [[0.0; LANES]; MOST_ROWS];
    let (mut sums, mut tap) = (nothing, [0; 2]);
    loop {
        if let Some(own) = &mine {
            if !fetched {
                loaded = fetch(own, tap);
            }
            sums = add(own, &loaded, tap, sums);
        }
        fetched = false;
        tap[1] += ahead(ROWS) as u32;
        if tap[1] >= taps.ways[1].reach {
            tap = [tap[0] + 1, 0];
        }
        if tap[0] < taps.ways[0].reach {
            continue;
        }
        if let Some(Own { place: Place { plane, row, column, channel }, .. }) = mine {
            let first = plane_of(plane, target);
            unrolled!(R in [0 1 2 3] { if R < ROWS {
                let row = row + R as u32;
                if row < target[0] {
                    let at = first + ((row * target[1] + column) * window.channels + channel) as usize;
                    // SAFETY: the pack exists, and is this thread's.
                    unsafe { put::<T, BYTES>(to, at, sums[R], beta) };
                }
            } });
        }
        turn += thread::grid_dim_x();
        if turn >= taps.turns {
            break;
        }
        mine = own(turn);
        sums = nothing;
        tap = [0; 2];
    }
}

/// The weights of so many channels, of which there are 1, 2 or 4.
///
/// # Safety
/// Shared memory holds them from `at` on, which is a multiple of as many.
#[device_inline]
unsafe fn weights_of(weights: Shared<f32>, at: u32, each: u32) -> Numbers {
    let mut numbers = [0.0; LANES];
    // SAFETY: the caller's.
    unsafe {
        match each {
            1 => numbers[0] = weights.load(at),
            2 => {
                let Vec2 { x, y } = weights.load2(at);
                [numbers[0], numbers[1]] = [x, y];
            }
            _ => {
                let Vec4 { x, y, z, w } = weights.load4(at);
                [numbers[0], numbers[1], numbers[2], numbers[3]] = [x, y, z, w];
            }
        }
    }
    numbers
}
