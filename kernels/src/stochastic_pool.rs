//! Stochastic pooling (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557): with `a = max(x, 0)` over a window and
//! `p_i = a_i / sum a`, training draws one position by `p` and gives `x` there, inference gives `sum p_i a_i`.
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. A thread goes over its window twice, in row-major order: for the
//! sum, and for the position at which the sum so far passes `u * sum`, with `u` from [`philox`] by the
//! output's row-major index, which is the same in every layout. The arithmetic is `f32`, one operation after another as on
//! the CPU, so that both draw the same position. Backward is [`route`](crate::route)'s.
//!
//! Bound by memory: reads each input, the second time from the cache, and writes an element and one or two bytes for each
//! output.
//!
//! # Safety
//! `x` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `y` and `indices` as many of
//! `window.output`, `state` [`state::COUNT`] elements; `tiling` is over the outputs, and the launch has its grid and block;
//! the window has no dilation and keeps its promises; indices of type `P` can name its positions and one more.

use cuda_std::prelude::*;

use crate::elementwise::get;
use crate::philox;
use crate::window::{FEWER_BLOCKS, Nchw, Nhwc, Order, Pixel, Position, THREADS, Tiling, Window};

/// Which element of the state is what.
pub mod state {
    /// The seed.
    pub const SEED: usize = 0;
    /// How many passes have drawn.
    pub const OFFSET: usize = 1;
    /// How many there are.
    pub const COUNT: usize = 2;
}

/// What an element counts where sums of finite ones pass the largest float: too little for 2³² of them to do so.
pub const SMALL: f32 = 1.0 / (1u64 << 32) as f32;

/// How the elements of a window are weighed. The sum is finite.
#[derive(Clone, Copy)]
enum Weights {
    /// By `a`.
    Plain,
    /// By [`SMALL`] times `a`: the sum of `a` is infinite, and no element is.
    Small,
    /// Infinite elements alike, others not.
    Infinite,
    /// NaNs alike, others not.
    Nan,
}

impl Weights {
    #[inline(always)]
    fn of(self, x: f32) -> f32 {
        let chosen = |is: bool| if is { 1.0 } else { 0.0 };
        match self {
            Self::Plain => rectified(x),
            Self::Small => rectified(x) * SMALL,
            Self::Infinite => chosen(x == f32::INFINITY),
            Self::Nan => chosen(x.is_nan()),
        }
    }
}

/// `a`, written so that NaN stays.
#[inline(always)]
fn rectified(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// The window of one output, over the plane and channel that begin at `x`.
struct Elements<T, L: Order> {
    window: Window<L>,
    x: Global<T>,
    row: u32,
    column: u32,
}

impl<T: Storage, L: Order> Elements<T, L> {
    /// Calls `f` with the position and the element of each that is inside the image, in row-major order.
    ///
    /// # Safety
    /// The module's; the output exists.
    #[inline(always)]
    unsafe fn for_each(&self, mut f: impl FnMut(u32, f32)) {
        let Self { window, x, row, column } = *self;
        let columns = window.inside(1, column);
        for y in window.inside(0, row) {
            let i = y + window.padding[0] - row * window.stride[0];
            let line = y as usize * window.input_line();
            for x_ in columns.clone() {
                let j = x_ + window.padding[1] - column * window.stride[1];
                // SAFETY: inside the image.
                let value = unsafe { get(x, line + (x_ * window.pixel()) as usize) };
                f(i * window.size[1] + j, value);
            }
        }
    }

    /// # Safety
    /// As [`Elements::for_each`].
    #[inline(always)]
    unsafe fn sum(&self, weights: Weights) -> f32 {
        let mut sum = 0.0;
        // SAFETY: the caller's.
        unsafe { self.for_each(|_, x| sum += weights.of(x)) };
        sum
    }

    /// Calls `f` with the weights and their sum.
    ///
    /// # Safety
    /// As [`Elements::for_each`].
    #[inline(always)]
    unsafe fn weighed<R>(&self, f: impl Fn(Weights, f32) -> R) -> R {
        // SAFETY: the caller's.
        unsafe {
            let sum = self.sum(Weights::Plain);
            if sum < f32::INFINITY {
                return f(Weights::Plain, sum);
            }
            let mut infinite = false;
            self.for_each(|_, x| infinite |= x == f32::INFINITY);
            let weights = match (sum.is_nan(), infinite) {
                (true, _) => Weights::Nan,
                (false, true) => Weights::Infinite,
                (false, false) => Weights::Small,
            };
            f(weights, self.sum(weights))
        }
    }

    /// The position and the element at which the sum of the weights so far passes `uniform` of all of them; the last that
    /// has a weight, where rounding keeps it from that. Without any weight the position past the last, and 0.
    ///
    /// # Safety
    /// As [`Elements::for_each`].
    #[inline(always)]
    unsafe fn draw(&self, uniform: f32, weights: Weights, sum: f32) -> (u32, f32) {
        let (mut drawn, mut so_far, mut open) = ((self.window.size[0] * self.window.size[1], 0.0), 0.0, true);
        let until = uniform * sum;
        // SAFETY: the caller's.
        unsafe {
            self.for_each(|position, x| {
                let weight = weights.of(x);
                so_far += weight;
                drawn = if open & (weight > 0.0) { (position, x) } else { drawn };
                open &= so_far <= until;
            });
        }
        drawn
    }
}

/// Draws a position of each window: `y = x` there, and `indices` which it is; the position past the last where no element
/// is above zero, and `y = 0`.
///
/// # Safety
/// The module's.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], P = [u8, u16])
)]
pub unsafe fn stochastic_pool_forward<T: Storage, L: Order, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<P>,
    state: Global<u64>,
    window: Window<L>,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling.
    unsafe {
        let (seed, offset) = (state.load(state::SEED), state.load(state::OFFSET));
        let x = x.offset(window.input_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            for row in tiling.rows() {
                let map = plane as u64 * window.pixel() as u64 + channel as u64;
                let index = (map * window.output[0] as u64 + row as u64) * window.output[1] as u64 + column as u64;
                let [number, ..] = philox::numbers(seed, offset, index);
                // 24 bits: exact, from 0 to below 1.
                let uniform = (number >> 8) as f32 * (1.0 / (1 << 24) as f32);
                let elements = Elements { window, x: x.offset(channel as usize), row, column };
                let (position, value) = elements.weighed(|weights, sum| elements.draw(uniform, weights, sum));
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(value));
                indices.store(output, P::narrow(position));
            }
        }
    }
}

/// `y = sum p_i a_i`.
///
/// # Safety
/// The module's.
#[kernel(max_threads = THREADS, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16], L = [Nchw, Nhwc]))]
pub unsafe fn stochastic_pool_inference<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            for row in tiling.rows() {
                let elements = Elements { window, x: x.offset(channel as usize), row, column };
                let mean = elements.weighed(|weights, sum| {
                    let mut mean = 0.0;
                    // A quotient first: squares would pass the largest float, or vanish.
                    elements.for_each(|_, x| mean += weights.of(x) / sum * rectified(x));
                    if sum == 0.0 { 0.0 } else { mean }
                });
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(mean));
            }
        }
    }
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
