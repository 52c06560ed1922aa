//! Backward with the gradients of mean and variance.

use cuda_std::prelude::*;

use super::backward::{Spread, steps};
use super::{CHANNELS, Four, MOST, OPEN, Part, STRIDES, Slide, Tables, Weights, add, load, open, store};
use crate::gaussian_pool::{Geometry, SECTOR, SUMS_PER_GAUSSIAN, leave};

/// Threads of a block, at most: fewer than for `dx` alone, since each needs more registers.
pub const PARAMETERS_THREADS: u32 = 128;
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
pub(super) const fn parameters_blocks(size: u32, kernels: u32) -> u32 {
    match (size, kernels) {
        (3, 1) => 5,
        (_, 1) => 3,
        (3, _) => 3,
        _ => 2,
    }
}
/// Steps that rows of `x` and `dy` are on their way from memory before they are loaded, which is when they are used: registers have no room
/// for more.
const AHEAD: u32 = 3;
/// Sums that a thread leaves in shared memory, at most: of each channel those of a Gaussian.
pub(super) const SUMS_OF_THREAD: u32 = CHANNELS * SUMS_PER_GAUSSIAN;

/// The backward pass of one Gaussian a map for `dx`, where it is there, with each block's part of the sums of
/// `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`, laid out `[blocks, 4]`; with `KERNELS = 0` for each channel,
/// `[planes, blocks of an image and group, 4]`. The grid is that of
/// [`gaussian_pool_backward_slide`](super::gaussian_pool_backward_slide).
///
/// On an H200, before rows were fetched ahead, 0.75 of the copy rate for 3×3 and 0.57 for 11×11 windows in f32, 0.47 and 0.28 in bf16; on an H100
/// since 0.79 for 11×11 in f32. 59 instructions an element of 11×11 windows are all that memory leaves time for.
///
/// # Safety
/// The parent module's, as for that kernel, with derivatives in the tables; `x` holds the images.
#[kernel(
    max_threads = PARAMETERS_THREADS,
    min_blocks = parameters_blocks(SIZE, KERNELS),
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(3, 2), (11, 2)], KERNELS = [0, 1])
)]
pub unsafe fn gaussian_pool_backward_parameters_slide<
    T: Storage,
    const SIZE: u32,
    const STRIDE: u32,
    const KERNELS: u32,
>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    weights_y: Option<Global<f32>>,
    weights_x: Option<Global<f32>>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: GlobalMut<f32>,
    geometry: Geometry,
    slide: Slide,
) {
    let shared = dynamic_shared::<f32>();
    let [vertical, horizontal] = &geometry.axes;
    let part = Part::of_thread(&slide);
    let weights = Weights::<SIZE, KERNELS>::new(shared, &geometry, &slide, &part);
    // SAFETY: shared memory holds the weights, as the plan says; the tables are there where channels vary.
    unsafe {
        if let (true, Some(along_y), Some(along_x)) = (KERNELS == 0, weights_y, weights_x) {
            let tables = Tables { along: [along_y, along_x], entry: 4, kernels: 1 };
            Weights::<SIZE, KERNELS>::bring(shared, &tables, &geometry, &slide, &part, false);
        } else {
            weights.compute([mean, var], &geometry, slide.variances, true);
        }
    }
    thread::sync_threads();

    let open = open(SIZE, STRIDE) as usize;
    let spread = Spread::<SIZE, STRIDE>::new(&weights, &geometry, &part);
    let steps = slide.steps.min(steps::<STRIDE>(&geometry) - part.step);
    let begin = vertical.padding / STRIDE + part.step;
    // The first strip's windows are also those that begin in the padding above.
    let first = if part.step == 0 { 0 } else { begin };
    let mut window = begin.wrapping_sub(open as u32 - 1);
    let mut from = spread.row(&geometry, part.image, window);
    let from_line = horizontal.output as usize * geometry.channels as usize;
    let mut top = (window.wrapping_mul(STRIDE)).wrapping_sub(vertical.padding);
    let line = horizontal.image as usize * geometry.channels as usize;
    let mut pixel = (part.image as usize * vertical.image as usize)
        .wrapping_add_signed(top.cast_signed() as isize)
        .wrapping_mul(line)
        .wrapping_add(part.place as usize * geometry.channels as usize + part.channel as usize);
    let present = (part.place < horizontal.image) & (part.channel < geometry.channels);
    // Rows of x that windows cover. Others are no terms, nor are such columns: their NaN times a zero would be one.
    let covered = ((vertical.output - 1) * STRIDE + SIZE - vertical.padding).min(vertical.image);
    // How far the channels of x are apart: those past the last are the last.
    let last = geometry.channels.wrapping_sub(part.channel + 1);
    let apart =
        if KERNELS == 0 && slide.vectors == 0 { Some([0, 1.min(last), 2.min(last), 3.min(last)]) } else { None };

    // SAFETY: zero bits are 0.0 and 0.
    let (mut rows, mut spreads, mut along_y, mut of_thread): (
        // The rows of x that a row of windows covers.
        [Four; MOST + STRIDES],
        // What the rows of windows over a row give along x, the oldest first, and where their weights along y begin.
        [Four; OPEN + 1],
        [u32; OPEN + 1],
        // By channel, or all in the first.
        [Four; CHANNELS as usize],
    ) = unsafe { core::mem::zeroed() };
    let mut step = 0;
    // Of the threads whose channels come from memory together, the first.
    let fetches = (spread.inside != 0) & part.channel.is_multiple_of(SECTOR / size_of::<T>() as u32);
    while step < steps + open as u32 - 1 {
        unrolled!(U in [0 1] {
            let (above, newest) = (U * STRIDE as usize, U + open - 1);
            let in_output = window < vertical.output;
            unrolled!(I in [0 1] {
                if I < STRIDE as usize {
                    let row = SIZE as usize - STRIDE as usize + I;
                    let there = (spread.inside != 0) & (top.wrapping_add(row as u32) < covered);
                    // SAFETY: inside the image where they are loaded.
                    let values = unsafe { load(x, there, pixel.wrapping_add(row * line), apart) };
                    rows[above + row] = values.map(T::to_f32).to_array();
                }
            });
            // SAFETY: inside the image and the output where they are fetched.
            unsafe {
                let row = SIZE - STRIDE + AHEAD * STRIDE;
                unrolled!(I in [0 1] {
                    if I < STRIDE as usize {
                        let there = fetches & (top.wrapping_add(row + I as u32) < covered);
                        x.prefetch_if(there, pixel.wrapping_add((row as usize + I) * line));
                    }
                });
                let there = fetches & (spread.outside == 0) & (window.wrapping_add(AHEAD) < vertical.output);
                dy.prefetch_if(there, from.wrapping_add(AHEAD as usize * from_line));
            }
            let vector = weights.of(vertical, window);
            along_y[newest] = vector;
            // SAFETY: the windows are in the output where they are loaded; the vectors are there.
            let [by_weight, by_mean, by_var] = unsafe {
                let inside = if in_output { spread.inside } else { 0 };
                let values = spread.load::<T, KERNELS>(dy, inside, from, 0, slide.vectors);
                let sum = |table: u32| {
                    Spread::<SIZE, STRIDE>::sum(&values, &spread.weights(&weights, weights.x + table * weights.table))
                };
                [sum(0), sum(1), sum(2)]
            };
            spreads[newest] = by_weight;
            if in_output & (window >= first) & (window.wrapping_sub(begin).cast_signed() < steps.cast_signed()) {
                // SAFETY: zero bits are 0.0.
                let mut pooled: [Four; 3] = unsafe { core::mem::zeroed() };
                unrolled!(W in [0 1 2] {
                    let mut four = [0.0; CHANNELS as usize];
                    unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                        if I < SIZE as usize {
                            // SAFETY: the vector is there, of each table.
                            let weight = unsafe { weights.next(&mut four, vector + W as u32 * weights.table, I) };
                            add(&mut pooled[W], weight, rows[above + I]);
                        }
                    });
                });
                unrolled!(V in [0 1 2 3] {
                    let sums = &mut of_thread[if KERNELS == 0 { V } else { 0 }];
                    sums[0] = float::fma(pooled[1][V], by_weight[V], sums[0]);
                    sums[1] = float::fma(pooled[0][V], by_mean[V], sums[1]);
                    sums[2] = float::fma(pooled[2][V], by_weight[V], sums[2]);
                    sums[3] = float::fma(pooled[0][V], by_var[V], sums[3]);
                });
            }
            if let Some(dx) = dx {
                unrolled!(I in [0 1] {
                    if I < STRIDE as usize {
                        let mut sum = [0.0; CHANNELS as usize];
                        unrolled!(W in [0 1 2 3 4 5] {
                            let position = (open - 1).wrapping_sub(W).wrapping_mul(STRIDE as usize) + I;
                            if W < open && position < SIZE as usize {
                                // SAFETY: the vector is there.
                                let weight = unsafe { weights.one(along_y[U + W], position as u32) };
                                add(&mut sum, weight, spreads[U + W]);
                            }
                        });
                        let of_strip = window.wrapping_sub(begin) < steps;
                        let there = present & of_strip & (top.wrapping_add(I as u32) < vertical.image);
                        let left = geometry.channels.wrapping_sub(part.channel);
                        // SAFETY: in the image; one thread has each.
                        unsafe { store(dx, there, pixel.wrapping_add(I * line), sum, dx_beta, apart.is_none(), left) };
                    }
                });
            }
            window = window.wrapping_add(1);
            top = top.wrapping_add(STRIDE);
            from = from.wrapping_add(from_line);
            pixel = pixel.wrapping_add(STRIDE as usize * line);
            step += 1;
        });
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
            if I + (STRIDE as usize) < SIZE as usize {
                rows[I] = rows[I + 2 * STRIDE as usize];
            }
        });
        unrolled!(W in [0 1 2 3 4] {
            if W + 1 < open {
                spreads[W] = spreads[W + 2];
                along_y[W] = along_y[W + 2];
            }
        });
    }

    // Of the block, in the threads' order.
    thread::sync_threads();
    let number = thread::thread_idx_x();
    if KERNELS == 0 {
        unrolled!(V in [0 1 2 3] {
            // SAFETY: there are as many elements for each thread, and the weights are no longer read.
            unsafe { shared.store4(number * SUMS_OF_THREAD + V as u32 * SUMS_PER_GAUSSIAN, Vec4::from(of_thread[V])) };
        });
        thread::sync_threads();
        let mut i = number;
        while i < CHANNELS * slide.lanes {
            let mut sum = Vec4::splat(0.0);
            let mut place = 0;
            while place < slide.places {
                // SAFETY: written before the barrier: by lane, of each place, channel by channel.
                let term = unsafe { shared.load4((place * slide.lanes * CHANNELS + i) * SUMS_PER_GAUSSIAN) };
                sum = sum.zip_with(term, |sum, term| sum + term);
                place += 1;
            }
            let channel = part.group * slide.lanes * CHANNELS + i;
            if channel < geometry.channels {
                let plane = part.image as usize * geometry.channels as usize + channel as usize;
                let at = plane * (slide.across * slide.down) as usize + part.number as usize;
                // SAFETY: there are four sums for each block of each plane.
                unsafe { sums.store4(at * SUMS_PER_GAUSSIAN as usize, sum) };
            }
            i += thread::block_dim_x();
        }
    } else {
        // SAFETY: there is room for the sums of all warps, and four for each block.
        unsafe { leave(of_thread[0], shared, sums, thread::block_idx_x() as usize) };
    }
}
