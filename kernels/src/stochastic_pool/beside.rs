//! Draws from larger windows that overlap, in row-major images: a thread adds up three windows beside each other, whose rows
//! share elements, one element after another as everywhere; then a thread draws from each window by the sums up to its rows.
//!
//! Rows of weights lie in shared memory with zeros beside them for what is outside the image, which change no sum, so that no
//! thread asks what is there. Three windows, for threads whose windows are an odd number of columns apart find them in
//! different banks.

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory};
use super::{state, uniform};
use crate::band::any::{Item, Lines, for_each_item};
use crate::band::{self, BandLaunch, Block};
use crate::window::{Divider, FEWER_BLOCKS, Nchw, Window};

/// How far windows are apart.
const STRIDE: usize = 3;
/// Threads of a block.
const BLOCK: u32 = 192;
/// Windows of a thread.
const BESIDE: usize = 3;
/// Rows and columns of a window, at most.
const MOST: usize = 11;
/// Columns of a warp's turn, in warps.
const TURN: usize = 4;

/// How blocks are laid over rows of outputs, and threads over threes of these.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    block: Block,
    outputs: Lines,
    threes: Lines,
    by_lines: Divider,
    /// Elements of a row in shared memory.
    pitch: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Beside {}

/// Rows of weights of so many rows of outputs.
#[inline(always)]
fn lines_of(window: &Window<Nchw>, rows: u32) -> u32 {
    (rows - 1) * window.stride[0] + window.size[0]
}

impl Beside {
    /// Of windows without dilation, of whose inputs an element has `bytes`, and the launch; none where a row of outputs has no room in
    /// shared memory.
    pub fn new(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        let threes = window.output[1].div_ceil(BESIDE as u32);
        let pitch = (threes * BESIDE as u32 - 1) * window.stride[1] + window.size[1];
        let shared = |rows: u64, depth: u64| {
            let lines = (rows - 1) * u64::from(window.stride[0]) + u64::from(window.size[0]);
            let sums = rows * u64::from(window.output[1]) * u64::from(window.size[0]);
            (depth * (lines * u64::from(pitch) + sums) + 4) * size_of::<f32>() as u64
        };
        let (block, launch) = Block::of_outputs_with(window, bytes, shared)?;
        let by_lines = Divider::new(lines_of(window, window.output[0]));
        let [outputs, threes] = [window.output[1], threes].map(|width| Lines::new([window.output[0], width]));
        // Of threes there are few.
        Some((Self { block, outputs, threes, by_lines, pitch }, BandLaunch { block: [BLOCK, 1, 1], ..launch }))
    }
}

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), for windows three apart of `GROUPS` times three positions both
/// ways, or one or two more.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `beside` is the window's, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], GROUPS = [2, 3])
)]
pub unsafe fn stochastic_pool_forward_beside<T: Storage, const GROUPS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    beside: Beside,
) {
    let span = beside.block.span();
    let (stride, pitch, rows) = (STRIDE as u32, beside.pitch, span.rows[1] - span.rows[0]);
    let lines = lines_of(&window, rows);
    let weights = dynamic_shared::<f32>();
    // SAFETY: the launch's shared memory is for the rows of weights and for a sum for each row of each window; inputs are loaded only where
    // they are in the image; the outputs exist.
    unsafe {
        let sums = weights.offset(span.depth * lines * pitch);
        let (count, warps) = (span.depth * lines, thread::block_dim_x() / warp::WARP_SIZE);
        let mut line = thread::thread_idx_x() / warp::WARP_SIZE;
        while line < count {
            let mut first = warp::lane_id();
            while first < pitch {
                let mut values = [[T::from_f32(0.0); TURN]; 2];
                unrolled!(L in [0 1] {
                    let line = line + L as u32 * warps;
                    let plane = if span.depth > 1 { beside.by_lines.divide(line) } else { 0 };
                    // What lies before the image wraps round to far after it.
                    let row = (span.rows[0] * stride + line - plane * lines).wrapping_sub(window.padding[0]);
                    let here = (line < count) & (row < window.input[0]);
                    let at = ((span.first_plane + plane) as usize * window.input[0] as usize)
                        .wrapping_add(row as usize)
                        .wrapping_mul(window.input_line());
                    unrolled!(K in [0 1 2 3] {
                        let column = (first + K as u32 * warp::WARP_SIZE).wrapping_sub(window.padding[1]);
                        let inside = here & (column < window.input[1]);
                        values[L][K] = x.load_if(inside, at.wrapping_add(column as usize), values[L][K]);
                    });
                });
                unrolled!(L in [0 1] { unrolled!(K in [0 1 2 3] {
                    let (line, column) = (line + L as u32 * warps, first + K as u32 * warp::WARP_SIZE);
                    let weight = float::maximum(values[L][K].to_f32(), 0.0);
                    weights.store_if((line < count) & (column < pitch), line * pitch + column, weight);
                }); });
                first += TURN as u32 * warp::WARP_SIZE;
            }
            line += 2 * warps;
        }
        thread::sync_threads();
        let (wide, high) = (window.output[1], window.size[0]);
        let count = span.depth * rows * wide;
        for_each_item(&span, &beside.threes, span.rows, |Item { plane, row, column, .. }| {
            let first = column * BESIDE as u32;
            let mut from = (plane * lines + (row - span.rows[0]) * stride) * pitch + first * stride;
            let mut to = (plane * rows + row - span.rows[0]) * wide + first;
            let mut all = [0.0; BESIDE];
            let mut i = 0;
            while i < high {
                let mut values = [0.0; 24];
                // Of the last positions, asked for one by one: the launch's, so that no thread takes another way.
                unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16] {
                    let before = J.wrapping_sub((BESIDE - 1) * STRIDE);
                    if J < STRIDE * (GROUPS + BESIDE - 1)
                        || (J < STRIDE * (GROUPS + BESIDE) - 1 && before < window.size[1] as usize)
                    {
                        values[J] = weights.load(from + J as u32);
                    }
                });
                unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] {
                    if J < STRIDE * GROUPS || (J < STRIDE * (GROUPS + 1) - 1 && J < window.size[1] as usize) {
                        unrolled!(W in [0 1 2] { all[W] += values[W * STRIDE + J]; });
                    }
                });
                unrolled!(W in [0 1 2] { sums.store_if(first + (W as u32) < wide, to + W as u32, all[W]); });
                from += pitch;
                to += count;
                i += 1;
            }
        });
        let (seed, offset) = (state.load(state::SEED), state.load(state::OFFSET));
        thread::sync_threads();
        let first = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        for_each_item(&span, &beside.outputs, span.rows, |Item { number, plane, row, column }| {
            let output = first + number as usize;
            let uniform = uniform(seed, offset, output as u64);
            let sum = sums.load((high - 1) * count + number);
            let until = uniform * sum;
            let (mut position, mut value) = (high * window.size[1], 0.0);
            if (until < sum) & (sum < f32::INFINITY) {
                // Sums of what is not negative never fall: as many rows, and of the next as many elements, lie before the drawn one
                // as have sums that do not pass.
                // All are loaded before any is used.
                let mut until_rows = [sum; MOST];
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
                    if I < STRIDE * GROUPS - 1 || (I < STRIDE * (GROUPS + 1) - 2 && (I as u32) < high - 1) {
                        until_rows[I] = sums.load(I as u32 * count + number);
                    }
                });
                let (mut before, mut so_far) = (0, 0.0);
                unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
                    if I < STRIDE * (GROUPS + 1) - 2 {
                        let passed_over = until_rows[I] <= until;
                        before += if passed_over { 1 } else { 0 };
                        so_far = if passed_over { until_rows[I] } else { so_far };
                    }
                });
                let line = plane * lines + (row - span.rows[0]) * stride + before;
                let from = line * pitch + column * stride;
                let mut row = [0.0; MOST];
                unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] {
                    if J < STRIDE * GROUPS || (J < STRIDE * (GROUPS + 1) - 1 && (J as u32) < window.size[1]) {
                        row[J] = weights.load(from + J as u32);
                    }
                });
                let mut elements = 0;
                unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] {
                    if J < STRIDE * (GROUPS + 1) - 1 {
                        so_far += row[J];
                        // The last passes.
                        elements += if so_far <= until { 1 } else { 0 };
                    }
                });
                position = before * window.size[1] + elements;
                value = weights.load(from + elements);
            } else if sum != 0.0 {
                // Rounding keeps the sum from passing, or it is not finite.
                let x = x.offset(window.input_plane(span.first_plane + plane));
                let source = InMemory { x, window, channel: 0 };
                (position, value) = Elements { window, source, row, column }.draw(uniform);
            }
            y.store(output, T::from_f32(value));
            indices.store(output, position as u8);
        });
    }
}
