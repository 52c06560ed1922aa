//! Draws from larger windows that overlap, in row-major images: the sums of windows' rows, which windows below each other share, first;
//! then a thread draws from each window by these.
//!
//! Sums in this order are not the same to the last bit as those of one element after another, by which a position is drawn
//! everywhere. So a thread also looks how near its number came to the sums beside it: where it is nearer than all that the two
//! orders' rounding can be together, of a window in two thousand, it goes over the elements one after another.
//!
//! Rows of weights lie in shared memory with zeros beside them for what is outside the image, which change no sum, so that no
//! thread asks what is there. They begin at multiples of all banks: whichever rows threads draw from, windows three elements apart are in
//! different banks.

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory};
use super::{state, uniform_of};
use crate::band::any::{Item, Lines, for_each_item};
use crate::band::{BandLaunch, Block};
use crate::philox::Pass;
use crate::window::{Divider, FEWER_BLOCKS, Nchw, Window};

/// How far windows are apart.
const STRIDE: usize = 3;
/// Threads of a block: of 13 rows of 38 windows of 9×9, 128 took a thirtieth less than 256.
const BLOCK: u32 = 128;
/// Such blocks that a multiprocessor has room for, at least: 64 registers a thread.
const BLOCKS: u32 = 2 * FEWER_BLOCKS;
/// Windows beside each other of which a thread adds up a row.
const BESIDE: u32 = 4;
/// Elements of these that are loaded, at most.
const LOADED: usize = 20;
/// Rows and columns of a window, at most, in whole threes.
const MOST: usize = 12;
/// Columns of a warp's turn, in warps.
const TURN: usize = 4;
/// Banks of shared memory.
const BANKS: u32 = 32;
/// Sums between which rounding is relative to them: no product of one and a uniform number is subnormal, and none is infinite in
/// another order.
const NEAR: core::ops::Range<f32> = 1e-30..1e38;
/// The most that one rounding is off by, relatively.
const HALF_ULP: f32 = f32::EPSILON / 2.0;

/// How blocks are laid over rows of outputs, and threads over rows of windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    block: Block,
    outputs: Lines,
    by_lines: Divider,
    /// Threads that take a row of the windows.
    fours: u32,
    by_fours: Divider,
    /// Elements of a row in shared memory.
    pitch: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Beside {}

/// Rows of weights of so many rows of outputs.
#[device_inline]
fn lines_of(window: &Window<Nchw>, rows: u32) -> u32 {
    (rows - 1) * window.stride[0] + window.size[0]
}

impl Beside {
    /// Of windows without dilation, of whose inputs an element has `bytes`, and the launch; none where a row of outputs has no room in
    /// shared memory.
    pub fn new(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        let outputs = u64::from(window.output[0]) * u64::from(window.output[1]);
        // Indices of outputs have 32 bits; a row of fours has a block's threads.
        let fits = u64::from(window.planes).checked_mul(outputs).is_some_and(|outputs| outputs <= 1 << 32);
        let fours = window.output[1].div_ceil(BESIDE);
        if !fits || fours > BLOCK || window.stride != [STRIDE as u32; 2] || window.size[0] != window.size[1] {
            return None;
        }
        let pitch = ((fours - 1) * BESIDE * STRIDE as u32 + LOADED as u32).next_multiple_of(BANKS);
        let shared = |rows: u64, depth: u64| {
            let lines = (rows - 1) * u64::from(window.stride[0]) + u64::from(window.size[0]);
            depth * lines * u64::from(pitch + fours * BESIDE) * size_of::<f32>() as u64
        };
        let (block, launch) = Block::of_outputs_with(window, bytes, shared)?;
        let by_lines = Divider::new(lines_of(window, window.output[0]));
        let outputs = Lines::new(window.output);
        let launch = BandLaunch { block: [BLOCK, 1, 1], ..launch };
        Some((Self { block, outputs, by_lines, fours, by_fours: Divider::new(fours), pitch }, launch))
    }
}

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), for windows of `SIZE` by `SIZE` positions, three apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such, and its outputs are no more than 2³²; `beside` is the window's, with the
/// launch's grid, block and shared memory.
#[kernel(
    max_threads = BLOCK,
    min_blocks = BLOCKS,
    instances(T = [f32, f16, bf16], SIZE = [6, 7, 8, 9, 10, 11])
)]
pub unsafe fn stochastic_pool_forward_beside<T: Storage, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    beside: Beside,
) {
    let span = beside.block.span();
    let (stride, size, pitch) = (STRIDE as u32, SIZE as u32, beside.pitch);
    let rows = span.rows[1] - span.rows[0];
    let lines = lines_of(&window, rows);
    let count = span.depth * lines;
    let weights = dynamic_shared::<f32>();
    // SAFETY: the launch's shared memory is for the rows of weights and for the sums of four times as many windows as fours in each;
    // inputs are loaded only where they are in the image; the outputs exist.
    unsafe {
        let sums = weights.offset(count * pitch);
        stage(x, &window, &beside, weights);
        let pass = Pass::new(state.load(state::SEED), state.load(state::OFFSET));
        thread::sync_threads();
        // The rows' sums, of each row once: by threes of elements, which windows beside each other share. A thread goes down a column
        // of fours.
        let of_line = beside.fours * BESIDE;
        let first = beside.by_fours.divide(thread::thread_idx_x());
        let down = beside.by_fours.divide(thread::block_dim_x());
        let four = thread::thread_idx_x() - first * beside.fours;
        let mut line = if first < down { first } else { count };
        while line < count {
            let mut loaded = [0.0; LOADED];
            unrolled!(V in [0 1 2 3 4] {
                let four = weights.load4(line * pitch + four * (BESIDE * stride) + V as u32 * 4).to_array();
                unrolled!(K in [0 1 2 3] { loaded[4 * V + K] = four[K]; });
            });
            let mut threes = [0.0; 6];
            unrolled!(G in [0 1 2 3 4 5] { threes[G] = loaded[3 * G] + loaded[3 * G + 1] + loaded[3 * G + 2]; });
            let mut all = [0.0; BESIDE as usize];
            unrolled!(W in [0 1 2 3] {
                all[W] = threes[W] + threes[W + 1];
                if SIZE >= 9 { all[W] += threes[W + 2]; }
                unrolled!(R in [0 1] { if R < SIZE % STRIDE { all[W] += loaded[STRIDE * W + SIZE / STRIDE * STRIDE + R]; } });
            });
            sums.store4(line * of_line + four * BESIDE, Vec4::from(all));
            line += down;
        }
        thread::sync_threads();
        let first = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        for_each_item(&span, &beside.outputs, span.rows, |Item { number, plane, row, column }| {
            let uniform = uniform_of(pass.number((first as u32).wrapping_add(number)));
            let line = plane * lines + (row - span.rows[0]) * stride;
            let from = line * pitch + column * stride;
            let of_row = line * of_line + column;
            // All are loaded before any is used.
            let mut of_rows = [0.0; MOST];
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] {
                if I < SIZE { of_rows[I] = sums.load(of_row + I as u32 * of_line); }
            });
            let threes = threes_of::<SIZE>(of_rows);
            let sum = threes[0] + threes[1] + threes[2] + threes[3];
            let until = uniform * sum;
            let (before, below) =
                find::<SIZE>(until, 0.0, threes, |i| sums.load_if(i < size, of_row + i * of_line, 0.0));
            let from_row = from + before * pitch;
            let mut of_row = [0.0; MOST];
            // Those of the last three are not asked for.
            unrolled!(J in [0 1 2 3 4 5 6 7 8] {
                if J < (SIZE - 1) / STRIDE * STRIDE { of_row[J] = weights.load(from_row + J as u32); }
            });
            let (after, below) = find::<SIZE>(until, below, threes_of::<SIZE>(of_row), |j| weights.load(from_row + j));
            let (mut position, mut value) = (before * size + after, weights.load(from_row + after));
            // Each sum in either order, and the part of one that is drawn by, is off by a rounding for each addition at most.
            let error = until * (position + size * size + 64) as f32 * HALF_ULP;
            let apart = (until - below > error) & (below + value - until > error);
            if sum == 0.0 {
                (position, value) = (size * size, 0.0);
            } else if !(apart & NEAR.contains(&sum)) {
                // Not the constant, by which loops over all elements would be unrolled.
                let exact = Staged { weights, from, pitch, size: window.size[0] };
                (position, value) = exact.draw(uniform).unwrap_or_else(|| {
                    // Rounding keeps the sum from passing, or it is not finite.
                    let x = x.offset(window.input_plane(span.first_plane + plane));
                    let source = InMemory { x, window, channel: 0 };
                    Elements { window, source, row, column }.draw(uniform)
                });
            }
            y.store(first + number as usize, T::from_f32(value));
            indices.store(first + number as usize, position as u8);
        });
    }
}

/// The rows of weights that the block's windows have, with zeros beside them.
///
/// # Safety
/// As the kernel's.
#[device_inline]
unsafe fn stage<T: Storage>(x: Global<T>, window: &Window<Nchw>, beside: &Beside, weights: Shared<f32>) {
    let (span, pitch, [height, width]) = (beside.block.span(), beside.pitch, window.input);
    let lines = lines_of(window, span.rows[1] - span.rows[0]);
    let count = span.depth * lines;
    let warps = thread::block_dim_x() / warp::WARP_SIZE;
    // What lies before the image wraps round to far after it.
    let top = (span.rows[0] * STRIDE as u32).wrapping_sub(window.padding[0]);
    let begin = (span.first_plane as usize * height as usize)
        .wrapping_add_signed(top.cast_signed() as isize)
        .wrapping_mul(width as usize)
        .wrapping_sub(window.padding[1] as usize);
    let mut first = warp::lane_id();
    while first < pitch {
        let mut inside = [false; TURN];
        unrolled!(K in [0 1 2 3] {
            inside[K] = (first + K as u32 * warp::WARP_SIZE).wrapping_sub(window.padding[1]) < width;
        });
        let mut line = thread::thread_idx_x() / warp::WARP_SIZE;
        while line < count {
            let mut values = [[T::from_f32(0.0); TURN]; 2];
            // SAFETY: the caller's: of the image where they are loaded, and of the block's rows where they are stored.
            unsafe {
                unrolled!(L in [0 1] {
                    let line = line + L as u32 * warps;
                    let plane = if span.depth > 1 { beside.by_lines.divide(line) } else { 0 };
                    let of_plane = line - plane * lines;
                    let here = (line < count) & (top.wrapping_add(of_plane) < height);
                    let at = begin.wrapping_add(((plane * height + of_plane) * width + first) as usize);
                    unrolled!(K in [0 1 2 3] {
                        let at = at.wrapping_add(K * warp::WARP_SIZE as usize);
                        values[L][K] = x.load_if(here & inside[K], at, values[L][K]);
                    });
                });
                unrolled!(L in [0 1] {
                    let line = line + L as u32 * warps;
                    unrolled!(K in [0 1 2 3] {
                        let column = first + K as u32 * warp::WARP_SIZE;
                        let weight = float::maximum(values[L][K].to_f32(), 0.0);
                        weights.store_if((line < count) & (column < pitch), line * pitch + column, weight);
                    });
                });
            }
            line += 2 * warps;
        }
        first += TURN as u32 * warp::WARP_SIZE;
    }
}

/// The sums of threes, the last of what is left.
#[device_inline]
fn threes_of<const SIZE: usize>(of: [f32; MOST]) -> [f32; 4] {
    let mut threes = [0.0; 4];
    unrolled!(G in [0 1 2 3] {
        if G * STRIDE < SIZE { threes[G] = of[G * STRIDE]; }
        unrolled!(K in [1 2] { if G * STRIDE + K < SIZE { threes[G] += of[G * STRIDE + K]; } });
    });
    threes
}

/// How many of `SIZE` numbers there are up to which the sum, from `below` on, does not pass `until`, but for the last; and that sum. They
/// add up to `threes`. Sums of what is not negative never fall: as many lie before as do not pass.
#[device_inline]
fn find<const SIZE: usize>(until: f32, mut below: f32, threes: [f32; 4], load: impl Fn(u32) -> f32) -> (u32, f32) {
    let (mut number, mut so_far) = (0, below);
    unrolled!(G in [0 1 2] {
        if (G + 1) * STRIDE < SIZE {
            so_far += threes[G];
            let passed_over = so_far <= until;
            number += if passed_over { STRIDE as u32 } else { 0 };
            below = if passed_over { so_far } else { below };
        }
    });
    let three = number;
    let mut so_far = below;
    unrolled!(K in [0 1] {
        so_far += load(three + K as u32);
        let last = !SIZE.is_multiple_of(STRIDE) && three + K as u32 + 1 >= SIZE as u32;
        let passed_over = (so_far <= until) & !last;
        number += if passed_over { 1 } else { 0 };
        below = if passed_over { so_far } else { below };
    });
    (number, below)
}

/// The weights of a window in shared memory, one after another.
struct Staged {
    weights: Shared<f32>,
    from: u32,
    pitch: u32,
    size: u32,
}

impl Staged {
    /// Calls `f` with each, and the sum up to it, until it says so.
    ///
    /// # Safety
    /// The weights are there.
    #[device_inline]
    unsafe fn sum(&self, mut f: impl FnMut(u32, f32, f32) -> bool) -> f32 {
        let (mut sum, mut i) = (0.0, 0);
        while i < self.size {
            let mut j = 0;
            while j < self.size {
                // SAFETY: the caller's.
                let weight = unsafe { self.weights.load(self.from + i * self.pitch + j) };
                sum += weight;
                if f(i * self.size + j, weight, sum) {
                    return sum;
                }
                j += 1;
            }
            i += 1;
        }
        sum
    }

    /// As [`Elements::draw`]; none where no sum passes or they are not finite.
    ///
    /// # Safety
    /// The weights are there.
    #[device_inline]
    unsafe fn draw(&self, uniform: f32) -> Option<(u32, f32)> {
        // SAFETY: the caller's.
        unsafe {
            let sum = self.sum(|_, _, _| false);
            let until = uniform * sum;
            if !((until < sum) & (sum < f32::INFINITY)) {
                return None;
            }
            let mut drawn = (0, 0.0);
            self.sum(|position, weight, sum| {
                drawn = (position, weight);
                sum > until
            });
            Some(drawn)
        }
    }
}
