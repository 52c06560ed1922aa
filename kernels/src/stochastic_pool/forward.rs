//! Draws.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory, for_each_staged, rectified};
use super::{by_rows, state, uniform};
use crate::band::any::Lines;
use crate::band::slide::{slide, stage};
use crate::band::{self, Bands, Block, pairs};
use crate::window::{
    FEWER_BLOCKS, FEWEST_BLOCKS, Nchw, Nhwc, Order, Pixel, Position, THREADS, Tiling, Window, for_each_of,
};

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
                let by_rows = by_rows(window.size);
                let (position, value) = Elements { window, source, row, column, by_rows }.draw(uniform);
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
    let finish = |output: usize, row, column, values: [[f32; SIZE]; SIZE]| {
        let uniform = uniform(seed, offset, output as u64);
        let Drawn { mut position, mut value, again } = Drawn::of(&values, uniform);
        if again {
            (position, value) = elements_of(x, &window, &bands, row, column).draw(uniform);
        }
        // SAFETY: the output exists.
        unsafe {
            y.store(output, T::from_f32(value));
            indices.store(output, u8::narrow(position));
        }
    };
    // SAFETY: the caller's. A zero has no weight.
    unsafe {
        slide::<T, [f32; SIZE], SIZE, STRIDE>(&stage(x, &window, &bands), &window, &bands, 0.0, |values| values, finish)
    };
}

/// As [`stochastic_pool_forward_band`], [two columns a thread](crate::band::pairs), for windows two apart, padded by
/// `PADDING`.
///
/// # Safety
/// As [`stochastic_pool_forward_band`]'s; the padding is such; `y` and `indices` begin at multiples of 16 bytes, and `bands`
/// are of pairs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = FEWEST_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(3, 1)])
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
    let finish = |output: usize, row, column, rows: [[[f32; SIZE]; 2]; SIZE]| {
        // Both numbers first: two chains of products that do not wait for each other.
        let uniforms = [uniform(seed, offset, output as u64), uniform(seed, offset, output as u64 + 1)];
        let of = |which: usize| Drawn::of(&rows.map(|pair| pair[which]), uniforms[which]);
        let drawn = [of(0), of(1)];
        // SAFETY: the first output exists, at this column.
        unsafe {
            pairs::store(y, &window, output, column, drawn.map(|drawn| T::from_f32(drawn.value)));
            pairs::store(indices, &window, output, column, drawn.map(|drawn| u8::narrow(drawn.position)));
            for_each_of(drawn.map(|drawn| drawn.again), |which| {
                // The pair's second may be past the row's end.
                if column + which < window.output[1] {
                    let (output, column) = (output + which as usize, column + which);
                    let uniform = uniform(seed, offset, output as u64);
                    let (position, value) = elements_of(x, &window, &bands, row, column).draw(uniform);
                    y.store(output, T::from_f32(value));
                    indices.store(output, u8::narrow(position));
                }
            });
        }
    };
    // SAFETY: the caller's. A zero has no weight.
    unsafe {
        pairs::slide::<T, [f32; SIZE], SIZE, PADDING>(
            &stage(x, &window, &bands),
            &window,
            &bands,
            0.0,
            |values| values,
            finish,
        )
    };
}

/// The window of an output of this thread's plane.
#[device_inline]
fn elements_of<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    bands: &Bands,
    row: u32,
    column: u32,
) -> Elements<Nchw, InMemory<T, Nchw>> {
    let span = bands.block.span();
    let plane = span.first_plane + bands.part(&span).plane;
    // SAFETY: the plane is one.
    let x = unsafe { x.offset(window.input_plane(plane)) };
    Elements { window: *window, source: InMemory { x, window: *window, channel: 0 }, row, column, by_rows: false }
}

/// As [`stochastic_pool_forward`], by [bands](crate::band), for windows of other sizes, of few positions.
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `block` is of the window's outputs, with the
/// launch's grid, block and shared memory; `outputs` are of its outputs.
#[kernel(max_threads = band::THREADS, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_forward_any<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
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
            let uniform = uniform(seed, offset, output as u64);
            let (position, value) = elements.draw(uniform);
            y.store(output, T::from_f32(value));
            indices.store(output, u8::narrow(position));
        });
    }
}

/// What a window's elements, all at hand, give.
#[derive(Clone, Copy)]
struct Drawn {
    position: u32,
    value: f32,
    /// Whether the window is one of a few that want looking at again, by [`Elements::draw`].
    again: bool,
}

impl Drawn {
    /// As [`Elements::draw`]. Sums of what is not negative never fall: as many elements lie before the drawn one as have sums so
    /// far that do not pass.
    #[device_inline]
    #[allow(unused_assignments, reason = "the sum before what is past the last element, which unrolling leaves")]
    fn of<const SIZE: usize>(values: &[[f32; SIZE]; SIZE], uniform: f32) -> Self {
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
            return Self { position, value, again: false };
        }
        // No element is above zero, or rounding keeps the sum from passing, or it is not finite.
        Self { position: (SIZE * SIZE) as u32, value: 0.0, again: sum != 0.0 }
    }
}
