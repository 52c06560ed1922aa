//! Stochastic pooling (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557): with `a = max(x, 0)` over a window and
//! `p_i = a_i / sum a`, training draws one position by `p` and gives `x` there, inference gives `sum p_i a_i`.
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`](crate::window::Tiling) lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. A thread goes over its window twice, in row-major order: for the
//! sum, and for the position at which the sum so far passes `u * sum`, with `u` from [`philox`] by the
//! output's row-major index, which is the same in every layout. The arithmetic is `f32`, one operation after another as on
//! the CPU, so that both draw the same position. Common windows two apart go four outputs a thread straight from memory, row-major
//! or with the channels last; other row-major images whose rows have room in shared memory go by [bands](crate::band). Windows of more than nine
//! positions are summed [by rows](by_rows), whose sums those below each other share: by tiles where they are row-major, by threads that go
//! down columns with the channels last, and large ones by the threads of a block. Inference draws nothing: it goes by the passes that
//! averages take, with two sums. Backward is [`route`](crate::route)'s.
//!
//! Bound by memory in 32 bits: reads each input, the second time from the cache or not at all, and writes an element and one or two
//! bytes for each output. In 16 bits, and where windows overlap much, bound by instructions: by the products of the random numbers above all
//! (docs/perf/log.md).
//!
//! # Safety
//! `x` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `y` and `indices` as many of
//! `window.output`, `state` [`state::COUNT`] elements; `tiling` is over the outputs, and the launch has its grid and block;
//! the window has no dilation and keeps its promises; indices of type `P` can name its positions and one more.

mod channels;
mod elements;
mod falling;
mod forward;
mod four;
mod inference;
mod large;
mod rows;
mod sums;
mod sums_of_rows;
mod tiles;
mod twos;
mod weights;

pub use channels::*;
use cuda_std::prelude::*;
pub use falling::*;
pub use forward::*;
pub use inference::*;
pub use large::*;
pub use rows::*;
pub use tiles::*;
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

/// Positions of a window that is summed from element to element, at most: those of 3×3 ones, which have kernels that keep all of them in registers.
const FEW: u64 = 9;

/// Rows of a window that is summed by rows, at most: as many have room in shared memory.
const MOST_ROWS: u32 = 4096;

/// Whether a window of this size is summed by rows: each row's sum, element after element, then the rows' sums, one after another.
/// The sum up to an element is that of the rows before its own, and to it that of its row so far. (In all other windows one
/// sum goes on from element to element.) Every device draws by the same sums.
pub const fn by_rows(size: [u32; 2]) -> bool {
    size[0] <= MOST_ROWS && size[0] as u64 * size[1] as u64 > FEW
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

#[cfg(test)]
mod tests {
    use core::marker::PhantomData;

    use cuda_std::launch::{Launch, LaunchDims};

    use super::*;
    use crate::window::{Order, Tiling, Window};

    /// Over so many planes of so many channels.
    pub(super) fn window<L: Order>(
        [planes, channels]: [u32; 2],
        input: [u32; 2],
        size: [u32; 2],
        stride: [u32; 2],
        padding: [u32; 2],
    ) -> Window<L> {
        let output = [0, 1].map(|axis| (input[axis] + 2 * padding[axis] - size[axis]) / stride[axis] + 1);
        Window { planes, channels, input, output, size, stride, padding, dilation: [1, 1], order: PhantomData }
    }

    /// Elements for it, among them runs of zeros, NaN and infinities.
    pub(super) fn elements<L: Order>(window: &Window<L>) -> Vec<f32> {
        let count = window.input_plane(window.planes);
        let mut x: Vec<f32> = (0..count).map(|i| (i * 7919 % 1009) as f32 - 100.0).collect();
        x[count / 2..][..count / 5].fill(-1.0);
        (x[1], x[count / 3], x[count - 1]) = (f32::NAN, f32::INFINITY, f32::MAX);
        x[count - 2] = f32::MAX;
        x
    }

    /// Those of each.
    pub(super) fn bits(y: &[f32]) -> Vec<u32> {
        y.iter().map(|y| y.to_bits()).collect()
    }

    /// The values' bits and the positions that are drawn by an element a thread.
    pub(super) fn drawn_one_by_one<L: Order>(window: &Window<L>, x: &Vec<f32>) -> (Vec<u32>, Vec<u8>)
    where
        for<'a> StochasticPoolForward<'a, f32, L, u8>: Launch,
    {
        let count = window.output_plane(window.planes);
        let (mut y, mut indices, state, window) = (vec![0.0; count], vec![0; count], [7, 2], *window);
        let (tiling, grid, block) = Tiling::new(&window, window.output);
        let (y_, indices_, state) = (&mut y, &mut indices, &state);
        let draws = StochasticPoolForward::<f32, L, u8> { x, y: y_, indices: indices_, state, window, tiling };
        // SAFETY: the window is over `x`, the outputs and indices its, and the tiling over these.
        unsafe { draws.emulate(LaunchDims::new(grid, block)) }.unwrap();
        (bits(&y), indices)
    }
}
