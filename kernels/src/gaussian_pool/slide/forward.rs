//! Forward.

use cuda_std::prelude::*;

use super::{CHANNELS, Four, MAPS, MOST, OPEN, Part, STRIDES, Slide, Tables, Weights, add, load, open, store};
use crate::gaussian_pool::{Geometry, divide};

/// Threads of a block, at most.
pub(super) const fn forward_threads(kernels: u32) -> u32 {
    if kernels == 1 { 256 } else { 128 }
}
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
pub(super) const fn forward_blocks(size: u32, kernels: u32) -> u32 {
    match (size, kernels) {
        (3, 1) => 3,
        (3, _) => 4,
        _ => 2,
    }
}
/// Windows beside each other that a thread has, at most, and for as many Gaussians.
pub const COLUMNS: u32 = 2;
pub(super) const fn columns(kernels: u32) -> u32 {
    if kernels > 1 { 1 } else { COLUMNS }
}
/// Columns of the image that these cover, at most.
const COVERED: usize = (COLUMNS as usize - 1) * STRIDES + MOST;

/// Windows of fewer columns have the loads of all rows of a step under way at once.
const FEW: u32 = 5;
/// Columns whose loads are under way at once.
const HALF: usize = COVERED.div_ceil(2);

/// Four channels of each of a thread's columns.
type Block = [Four; COLUMNS as usize];

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. The grid has a block for each strip of each part of
/// an image across and group of channels. `SIZE` is both sides of the window, `KERNELS` how
/// many Gaussians all channels share, or 0.
///
/// On an H200 0.89 of the copy rate for 3×3 and 0.73 for 11×11 windows in f32, 0.80 and 0.39 in bf16: bound by memory, and by what is
/// issued in 16 bits. With three Gaussians 0.36: few warps, as each thread has many registers, are suspected.
///
/// # Safety
/// The parent module's. `x` holds the images, `y` as many channels for each of `kernels`, `mean` two and `var` `variances`
/// elements for each Gaussian, and with `KERNELS = 0` `weights_y` and `weights_x` the tables of
/// [`gaussian_pool_weights`](super::super::gaussian_pool_weights) without derivatives; `slide` is what [`Slide::forward`] made
/// of `geometry`, whose windows are such.
#[kernel(
    max_threads = forward_threads(KERNELS),
    min_blocks = forward_blocks(SIZE, KERNELS),
    instances(T = [f32, f16, bf16], (SIZE, STRIDE, KERNELS) = [(3, 2, 0), (3, 2, 1), (11, 2, 0), (11, 2, 1), (11, 2, 3)])
)]
pub unsafe fn gaussian_pool_forward_slide<T: Storage, const SIZE: u32, const STRIDE: u32, const KERNELS: u32>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    weights_y: Option<Global<f32>>,
    weights_x: Option<Global<f32>>,
    y: GlobalMut<T>,
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
            let tables = Tables { along: [along_y, along_x], entry: 1, kernels: 1 };
            Weights::<SIZE, KERNELS>::bring(shared, &tables, &geometry, &slide, &part, true);
        } else {
            weights.compute([mean, var], &geometry, slide.variances, false);
        }
    }
    thread::sync_threads();

    // Channels that threads share out, and those of a pixel of the output.
    let pixel = geometry.channels * geometry.kernels;
    let channels = if KERNELS == 0 { pixel } else { geometry.channels };
    let present = part.channel < channels;
    // The channels of the input that the thread's are made of: the first, and how far from it each is.
    let (first, _) =
        if KERNELS == 0 { divide(part.channel.min(channels - 1), geometry.kernels) } else { (part.channel, 0) };
    let apart = if KERNELS == 0 {
        let of = |v: u32| divide((part.channel + v).min(channels - 1), geometry.kernels).0 - first;
        [of(0), of(1), of(2), of(3)]
    } else {
        [0; 4]
    };
    let one_by_one = KERNELS == 0 && slide.vectors == 0;

    // The columns of the image that the thread's windows cover, counted from the first: those that lie inside.
    let column = part.place.wrapping_mul(columns(KERNELS));
    let left = column.wrapping_mul(STRIDE).wrapping_sub(horizontal.padding);
    let outside = if left < horizontal.image { 0 } else { left.wrapping_neg() };
    let inside = if present & (column < horizontal.output) {
        horizontal.image.wrapping_sub(left).min(COVERED as u32) - outside
    } else {
        0
    };
    let along_x = [weights.x + weights.of(horizontal, column), weights.x + weights.of(horizontal, column + 1)];

    // Counted from the first row that the strip's first window covers.
    let rows = slide.steps.min(vertical.output - part.step);
    let covered = (rows - 1) * STRIDE + SIZE;
    let mut top = (part.step * STRIDE).wrapping_sub(vertical.padding);
    let line = horizontal.image as usize * geometry.channels as usize;
    let mut origin = (part.image as usize * vertical.image as usize)
        .wrapping_add_signed(top.cast_signed() as isize)
        .wrapping_mul(line)
        .wrapping_add_signed(left.cast_signed() as isize * geometry.channels as isize)
        .wrapping_add(first as usize);
    let out_line = horizontal.output as usize * pixel as usize;
    let mut out = (part.image as usize * vertical.output as usize + part.step as usize) * out_line
        + column as usize * pixel as usize
        + part.channel as usize * KERNELS.max(1) as usize;

    let (open, maps, across) = (open(SIZE, STRIDE) as usize, KERNELS.max(1) as usize, columns(KERNELS) as usize);
    // Of each open window, the oldest first, the sums and where its weights along y begin.
    // SAFETY: zero bits are 0.0 and 0.
    let (mut sums, mut along_y): ([[Block; MAPS]; OPEN], [u32; OPEN]) = unsafe { core::mem::zeroed() };
    let mut step = 0;
    while step < rows + open as u32 - 1 {
        along_y[open - 1] = weights.of(vertical, part.step + step);
        unrolled!(I in [0 1] {
            let below = step * STRIDE + I as u32;
            let there = (top.wrapping_add(I as u32) < vertical.image) & (below < covered);
            // A branch between rows of many columns keeps the compiler from loading all at once, which spills.
            if I < STRIDE as usize && (there || SIZE < FEW) {
                // Adds nothing, as there are fewer steps; but the compiler cannot know that, or it would keep all weights along
                // x in registers from one row to the next.
                let along_x = along_x.map(|vector| vector + (step >> (31 - I)));
                let inside = if there { inside } else { 0 };
                let from = origin.wrapping_add(I * line);
                // SAFETY: zero bits are zeros and 0.0.
                let (mut row, mut of_row, mut fours): ([Vec4<T>; COVERED], [Block; MAPS], [Block; MAPS]) =
                    unsafe { core::mem::zeroed() };
                // Half of the row's loads are under way at once: all of them spill.
                unrolled!(H in [0 1] {
                    let mut fill = |apart: Option<[u32; 4]>| {
                        unrolled!(X in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] {
                            if X / HALF == H && (X as u32) < (columns(KERNELS) - 1) * STRIDE + SIZE {
                                let at = from.wrapping_add(X * geometry.channels as usize);
                                // SAFETY: inside the image where they are loaded.
                                row[X] = unsafe { load(x, (X as u32).wrapping_sub(outside) < inside, at, apart) };
                            }
                        });
                    };
                    if one_by_one { fill(Some(apart)) } else { fill(None) }
                    unrolled!(X in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] {
                        let values = row[X].map(T::to_f32).to_array();
                        unrolled!(K in [0 1 2] {
                            unrolled!(C in [0 1] {
                                let position = X.wrapping_sub(C * STRIDE as usize);
                                if X / HALF == H && K < maps && C < across && position < SIZE as usize {
                                    let vector = along_x[C] + K as u32 * weights.table;
                                    // SAFETY: the vector is there.
                                    let weight = unsafe { weights.next(&mut fours[K][C], vector, position) };
                                    add(&mut of_row[K][C], weight, values);
                                }
                            });
                        });
                    });
                });
                unrolled!(W in [0 1 2 3 4 5] {
                    let position = (open - 1).wrapping_sub(W).wrapping_mul(STRIDE as usize) + I;
                    unrolled!(K in [0 1 2] {
                        if K < maps && W < open && position < SIZE as usize {
                            // SAFETY: the vector is there.
                            let weight =
                                unsafe { weights.one(along_y[W] + K as u32 * weights.table, position as u32) };
                            unrolled!(C in [0 1] {
                                if C < across {
                                    add(&mut sums[W][K][C], weight, of_row[K][C]);
                                }
                            });
                        }
                    });
                });
            }
        });
        // The oldest is complete, and of the strip unless it began above it.
        let complete = present & (step >= open as u32 - 1);
        unrolled!(C in [0 1] {
            if C < across {
                let there = complete & (column.wrapping_add(C as u32) < horizontal.output);
                let to = out.wrapping_add(C * pixel as usize);
                let (vectors, left) = (KERNELS != 0 || slide.stores != 0, channels.wrapping_sub(part.channel));
                // A channel's Gaussians follow each other.
                unrolled!(Q in [0 1 2] {
                    if Q < maps {
                        let mut four = [0.0; CHANNELS as usize];
                        unrolled!(V in [0 1 2 3] {
                            let place = CHANNELS as usize * Q + V;
                            four[V] = sums[0][place % maps][C][place / maps];
                        });
                        // SAFETY: in the output; one thread has each.
                        unsafe { store(y, there, to.wrapping_add(CHANNELS as usize * Q), four, 0.0, vectors, left) };
                    }
                });
            }
        });
        if step >= open as u32 - 1 {
            out += out_line;
        }
        unrolled!(W in [0 1 2 3 4] {
            if W + 1 < open {
                sums[W] = sums[W + 1];
                along_y[W] = along_y[W + 1];
            }
        });
        // SAFETY: zero bits are 0.0.
        sums[open - 1] = unsafe { core::mem::zeroed() };
        top = top.wrapping_add(STRIDE);
        origin = origin.wrapping_add(STRIDE as usize * line);
        step += 1;
    }
}
