//! Large windows, in any order in memory: a warp an output, or the outputs of a few channels that are last.
//!
//! Where a band of rows has no room in shared memory, or there are too few outputs for as many threads as a GPU wants, the
//! lanes of a warp share a window: as many neighbouring columns as there are lanes for, and of as many rows at
//! once. With the channels last a lane has one of up to 32 neighbouring channels, so that neighbouring lanes read neighbouring
//! elements in either order: a row-major image is here one of a single channel. Loads are several rows ahead, and the lanes' results
//! are brought together by shuffles, in a fixed order. Where outputs are so few that a multiprocessor would have few warps, and
//! windows have many rows, several warps of a block share a window, by its rows; their results are brought together through shared
//! memory.
//!
//! Bound by the time that memory takes to answer.

use cuda_std::prelude::*;

use crate::band::BandLaunch;
use crate::band::any::steps_inside;
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block, at most.
pub const THREADS: u32 = 1024;
/// Warps of a block, unless more share an output.
const WARPS: u32 = 8;
/// Warps of a block, at most.
const MOST_WARPS: u32 = THREADS / warp::WARP_SIZE;
/// Elements that a lane loads before it uses the first, of rows below each other.
const AHEAD: u32 = 4;
/// Channels of a warp that has not all, at least: neighbours that memory gives at once are then read by few.
const LEAST_CHANNELS: u32 = 4;
/// Blocks along y, at most.
const MOST_BLOCKS: u32 = 65_535;
/// Positions from which on a window is worth a warp.
const LARGE: u64 = 64;
/// Positions from which on that is so whatever the outputs: of smaller windows, neighbouring threads find the same elements in the cache.
const VERY_LARGE: u64 = 1024;
/// Outputs that are few, at most, and warps for these: what shares elements, or needs no shuffles, takes more of them in less time.
const MOST_OUTPUTS: u64 = 1 << 17;
const MOST_EACH: u64 = 1 << 14;
/// Warps that are enough for memory to be busy: sixteen of each multiprocessor of an H100 or H200.
const ENOUGH_WARPS: u64 = 1 << 11;

/// How warps are laid over outputs, and lanes over windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warps {
    /// Outputs of all planes, and of one, of all channels one.
    outputs: u32,
    of_plane: u32,
    by_plane: Divider,
    by_width: Divider,
    /// Neighbouring channels of a warp.
    channels: u32,
    by_channels: Divider,
    /// Columns, and rows, that the lanes of a channel take at once.
    beside: u32,
    by_beside: Divider,
    below: u32,
    /// The largest power of two below the number of a channel's lanes, or 0.
    half: u32,
    /// Warps that share an output, a power of two, as an exponent.
    together: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Warps {}

impl Warps {
    /// Over the outputs of large windows without dilation, where outputs are few, or windows very large and no `bands` have room
    /// for them; and the launch.
    pub fn new(window: &Window<Nhwc>, bands: bool) -> Option<(Self, BandLaunch)> {
        let [height, width] = window.output;
        let of_plane = height.checked_mul(width)?;
        let outputs = of_plane.checked_mul(window.planes).filter(|&outputs| outputs < 1 << 31)?;
        let [rows, columns] = window.size;
        let positions = u64::from(rows) * u64::from(columns);
        let mut channels = window.channels.min(warp::WARP_SIZE);
        let each = u64::from(outputs) * u64::from(window.channels.div_ceil(channels));
        let few = each < MOST_EACH && u64::from(outputs) * u64::from(window.channels) < MOST_OUTPUTS;
        let (mut chunks, mut beside, mut below, mut together);
        // Where all warps of a block are too few, fewer channels a warp.
        loop {
            chunks = window.channels.div_ceil(channels);
            let lanes = warp::WARP_SIZE / channels;
            beside = columns.min(lanes);
            below = lanes / beside;
            together = 1;
            let are_few = |together: u32| u64::from(outputs) * u64::from(chunks) * u64::from(together) < ENOUGH_WARPS;
            // As long as each has all rows to load that it can at once.
            while are_few(together) && together < MOST_WARPS && rows >= 2 * together * below * AHEAD {
                together *= 2;
            }
            if !are_few(together) || channels < 2 * LEAST_CHANNELS {
                break;
            }
            channels /= 2;
        }
        let warps = WARPS.max(together);
        let blocks = outputs.div_ceil(warps / together);
        let worth = positions >= LARGE && (few || (!bands && positions >= VERY_LARGE));
        if window.dilation != [1, 1] || !worth || chunks > MOST_BLOCKS {
            return None;
        }
        let launch = BandLaunch {
            grid: [blocks, chunks, 1],
            block: [warps * warp::WARP_SIZE, 1, 1],
            shared: if together > 1 { warps * channels * 2 * size_of::<u32>() as u32 } else { 0 },
        };
        let warps = Self {
            outputs,
            of_plane,
            by_plane: Divider::new(of_plane),
            by_width: Divider::new(width),
            channels,
            by_channels: Divider::new(channels),
            beside,
            by_beside: Divider::new(beside),
            below,
            half: (beside * below).next_power_of_two() / 2,
            together: together.trailing_zeros(),
        };
        Some((warps, launch))
    }

    /// Outputs of a plane, of all channels one.
    #[device_inline]
    pub(crate) fn of_plane(&self) -> usize {
        self.of_plane as usize
    }

    /// This lane's output. A warp past the last goes through that one, and a lane past the last channel through nothing.
    #[device_inline]
    pub(crate) fn output(&self, window: &Window<Nhwc>) -> Output {
        let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
        let of_block = (thread::block_dim_x() / warp::WARP_SIZE) >> self.together;
        let number = thread::block_idx_x() * of_block + (warp >> self.together);
        let there = number < self.outputs;
        let number = if there { number } else { self.outputs - 1 };
        let plane = self.by_plane.divide(number);
        let place = number - plane * self.of_plane;
        let row = self.by_width.divide(place);
        let column = place - row * window.output[1];
        let member = warp & ((1 << self.together) - 1);
        let group = self.by_channels.divide(lane);
        let channel = thread::block_idx_y() * self.channels + lane - group * self.channels;
        let inside = channel < window.channels;
        let line = self.by_beside.divide(group);
        Output {
            first: there & inside & (member == 0) & (group == 0),
            number: number as usize * window.channels as usize + channel as usize,
            plane,
            row,
            column,
            channel,
            takes: inside & (line < self.below),
            begin: [member * self.below + line, group - line * self.beside],
        }
    }

    /// Brings together what the lanes of an output have: the words of all of them, by `join(own, another's)`, for the first.
    ///
    /// # Safety
    /// All threads of the block come here, once, with the launch's shared memory.
    #[device_inline]
    pub(crate) unsafe fn joined(&self, mut own: [u32; 2], join: impl Fn([u32; 2], [u32; 2]) -> [u32; 2]) -> [u32; 2] {
        let lanes = self.beside * self.below;
        own = self.of_lanes(own, lanes, self.half, &join);
        if self.together == 0 {
            return own;
        }
        let left = dynamic_shared::<u32>();
        let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
        let group = self.by_channels.divide(lane);
        let channel = lane - group * self.channels;
        let warps = 1 << self.together;
        let at = |member: u32| (((warp & !(warps - 1)) + member) * self.channels + channel) * 2;
        let (lanes, half) = if lanes < warps { (lanes, self.half) } else { (warps, warps / 2) };
        // SAFETY: there are two words for each channel of each warp of the block, which writes its own before the barrier.
        unsafe {
            if group == 0 {
                let at = at(warp & (warps - 1));
                left.store(at, own[0]);
                left.store(at + 1, own[1]);
            }
            thread::sync_threads();
            if group < lanes {
                own = [left.load(at(group)), left.load(at(group) + 1)];
                let mut member = group + lanes;
                while member < warps {
                    own = join(own, [left.load(at(member)), left.load(at(member) + 1)]);
                    member += lanes;
                }
            }
        }
        self.of_lanes(own, lanes, half, &join)
    }

    /// What so many lanes of a channel have, for the first of them; `half` is the largest power of two below their number.
    #[device_inline]
    fn of_lanes(
        &self,
        mut own: [u32; 2],
        lanes: u32,
        half: u32,
        join: &impl Fn([u32; 2], [u32; 2]) -> [u32; 2],
    ) -> [u32; 2] {
        let group = self.by_channels.divide(warp::lane_id());
        let mut step = half;
        while step > 0 {
            let joined = join(own, own.map(|word| warp::shuffle_down(word, step * self.channels)));
            own = if group + step < lanes { joined } else { own };
            step /= 2;
        }
        own
    }
}

/// An output of a warp's, or of several.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Whether it is this lane that stores it.
    pub first: bool,
    /// Its number among all.
    pub number: usize,
    /// Its plane, its place there, and its channel.
    pub plane: u32,
    pub row: u32,
    pub column: u32,
    pub channel: u32,
    /// Whether this lane takes any of the window, and from which row and column of it on.
    takes: bool,
    begin: [u32; 2],
}

/// Calls `f(value, i, j)` with the elements that are this lane's of an output's window inside the image, or `outside` where it has
/// none; `x` is the output's plane.
///
/// # Safety
/// The output exists.
#[device_inline]
pub(crate) unsafe fn for_each<T: Storage>(
    x: Global<T>,
    window: &Window<Nhwc>,
    warps: &Warps,
    &Output { row, column, channel, takes, begin: [i, j], .. }: &Output,
    outside: f32,
    mut f: impl FnMut(f32, u32, u32),
) {
    let below = warps.below << warps.together;
    let [first, end] = steps_inside(window, 0, row);
    let [left, right] = steps_inside(window, 1, column);
    let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
    let begin = (column * window.stride[1]).wrapping_sub(window.padding[1]);
    let right = if takes { right } else { 0 };
    let otherwise = T::from_f32(outside);
    let mut j = left + j;
    while j < right {
        let place = begin.wrapping_add(j).wrapping_mul(window.channels).wrapping_add(channel) as usize;
        let mut i = first + i;
        while i < end {
            let mut values = [otherwise; AHEAD as usize];
            unrolled!(K in [0 1 2 3] {
                let i = i + K as u32 * below;
                let line = top.wrapping_add(i) as usize * window.input_line();
                // SAFETY: inside the image where it is loaded.
                values[K] = unsafe { x.load_if(i < end, line + place, otherwise) };
            });
            unrolled!(K in [0 1 2 3] { f(values[K].to_f32(), i + K as u32 * below, j); });
            i += AHEAD * below;
        }
        j += warps.beside;
    }
}
