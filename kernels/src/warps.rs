//! Large windows of row-major images: a warp an output.
//!
//! Where a band of rows has no room in shared memory, or there are too few outputs for as many threads as a GPU wants, the
//! lanes of a warp share a window: as many neighbouring columns as the window has, up to all lanes, and of as many rows at
//! once as there are lanes for. Neighbouring lanes read neighbouring elements, several rows ahead, and the lanes' results
//! are brought together by shuffles, in a fixed order. Where outputs are so few that a multiprocessor would have few warps, and
//! windows have many rows, several warps of a block share a window, by its rows; their results are brought together through shared
//! memory.
//!
//! Bound by the time that memory takes to answer.

use cuda_std::prelude::*;

use crate::band::BandLaunch;
use crate::band::any::steps_inside;
use crate::window::{Divider, Nchw, Window};

/// Threads of a block, at most.
pub const THREADS: u32 = 1024;
/// Warps of a block, unless more share an output.
const WARPS: u32 = 8;
/// Warps of a block, at most.
const MOST_WARPS: u32 = THREADS / warp::WARP_SIZE;
/// Elements that a lane loads before it uses the first, of rows below each other.
const AHEAD: u32 = 4;
/// Blocks along y, at most.
const MOST_BLOCKS: u32 = 65_535;
/// Positions from which on a window is worth a warp.
const LARGE: u64 = 64;
/// Positions from which on that is so whatever the outputs: of smaller windows that overlap, neighbouring threads find the same
/// elements in the cache.
const VERY_LARGE: u64 = 1024;
/// Threads that a GPU has room for, about: with as many outputs each may have a thread.
const ENOUGH: u64 = 1 << 18;
/// Warps that are enough for memory to be busy: sixteen of each multiprocessor of an H100 or H200.
const ENOUGH_WARPS: u64 = 1 << 11;

/// How warps are laid over outputs, and lanes over windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warps {
    /// Outputs of a plane.
    outputs: u32,
    by_width: Divider,
    /// Lanes beside each other, a power of two, as an exponent.
    beside: u32,
    /// Warps that share an output, a power of two, as an exponent.
    together: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Warps {}

impl Warps {
    /// Over the outputs of large windows without dilation, where outputs are few, or windows very large and no `bands` have room
    /// for them; and the launch.
    pub fn new(window: &Window<Nchw>, bands: bool) -> Option<(Self, BandLaunch)> {
        let [height, width] = window.output;
        let outputs = u32::try_from(u64::from(height) * u64::from(width)).ok().filter(|&outputs| outputs < 1 << 31)?;
        let [rows, columns] = window.size;
        let positions = u64::from(rows) * u64::from(columns);
        let of_all = u64::from(outputs) * u64::from(window.planes);
        let worth = positions >= LARGE && (of_all < ENOUGH || (!bands && positions >= VERY_LARGE));
        let beside = columns.next_power_of_two().min(warp::WARP_SIZE);
        let below = warp::WARP_SIZE / beside;
        // As long as each has all rows to load that it can at once.
        let mut together = 1;
        while of_all * u64::from(together) < ENOUGH_WARPS
            && together < MOST_WARPS
            && rows >= 2 * together * below * AHEAD
        {
            together *= 2;
        }
        let warps = WARPS.max(together);
        let tiles = outputs.div_ceil(warps / together);
        if window.dilation != [1, 1] || !worth || tiles > MOST_BLOCKS {
            return None;
        }
        let [beside, together] = [beside, together].map(u32::trailing_zeros);
        let grid = [window.planes, tiles, 1];
        let launch = BandLaunch { grid, block: [warps * warp::WARP_SIZE, 1, 1], shared: 0 };
        Some((Self { outputs, by_width: Divider::new(width), beside, together }, launch))
    }

    /// This warp's output. A warp past the last goes through that one.
    #[device_inline]
    pub(crate) fn output(&self, window: &Window<Nchw>) -> Output {
        let warp = thread::thread_idx_x() / warp::WARP_SIZE;
        let of_block = (thread::block_dim_x() / warp::WARP_SIZE) >> self.together;
        let number = thread::block_idx_y() * of_block + (warp >> self.together);
        let there = number < self.outputs;
        let number = if there { number } else { self.outputs - 1 };
        let row = self.by_width.divide(number);
        let column = number - row * window.output[1];
        let member = warp & ((1 << self.together) - 1);
        let first = there & (member == 0) & (warp::lane_id() == 0);
        Output { first, number: window.output_plane(thread::block_idx_x()) + number as usize, row, column, member }
    }

    /// Brings together what the lanes of an output have: the words of all of them, by `join(own, another's)`.
    ///
    /// # Safety
    /// All threads of the block come here, once.
    #[device_inline]
    pub(crate) unsafe fn joined(&self, mut own: [u32; 2], join: impl Fn([u32; 2], [u32; 2]) -> [u32; 2]) -> [u32; 2] {
        let left = shared_array![u32; (2 * MOST_WARPS) as usize];
        unrolled!(STEP in [16 8 4 2 1] { own = join(own, own.map(|word| warp::shuffle_xor(word, STEP as u32))); });
        if self.together == 0 {
            return own;
        }
        let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
        // SAFETY: a block has no more warps, and each writes its own words before the barrier.
        unsafe {
            if lane == 0 {
                left.store(2 * warp, own[0]);
                left.store(2 * warp + 1, own[1]);
            }
            thread::sync_threads();
            let mask = (1 << self.together) - 1;
            let of = (warp & !mask) + (lane & mask);
            own = [left.load(2 * of), left.load(2 * of + 1)];
        }
        let mut step = 1 << (self.together - 1);
        while step > 0 {
            own = join(own, own.map(|word| warp::shuffle_xor(word, step)));
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
    /// Its place in the plane.
    pub row: u32,
    pub column: u32,
    /// Which of the warps that share it this is.
    member: u32,
}

/// Calls `f(value, i, j)` with the elements that are this lane's of an output's window inside the image, or `outside` where it has
/// none; `x` is the output's plane.
///
/// # Safety
/// The output exists.
#[device_inline]
pub(crate) unsafe fn for_each<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    warps: &Warps,
    &Output { row, column, member, .. }: &Output,
    outside: f32,
    mut f: impl FnMut(f32, u32, u32),
) {
    let lane = warp::lane_id();
    let (beside, of_warp) = (1 << warps.beside, warp::WARP_SIZE >> warps.beside);
    let below = of_warp << warps.together;
    let [first, end] = steps_inside(window, 0, row);
    let [left, right] = steps_inside(window, 1, column);
    let origin = (row * window.stride[0]).wrapping_sub(window.padding[0]);
    let begin = (column * window.stride[1]).wrapping_sub(window.padding[1]);
    let otherwise = T::from_f32(outside);
    let mut j = left + (lane & (beside - 1));
    while j < right {
        let mut i = first + member * of_warp + (lane >> warps.beside);
        while i < end {
            let mut values = [otherwise; AHEAD as usize];
            unrolled!(K in [0 1 2 3] {
                let i = i + K as u32 * below;
                let line = origin.wrapping_add(i) as usize * window.input_line();
                // SAFETY: inside the image where it is loaded.
                values[K] = unsafe { x.load_if(i < end, line + begin.wrapping_add(j) as usize, otherwise) };
            });
            unrolled!(K in [0 1 2 3] { f(values[K].to_f32(), i + K as u32 * below, j); });
            i += AHEAD * below;
        }
        j += beside;
    }
}
