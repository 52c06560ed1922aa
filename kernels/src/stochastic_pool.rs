//! Stochastic pooling (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557): with `a = max(x, 0)` over a window and
//! `p_i = a_i / sum a`, training draws one position by `p` and gives `x` there, inference gives `sum p_i a_i`.
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. A thread goes over its window twice, in row-major order: for the
//! sum, and for the position at which the sum so far passes `u * sum`, with `u` from [`philox`] by the
//! output's row-major index, which is the same in every layout. The arithmetic is `f32`, one operation after another as on
//! the CPU, so that both draw the same position. Row-major images whose rows have room in shared memory go by
//! [bands](crate::band), and common windows with the channels last by [patches](crate::patch). Backward is [`route`](crate::route)'s.
//!
//! Bound by memory: reads each input, the second time from the cache, and writes an element and one or two bytes for each
//! output.
//!
//! # Safety
//! `x` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `y` and `indices` as many of
//! `window.output`, `state` [`state::COUNT`] elements; `tiling` is over the outputs, and the launch has its grid and block;
//! the window has no dilation and keeps its promises; indices of type `P` can name its positions and one more.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use crate::band::any::{Item, Lines, for_each_item};
use crate::band::slide::slide;
use crate::band::{self, Bands, Block, Staged, inputs_of, pairs};
use crate::elementwise::get;
use crate::patch::{self, Patches};
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

/// Blocks that a multiprocessor has room for at least, where a thread keeps the elements of four windows: 128 registers.
const PATCH_BLOCKS: u32 = 2;

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
    /// Where the sum of `a` is not finite.
    #[inline(always)]
    fn where_not_finite(sum: f32, infinite: bool) -> Self {
        match (sum.is_nan(), infinite) {
            (true, _) => Self::Nan,
            (false, true) => Self::Infinite,
            (false, false) => Self::Small,
        }
    }

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

/// Where a window's elements are.
trait Source: Copy {
    /// The element at a row and a column.
    ///
    /// # Safety
    /// They are inside the image.
    unsafe fn load(&self, row: u32, column: u32) -> f32;
}

/// In global memory: a channel of the plane that begins at `x`.
#[derive(Clone, Copy)]
struct InMemory<T, L: Order> {
    x: Global<T>,
    window: Window<L>,
    channel: u32,
}

impl<T: Storage, L: Order> Source for InMemory<T, L> {
    #[inline(always)]
    unsafe fn load(&self, row: u32, column: u32) -> f32 {
        let at = row as usize * self.window.input_line() + (column * self.window.pixel() + self.channel) as usize;
        // SAFETY: the caller's.
        unsafe { get(self.x, at) }
    }
}

/// In shared memory: a plane of a band.
#[derive(Clone, Copy)]
struct InBand<T> {
    rows: Staged<T>,
    plane: u32,
}

impl<T: Storage> Source for InBand<T> {
    #[inline(always)]
    unsafe fn load(&self, row: u32, column: u32) -> f32 {
        // SAFETY: the caller's; the band has all rows of its windows.
        unsafe { self.rows.load(self.rows.place(self.plane, row, column)) }.to_f32()
    }
}

/// The window of one output, which exists.
struct Elements<L: Order, S: Source> {
    window: Window<L>,
    source: S,
    row: u32,
    column: u32,
}

impl<L: Order, S: Source> Elements<L, S> {
    /// Calls `f` with the position and the element of each that is inside the image, in row-major order.
    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(u32, f32)) {
        let Self { window, source, row, column } = *self;
        let columns = window.inside(1, column);
        for y in window.inside(0, row) {
            let i = y + window.padding[0] - row * window.stride[0];
            for x in columns.clone() {
                let j = x + window.padding[1] - column * window.stride[1];
                // SAFETY: inside the image.
                f(i * window.size[1] + j, unsafe { source.load(y, x) });
            }
        }
    }

    #[inline(always)]
    fn sum(&self, weights: Weights) -> f32 {
        let mut sum = 0.0;
        self.for_each(|_, x| sum += weights.of(x));
        sum
    }

    /// Calls `f` with the weights and their sum.
    #[inline(always)]
    fn weighed<R>(&self, f: impl Fn(Weights, f32) -> R) -> R {
        let sum = self.sum(Weights::Plain);
        if sum < f32::INFINITY {
            return f(Weights::Plain, sum);
        }
        let mut infinite = false;
        self.for_each(|_, x| infinite |= x == f32::INFINITY);
        let weights = Weights::where_not_finite(sum, infinite);
        f(weights, self.sum(weights))
    }

    /// The position and the element at which the sum of the weights so far passes `uniform` of all of them; the last that
    /// has a weight, where rounding keeps it from that. Without any weight the position past the last, and 0.
    #[inline(always)]
    fn draw(&self, uniform: f32) -> (u32, f32) {
        self.weighed(|weights, sum| {
            let (mut drawn, mut so_far, mut open) = ((self.window.size[0] * self.window.size[1], 0.0), 0.0, true);
            let until = uniform * sum;
            self.for_each(|position, x| {
                let weight = weights.of(x);
                so_far += weight;
                drawn = if open & (weight > 0.0) { (position, x) } else { drawn };
                open &= so_far <= until;
            });
            drawn
        })
    }

    /// `sum p_i a_i`.
    #[inline(always)]
    fn mean(&self) -> f32 {
        self.weighed(|weights, sum| {
            let mut mean = 0.0;
            // A quotient first: squares would pass the largest float, or vanish.
            self.for_each(|_, x| mean += weights.of(x) / sum * rectified(x));
            if sum == 0.0 { 0.0 } else { mean }
        })
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
                let uniform = uniform(seed, offset, index);
                let source = InMemory { x, window, channel };
                let (position, value) = Elements { window, source, row, column }.draw(uniform);
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(value));
                indices.store(output, P::narrow(position));
            }
        }
    }
}

/// As [`stochastic_pool_forward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and `bands` are of the
/// window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 1), (3, 2), (3, 3)])
)]
pub unsafe fn stochastic_pool_forward_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    bands: Bands,
) {
    // SAFETY: the caller's.
    let (seed, offset) = unsafe { (state.load(state::SEED), state.load(state::OFFSET)) };
    let finish = |output: usize, _, _, values: [[f32; SIZE]; SIZE]| {
        let (position, value) = draw_of(&values, uniform(seed, offset, output as u64));
        // SAFETY: the output exists.
        unsafe {
            y.store(output, T::from_f32(value));
            indices.store(output, u8::narrow(position));
        }
    };
    // SAFETY: the caller's. A zero has no weight.
    unsafe { slide::<T, [f32; SIZE], SIZE, STRIDE>(x, &window, &bands, 0.0, |values| values, finish) };
}

/// As [`stochastic_pool_forward_band`], [two columns a thread](crate::band::pairs), for windows two apart, padded by
/// `PADDING`.
///
/// # Safety
/// As [`stochastic_pool_forward_band`]'s; the padding is such; `y` and `indices` begin at multiples of 16 bytes, and `bands`
/// are of pairs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn stochastic_pool_forward_pairs<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    bands: Bands,
) {
    // SAFETY: the caller's.
    let (seed, offset) = unsafe { (state.load(state::SEED), state.load(state::OFFSET)) };
    let finish = |output: usize, _, column, rows: [[[f32; SIZE]; 2]; SIZE]| {
        let of =
            |which: usize| draw_of(&rows.map(|pair| pair[which]), uniform(seed, offset, output as u64 + which as u64));
        let drawn = [of(0), of(1)];
        // SAFETY: the first output exists, at this column.
        unsafe {
            pairs::store(y, &window, output, column, drawn.map(|(_, element)| T::from_f32(element)));
            pairs::store(indices, &window, output, column, drawn.map(|(position, _)| u8::narrow(position)));
        }
    };
    // SAFETY: the caller's. A zero has no weight.
    unsafe { pairs::slide::<T, [f32; SIZE], SIZE, PADDING>(x, &window, &bands, 0.0, |values| values, finish) };
}

/// As [`stochastic_pool_forward`], by [bands](crate::band), for windows of any size.
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `block` is of the window's outputs, with the
/// launch's grid, block and shared memory; `outputs` are of its outputs.
#[kernel(max_threads = band::THREADS, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn stochastic_pool_forward_any<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<P>,
    state: Global<u64>,
    window: Window<Nchw>,
    block: Block,
    outputs: Lines,
) {
    // SAFETY: the caller's.
    let (seed, offset) = unsafe { (state.load(state::SEED), state.load(state::OFFSET)) };
    // SAFETY: the caller's; the outputs exist.
    unsafe {
        for_each_staged(x, &window, &block, &outputs, |output, elements| {
            let (position, value) = elements.draw(uniform(seed, offset, output as u64));
            y.store(output, T::from_f32(value));
            indices.store(output, P::narrow(position));
        });
    }
}

/// As [`stochastic_pool_forward`], by [patches](crate::patch), for windows of a known geometry with the channels last.
///
/// # Safety
/// The module's, but for the tiling; `Fixed<SIZE, STRIDE, PADDING>` fits the window, memory begins at multiples of 16 bytes,
/// and `patches` are of the window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = PATCH_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn stochastic_pool_forward_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's.
    let (seed, offset) = unsafe { (state.load(state::SEED), state.load(state::OFFSET)) };
    let Some(plane) = patches.plane() else { return };
    let map = plane as u64 * window.channels as u64;
    let finish = |output: usize, row: u32, column: u32, rows: [[[f32; SIZE]; 4]; SIZE]| {
        let pixel = window.output_plane(plane) + row as usize * window.output_line();
        let channel = (output - pixel) as u64 - (column * window.channels) as u64;
        let mut drawn = [(0, 0.0); 4];
        unrolled!(K in [0 1 2 3] {
            let index = (map + channel + K as u64) * window.output[0] as u64 + row as u64;
            let uniform = uniform(seed, offset, index * window.output[1] as u64 + column as u64);
            drawn[K] = draw_of(&rows.map(|lanes| lanes[K]), uniform);
        });
        // SAFETY: the output exists, and its channels begin at a multiple of four.
        unsafe {
            y.store4(output, Vec4::from(drawn.map(|(_, element)| T::from_f32(element))));
            indices.store4(output, Vec4::from(drawn.map(|(position, _)| u8::narrow(position))));
        }
    };
    // SAFETY: the caller's. A zero has no weight.
    unsafe {
        // In 16 bits more rows on their way are worth more than fewer instructions.
        if SIZE > 2 || size_of::<T>() > 2 {
            patch::slide::<T, [f32; SIZE], SIZE, PADDING>(x, &window, &patches, 0.0, |values| values, finish);
        } else {
            patch::each::<T, [f32; SIZE], SIZE, PADDING>(x, &window, &patches, 0.0, |values| values, finish);
        }
    }
}

/// The number that output `index` is drawn by.
#[inline(always)]
fn uniform(seed: u64, offset: u64, index: u64) -> f32 {
    let [number, ..] = philox::numbers(seed, offset, index);
    // 24 bits: exact, from 0 to below 1.
    (number >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// As [`Elements::draw`], of elements that are all at hand.
///
/// Sums of what is not negative never fall: as many elements lie before the drawn one as have sums so far that do not pass.
#[inline(always)]
#[allow(unused_assignments, reason = "the sum before what is past the last element, which unrolling leaves")]
fn draw_of<const SIZE: usize>(values: &[[f32; SIZE]; SIZE], uniform: f32) -> (u32, f32) {
    let mut sums = [[0.0; SIZE]; SIZE];
    let mut sum = 0.0;
    unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE {
            let weight = rectified(values[I][J]);
            sum = if (I, J) == (0, 0) { weight } else { sum + weight };
            sums[I][J] = sum;
        }
    }); });
    let until = uniform * sum;
    if sum > until {
        let (mut position, mut value, mut before) = (0, values[0][0], sums[0][0]);
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE && (I, J) != (0, 0) {
                let passed_over = before <= until;
                position = if passed_over { (I * SIZE + J) as u32 } else { position };
                value = if passed_over { values[I][J] } else { value };
                before = sums[I][J];
            }
        }); });
        return (position, value);
    }
    // No element is above zero, rounding keeps the sum from passing, or it is not finite.
    if sum == 0.0 { ((SIZE * SIZE) as u32, 0.0) } else { draw_rarely(values, uniform, sum) }
}

#[inline(always)]
fn draw_rarely<const SIZE: usize>(values: &[[f32; SIZE]; SIZE], uniform: f32, sum: f32) -> (u32, f32) {
    if sum < f32::INFINITY {
        return draw_weighed(values, uniform * sum, Weights::Plain);
    }
    let mut infinite = false;
    unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE { infinite |= values[I][J] == f32::INFINITY; }
    }); });
    let weights = Weights::where_not_finite(sum, infinite);
    draw_weighed(values, uniform * sum_of(values, weights), weights)
}

#[inline(always)]
fn sum_of<const SIZE: usize>(values: &[[f32; SIZE]; SIZE], weights: Weights) -> f32 {
    let mut sum = 0.0;
    unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE { sum += weights.of(values[I][J]); }
    }); });
    sum
}

/// As [`Elements::draw`]: sums of what is not negative never fall, so that the last element before which the sum has not
/// passed `until` is the one drawn.
#[inline(always)]
#[allow(unused_assignments, reason = "the sum after the last element, which unrolling leaves")]
fn draw_weighed<const SIZE: usize>(values: &[[f32; SIZE]; SIZE], until: f32, weights: Weights) -> (u32, f32) {
    let (mut position, mut value, mut so_far) = ((SIZE * SIZE) as u32, 0.0, f32::NEG_INFINITY);
    unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE {
            let weight = weights.of(values[I][J]);
            let drawn = (so_far <= until) & (weight > 0.0);
            position = if drawn { (I * SIZE + J) as u32 } else { position };
            value = if drawn { values[I][J] } else { value };
            so_far = if I + J == 0 { weight } else { so_far + weight };
        }
    }); });
    (position, value)
}

/// As [`stochastic_pool_inference`], by [bands](crate::band), for windows of any size.
///
/// # Safety
/// As [`stochastic_pool_forward_any`]'s.
#[kernel(max_threads = band::THREADS, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_inference_any<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    block: Block,
    outputs: Lines,
) {
    // SAFETY: the caller's; the outputs exist.
    unsafe {
        for_each_staged(x, &window, &block, &outputs, |output, elements| y.store(output, T::from_f32(elements.mean())));
    }
}

/// Calls `finish` with each output that is this thread's and its window, whose elements are in shared memory.
///
/// # Safety
/// As [`stochastic_pool_forward_any`]'s.
#[inline(always)]
unsafe fn for_each_staged<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    block: &Block,
    outputs: &Lines,
    finish: impl Fn(usize, Elements<Nchw, InBand<T>>),
) {
    let span = block.span();
    // SAFETY: the launch's shared memory is for these rows.
    let rows = unsafe {
        let rows = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(window, &span), window.input);
        band::wait(rows);
        rows
    };
    let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
    for_each_item(&span, outputs, span.rows, |Item { number, plane, row, column }| {
        finish(output + number as usize, Elements { window: *window, source: InBand { rows, plane }, row, column });
    });
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
                let mean = Elements { window, source: InMemory { x, window, channel }, row, column }.mean();
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
