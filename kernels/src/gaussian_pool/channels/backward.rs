//! Backward: the input's gradient of windows further apart, and all gradients.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::{CHANNELS_BLOCK, Run, Workers, load_weights, signed};
use crate::band::least;
use crate::elementwise::put;
use crate::gaussian_pool::cell::{COLUMNS, Cell, over};
use crate::gaussian_pool::{DERIVATIVES_ENTRY, SUMS_PER_GAUSSIAN, leave};
use crate::window::{Nhwc, Window};

/// Blocks that a multiprocessor has room for backward, at least: as many as leave a thread the registers for its sums, and for the rows that it keeps. Loads are what threads wait for: of 5×5 windows
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

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, of windows of `SIZE` by `SIZE` positions, `STRIDE` apart, whose paddings
/// leave `PHASE` by that.
///
/// # Safety
/// As [`gaussian_pool_forward_channels`](super::gaussian_pool_forward_channels)'s, of `dy` and `dx`, with one Gaussian a map; `workers` are of the cells of the window's inputs.
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
