//! Channels last: gradients of mean and variance, of 5×5 and 7×7 windows one and two apart whose weights are the same everywhere, and, if each channel has a
//! Gaussian of its own, in 16 bits of 3×3 windows one apart. All channels share a Gaussian, or each has its own. By packs of 2 or 4 bytes of neighbouring channels [down strips of
//! outputs](crate::falling).
//!
//! With the sums of a row of `x` along the windows by the weights along x and by their derivatives, `along`, `along_mean` and `along_var`, and the sums of
//! the rows of `dy` whose windows are over the row by those along y, `over`, `over_mean` and `over_var`, gradients are the sums over all rows and columns
//!
//! `dmean_y = along * over_mean, dmean_x = along_mean * over, dvar_y = along * over_var, dvar_x = along_var * over`
//!
//! so that an output takes as many multiplications as an axis has positions, six times, and not as a window has.
//!
//! Launch: as [`falling_packs`](super::falling_packs)'. A block leaves four sums, or four for each channel of its group; another kernel adds these up. The
//! input's gradient is another pass's.
//!
//! Bound by instructions, suspected: with the input's gradient on 64×64×112×112 0.32 to 0.63 of the copy rate in f32 on an H200, 0.17 to 0.45 in 16 bits.

use cuda_std::prelude::*;

use super::weights::{Shape, derive, unscaled, with_derivatives};
use super::{Geometry, SUMS_PER_GAUSSIAN, leave};
use crate::elements::{Elements, Place};
use crate::falling::{COLUMNS, MOST_WIDE, Rows, ahead, open, wide};
use crate::packs::{MOST_LANES, PACKS_BLOCK, add, load, place};
use crate::vectors::{LANES, Lanes};
use crate::window::{Nhwc, Window};

/// Positions of a window along an axis, at most, and elements of a vector of weights in shared memory.
const MOST: usize = 7;
const VECTOR: u32 = 8;
/// Such vectors: weights along an axis, and their derivatives by mean and variance.
const VECTORS: usize = 6;
const WARPS: u32 = PACKS_BLOCK / warp::WARP_SIZE;
/// Columns of outputs of a thread.
const WIDTH: usize = COLUMNS as usize;
/// Rows on their way, at most.
const MOST_AHEAD: usize = 3;

/// Bytes of a block's shared memory, of so many packs a group, each of a channel that has a Gaussian of its own, or of one that all share.
pub const fn parameters_shared_bytes(lanes: u32, apiece: bool) -> u32 {
    let gaussians = if apiece { lanes } else { 1 };
    let sums = if apiece { PACKS_BLOCK } else { WARPS };
    (VECTORS as u32 * VECTOR * gaussians + sums * SUMS_PER_GAUSSIAN) * 4
}

/// Blocks that fit on a multiprocessor: as many as leave each thread the registers for the weights, the rows that it keeps and what is on its way.
pub const fn parameters_blocks(several: bool, size: usize, stride: usize) -> u32 {
    match (size, stride, several) {
        (3, ..) => 6,
        (5, 1, false) => 5,
        (7, _, true) => 3,
        _ => 4,
    }
}

/// Each block's part of the sums of `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`, laid out `[blocks, 4]`; with `APIECE` those of each channel,
/// `[channels, blocks along x, 4]`.
///
/// # Safety
/// The parent module's. `x` and `dy` are the inputs and the outputs of `window`, whose channels are packs of `BYTES` bytes, with `APIECE` of one channel,
/// fewer than 2³¹ in a plane of either, and whose windows are `SIZE` by `SIZE` and `STRIDE` apart both ways, which `geometry` says too; `mean` holds two and `var`
/// `variances` elements, with `APIECE` for each channel; groups have `lanes` packs; `elements` are the window's outputs, each two columns of a row, by as many
/// packs, `rows` a thread, with the launch's grid for each group; shared memory is [`parameters_shared_bytes`].
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = parameters_blocks(BYTES > size_of::<T>(), SIZE, STRIDE),
    instances(
        (T, BYTES, SIZE, STRIDE, APIECE) = [
            (f32, 4, 5, 1, false), (f32, 4, 5, 2, false), (f32, 4, 7, 1, false), (f32, 4, 7, 2, false),
            (f32, 4, 5, 1, true), (f32, 4, 5, 2, true), (f32, 4, 7, 1, true), (f32, 4, 7, 2, true),
            (f16, 4, 5, 1, false), (f16, 4, 5, 2, false), (f16, 4, 7, 1, false), (f16, 4, 7, 2, false),
            (f16, 2, 3, 1, true), (f16, 2, 5, 1, true), (f16, 2, 5, 2, true), (f16, 2, 7, 1, true), (f16, 2, 7, 2, true),
            (bf16, 4, 5, 1, false), (bf16, 4, 5, 2, false), (bf16, 4, 7, 1, false), (bf16, 4, 7, 2, false),
            (bf16, 2, 3, 1, true), (bf16, 2, 5, 1, true), (bf16, 2, 5, 2, true), (bf16, 2, 7, 1, true), (bf16, 2, 7, 2, true)
        ]
    )
)]
pub unsafe fn gaussian_pool_parameters_falling<
    T: Lanes,
    const BYTES: usize,
    const SIZE: usize,
    const STRIDE: usize,
    const APIECE: bool,
>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    sums: GlobalMut<f32>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    elements: Elements,
    lanes: u32,
    rows: u32,
) {
    let place = place(&window, elements, PACKS_BLOCK, lanes);
    let there = place.is_some();
    let Place { plane, row, column, channel } = place.unwrap_or_default();
    let column = column * COLUMNS;
    let place = place.map(|place| Place { column, ..place });
    let rows = rows.min(window.output[0] - row);
    let both = column + 1 < window.output[1];
    let (pixel, line) = (window.channels, window.output_line() as u32);
    // SAFETY: the caller's.
    let mut inputs = unsafe { Rows::<T, BYTES, SIZE, STRIDE, MOST_WIDE>::new(x, &window, (place, rows), 0) };
    // SAFETY: the plane exists.
    let dy = unsafe { dy.offset(window.output_plane(plane) * (BYTES / size_of::<T>())) };
    let mut given_at = row * line + column * pixel + channel;
    let mut given_row = 0;
    let mut next_given = || {
        let is = there & (given_row < rows);
        // SAFETY: the outputs exist where they are loaded.
        let given = unsafe {
            [
                load::<T, BYTES>(dy, is, given_at as usize)[0],
                load::<T, BYTES>(dy, is & both, given_at.wrapping_add(pixel) as usize)[0],
            ]
        };
        given_row += 1;
        given_at = given_at.wrapping_add(line);
        given
    };
    let ahead = ahead(SIZE);
    let mut coming = [[[0; 4]; MOST_WIDE]; MOST_AHEAD];
    // SAFETY: the caller's.
    unrolled!(I in [0 1 2] { if I < ahead { coming[I] = unsafe { inputs.load() }; } });
    let mut coming_given = next_given();

    let shared = dynamic_shared::<f32>();
    let gaussians = if APIECE { lanes } else { 1 };
    let own = if APIECE && there { channel - thread::block_idx_y() * lanes } else { 0 };
    // SAFETY: the caller's; all threads of the block come here.
    unsafe {
        if APIECE {
            derive_of_group::<SIZE>(shared, [mean, var], variances, [window.channels, lanes]);
        } else {
            with_derivatives(shared, VECTOR, [mean, var], &geometry, variances);
        }
    }
    thread::sync_threads();
    let mut weights = [[0.0; MOST]; VECTORS];
    unrolled!(V in [0 1 2 3 4 5] { unrolled!(I in [0 1 2 3 4 5 6] { if I < SIZE {
        // SAFETY: written before the barrier.
        weights[V][I] = unsafe { shared.load((V as u32 * VECTOR + I as u32) * gaussians + own) };
    } }); });
    let [by_y, by_x] = [[weights[0], weights[1], weights[2]], [weights[3], weights[4], weights[5]]];

    // The rows of `dy` whose windows are over the row of inputs, the last first.
    let mut given = [[[0.0; LANES]; WIDTH]; MOST];
    let mut found = [0.0; SUMS_PER_GAUSSIAN as usize];
    let top = (row * STRIDE as u32).wrapping_sub(window.padding[0]);
    let mut next = top;
    let end = if there { rows + open(SIZE, STRIDE) as u32 - 1 } else { 0 };
    for _ in 0..end {
        unrolled!(B in [5 4 3 2 1 0] { if B + 1 < open(SIZE, STRIDE) { given[B + 1] = given[B]; } });
        given[0] = coming_given.map(|word| T::numbers([word, 0, 0, 0]));
        coming_given = next_given();
        unrolled!(P in [0 1] { if P < STRIDE {
            let packs = coming[0];
            unrolled!(A in [0 1] { if A + 1 < ahead { coming[A] = coming[A + 1]; } });
            // SAFETY: the caller's.
            coming[ahead - 1] = unsafe { inputs.load() };
            // What is outside of the image is no term: by an infinite gradient it would be NaN. Nor is a row that only windows of another strip are over.
            if (next < window.input[0]) & (next.wrapping_sub(top) < (rows - 1) * STRIDE as u32 + SIZE as u32) {
                let mut along = [[[0.0; LANES]; 3]; WIDTH];
                unrolled!(J in [0 1 2 3 4 5 6 7 8] { if J < wide(SIZE, STRIDE) {
                    let numbers = T::numbers(packs[J]);
                    unrolled!(C in [0 1] { if J >= C * STRIDE && J < C * STRIDE + SIZE { unrolled!(D in [0 1 2] {
                        along[C][D] = add::<T, BYTES>(along[C][D], by_x[D][J.wrapping_sub(C * STRIDE)], numbers);
                    }); } });
                } });
                unrolled!(C in [0 1] { if C == 0 || both {
                    let mut over = [[0.0; LANES]; 3];
                    unrolled!(B in [0 1 2 3 4 5 6] { if B * STRIDE + P < SIZE { unrolled!(D in [0 1 2] {
                        over[D] = add::<T, BYTES>(over[D], by_y[D][(B * STRIDE + P) % MOST], given[B][C]);
                    }); } });
                    unrolled!(K in [0 1] { if K < BYTES / size_of::<T>() {
                        found[0] = float::fma(along[C][0][K], over[1][K], found[0]);
                        found[1] = float::fma(along[C][1][K], over[0][K], found[1]);
                        found[2] = float::fma(along[C][0][K], over[2][K], found[2]);
                        found[3] = float::fma(along[C][2][K], over[0][K], found[3]);
                    } });
                } });
            }
            next = next.wrapping_add(1);
        } });
    }
    // SAFETY: the weights are in registers; there is room for the sums of all warps or of all threads, and four for each block or channel of it.
    unsafe {
        let left = shared.offset(VECTORS as u32 * VECTOR * gaussians);
        if APIECE {
            let first = elements.first_channel(PACKS_BLOCK, lanes);
            leave_of_channels(found, left, sums, [first, lanes, window.channels]);
        } else {
            let part = thread::block_idx_y() * thread::grid_dim_x() + thread::block_idx_x();
            leave(found, left, sums, part as usize);
        }
    }
}

/// Computes the weights of the channels of the block's group and their derivatives, vector after vector: a thread those of a channel along an axis. They are
/// there after a barrier.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn derive_of_group<const SIZE: usize>(
    shared: Shared<f32>,
    parameters: [Global<f32>; 2],
    variances: u32,
    [all, lanes]: [u32; 2],
) {
    const { assert!(2 * MOST_LANES <= PACKS_BLOCK, "a thread for each axis") };
    let (channel, vertical) = (thread::thread_idx_x() / 2, thread::thread_idx_x().is_multiple_of(2));
    let gaussian = thread::block_idx_y() * lanes + channel;
    if channel >= lanes || gaussian >= all {
        return;
    }
    // SAFETY: the caller's; this thread's elements until the barrier.
    unsafe {
        let shape = Shape::load(parameters, gaussian, vertical, variances);
        let vector = if vertical { 0 } else { 3 * VECTOR };
        let put = |i: u32, weights: [f32; 3]| {
            unrolled!(D in [0 1 2] {
                shared.store((vector + D as u32 * VECTOR + i) * lanes + channel, weights[D]);
            });
        };
        derive(SIZE as u32, shape, |i| unscaled(SIZE as u32, i, shape), put);
    }
}

/// Leaves the sums over the threads that have each channel of the block's group, laid out `[channels, blocks along x, 4]`: of threads a group's packs apart,
/// one after another.
///
/// # Safety
/// `of_threads` holds as many for each thread of the block, at a multiple of 16 bytes, and nobody uses it; `first` is the first thread's channel in its group of
/// `lanes`; `sums` holds four for each block along x of each of `all` channels; all threads of the block come together.
#[device_inline]
unsafe fn leave_of_channels(
    of_thread: [f32; SUMS_PER_GAUSSIAN as usize],
    of_threads: Shared<f32>,
    sums: GlobalMut<f32>,
    [first, lanes, all]: [u32; 3],
) {
    let lane = thread::thread_idx_x();
    // SAFETY: each thread has its place; they are read after a barrier.
    unsafe {
        of_threads.store4(lane * SUMS_PER_GAUSSIAN, Vec4::from(of_thread));
        thread::sync_threads();
        let channel = thread::block_idx_y() * lanes + lane;
        if lane >= lanes || channel >= all {
            return;
        }
        let mut sum = Vec4::splat(0.0);
        let mut number = if lane >= first { lane - first } else { lane + lanes - first };
        while number < PACKS_BLOCK {
            sum = of_threads.load4(number * SUMS_PER_GAUSSIAN).zip_with(sum, |term, sum| sum + term);
            number += lanes;
        }
        let part = channel as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize;
        sums.store4(part * SUMS_PER_GAUSSIAN as usize, sum);
    }
}
