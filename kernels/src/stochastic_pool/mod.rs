//! Stochastic pooling (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557): with `a = max(x, 0)` over a window and
//! `p_i = a_i / sum a`, training draws one position by `p` and gives `x` there, inference gives `sum p_i a_i`.
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`](crate::window::Tiling) lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. A thread goes over its window twice, in row-major order: for the
//! sum, and for the position at which the sum so far passes `u * sum`, with `u` from [`philox`] by the
//! output's row-major index, which is the same in every layout. The arithmetic is `f32`, one operation after another as on
//! the CPU, so that both draw the same position. Common windows two apart go four outputs a thread straight from memory, row-major
//! or with the channels last; other row-major images whose rows have room in shared memory go by [bands](crate::band). Large windows
//! are summed [by rows](by_rows), for which the threads of a block share them. Inference draws nothing: it goes by the passes that
//! averages take, with two sums. Backward is [`route`](crate::route)'s.
//!
//! Bound by memory in 32 bits: reads each input, the second time from the cache or not at all, and writes an element and one or two
//! bytes for each output. In 16 bits bound by the products of the random numbers (docs/perf/log.md).
//!
//! # Safety
//! `x` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `y` and `indices` as many of
//! `window.output`, `state` [`state::COUNT`] elements; `tiling` is over the outputs, and the launch has its grid and block;
//! the window has no dilation and keeps its promises; indices of type `P` can name its positions and one more.

mod beside;
mod channels;
mod elements;
mod forward;
mod four;
mod inference;
mod large;
mod rows;
mod sums;
mod twos;
mod weights;

pub use beside::*;
pub use channels::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use inference::*;
pub use large::*;
pub use rows::*;
pub use twos::*;

use crate::philox;

/// Which element of the state is what.
pub mod state {
    /// The seed.
    pub const SEED: usize = 0;
    /// How many passes have drawn.
    pub const OFFSET: usize = 1;
    /// How many there are.
    pub const COUNT: usize = 2;
}

/// Positions from which on a window is large: its indices are not of one byte.
const LARGE: u64 = 256;

/// Rows of a window that is summed by rows, at most: as many have room in shared memory.
const MOST_ROWS: u32 = 4096;

/// Whether a window of this size is summed by rows: each row's sum, element after element, then the rows' sums, one after another.
/// The sum up to an element is that of the rows before its own, and to it that of its row so far. (In all other windows one
/// sum goes on from element to element.) Every device draws by the same sums.
pub const fn by_rows(size: [u32; 2]) -> bool {
    size[0] <= MOST_ROWS && size[0] as u64 * size[1] as u64 >= LARGE
}

/// What an element counts where sums of finite ones pass the largest float: too little for 2³² of them to do so.
pub const SMALL: f32 = 1.0 / (1u64 << 32) as f32;

/// The number that output `index` is drawn by.
#[device_inline]
fn uniform(seed: u64, offset: u64, index: u64) -> f32 {
    let [number, ..] = philox::numbers(seed, offset, index);
    uniform_of(number)
}

/// 24 bits of a number, from 0 to below 1: exact.
#[device_inline]
fn uniform_of(number: u32) -> f32 {
    (number >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// Counts a pass that has drawn; a grid of one block.
///
/// # Safety
/// `state` holds [`state::COUNT`] elements.
#[kernel(block = 1)]
pub unsafe fn stochastic_pool_advance(state: GlobalMut<u64>) {
    // SAFETY: the caller's, and there is one thread.
    unsafe { state.store(state::OFFSET, state.load(state::OFFSET).wrapping_add(1)) };
}
