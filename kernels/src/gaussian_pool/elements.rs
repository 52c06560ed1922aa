//! Gaussian pooling of windows whose weights are the same everywhere and which all channels share, in either order of memory: an output, or
//! four of them one below the other, a thread, of each Gaussian; backward, the input's gradient alone, an element of it.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, and `dx` likewise over the windows that cover an element. Of windows
//! one apart that is the pooling of `dy` by the window turned round.
//!
//! Launch: blocks of [`ELEMENTS_BLOCK`] threads in one dimension; neighbouring threads have neighbouring elements of a row of pixels. A block
//! computes each Gaussian's weights along each axis, a warp an axis, into shared memory. Outputs one below the other share the rows that their
//! windows have in common, which are summed along x once. [Packs](super::packs) are for windows of a few sizes.
//!
//! No input is kept for a neighbour but in the caches: it is for windows that share little along a row or are small, for so few products in all
//! that a launch and the weights are most of what a pass takes, and for channels that are no whole vectors.
//!
//! Bound by what a launch and the weights take, and by the time that memory takes to answer; of many elements by instructions.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::along_axes_of;
use crate::band::any::steps_inside;
use crate::elementwise::put;
use crate::window::{Covering, Divider, Nhwc, Window};

/// Threads of a block.
pub const ELEMENTS_BLOCK: u32 = 256;
/// Rows of a thread that has several outputs.
pub const MOST_ROWS: u32 = 4;
/// Elements of a row that are loaded before the first of them is used.
const AHEAD: usize = 4;

/// How threads are laid over the elements of planes: images, of which row-major ones have a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    threads: u32,
    /// Rows of a thread, one below the other.
    rows: u32,
    /// Threads of a plane, and of so many rows of it.
    of_plane: u32,
    of_line: u32,
    by_plane: Divider,
    by_line: Divider,
    by_channels: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Elements {}

/// Where the maps of each plane are that the windows of its channels give.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maps {
    /// Gaussians, of which each gives a map of each channel.
    count: u32,
    /// Elements from a pixel to the next, from a channel's first map to the next channel's, and from a map to the next.
    of_pixel: u32,
    of_channel: u32,
    of_map: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Maps {}

impl Maps {
    /// Of so many Gaussians: maps that are planes of their own, or beside each other with the channels last.
    pub fn new(window: &Window<Nhwc>, count: u32, channels_last: bool) -> Self {
        let [height, width] = window.output;
        if channels_last {
            Self { count, of_pixel: window.channels * count, of_channel: count, of_map: 1 }
        } else {
            Self { count, of_pixel: 1, of_channel: 0, of_map: height * width }
        }
    }

    /// The first of a plane's channel's maps.
    #[device_inline]
    pub(super) fn first(&self, window: &Window<Nhwc>, plane: u32, channel: u32) -> usize {
        window.output_plane(plane) * self.count as usize + (channel * self.of_channel) as usize
    }

    /// From the first map to another.
    #[device_inline]
    pub(super) fn of(&self, map: u32) -> usize {
        (map * self.of_map) as usize
    }

    /// An output of a map, from its first element on.
    #[device_inline]
    pub(super) fn at(&self, window: &Window<Nhwc>, [row, column]: [u32; 2]) -> usize {
        (row as usize * window.output[1] as usize + column as usize) * self.of_pixel as usize
    }
}

/// What a thread has.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub plane: u32,
    /// The first of its rows.
    pub row: u32,
    pub column: u32,
    pub channel: u32,
}

impl Elements {
    /// Over the window's planes of this height and width in pixels, none of which is zero, and the blocks of so many threads; `None` where there
    /// are too many to count.
    pub fn new(window: &Window<Nhwc>, [height, width]: [u32; 2], rows: u32, block: u32) -> Option<(Self, u32)> {
        let of_line = width.checked_mul(window.channels)?;
        let of_plane = of_line.checked_mul(height.div_ceil(rows))?;
        let threads = of_plane.checked_mul(window.planes).filter(|&threads| threads < 1 << 30)?;
        let [by_plane, by_line, by_channels] = [of_plane, of_line, window.channels].map(Divider::new);
        let elements = Self { threads, rows, of_plane, of_line, by_plane, by_line, by_channels };
        Some((elements, threads.div_ceil(block)))
    }

    /// Bytes of a block's shared memory for windows of so many rows and columns.
    pub fn shared_bytes([height, width]: [u32; 2], gaussians: u32) -> u32 {
        (height + width) * gaussians * 4
    }

    /// This thread's place, if it has one, in a launch of blocks of so many.
    #[device_inline]
    pub(super) fn place(&self, block: u32, channels: u32) -> Option<Place> {
        self.nth(thread::block_idx_x() * block + thread::thread_idx_x(), channels)
    }

    /// The place of that number, if there is one.
    #[device_inline]
    pub(super) fn nth(&self, number: u32, channels: u32) -> Option<Place> {
        if number >= self.threads {
            return None;
        }
        let plane = self.by_plane.divide(number);
        let number = number - plane * self.of_plane;
        let line = self.by_line.divide(number);
        let number = number - line * self.of_line;
        let column = self.by_channels.divide(number);
        Some(Place { plane, row: line * self.rows, column, channel: number - column * channels })
    }
}

/// The sums of two rows from `begin` to before `end`, as far as these are there, weighted by each of `MAPS` Gaussians.
#[device_inline]
fn along_two<T: Storage, const MAPS: usize>(
    [begin, end]: [u32; 2],
    there: [bool; 2],
    load: impl Fn(usize, bool, u32) -> T,
    weight: impl Fn(usize, u32) -> f32,
) -> [[f32; MAPS]; 2] {
    let mut sums = [[0.0; MAPS]; 2];
    let mut j = begin;
    while j < end {
        let mut values = [[T::from_f32(0.0); AHEAD]; 2];
        unrolled!(I in [0 1] {
            unrolled!(K in [0 1 2 3] {
                let j = j + K as u32;
                values[I][K] = load(I, there[I] & (j < end), j);
            });
        });
        unrolled!(K in [0 1 2 3] {
            // What is past the last, of zeros, has its weight.
            let j = if j + (K as u32) < end { j + K as u32 } else { end - 1 };
            unrolled!(M in [0 1 2] {
                if M < MAPS {
                    let weight = weight(M, j);
                    unrolled!(I in [0 1] { sums[I][M] = float::fma(weight, values[I][K].to_f32(), sums[I][M]); });
                }
            });
        });
        j += AHEAD as u32;
    }
    sums
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the maps' `K`, plus `beta * y`. Backward, of one Gaussian and windows one apart, it is the
/// pooling of `dy` by the window `turned` round. Inputs are loaded once for `MAPS` Gaussians.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` and `maps` say, whose windows are of `geometry`'s size; `mean` holds two and `var`
/// `variances` elements for each Gaussian, of which `MAPS` divides the number; `elements` are the window's outputs, `ROWS` a thread, with the
/// launch's grid, and shared memory is what [`Elements::shared_bytes`] says.
#[kernel(
    block = ELEMENTS_BLOCK,
    instances(T = [f32, f16, bf16], (ROWS, MAPS) = [(1, 1), (4, 1), (1, 2), (1, 3)])
)]
pub unsafe fn gaussian_pool_forward_elements<T: Storage, const ROWS: usize, const MAPS: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    beta: f32,
    turned: u32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    elements: Elements,
    maps: Maps,
) {
    let place = elements.place(ELEMENTS_BLOCK, window.channels);
    let weights = dynamic_shared::<f32>();
    let of = [window.size[0], window.size[0] + window.size[1]];
    // SAFETY: the caller's; all threads come here.
    unsafe {
        along_axes_of(weights, [mean, var], &geometry, variances, (maps.count, |map| map), of, turned != 0);
        thread::sync_threads();
        let Some(place) = place else { return };
        let Place { plane, row, column, channel } = place;
        let y = y.offset(maps.first(&window, plane, channel));
        let mut map = 0;
        while map < maps.count {
            let weight = |own: usize, position: u32| weights.load((map + own as u32) * of[1] + position);
            let sums = sums::<T, ROWS, MAPS>(x, &window, place, weight);
            unrolled!(R in [0 1 2 3] {
                if R < ROWS && row + (R as u32) < window.output[0] {
                    let at = maps.at(&window, [row + R as u32, column]);
                    unrolled!(M in [0 1 2] {
                        if M < MAPS {
                            put(y, at + maps.of(map + M as u32), sums[R][M], beta);
                        }
                    });
                }
            });
            map += MAPS as u32;
        }
    }
}

/// The sums of a thread's outputs by the Gaussians whose weights of each number the function gives, along y and then along x.
///
/// # Safety
/// The kernel's.
#[device_inline]
pub(super) unsafe fn sums<T: Storage, const ROWS: usize, const MAPS: usize>(
    x: Global<T>,
    window: &Window<Nhwc>,
    Place { plane, row, column, channel }: Place,
    weight: impl Fn(usize, u32) -> f32,
) -> [[f32; MAPS]; ROWS] {
    let mut sums = [[0.0; MAPS]; ROWS];
    let (pixel, line) = (window.channels as usize, window.input_line());
    let (size, stride, padding) = (window.size[0], window.stride[0], window.padding[0]);
    let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
    // Of the rows that the outputs' windows have together, from the first window's first on, those inside of the image.
    let begin = row * stride;
    let below = (window.output[0] - row).min(ROWS as u32) - 1;
    let first = padding.saturating_sub(begin);
    let end = (below * stride + size).min(window.input[0] + padding - begin);
    // SAFETY: the plane and the channel exist.
    let x = unsafe { x.offset(window.input_plane(plane) + channel as usize) };
    let mut i = first;
    while i < end {
        let load = |below: usize, there: bool, j: u32| {
            let row = (begin + i + below as u32).wrapping_sub(padding) as usize;
            // SAFETY: inside of the image where it is loaded.
            unsafe { x.load_if(there, row * line + left.wrapping_add(j) as usize * pixel, T::from_f32(0.0)) }
        };
        let there = [true, i + 1 < end];
        let along = along_two::<T, MAPS>(steps_inside(window, 1, column), there, load, |map, j| weight(map, size + j));
        unrolled!(I in [0 1] {
            unrolled!(R in [0 1 2 3] {
                if R < ROWS {
                    let position = (i + I as u32).wrapping_sub(R as u32 * stride);
                    if there[I] & (position < size) {
                        unrolled!(M in [0 1 2] {
                            if M < MAPS {
                                sums[R][M] = float::fma(weight(M, position), along[I][M], sums[R][M]);
                            }
                        });
                    }
                }
            });
        });
        i += 2;
    }
    sums
}

/// `dx = sum over windows that cover the element of weight * dy + beta * dx`, of all Gaussians of a map.
///
/// # Safety
/// The parent module's. `dy` and `dx` are what `window` and `maps` say, whose windows are of `geometry`'s size, as `covering` is;
/// `mean` holds two and `var` `variances` elements for each Gaussian; `elements` are the window's inputs, one a thread, with the launch's grid,
/// and shared memory is what [`Elements::shared_bytes`] says.
#[kernel(block = ELEMENTS_BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_backward_elements<T: Storage>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    covering: Covering,
    elements: Elements,
    maps: Maps,
) {
    let place = elements.place(ELEMENTS_BLOCK, window.channels);
    let weights = dynamic_shared::<f32>();
    let of = [window.size[0], window.size[0] + window.size[1]];
    // SAFETY: the caller's; all threads come here. The element exists, and is this thread's.
    unsafe {
        along_axes_of(weights, [mean, var], &geometry, variances, (maps.count, |map| map), of, false);
        thread::sync_threads();
        let Some(place) = place else { return };
        let Place { plane, row, column, channel } = place;
        let dy = dy.offset(maps.first(&window, plane, channel));
        let mut sum = 0.0;
        let mut map = 0;
        while map < maps.count {
            let weights = weights.offset(map * of[1]);
            let dy = dy.offset(maps.of(map));
            sum += over(dy, &window, &covering, place, &maps, |position| weights.load(position));
            map += 1;
        }
        let dx = dx.offset(window.input_plane(plane) + channel as usize);
        put(dx, row as usize * window.input_line() + column as usize * window.channels as usize, sum, beta);
    }
}

/// The sum of the windows over a thread's element, of one map, by the Gaussian whose weights the function gives, along y and then along x.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn over<T: Storage>(
    dy: Global<T>,
    window: &Window<Nhwc>,
    covering: &Covering,
    Place { row, column, .. }: Place,
    maps: &Maps,
    weight: impl Fn(u32) -> f32,
) -> f32 {
    let mut sum = 0.0;
    let each = [(0, row), (1, column)].map(|(axis, place)| covering.over(window, axis, place));
    let last = [(0, row), (1, column)].map(|(axis, place)| place + window.padding[axis]);
    let [mut i, end] = each[0];
    while i < end {
        let load = |below: usize, there: bool, j: u32| {
            // SAFETY: an output where it is loaded.
            unsafe { dy.load_if(there, maps.at(window, [i + below as u32, j]), T::from_f32(0.0)) }
        };
        // Of the position that is over the element.
        let by_x = |_: usize, j: u32| weight(window.size[0] + last[1] - j * window.stride[1]);
        let there = [true, i + 1 < end];
        let along = along_two::<T, 1>(each[1], there, load, by_x);
        unrolled!(I in [0 1] {
            if there[I] {
                sum = float::fma(weight(last[0] - (i + I as u32) * window.stride[0]), along[I][0], sum);
            }
        });
        i += 2;
    }
    sum
}
