//! Large windows of row-major images: a warp an output.
//!
//! Where a band of rows has no room in shared memory, or there are too few outputs for as many threads as a GPU wants, the
//! lanes of a warp share a window: as many neighbouring columns as the window has, up to all lanes, and of as many rows at
//! once as there are lanes for. Neighbouring lanes read neighbouring elements, several rows ahead, and the lanes' results
//! are brought together by shuffles, in a fixed order.

use cuda_std::prelude::*;

use crate::band::any::steps_inside;
use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Outputs of a block: its warps.
const OUTPUTS: u32 = THREADS / warp::WARP_SIZE;
/// Blocks along y, at most.
const MOST_BLOCKS: u32 = 65_535;
/// Positions from which on a window is worth a warp.
const LARGE: u64 = 64;
/// Positions from which on that is so whatever the outputs: of smaller windows that overlap, neighbouring threads find the same
/// elements in the cache.
const VERY_LARGE: u64 = 1024;
/// Threads that a GPU has room for, about: with as many outputs each may have a thread.
const ENOUGH: u64 = 1 << 18;

/// How warps are laid over outputs, and lanes over windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warps {
    /// Outputs of a plane.
    outputs: u32,
    by_width: Divider,
    /// Lanes beside each other, a power of two, as an exponent.
    beside: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Warps {}

impl Warps {
    /// Over the outputs of large windows without dilation, where outputs are few, or windows very large and no `bands` have room
    /// for them; and the grid.
    pub fn new(window: &Window<Nchw>, bands: bool) -> Option<(Self, [u32; 3])> {
        let [height, width] = window.output;
        let outputs = u32::try_from(u64::from(height) * u64::from(width)).ok().filter(|&outputs| outputs < 1 << 31)?;
        let positions = u64::from(window.size[0]) * u64::from(window.size[1]);
        let is_few = u64::from(outputs) * u64::from(window.planes) < ENOUGH;
        let tiles = outputs.div_ceil(OUTPUTS);
        let worth = positions >= LARGE && (is_few || (!bands && positions >= VERY_LARGE));
        if window.dilation != [1, 1] || !worth || tiles > MOST_BLOCKS {
            return None;
        }
        let beside = window.size[1].next_power_of_two().min(warp::WARP_SIZE).trailing_zeros();
        Some((Self { outputs, by_width: Divider::new(width), beside }, [window.planes, tiles, 1]))
    }

    /// This warp's output: its number in all, its row and its column.
    #[device_inline]
    pub(crate) fn output(&self, window: &Window<Nchw>) -> Option<(usize, u32, u32)> {
        let number = thread::block_idx_y() * OUTPUTS + thread::thread_idx_x() / warp::WARP_SIZE;
        let row = self.by_width.divide(number);
        let output = window.output_plane(thread::block_idx_x()) + number as usize;
        if number < self.outputs { Some((output, row, number - row * window.output[1])) } else { None }
    }
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
    [row, column]: [u32; 2],
    outside: f32,
    mut f: impl FnMut(f32, u32, u32),
) {
    let lane = warp::lane_id();
    let (beside, below) = (1 << warps.beside, warp::WARP_SIZE >> warps.beside);
    let [first, end] = steps_inside(window, 0, row);
    let [left, right] = steps_inside(window, 1, column);
    let origin = (row * window.stride[0]).wrapping_sub(window.padding[0]);
    let begin = (column * window.stride[1]).wrapping_sub(window.padding[1]);
    let otherwise = T::from_f32(outside);
    let mut j = left + (lane & (beside - 1));
    while j < right {
        let mut i = first + (lane >> warps.beside);
        while i < end {
            let mut values = [otherwise; 4];
            unrolled!(K in [0 1 2 3] {
                let i = i + K as u32 * below;
                let line = origin.wrapping_add(i) as usize * window.input_line();
                // SAFETY: inside the image where it is loaded.
                values[K] = unsafe { x.load_if(i < end, line + begin.wrapping_add(j) as usize, otherwise) };
            });
            unrolled!(K in [0 1 2 3] { f(values[K].to_f32(), i + K as u32 * below, j); });
            i += 4 * below;
        }
        j += beside;
    }
}
