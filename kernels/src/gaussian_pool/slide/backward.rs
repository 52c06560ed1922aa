//! Backward: the input's gradient.

use cuda_std::prelude::*;

use super::{CHANNELS, Four, MAPS, MOST, OPEN, Part, Slide, Tables, Weights, add, load, open, store};
use crate::gaussian_pool::{Geometry, divide};

/// Threads of a block, at most.
pub(super) const fn backward_threads(kernels: u32) -> u32 {
    if kernels == 1 { 256 } else { 128 }
}
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
pub(super) const fn backward_blocks(size: u32, kernels: u32) -> u32 {
    match (size, kernels) {
        (3, 1) => 4,
        (_, 1) => 2,
        (3, _) => 5,
        (_, 0) => 3,
        _ => 2,
    }
}
/// Steps that are written out one after another: rows move from register to register once for all of them.
const fn unrolled(size: u32) -> usize {
    if size > 4 { 3 } else { 2 }
}
/// Rows of `dx` that a window reaches from the first of as many steps on, at most.
const ROWS: usize = MOST + 4;

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`. The grid has a block for each strip
/// of each part of an image across and group of channels. `SIZE` is both sides of the window,
/// `KERNELS` how many Gaussians all channels share, or 0.
///
/// On an H200 0.80 of the copy rate for 3×3 and 0.58 for 11×11 windows in f32, 0.60 and 0.32 in bf16: 21 instructions an element of
/// 11×11 windows, of 33 that memory leaves time for, are suspected to be the limit.
///
/// # Safety
/// The parent module's. `dx` holds the images, `dy` as many channels of the output for each of `kernels`, `mean` two and `var`
/// `variances` elements for each Gaussian, and with `KERNELS = 0` `weights_y` and `weights_x` the tables of
/// [`gaussian_pool_weights`](super::super::gaussian_pool_weights) without derivatives; `slide` is what [`Slide::backward`]
/// made of `geometry`, whose windows are such.
#[kernel(
    max_threads = backward_threads(KERNELS),
    min_blocks = backward_blocks(SIZE, KERNELS),
    instances(T = [f32, f16, bf16], (SIZE, STRIDE, KERNELS) = [(3, 2, 0), (3, 2, 1), (11, 2, 0), (11, 2, 1), (11, 2, 3)])
)]
pub unsafe fn gaussian_pool_backward_slide<T: Storage, const SIZE: u32, const STRIDE: u32, const KERNELS: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    weights_y: Option<Global<f32>>,
    weights_x: Option<Global<f32>>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    slide: Slide,
) {
    let shared = dynamic_shared::<f32>();
    let [vertical, horizontal] = &geometry.axes;
    let part = Part::of_thread(&slide);
    let kernels = if KERNELS == 0 { geometry.kernels } else { KERNELS };
    let weights = Weights::<SIZE, KERNELS>::new(shared, &geometry, &slide, &part);
    // SAFETY: shared memory holds the weights, as the plan says; the tables are there where channels vary.
    unsafe {
        if let (true, Some(along_y), Some(along_x)) = (KERNELS == 0, weights_y, weights_x) {
            let tables = Tables { along: [along_y, along_x], entry: 1, kernels };
            Weights::<SIZE, KERNELS>::bring(shared, &tables, &geometry, &slide, &part, false);
        } else {
            weights.compute([mean, var], &geometry, slide.variances, false);
        }
    }
    thread::sync_threads();

    let open = open(SIZE, STRIDE) as usize;
    let spread = Spread::<SIZE, STRIDE>::new(&weights, &geometry, &part);
    let steps = slide.steps.min(steps::<STRIDE>(&geometry) - part.step);
    // The windows that begin in a step's rows, counted with the padding: those of the first, and past the last.
    let begin = vertical.padding / STRIDE + part.step;
    let mut window = begin.wrapping_sub(open as u32 - 1);
    let mut from = spread.row(&geometry, part.image, window);
    let from_line = horizontal.output as usize * (geometry.channels * kernels) as usize;
    let mut top = (window.wrapping_mul(STRIDE)).wrapping_sub(vertical.padding);
    let line = horizontal.image as usize * geometry.channels as usize;
    let mut to = (part.image as usize * vertical.image as usize)
        .wrapping_add_signed(top.cast_signed() as isize)
        .wrapping_mul(line)
        .wrapping_add(part.place as usize * geometry.channels as usize + part.channel as usize);
    let present = (part.place < horizontal.image) & (part.channel < geometry.channels);

    // The weights along x of one Gaussian stay.
    // SAFETY: the vectors are there.
    let stay = if KERNELS == 1 { unsafe { spread.weights(&weights, weights.x) } } else { [[0.0; 4]; OPEN] };
    // SAFETY: zero bits are 0.0.
    let mut rows: [Four; ROWS] = unsafe { core::mem::zeroed() };
    let mut step = 0;
    while step < steps + open as u32 - 1 {
        unrolled!(U in [0 1 2] {
            if U < unrolled(SIZE) {
                let inside = if window < vertical.output { spread.inside } else { 0 };
                let vector = weights.of(vertical, window);
                if KERNELS == 3 {
                    // SAFETY: the vectors are there; the windows are in the output where they are loaded.
                    let of_row = unsafe { spread.sum_maps::<T, KERNELS>(dy, inside, from, &weights, step >> 31) };
                    let mut fours = [[0.0; CHANNELS as usize]; MAPS];
                    unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                        unrolled!(K in [0 1 2] {
                            if I < SIZE as usize {
                                let vector = vector + K as u32 * weights.table;
                                // SAFETY: the vector is there.
                                let weight = unsafe { weights.next(&mut fours[K], vector, I) };
                                add(&mut rows[U * STRIDE as usize + I], weight, of_row[K]);
                            }
                        });
                    });
                }
                let mut kernel = if KERNELS == 3 { kernels } else { 0 };
                while kernel < kernels {
                    let table = kernel * weights.table;
                    // SAFETY: the vectors are there; the windows are in the output where they are loaded.
                    let of_row = unsafe {
                        let values = spread.load::<T, KERNELS>(dy, inside, from, kernel, slide.vectors);
                        let along_x = if KERNELS == 1 { stay } else { spread.weights(&weights, weights.x + table) };
                        Spread::<SIZE, STRIDE>::sum(&values, &along_x)
                    };
                    let mut four = [0.0; CHANNELS as usize];
                    unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11] {
                        if I < SIZE as usize {
                            // SAFETY: the vector is there.
                            let weight = unsafe { weights.next(&mut four, vector + table, I) };
                            add(&mut rows[U * STRIDE as usize + I], weight, of_row);
                        }
                    });
                    kernel += 1;
                }
                // The rows above the next windows are complete.
                unrolled!(I in [0 1] {
                    if I < STRIDE as usize {
                        let of_strip = window.wrapping_sub(begin) < steps;
                        let there = present & of_strip & (top.wrapping_add(I as u32) < vertical.image);
                        let vectors = KERNELS != 0 || geometry.channels.is_multiple_of(CHANNELS);
                        let left = geometry.channels.wrapping_sub(part.channel);
                        let to = to.wrapping_add(I * line);
                        // SAFETY: in the image; one thread has each.
                        unsafe { store(dx, there, to, rows[U * STRIDE as usize + I], dx_beta, vectors, left) };
                    }
                });
                window = window.wrapping_add(1);
                top = top.wrapping_add(STRIDE);
                from = from.wrapping_add(from_line);
                to = to.wrapping_add(STRIDE as usize * line);
                step += 1;
            }
        });
        let moved = unrolled(SIZE) * STRIDE as usize;
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
            if I < moved + SIZE as usize {
                rows[I] = if I + moved < ROWS && I < SIZE as usize { rows[I + moved] } else { [0.0; 4] };
            }
        });
    }
}

/// Steps of a stride that cover an image: of windows that begin in it, or in the stride that the padding ends in.
#[device_inline]
pub(super) fn steps<const STRIDE: u32>(geometry: &Geometry) -> u32 {
    let vertical = &geometry.axes[0];
    (vertical.padding + vertical.image - 1) / STRIDE + 1 - vertical.padding / STRIDE
}

/// The windows over a thread's column of the image, the nearest first.
#[derive(Clone, Copy)]
pub(super) struct Spread<const SIZE: u32, const STRIDE: u32> {
    /// The first that is in the output, and how many are.
    pub outside: u32,
    pub inside: u32,
    /// Where the weight of each is, of the vectors along x.
    at: [u32; OPEN],
    /// The column of the first, and the channel of `dy` that is the thread's first, with how far each is from it.
    column: u32,
    channel: u32,
    apart: [u32; 4],
    /// Channels of `dy`.
    pixel: u32,
}

impl<const SIZE: u32, const STRIDE: u32> Spread<SIZE, STRIDE> {
    #[device_inline]
    pub(super) fn new<const KERNELS: u32>(weights: &Weights<SIZE, KERNELS>, geometry: &Geometry, part: &Part) -> Self {
        let horizontal = &geometry.axes[1];
        let (column, position) = divide(part.place + horizontal.padding, STRIDE);
        let present = (part.place < horizontal.image) & (part.channel < geometry.channels);
        // Those before `outside` begin after the last, and `inside` of those from there on reach the column.
        let outside = (column + 1).saturating_sub(horizontal.output);
        let reach = if position < SIZE { (SIZE - 1 - position) / STRIDE + 1 } else { 0 };
        let inside = if present { reach.min(column + 1).saturating_sub(outside) } else { 0 };
        let mut at = [0; OPEN];
        unrolled!(J in [0 1 2 3 4 5] {
            if (J as u32) < open(SIZE, STRIDE) {
                let (window, position) = (column.wrapping_sub(J as u32), position + J as u32 * STRIDE);
                let there = (J as u32).wrapping_sub(outside) < inside;
                at[J] = if there { weights.of(horizontal, window) + position * weights.step } else { 0 };
            }
        });
        let kernels = geometry.kernels;
        let of = |v: u32| v.min(geometry.channels.wrapping_sub(part.channel + 1)) * kernels;
        let apart = [of(0), of(1), of(2), of(3)];
        Self { outside, inside, at, column, channel: part.channel * kernels, apart, pixel: geometry.channels * kernels }
    }

    /// Where the nearest window of this row of `dy` is; wraps where there is none.
    #[device_inline]
    pub(super) fn row(&self, geometry: &Geometry, image: u32, row: u32) -> usize {
        let [vertical, horizontal] = &geometry.axes;
        (image as usize * vertical.output as usize)
            .wrapping_add_signed(row.cast_signed() as isize)
            .wrapping_mul(horizontal.output as usize)
            .wrapping_add(self.column as usize)
            .wrapping_mul(self.pixel as usize)
            .wrapping_add(self.channel as usize)
    }

    /// What these windows have at the column, of the vectors that begin here.
    ///
    /// # Safety
    /// They are there.
    #[device_inline]
    pub(super) unsafe fn weights<const KERNELS: u32>(
        &self,
        weights: &Weights<SIZE, KERNELS>,
        vectors: u32,
    ) -> [Four; OPEN] {
        // SAFETY: zero bits are 0.0.
        let mut along: [Four; OPEN] = unsafe { core::mem::zeroed() };
        unrolled!(J in [0 1 2 3 4 5] {
            if (J as u32) < open(SIZE, STRIDE) {
                // SAFETY: the caller's; a vector's first weight where there is no window.
                along[J] = unsafe { weights.one(vectors + self.at[J], 0) };
            }
        });
        along
    }

    /// Their values in the row that begins at `from`, of the Gaussian's channels: of `inside` of them.
    ///
    /// # Safety
    /// They are in the output.
    #[device_inline]
    pub(super) unsafe fn load<T: Storage, const KERNELS: u32>(
        &self,
        dy: Global<T>,
        inside: u32,
        from: usize,
        kernel: u32,
        vectors: u32,
    ) -> [Vec4<T>; OPEN] {
        // SAFETY: zero bits are zeros.
        let mut values: [Vec4<T>; OPEN] = unsafe { core::mem::zeroed() };
        let mut fill = |apart: Option<[u32; 4]>| {
            unrolled!(J in [0 1 2 3 4 5] {
                if (J as u32) < open(SIZE, STRIDE) {
                    let at = from.wrapping_sub(J * self.pixel as usize).wrapping_add(kernel as usize);
                    // SAFETY: the caller's.
                    values[J] = unsafe { load(dy, (J as u32).wrapping_sub(self.outside) < inside, at, apart) };
                }
            });
        };
        if KERNELS == 0 && vectors == 0 {
            fill(Some(self.apart))
        } else {
            fill(None)
        }
        values
    }

    /// The sums of the windows' values by their weights, for each of three Gaussians, whose channels follow each other.
    /// `nothing` is 0, which the compiler cannot know, or it would keep all weights in registers.
    ///
    /// # Safety
    /// As [`load`](Self::load) and [`weights`](Self::weights).
    #[device_inline]
    unsafe fn sum_maps<T: Storage, const KERNELS: u32>(
        &self,
        dy: Global<T>,
        inside: u32,
        from: usize,
        weights: &Weights<SIZE, KERNELS>,
        nothing: u32,
    ) -> [Four; MAPS] {
        // SAFETY: zero bits are 0.0.
        let mut sums: [Four; MAPS] = unsafe { core::mem::zeroed() };
        unrolled!(J in [0 1 2 3 4 5] {
            if (J as u32) < open(SIZE, STRIDE) {
                let there = (J as u32).wrapping_sub(self.outside) < inside;
                let at = from.wrapping_sub(J * self.pixel as usize);
                // SAFETY: zero bits are zeros.
                let mut values: [Four; MAPS] = unsafe { core::mem::zeroed() };
                unrolled!(Q in [0 1 2] {
                    // SAFETY: the caller's.
                    let four = unsafe { load(dy, there, at.wrapping_add(CHANNELS as usize * Q), None) };
                    values[Q] = four.map(T::to_f32).to_array();
                });
                unrolled!(K in [0 1 2] {
                    let mut of_channels = [0.0; CHANNELS as usize];
                    unrolled!(V in [0 1 2 3] {
                        of_channels[V] = values[(MAPS * V + K) / 4][(MAPS * V + K) % 4];
                    });
                    // SAFETY: the vector is there, of each Gaussian.
                    let weight =
                        unsafe { weights.one(weights.x + K as u32 * weights.table + self.at[J] + nothing, 0) };
                    add(&mut sums[K], weight, of_channels);
                });
            }
        });
        sums
    }

    /// The sum of these by their weights.
    #[device_inline]
    pub(super) fn sum<T: Storage>(values: &[Vec4<T>; OPEN], weights: &[Four; OPEN]) -> Four {
        let mut sums = [0.0; CHANNELS as usize];
        unrolled!(J in [0 1 2 3 4 5] {
            if (J as u32) < open(SIZE, STRIDE) {
                add(&mut sums, weights[J], values[J].map(T::to_f32).to_array());
            }
        });
        sums
    }
}
