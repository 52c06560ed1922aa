//! Backward: the input's gradient.

use cuda_std::arch::sm_80::cp_async_wait;
use cuda_std::prelude::*;

use super::spread::{Spread, VALUES, Values, vector};
use super::stage::{Copies, Source};
use super::{LINE, OPEN, Part, SIZE, STRIDE, Staged, VECTOR, compute, scale};
use crate::gaussian_pool::{Geometry, divide, get_if};

/// Slots of the ring.
const SLOTS: u32 = 6;

/// Warps of a block that have different columns.
const fn sets<T: Spread>(kernels: u32) -> u32 {
    if kernels > 1 && size_of::<T>() == 2 { 1 } else { 16 / T::PAIRS }
}

/// Pairs of columns of a block.
pub const fn backward_pairs<T: Spread>(kernels: u32) -> u32 {
    sets::<T>(kernels) * T::PAIRS
}

/// Threads of a block.
pub const fn backward_threads<T: Spread>(kernels: u32) -> u32 {
    sets::<T>(kernels) * (LINE / size_of::<T>() as u32 / T::CHANNELS) * warp::WARP_SIZE
}

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
pub const fn backward_blocks<T: Spread>(kernels: u32) -> u32 {
    let warps = if kernels == 1 { 16 } else { 12 };
    warps * warp::WARP_SIZE / backward_threads::<T>(kernels)
}

/// Columns of windows in a slot, elements of a slot, and of a line.
const fn columns<T: Spread>(kernels: u32) -> u32 {
    backward_pairs::<T>(kernels) + T::BEFORE
}
const fn slot<T: Spread>(kernels: u32) -> u32 {
    columns::<T>(kernels) * kernels * line::<T>()
}
const fn line<T: Spread>() -> u32 {
    LINE / size_of::<T>() as u32
}

/// Elements of the windows of two rows with each Gaussian's apart, where tensor cores take several.
const fn sorted<T: Spread>(kernels: u32) -> u32 {
    if kernels > 1 && size_of::<T>() == 2 { 2 * slot::<T>(kernels) } else { 0 }
}

/// Elements from one column of staged pixels to the next, and of two rows of them.
const fn pitch<T: Spread>() -> u32 {
    (LINE + 16) / size_of::<T>() as u32
}
const fn staged_elements<T: Spread>(kernels: u32) -> u32 {
    2 * 2 * backward_pairs::<T>(kernels) * pitch::<T>()
}

/// Shared memory of a block, in bytes: the ring, sorted windows, two times two rows of pixels, forms of weights, weights.
pub const fn backward_shared_bytes<T: Spread>(kernels: u32) -> u32 {
    let elements = SLOTS * slot::<T>(kernels) + sorted::<T>(kernels) + 2 * staged_elements::<T>(kernels);
    (elements + kernels * T::FORM) * size_of::<T>() as u32 + 2 * kernels * VECTOR * 4
}

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy`, of `KERNELS` Gaussians that all channels share. The
/// grid has a block for each part of each image and group of channels.
///
/// On an H200, 64×64×112×112: 0.78 of the copy rate in f32 and 0.72 in 16 bits; with three Gaussians 0.62 and 0.31 (docs/perf).
///
/// # Safety
/// The parent module's. `dx` holds the images, `dy` as many channels of the output for each of `KERNELS`, `mean` two and `var`
/// `variances` elements for each Gaussian; `parts` is what [`StagedPlan::backward`](super::StagedPlan::backward) made of
/// `geometry`.
#[kernel(
    block = backward_threads::<T>(KERNELS),
    min_blocks = backward_blocks::<T>(KERNELS),
    barriers = 11,
    instances(T = [f32, f16, bf16], KERNELS = [1, 3])
)]
pub unsafe fn gaussian_pool_backward_staged<T: Spread, const KERNELS: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    geometry: Geometry,
    parts: Staged,
) {
    let [vertical, horizontal] = &geometry.axes;
    // In pairs of pixels, from that in which the padding ends.
    let before = [vertical.padding / STRIDE as u32, horizontal.padding / STRIDE as u32];
    let part = Part::of_block::<T>(&parts);
    let first = [before[0] + part.first[0], before[1] + part.first[1]];
    let above = OPEN as u32 - 1;
    let ring = dynamic_shared::<T>();
    // SAFETY: shared memory is as large as the plan says.
    let (sorted_windows, staged, forms, weights) = unsafe {
        let sorted_windows = ring.offset(SLOTS * slot::<T>(KERNELS));
        let staged = sorted_windows.offset(sorted::<T>(KERNELS));
        let forms = staged.offset(2 * staged_elements::<T>(KERNELS));
        (sorted_windows, staged, forms, forms.offset(KERNELS * T::FORM).cast::<f32>())
    };
    let threads = backward_threads::<T>(KERNELS);
    let sort = sorted::<T>(KERNELS) > 0;
    let source = Source {
        height: vertical.output,
        width: horizontal.output,
        pixel: geometry.channels * KERNELS,
        image: part.image,
        top: first[0].wrapping_sub(above),
        left: first[1].wrapping_sub(above),
        element: part.channel * KERNELS,
        rows: 1,
        columns: columns::<T>(KERNELS),
        wanted: part.count[1] + above,
        lines: KERNELS,
        swapped: T::SWAPPED && !sort,
    };
    let mut copies = Copies::new(dy, source, threads);
    unrolled!(S in [0 1 2 3 4] {
        // SAFETY: a slot of the ring, which nobody uses yet.
        unsafe { copies.next(ring.offset(S as u32 * slot::<T>(KERNELS))) };
    });
    // SAFETY: as above; the parameters are there.
    unsafe { compute(weights, [mean, var], &geometry, parts.variances, KERNELS) };
    thread::sync_threads();
    let warp = thread::thread_idx_x() / warp::WARP_SIZE;
    if T::FORM > 0 {
        let mut kernel = warp;
        while kernel < KERNELS {
            // SAFETY: a warp writes each, of weights that are there.
            unsafe { T::form(forms.offset(kernel * T::FORM), weights.offset((2 * kernel + 1) * VECTOR)) };
            kernel += threads / warp::WARP_SIZE;
        }
    }
    // SAFETY: nobody else uses the weights along y now.
    unsafe { scale::<T>(weights, KERNELS) };
    if sort {
        cp_async_wait::<4>();
    }
    thread::sync_threads();
    if sort {
        // SAFETY: the first row is there.
        unsafe { sort_maps::<T, KERNELS>(ring, sorted_windows) };
    }

    // The warp's channels and columns.
    let (set, chunk) = divide(warp, line::<T>() / T::CHANNELS);
    let column = set * T::PAIRS;
    let lane =
        T::lane_windows(chunk, if sort { 1 } else { KERNELS }) + column * line::<T>() * if sort { 1 } else { KERNELS };
    let own = {
        let [right, beside] = T::corner();
        (column * STRIDE as u32 + right) * pitch::<T>() + chunk * T::CHANNELS + beside
    };
    let mut lines = Lines::new::<KERNELS>(dx, &geometry, &part, first, threads);
    // SAFETY: written before the barriers.
    let of_kernel = |kernel: u32, nothing: u32| unsafe {
        let at = weights.offset(2 * kernel * VECTOR + nothing);
        let along_x = T::along_x(forms.offset(kernel * T::FORM + nothing), at.offset(VECTOR));
        (along_x, vector(at))
    };
    // The weights of one Gaussian stay.
    let (along_x, along_y) = of_kernel(0, 0);

    let steps = part.count[0] + above;
    // With one Gaussian what the last rows of windows gave along x; else the sums of the pixels that windows reach over.
    // SAFETY: zero bits are 0.0.
    let (mut spreads, mut sums): ([Values; OPEN], [[Values; STRIDE]; OPEN]) = unsafe { core::mem::zeroed() };
    // NaN once a sum is not finite.
    let mut wrong = 0.0;
    let mut check = |spread: &Values| {
        if T::FORM > 0 {
            unrolled!(I in [0 1 2 3 4 5 6 7] { wrong = float::fma(spread[I], 0.0, wrong); });
        }
    };
    let (mut now, mut step) = (0, 0);
    while step < steps {
        // 0, which the compiler cannot know: it would keep all weights in registers.
        let nothing = step >> 31;
        unrolled!(U in [0 1 2 3 4 5] {
            if step + (U as u32) < steps {
                if sort {
                    cp_async_wait::<3>();
                } else {
                    cp_async_wait::<4>();
                }
                // What all threads have copied is there, and what the step before used is free.
                thread::sync_threads();
                let last = (SLOTS - 1) * slot::<T>(KERNELS);
                let next = if now == last { 0 } else { now + slot::<T>(KERNELS) };
                // SAFETY: the slot of the step before, its staged pixels, if any are complete, and the row after this one.
                unsafe {
                    copies.next(ring.offset(if now == 0 { last } else { now - slot::<T>(KERNELS) }));
                    if step != 0 {
                        lines.store(staged.offset((U as u32 + 1) % 2 * staged_elements::<T>(KERNELS)));
                    }
                    if sort {
                        let to = sorted_windows.offset((U as u32 + 1) % 2 * slot::<T>(KERNELS));
                        sort_maps::<T, KERNELS>(ring.offset(next), to);
                    }
                }
                // SAFETY: the row is there, and staged pixels of two steps before are stored.
                unsafe {
                    let windows = if sort {
                        sorted_windows.offset(U as u32 % 2 * slot::<T>(KERNELS) + lane)
                    } else {
                        ring.offset(now + lane)
                    };
                    if KERNELS == 1 {
                        spreads[U] = T::spread(windows, &along_x, line::<T>());
                        check(&spreads[U]);
                    } else {
                        unrolled!(K in [0 1 2] {
                            let (along_x, along_y) = of_kernel(K as u32, nothing);
                            let line = if sort { line::<T>() } else { line::<T>() * KERNELS };
                            let map = if sort { columns::<T>(KERNELS) * line } else { 1 };
                            let spread = T::spread(windows.offset(K as u32 * map), &along_x, line);
                            check(&spread);
                            unrolled!(A in [0 1 2 3 4 5] {
                                unrolled!(P in [0 1] {
                                    let (position, sum) = (A * STRIDE + P, &mut sums[(U + A) % OPEN][P]);
                                    if position < SIZE {
                                        unrolled!(I in [0 1 2 3 4 5 6 7] {
                                            // The newest pair begins with its first Gaussian.
                                            let product = along_y[position] * spread[I];
                                            let new = K == 0 && A + 1 == OPEN;
                                            let added = float::fma(along_y[position], spread[I], sum[I]);
                                            sum[I] = if new { product } else { added };
                                        });
                                    } else if K == 0 {
                                        *sum = [0.0; VALUES];
                                    }
                                });
                            });
                        });
                    }
                    let to = staged.offset(U as u32 % 2 * staged_elements::<T>(KERNELS) + own);
                    unrolled!(P in [0 1] {
                        let mut pixels = sums[U][P];
                        if KERNELS == 1 {
                            unrolled!(A in [0 1 2 3 4 5] {
                                let (position, spread) = (A * STRIDE + P, &spreads[(U + OPEN - A) % OPEN]);
                                if position < SIZE {
                                    unrolled!(I in [0 1 2 3 4 5 6 7] {
                                        let product = along_y[position] * spread[I];
                                        let sum = float::fma(along_y[position], spread[I], pixels[I]);
                                        pixels[I] = if A == 0 { product } else { sum };
                                    });
                                }
                            });
                        }
                        let below = P as u32 * 2 * backward_pairs::<T>(KERNELS) * pitch::<T>();
                        T::put(to.offset(below), pitch::<T>(), &pixels);
                    });
                }
                now = next;
            }
        });
        step += OPEN as u32;
    }
    thread::sync_threads();
    // SAFETY: staged by the last step.
    unsafe { lines.store(staged.offset((steps + 1) % 2 * staged_elements::<T>(KERNELS))) };
    if T::FORM > 0 && thread::sync_threads_or(wrong != 0.0) {
        // SAFETY: the block's pixels are stored, and seen by its threads after the barrier.
        unsafe { again::<T, KERNELS>(dy, dx, weights, &geometry, &part, first) };
    }
}

/// Puts the Gaussians' channels of a row apart, pieces of a line swapped as [`Pool::SWAPPED`](super::Pool::SWAPPED) says.
///
/// # Safety
/// Shared memory holds a row in each place; the block's threads come together, and nobody else uses the second.
#[device_inline]
unsafe fn sort_maps<T: Spread, const KERNELS: u32>(from: Shared<T>, to: Shared<T>) {
    // Eight channels of a column.
    let (column, piece) = (thread::thread_idx_x() / 8, thread::thread_idx_x() % 8);
    let mut words = [0; 12];
    unrolled!(Q in [0 1 2] {
        let at = (column * KERNELS * line::<T>() + (piece * KERNELS + Q as u32) * 8) / 2;
        // SAFETY: the caller's.
        let four = unsafe { from.cast::<u32>().load4(at) }.to_array();
        unrolled!(R in [0 1 2 3] { words[4 * Q + R] = four[R]; });
    });
    unrolled!(K in [0 1 2] {
        let mut four = [0; 4];
        unrolled!(R in [0 1 2 3] {
            let of = |i: usize| words[i / 2] >> (i % 2 * 16) & 0xffff;
            four[R] = of(6 * R + K) | of(6 * R + 3 + K) << 16;
        });
        let at = (K as u32 * columns::<T>(KERNELS) + column) * line::<T>() + (piece ^ (column % 8)) * 8;
        // SAFETY: the caller's.
        unsafe { to.cast::<u32>().store4(at / 2, Vec4::from(four)) };
    });
}

/// Where a thread stores staged pixels: four channels of two columns, of each of two rows.
struct Lines<T> {
    dx: GlobalMut<T>,
    /// Where its first pixel is in the row that is next, and that row, which both wrap where they are not in the image.
    to: usize,
    row: u32,
    height: u32,
    /// From one column to the other, and from one row to the next.
    between: u32,
    line: usize,
    /// Which of the columns are there.
    there: [bool; 2],
    /// Where its first is staged, from one column to the other, and from one row to the other.
    from: u32,
    apart: u32,
    below: u32,
}

impl<T: Spread> Lines<T> {
    #[device_inline]
    fn new<const KERNELS: u32>(
        dx: GlobalMut<T>,
        geometry: &Geometry,
        part: &Part,
        first: [u32; 2],
        threads: u32,
    ) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let quads = line::<T>() / 4;
        let (column, quad) = divide(thread::thread_idx_x(), quads);
        let apart = threads / quads;
        let row = (first[0] * STRIDE as u32).wrapping_sub(vertical.padding);
        let left = (first[1] * STRIDE as u32).wrapping_sub(horizontal.padding).wrapping_add(column);
        let channel = part.channel + quad * 4;
        let there = [0, apart].map(|right| {
            (column + right < part.count[1] * STRIDE as u32)
                & (left.wrapping_add(right) < horizontal.image)
                & (channel < geometry.channels)
        });
        let pixel = geometry.channels;
        let line = horizontal.image as usize * pixel as usize;
        let to = (part.image as usize * vertical.image as usize)
            .wrapping_add_signed(row.cast_signed() as isize)
            .wrapping_mul(line)
            .wrapping_add_signed(left.cast_signed() as isize * pixel as isize)
            .wrapping_add(channel as usize);
        Self {
            dx,
            to,
            row,
            height: vertical.image,
            between: apart * pixel,
            line,
            there,
            from: column * pitch::<T>() + quad * 4,
            apart: apart * pitch::<T>(),
            below: 2 * backward_pairs::<T>(KERNELS) * pitch::<T>(),
        }
    }

    /// Stores the next two rows.
    ///
    /// # Safety
    /// They are staged here; the block's pixels are nobody else's.
    #[device_inline]
    unsafe fn store(&mut self, staged: Shared<T>) {
        unrolled!(P in [0 1] {
            unrolled!(I in [0 1] {
                let there = self.there[I] & (self.row < self.height);
                // SAFETY: the caller's; stored only where pixels are in the image, and the part's.
                unsafe {
                    let four = staged.load4(self.from + P as u32 * self.below + I as u32 * self.apart);
                    self.dx.store4_if(there, self.to.wrapping_add((I as u32 * self.between) as usize), four);
                }
            });
            self.row = self.row.wrapping_add(1);
            self.to = self.to.wrapping_add(self.line);
        });
    }
}

/// Computes those of a block's pixels again that are not finite, one by one.
///
/// # Safety
/// They are stored, and the weights are where they were computed.
#[device_inline]
unsafe fn again<T: Spread, const KERNELS: u32>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    weights: Shared<f32>,
    geometry: &Geometry,
    part: &Part,
    first: [u32; 2],
) {
    let [vertical, horizontal] = &geometry.axes;
    let channels = line::<T>().min(geometry.channels - part.channel);
    let mut i = thread::thread_idx_x();
    while i < part.count[0] * part.count[1] * (STRIDE * STRIDE) as u32 * channels {
        let (rest, beside) = divide(i, channels);
        let (below, right) = divide(rest, part.count[1] * STRIDE as u32);
        // Counted with the padding.
        let (row, column) = (first[0] * STRIDE as u32 + below, first[1] * STRIDE as u32 + right);
        let (top, left) = (row.wrapping_sub(vertical.padding), column.wrapping_sub(horizontal.padding));
        let channel = part.channel + beside;
        let inside = (top < vertical.image) & (left < horizontal.image);
        let line = (part.image as usize * vertical.image as usize).wrapping_add(top as usize);
        let pixel = line.wrapping_mul(horizontal.image as usize).wrapping_add(left as usize);
        let to = pixel.wrapping_mul(geometry.channels as usize).wrapping_add(channel as usize);
        // SAFETY: the block's, where it is in the image.
        if unsafe { get_if(dx.as_global(), inside, to) } * 0.0 != 0.0 {
            let mut sum = 0.0;
            let mut kernel = 0;
            while kernel < KERNELS {
                let mut b = column % STRIDE as u32;
                while b < SIZE as u32 {
                    let mut of_column = 0.0;
                    let mut a = row % STRIDE as u32;
                    while a < SIZE as u32 {
                        let window = [row.wrapping_sub(a), column.wrapping_sub(b)].map(|at| at.cast_signed() / 2);
                        let there = (window[0].cast_unsigned() < vertical.output)
                            & (window[1].cast_unsigned() < horizontal.output);
                        let at = (part.image as usize * vertical.output as usize)
                            .wrapping_add_signed(window[0] as isize)
                            .wrapping_mul(horizontal.output as usize)
                            .wrapping_add_signed(window[1] as isize)
                            .wrapping_mul(geometry.channels as usize)
                            .wrapping_add(channel as usize)
                            .wrapping_mul(KERNELS as usize)
                            .wrapping_add(kernel as usize);
                        // SAFETY: loaded where it is in the output; the weights are there.
                        unsafe {
                            let (value, weight) = (get_if(dy, there, at), weights.load(2 * kernel * VECTOR + a));
                            of_column = if there { float::fma(weight, value, of_column) } else { of_column };
                        }
                        a += STRIDE as u32;
                    }
                    // SAFETY: as above.
                    sum = float::fma(unsafe { weights.load((2 * kernel + 1) * VECTOR + b) }, of_column, sum);
                    b += STRIDE as u32;
                }
                kernel += 1;
            }
            // SAFETY: the block's, and this thread's now.
            unsafe { dx.store(to, T::from_f32(sum * T::SCALE)) };
        }
        i += thread::block_dim_x();
    }
}
