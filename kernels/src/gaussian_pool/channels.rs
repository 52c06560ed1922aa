//! Gaussian pooling with the channels last, of square windows of a few known sizes whose weights are the same everywhere, of Gaussians that all channels
//! share or that each has: by a thread a channel, straight from memory.
//!
//! A block has some neighbouring channels, and for each of these as many threads, its workers. A worker takes a run of outputs below each other, or
//! backward of cells of inputs, and the next one the run beside it: what their windows share is in the cache. Neighbouring lanes load
//! neighbouring channels.
//!
//! Forward, a row of inputs is summed along x once, and added to the windows that are open, which come round. Backward, a thread keeps the rows of `dy`
//! whose windows are over its cell. For the gradients of mean and variance it adds `x · dy` to a sum for each position of the window
//! ([`positions`](super::positions) says what these are for), over one run after another, and a block leaves four sums, or four for each of its
//! channels; another kernel adds these up.
//!
//! Weights come from tables of entries of neighbouring sets ([`gaussian_pool_weights`](super::gaussian_pool_weights)).
//!
//! Bound by what threads wait for, loads of one element each (suspected, for more blocks a multiprocessor are faster at any cost of registers): an H200 takes
//! 0.3 to 0.8 of the copy rate in f32, and in 16 bits nearly as long (docs/perf).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::cell::{COLUMNS, Cell, over};
use super::sets::Weights;
use super::{DERIVATIVES_ENTRY, SUMS_PER_GAUSSIAN, leave};
use crate::band::least;
use crate::elementwise::put;
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
pub const CHANNELS_BLOCK: u32 = 256;
/// Channels of a block, at most.
const MOST_LANES: u32 = warp::WARP_SIZE;
/// Threads that are enough, about: more have shorter runs. Rows of a run, at most.
const ENOUGH: u64 = 1 << 19;
const MOST_ROWS: u64 = 32;
/// Windows that are open at a row, at most.
const OPEN: usize = 5;

/// Sizes of windows, and how far they are apart, that there are kernels for forward.
const FORWARD: [(u32, u32); 8] = [(2, 2), (3, 2), (5, 2), (7, 2), (3, 1), (5, 1), (4, 4), (3, 3)];

/// Sizes of windows, how far they are apart, and what is left of their padding by that, that there are kernels for backward.
const BACKWARD: [(u32, u32, u32); 9] =
    [(2, 2, 0), (3, 2, 0), (3, 2, 1), (5, 2, 0), (7, 2, 1), (3, 1, 0), (5, 1, 0), (4, 4, 0), (3, 3, 0)];

/// Blocks that a multiprocessor has room for forward, at least.
const fn forward_blocks(size: usize, each: usize) -> u32 {
    if size * each > 7 { 3 } else { 4 }
}

/// The same backward: as many as leave a thread the registers for its sums, and for the rows that it keeps. Loads are what threads wait for: of 5×5 windows
/// two apart learnt gradients take 0.69 of the time with three blocks instead of two, on an H200.
pub const fn blocks_at_once(size: usize, stride: usize, learnt: bool) -> u32 {
    match (size, stride, learnt) {
        (7, _, true) | (5, 1, true) => 2,
        (5, _, true) | (7, ..) | (5, 1, _) => 3,
        _ => 4,
    }
}

/// Of these as many as kernels are compiled for. Older GPUs' code spills with as many as newer ones'.
const fn min_blocks(size: usize, stride: usize, learnt: bool) -> u32 {
    blocks_at_once(size, stride, learnt) - if cfg!(target_feature = "sm_90") || !learnt { 0 } else { 1 }
}

/// How threads are laid over channels, columns and runs of rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Channels: with several Gaussians a map, of the output; forward, pairs of them, where a thread has two.
    channels: u32,
    each: u32,
    /// Gaussians of a map, and sets of them.
    kernels: u32,
    sets: u32,
    /// The logarithm to base 2 of a block's channels, and groups of as many.
    lanes_log: u32,
    groups: u32,
    /// Columns of outputs or cells, rows of them and of a run.
    columns: u32,
    rows: u32,
    run: u32,
    /// Runs of a column, and of all columns of all images.
    runs: u32,
    count: u32,
    by_kernels: Divider,
    by_groups: Divider,
    by_columns: Divider,
    by_runs: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Workers {}

/// What a thread takes.
struct Run {
    image: u32,
    column: u32,
    /// The first row, and that past the last.
    rows: [u32; 2],
}

impl Workers {
    /// Over the outputs of this window, of sets of Gaussians; none where there is no kernel for it.
    pub fn forward(window: &Window<Nhwc>, sets: u32, kernels: u32) -> Option<Self> {
        let [size, stride, _] = square(window)?;
        // Two are loaded together, where they are even and maps have one Gaussian.
        let each = if kernels == 1 && window.channels.is_multiple_of(2) { 2 } else { 1 };
        let known = FORWARD.contains(&(size, stride));
        known.then(|| Self::new(window, [sets, kernels], each, window.output))?
    }

    /// Over the cells of its inputs.
    pub fn backward(window: &Window<Nhwc>, sets: u32) -> Option<Self> {
        let [size, stride, phase] = square(window)?;
        let cells = window.input.map(|inputs| inputs.div_ceil(stride));
        BACKWARD.contains(&(size, stride, phase)).then(|| Self::new(window, [sets, 1], 1, cells))?
    }

    fn new(window: &Window<Nhwc>, [sets, kernels]: [u32; 2], each: u32, [rows, columns]: [u32; 2]) -> Option<Self> {
        let channels = window.channels.checked_mul(kernels)? / each;
        // As many lanes as leave at most a quarter of them without a channel.
        let idle = |lanes: u32| u64::from(channels.next_multiple_of(lanes) - channels) * 4 > u64::from(channels);
        let lanes =
            [MOST_LANES, MOST_LANES / 2, MOST_LANES / 4, 4, 2].into_iter().find(|&lanes| !idle(lanes)).unwrap_or(1);
        let lines = u64::from(window.planes) * u64::from(columns) * u64::from(channels);
        let run = (lines.checked_mul(rows.into())? / ENOUGH).clamp(1, MOST_ROWS.min(rows.into())) as u32;
        let runs = rows.div_ceil(run);
        let count = window.planes.checked_mul(runs)?.checked_mul(columns)?;
        let groups = channels.div_ceil(lanes);
        let fits = count < 1 << 31 && u64::from(count) * u64::from(groups) < 1 << 31 && channels < 1 << 31;
        let [by_kernels, by_groups, by_columns, by_runs] = [kernels, groups, columns, runs].map(Divider::new);
        let lanes_log = lanes.trailing_zeros();
        let workers = Self {
            channels,
            each,
            kernels,
            sets,
            lanes_log,
            groups,
            columns,
            rows,
            run,
            runs,
            count,
            by_kernels,
            by_groups,
            by_columns,
            by_runs,
        };
        fits.then_some(workers)
    }

    /// Blocks, each of whose workers takes a run.
    pub fn blocks(&self) -> u32 {
        self.count.div_ceil(CHANNELS_BLOCK >> self.lanes_log) * self.groups
    }

    /// The same, or as many blocks as about so many, each of whose workers takes one run after another.
    pub fn blocks_that_stay(&self, about: u32) -> u32 {
        let each = self.blocks().div_ceil(about.max(self.groups));
        (self.blocks() / self.groups).div_ceil(each) * self.groups
    }

    /// Channels of a thread of the forward pass.
    pub fn each(&self) -> u32 {
        self.each
    }

    /// Groups of neighbouring channels.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// This thread's channel, which may lie past the last, and the number of its block among those of these channels.
    #[device_inline]
    fn channel(&self) -> (u32, u32) {
        let number = self.by_groups.divide(thread::block_idx_x());
        let group = thread::block_idx_x() - number * self.groups;
        ((group << self.lanes_log) + (thread::thread_idx_x() & ((1 << self.lanes_log) - 1)), number)
    }

    /// Workers of a block, and the number of this thread among them.
    #[device_inline]
    fn workers(&self) -> (u32, u32) {
        (CHANNELS_BLOCK >> self.lanes_log, thread::thread_idx_x() >> self.lanes_log)
    }

    /// The run of this number.
    #[device_inline]
    fn run(&self, number: u32) -> Run {
        let line = self.by_columns.divide(number);
        let image = self.by_runs.divide(line);
        let first = (line - image * self.runs) * self.run;
        Run { image, column: number - line * self.columns, rows: [first, least(first + self.run, self.rows)] }
    }
}

/// The size of a square window, how far it is from the next, and what is left of its padding by that.
fn square(window: &Window<Nhwc>) -> Option<[u32; 3]> {
    let [size, stride] = [window.size[0], window.stride[0]];
    let phases = window.padding.map(|padding| padding % stride);
    let fits =
        window.size[1] == size && window.stride[1] == stride && phases[0] == phases[1] && window.dilation == [1; 2];
    fits.then_some([size, stride, phases[0]])
}

/// `to` = `from` pooled by windows of `SIZE` by `SIZE` positions, `STRIDE` apart, `+ beta * to`, with the weights the other way round where `turned` is not
/// 0. A thread has `EACH` neighbouring channels.
///
/// # Safety
/// The parent module's. `from` holds the inputs of `window`, which is such, and `to` its outputs of each of a map's Gaussians; the tables have one case and
/// entries of one element of neighbouring sets; `workers` are of the window's outputs and of as many channels a thread, with as many blocks; both tensors
/// begin at multiples of 16 bytes.
#[kernel(
    block = CHANNELS_BLOCK,
    min_blocks = forward_blocks(SIZE, EACH),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE) = [(2, 2), (3, 2), (5, 2), (7, 2), (3, 1), (5, 1), (4, 4), (3, 3)],
        EACH = [1, 2]
    )
)]
pub unsafe fn gaussian_pool_forward_channels<T: Storage, const SIZE: usize, const STRIDE: usize, const EACH: usize>(
    from: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    to: GlobalMut<T>,
    beta: f32,
    turned: u32,
    window: Window<Nhwc>,
    workers: Workers,
) {
    let (channel, number) = workers.channel();
    let (each, worker) = workers.workers();
    let item = number * each + worker;
    if channel >= workers.channels || item >= workers.count {
        return;
    }
    let map = workers.by_kernels.divide(channel);
    let kernel = channel - map * workers.kernels;
    // Of two channels a thread each map has one Gaussian.
    let first = map * EACH as u32;
    let tables = [weights_y, weights_x];
    let weights = [0, EACH as u32 - 1].map(|k| {
        // SAFETY: the caller's.
        let Weights { mut by_y, mut by_x } = unsafe { load_weights::<SIZE>(tables, &workers, first + k, kernel, 1) };
        if turned != 0 {
            by_y.reverse();
            by_x.reverse();
        }
        Weights { by_y, by_x }
    });
    let Run { image, column, rows } = workers.run(item);
    let [height, width] = window.input;
    // What lies before the image wraps round to far after it. One comparison says of row and column whether an input is there: the row is
    // below its column's height.
    let [top, left] =
        [(0, rows[0]), (1, column)].map(|(axis, output)| (output * STRIDE as u32).wrapping_sub(window.padding[axis]));
    let mut below = [0; SIZE];
    unrolled!(J in [0 1 2 3 4 5 6] {
        if J < SIZE && left.wrapping_add(J as u32) < width { below[J] = height; }
    });
    let (line, pixel) = (window.input_line(), window.channels as usize);
    let begin = window
        .input_plane(image)
        .wrapping_add(signed(top, line))
        .wrapping_add(signed(left, pixel))
        .wrapping_add(first as usize);
    let zero = T::from_f32(0.0);
    let outputs = window.output_line() * workers.kernels as usize;
    let output = (image as usize * window.output[0] as usize + rows[0] as usize) * outputs
        + (column as usize * workers.channels as usize + channel as usize) * EACH;
    let end = (rows[1] - rows[0] - 1) * STRIDE as u32 + SIZE as u32;
    let open = const { SIZE.div_ceil(STRIDE) };
    let period = const { SIZE.div_ceil(STRIDE) * STRIDE };
    let mut sums = [[0.0; 2]; OPEN];
    let mut base = 0;
    while base < end {
        unrolled!(R in [0 1 2 3 4 5 6 7] {
            let row = base + R as u32;
            if R < period && row < end {
                let at = begin.wrapping_add(row as usize * line);
                let mut across = [0.0; 2];
                unrolled!(J in [0 1 2 3 4 5 6] {
                    if J < SIZE {
                        let (inside, at) = (top.wrapping_add(row) < below[J], at.wrapping_add(J * pixel));
                        // SAFETY: in the image where it is loaded; of two channels the first is even.
                        let values = unsafe {
                            if EACH == 2 {
                                from.load2_if(inside, at, Vec2::splat(zero)).map(T::to_f32).to_array()
                            } else {
                                [from.load_if(inside, at, zero).to_f32(), 0.0]
                            }
                        };
                        unrolled!(K in [0 1] {
                            if K < EACH { across[K] = float::fma(weights[K].by_x[J], values[K], across[K]); }
                        });
                    }
                });
                unrolled!(O in [0 1 2 3 4] {
                    if O < open {
                        // The row of the window whose turn this sum is.
                        let i = (R + period - STRIDE * O) % period;
                        unrolled!(K in [0 1] {
                            if K < EACH && i < SIZE {
                                let sum = if i == 0 { 0.0 } else { sums[O][K] };
                                sums[O][K] = float::fma(weights[K].by_y[i], across[K], sum);
                            }
                        });
                        // Of windows that are open at the first row, but begin before it, no row is the last.
                        if i + 1 == SIZE && row + 1 >= SIZE as u32 {
                            let done = (row + 1 - SIZE as u32) / STRIDE as u32;
                            let at = output + done as usize * outputs;
                            // SAFETY: outputs of this thread's.
                            unsafe {
                                if EACH == 2 && beta == 0.0 {
                                    to.store2(at, Vec2::from(sums[O].map(T::from_f32)));
                                } else {
                                    unrolled!(K in [0 1] { if K < EACH { put(to, at + K, sums[O][K], beta); } });
                                }
                            }
                        }
                    }
                });
            }
        });
        base += period as u32;
    }
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, of windows of `SIZE` by `SIZE` positions, `STRIDE` apart, whose paddings
/// leave `PHASE` by that.
///
/// # Safety
/// As [`gaussian_pool_forward_channels`]'s, of `dy` and `dx`, with one Gaussian a map; `workers` are of the cells of the window's inputs.
#[kernel(
    block = CHANNELS_BLOCK,
    min_blocks = min_blocks(SIZE, STRIDE, false),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, PHASE) = [
            (2, 2, 0), (3, 2, 0), (3, 2, 1), (5, 2, 0), (7, 2, 1), (4, 4, 0), (3, 3, 0),
        ]
    )
)]
pub unsafe fn gaussian_pool_backward_channels<
    T: Storage,
    const SIZE: usize,
    const STRIDE: usize,
    const PHASE: usize,
>(
    dy: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nhwc>,
    workers: Workers,
) {
    let (channel, number) = workers.channel();
    let (each, worker) = workers.workers();
    let item = number * each + worker;
    if channel >= workers.channels || item >= workers.count {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        let weights = load_weights::<SIZE>([weights_y, weights_x], &workers, channel, 0, 1);
        let mut cell = Cell::<SIZE, STRIDE, PHASE>::new(weights);
        go_down(&mut cell, None, dy, (Some(dx), beta), &window, &workers.run(item), channel);
    }
}

/// As [`gaussian_pool_backward_channels`], where that is asked for, and each block's part of the sums of `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and
/// `var_x`. Where all channels share a Gaussian the sums are laid out `[blocks, 4]`, else `[blocks of a group of channels, channels, 4]`.
///
/// # Safety
/// As [`gaussian_pool_backward_channels`]'s; the tables have derivatives; `x` holds the inputs, `sums` what is left; there are as many blocks for each
/// group of channels.
#[kernel(
    block = CHANNELS_BLOCK,
    min_blocks = min_blocks(SIZE, STRIDE, true),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, PHASE) = [
            (2, 2, 0), (3, 2, 0), (3, 2, 1), (5, 2, 0), (7, 2, 1), (3, 1, 0), (5, 1, 0), (4, 4, 0), (3, 3, 0),
        ]
    )
)]
pub unsafe fn gaussian_pool_learnt_channels<T: Storage, const SIZE: usize, const STRIDE: usize, const PHASE: usize>(
    x: Global<T>,
    dy: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    dx: Option<GlobalMut<T>>,
    beta: f32,
    sums: GlobalMut<f32>,
    window: Window<Nhwc>,
    workers: Workers,
) {
    let (channel, number) = workers.channel();
    let (each, worker) = workers.workers();
    let there = channel < workers.channels;
    let step = workers.by_groups.divide(thread::grid_dim_x()) * each;
    let tables = [weights_y, weights_x];
    let own = if there { channel } else { 0 };
    // SAFETY: the caller's.
    let weights = unsafe { load_weights::<SIZE>(tables, &workers, own, 0, DERIVATIVES_ENTRY) };
    let mut cell = Cell::<SIZE, STRIDE, PHASE>::new(weights);
    let mut item = if there { number * each + worker } else { workers.count };
    while item < workers.count {
        // SAFETY: the caller's.
        unsafe { go_down(&mut cell, Some(x), dy, (dx, beta), &window, &workers.run(item), channel) };
        item += step;
    }
    // SAFETY: the caller's.
    let mut of_thread = unsafe { gradients(tables, &workers, own, &cell.products) };
    let [a, b, c, d] = of_thread;
    // What is outside of the image counts as zeros, which by an infinite element are NaN.
    if there && (a + b + c + d).is_nan() {
        // SAFETY: the caller's.
        of_thread = unsafe {
            again::<T, SIZE, STRIDE>([x, dy], tables, &window, &workers, channel, [number * each + worker, step])
        };
    }
    let of_threads = shared_array![f32; (CHANNELS_BLOCK * SUMS_PER_GAUSSIAN) as usize].handle();
    // SAFETY: there is room for the sums of all threads, and four for each block, or each of its channels.
    unsafe {
        if workers.sets == 1 {
            return leave(of_thread, of_threads, sums, thread::block_idx_x() as usize);
        }
        of_threads.store4(thread::thread_idx_x() * SUMS_PER_GAUSSIAN, Vec4::from(of_thread));
        thread::sync_threads();
        if worker == 0 && there {
            let mut sum = Vec4::splat(0.0);
            let mut i = thread::thread_idx_x();
            while i < CHANNELS_BLOCK {
                sum = sum.zip_with(of_threads.load4(i * SUMS_PER_GAUSSIAN), |sum, term| sum + term);
                i += 1 << workers.lanes_log;
            }
            let at = number as usize * workers.channels as usize + channel as usize;
            sums.store4(at * SUMS_PER_GAUSSIAN as usize, sum);
        }
    }
}

/// So many elements, each of so many, forward, or back where the number wrapped round below zero.
#[device_inline]
fn signed(number: u32, each: usize) -> usize {
    (number.cast_signed() as isize).wrapping_mul(each.cast_signed()).cast_unsigned()
}

/// The weights of a map's Gaussian, of tables of entries of so many elements, whose first they are.
///
/// # Safety
/// The tables have one case, of neighbouring sets.
#[device_inline]
unsafe fn load_weights<const SIZE: usize>(
    tables: [Global<f32>; 2],
    workers: &Workers,
    map: u32,
    kernel: u32,
    entry: u32,
) -> Weights<SIZE> {
    let set = if workers.sets == 1 { 0 } else { map };
    let first = (kernel * SIZE as u32 * workers.sets + set) * entry;
    let mut weights = Weights { by_y: [0.0; SIZE], by_x: [0.0; SIZE] };
    unrolled!(I in [0 1 2 3 4 5 6] {
        if I < SIZE {
            let at = (first + I as u32 * workers.sets * entry) as usize;
            // SAFETY: the caller's.
            unsafe {
                weights.by_y[I] = tables[0].load(at);
                weights.by_x[I] = tables[1].load(at);
            }
        }
    });
    weights
}

/// Goes down a run of a channel's cells: stores the input's gradients, where they are asked for, and adds `x · dy` to the cell's sums, with `x`.
///
/// # Safety
/// The kernels'.
#[device_inline]
unsafe fn go_down<T: Storage, const SIZE: usize, const STRIDE: usize, const PHASE: usize>(
    sums: &mut Cell<SIZE, STRIDE, PHASE>,
    x: Option<Global<T>>,
    dy: Global<T>,
    (dx, beta): (Option<GlobalMut<T>>, f32),
    window: &Window<Nhwc>,
    &Run { image, column, rows }: &Run,
    channel: u32,
) {
    let over = const { over(SIZE, STRIDE, PHASE) };
    let [height, width] = window.output;
    let last = window.padding.map(|padding| padding.div_ceil(STRIDE as u32));
    // The first of the outputs that give to the cell. What lies before the first wraps round to far after the last. One comparison says of row and
    // column whether an output is there: the row is below its column's height.
    let [top, left] = [(0, rows[0]), (1, column)].map(|(axis, cell)| (cell + last[axis]).wrapping_sub(over as u32 - 1));
    let mut below = [0; SIZE];
    unrolled!(J in [0 1 2 3 4] { if J < over && left.wrapping_add(J as u32) < width { below[J] = height; } });
    let (pixel, line, line_of_inputs) = (window.channels as usize, window.output_line(), window.input_line());
    let mut given = window
        .output_plane(image)
        .wrapping_add(signed(top, line))
        .wrapping_add(signed(left, pixel))
        .wrapping_add(channel as usize);
    let first = column * STRIDE as u32;
    let mut here = window.input_plane(image)
        + (rows[0] * STRIDE as u32) as usize * line_of_inputs
        + first as usize * pixel
        + channel as usize;
    let (zero, mut output, mut cell) = (T::from_f32(0.0), top, rows[0].wrapping_sub(over as u32 - 1));
    while cell != rows[1] {
        unrolled!(C in [0 1 2 3 4] {
            if C < over && cell != rows[1] {
                unrolled!(J in [0 1 2 3 4] {
                    if J < over {
                        // SAFETY: an output where it is loaded.
                        sums.outputs[C][J] = unsafe { dy.load_if(output < below[J], given.wrapping_add(J * pixel), zero) }.to_f32();
                    }
                });
                // The first rows of outputs are for the first cell.
                if cell.wrapping_sub(rows[0]) < rows[1] - rows[0] {
                    unrolled!(R in [0 1 2 3] {
                        if R < STRIDE && cell * STRIDE as u32 + (R as u32) < window.input[0] {
                            let x = x.map(|x| {
                                let mut row = [0.0; COLUMNS];
                                unrolled!(K in [0 1 2 3] {
                                    if K < STRIDE {
                                        let inside = first + (K as u32) < window.input[1];
                                        // SAFETY: an input where it is loaded.
                                        row[K] = unsafe { x.load_if(inside, here.wrapping_add(K * pixel), zero) }.to_f32();
                                    }
                                });
                                row
                            });
                            let given = sums.gather(C, R, STRIDE, x);
                            if let Some(dx) = dx {
                                unrolled!(K in [0 1 2 3] {
                                    if K < STRIDE && first + (K as u32) < window.input[1] {
                                        // SAFETY: an input of this thread's.
                                        unsafe { put(dx, here + K * pixel, given[K], beta) };
                                    }
                                });
                            }
                        }
                        if R < STRIDE {
                            here += line_of_inputs;
                        }
                    });
                }
                given = given.wrapping_add(line);
                output = output.wrapping_add(1);
                cell = cell.wrapping_add(1);
            }
        });
    }
}

/// The weight along an axis of a position of a channel's windows, and its derivatives by mean and variance.
///
/// # Safety
/// The table has one case, of neighbouring sets, and derivatives.
#[device_inline]
unsafe fn entry(table: Global<f32>, workers: &Workers, channel: u32, position: u32) -> [f32; 3] {
    let set = if workers.sets == 1 { 0 } else { channel };
    // SAFETY: the caller's; the table begins at a multiple of 16 bytes.
    let entry = unsafe { table.load4(((position * workers.sets + set) * DERIVATIVES_ENTRY) as usize) };
    [entry.x, entry.y, entry.z]
}

/// The gradients by `mu_y`, `mu_x`, `var_y` and `var_x` of a sum for each position, of a channel.
///
/// # Safety
/// As [`entry`], of both tables.
#[device_inline]
unsafe fn gradients<const SIZE: usize>(
    [table_y, table_x]: [Global<f32>; 2],
    workers: &Workers,
    channel: u32,
    products: &[[f32; SIZE]; SIZE],
) -> [f32; SUMS_PER_GAUSSIAN as usize] {
    let mut along = [[0.0; 3]; SIZE];
    unrolled!(J in [0 1 2 3 4 5 6] {
        if J < SIZE {
            // SAFETY: the caller's.
            let [weight, by_mean, by_var] = unsafe { entry(table_x, workers, channel, J as u32) };
            unrolled!(I in [0 1 2 3 4 5 6] {
                if I < SIZE {
                    along[I][0] = float::fma(weight, products[I][J], along[I][0]);
                    along[I][1] = float::fma(by_mean, products[I][J], along[I][1]);
                    along[I][2] = float::fma(by_var, products[I][J], along[I][2]);
                }
            });
        }
    });
    let mut sums = [0.0; SUMS_PER_GAUSSIAN as usize];
    unrolled!(I in [0 1 2 3 4 5 6] {
        if I < SIZE {
            // SAFETY: the caller's.
            let [weight, by_mean, by_var] = unsafe { entry(table_y, workers, channel, I as u32) };
            let [plain, of_mean, of_var] = along[I];
            sums = [
                float::fma(by_mean, plain, sums[0]),
                float::fma(weight, of_mean, sums[1]),
                float::fma(by_var, plain, sums[2]),
                float::fma(weight, of_var, sums[3]),
            ];
        }
    });
    sums
}

/// This thread's sums by `mu_y`, `mu_x`, `var_y` and `var_x` of what lies in the image alone, an input after another.
///
/// # Safety
/// The kernel's; `channel` is one, and there are derivatives.
#[device_inline]
unsafe fn again<T: Storage, const SIZE: usize, const STRIDE: usize>(
    [x, dy]: [Global<T>; 2],
    [table_y, table_x]: [Global<f32>; 2],
    window: &Window<Nhwc>,
    workers: &Workers,
    channel: u32,
    [first, step]: [u32; 2],
) -> [f32; SUMS_PER_GAUSSIAN as usize] {
    let mut sums = [0.0; SUMS_PER_GAUSSIAN as usize];
    let pixel = window.channels as usize;
    // The output at that place whose window has an input at a position, if there is one.
    let output = |axis: usize, input: u32, position: u32| {
        let padded = (input + window.padding[axis]).wrapping_sub(position);
        let output = padded / STRIDE as u32;
        (output * STRIDE as u32 == padded && output < window.output[axis]).then_some(output)
    };
    let mut item = first;
    while item < workers.count {
        let Run { image, column, rows } = workers.run(item);
        let mut row = rows[0] * STRIDE as u32;
        while row < least(rows[1] * STRIDE as u32, window.input[0]) {
            let mut across = column * STRIDE as u32;
            while across < least((column + 1) * STRIDE as u32, window.input[1]) {
                let at = window.input_plane(image)
                    + row as usize * window.input_line()
                    + across as usize * pixel
                    + channel as usize;
                // SAFETY: the input is there.
                let x = unsafe { x.load(at) }.to_f32();
                let mut position = 0;
                while position < (SIZE * SIZE) as u32 {
                    let (i, j) = (position / SIZE as u32, position % SIZE as u32);
                    if let (Some(down), Some(right)) = (output(0, row, i), output(1, across, j)) {
                        let at = window.output_plane(image)
                            + down as usize * window.output_line()
                            + right as usize * pixel
                            + channel as usize;
                        // SAFETY: the output is there; so are the positions' entries.
                        unsafe {
                            let product = x * dy.load(at).to_f32();
                            let [y, x] = [entry(table_y, workers, channel, i), entry(table_x, workers, channel, j)];
                            let (by_y, by_x) = (product * y[0], product * x[0]);
                            sums = [
                                float::fma(y[1], by_x, sums[0]),
                                float::fma(x[1], by_y, sums[1]),
                                float::fma(y[2], by_x, sums[2]),
                                float::fma(x[2], by_y, sums[3]),
                            ];
                        }
                    }
                    position += 1;
                }
                across += 1;
            }
            row += 1;
        }
        item += step;
    }
    sums
}
