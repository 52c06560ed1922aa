//! Gaussian pooling of windows whose weights are the same everywhere and which all channels share, in either order of memory: an output, or
//! four of them one below the other, a thread; backward, the input's gradient alone, an element of it.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, and `dx` likewise over the windows that cover an element. Of windows
//! one apart that is the pooling of `dy` by the window turned round.
//!
//! Launch: blocks of [`ELEMENTS_BLOCK`] threads in one dimension; neighbouring threads have neighbouring elements of a row of pixels. A block
//! computes the weights along each axis, a warp an axis, into shared memory. Outputs one below the other share the rows that their
//! windows have in common, which are summed along x once. [Packs](super::packs) are for windows of a few sizes.
//!
//! No input is kept for a neighbour but in the caches: it is for windows that share little along a row or are small, for so few products in all
//! that a launch and the weights are most of what a pass takes, and for channels that are no whole vectors.
//!
//! Bound by what a launch and the weights take, and by the time that memory takes to answer; of many elements by instructions.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::along_axes;
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
    pub fn shared_bytes([height, width]: [u32; 2]) -> u32 {
        (height + width) * 4
    }

    /// This thread's place, if it has one, in a launch of blocks of so many.
    #[device_inline]
    pub(super) fn place(&self, block: u32, channels: u32) -> Option<Place> {
        let number = thread::block_idx_x() * block + thread::thread_idx_x();
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

/// The weighted sums of two rows from `begin` to before `end`, as far as these are there.
#[device_inline]
fn along_two<T: Storage>(
    [begin, end]: [u32; 2],
    there: [bool; 2],
    load: impl Fn(usize, bool, u32) -> T,
    weight: impl Fn(u32) -> f32,
) -> [f32; 2] {
    let mut sums = [0.0; 2];
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
            let weight = weight(j);
            unrolled!(I in [0 1] { sums[I] = float::fma(weight, values[I][K].to_f32(), sums[I]); });
        });
        j += AHEAD as u32;
    }
    sums
}

/// `y` = `x` pooled by one Gaussian, plus `beta * y`. Backward, of windows one apart, it is the pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose windows are of `geometry`'s size; `mean` holds two and `var` `variances`
/// elements; `elements` are the window's outputs, `ROWS` a thread, with the launch's grid, and shared memory is what
/// [`Elements::shared_bytes`] says.
#[kernel(block = ELEMENTS_BLOCK, instances(T = [f32, f16, bf16], ROWS = [1, 4]))]
pub unsafe fn gaussian_pool_forward_elements<T: Storage, const ROWS: usize>(
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
) {
    let place = elements.place(ELEMENTS_BLOCK, window.channels);
    // SAFETY: the caller's; all threads come here.
    let weights = || unsafe {
        let by_y = dynamic_shared::<f32>();
        along_axes(by_y, [mean, var], &geometry, variances, 0, turned != 0);
        thread::sync_threads();
        [by_y, by_y.offset(window.size[0])]
    };
    // SAFETY: as above.
    unsafe {
        let sums = sums::<T, ROWS>(x, &window, &place, weights);
        let Some(Place { plane, row, column, channel }) = place else { return };
        let y = y.offset(window.output_plane(plane) + channel as usize);
        unrolled!(R in [0 1 2 3] {
            if R < ROWS && row + (R as u32) < window.output[0] {
                let at = (row + R as u32) as usize * window.output_line() + column as usize * window.channels as usize;
                put(y, at, sums[R], beta);
            }
        });
    }
}

/// The sums of a thread's outputs, if it has a place.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn sums<T: Storage, const ROWS: usize>(
    x: Global<T>,
    window: &Window<Nhwc>,
    place: &Option<Place>,
    weights: impl FnOnce() -> [Shared<f32>; 2],
) -> [f32; ROWS] {
    let [by_y, by_x] = weights();
    let mut sums = [0.0; ROWS];
    let Some(Place { plane, row, column, channel }) = *place else { return sums };
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
        // SAFETY: positions of the window.
        let weight = |j: u32| unsafe { by_x.load(j) };
        let there = [true, i + 1 < end];
        let along = along_two(steps_inside(window, 1, column), there, load, weight);
        unrolled!(I in [0 1] {
            unrolled!(R in [0 1 2 3] {
                if R < ROWS {
                    let position = (i + I as u32).wrapping_sub(R as u32 * stride);
                    if there[I] & (position < size) {
                        // SAFETY: a position of the window.
                        sums[R] = float::fma(unsafe { by_y.load(position) }, along[I], sums[R]);
                    }
                }
            });
        });
        i += 2;
    }
    sums
}

/// `dx = sum over windows that cover the element of weight * dy + beta * dx`, of one Gaussian.
///
/// # Safety
/// The parent module's. `dy` and `dx` are what `window` says, whose windows are of `geometry`'s size, as `covering` is;
/// `mean` holds two and `var` `variances` elements; `elements` are the window's inputs, one a thread, with the launch's grid, and shared memory
/// is what [`Elements::shared_bytes`] says.
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
) {
    // SAFETY: the caller's; all threads come here.
    let weights = || unsafe {
        let by_y = dynamic_shared::<f32>();
        along_axes(by_y, [mean, var], &geometry, variances, 0, false);
        thread::sync_threads();
        [by_y, by_y.offset(window.size[0])]
    };
    let place = elements.place(ELEMENTS_BLOCK, window.channels);
    // SAFETY: as above.
    let sum = unsafe { over(dy, &window, &covering, &place, weights) };
    let Some(Place { plane, row, column, channel }) = place else { return };
    // SAFETY: the element exists, and is this thread's.
    unsafe {
        let dx = dx.offset(window.input_plane(plane) + channel as usize);
        put(dx, row as usize * window.input_line() + column as usize * window.channels as usize, sum, beta);
    }
}

/// The sum of the windows over a thread's element, if it has one.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn over<T: Storage>(
    dy: Global<T>,
    window: &Window<Nhwc>,
    covering: &Covering,
    place: &Option<Place>,
    weights: impl FnOnce() -> [Shared<f32>; 2],
) -> f32 {
    let [by_y, by_x] = weights();
    let mut sum = 0.0;
    let Some(Place { plane, row, column, channel }) = *place else { return sum };
    let (pixel, line) = (window.channels as usize, window.output_line());
    let each = [(0, row), (1, column)].map(|(axis, place)| covering.over(window, axis, place));
    let last = [(0, row), (1, column)].map(|(axis, place)| place + window.padding[axis]);
    // SAFETY: the plane and the channel exist.
    let dy = unsafe { dy.offset(window.output_plane(plane) + channel as usize) };
    let [mut i, end] = each[0];
    while i < end {
        let load = |below: usize, there: bool, j: u32| {
            let at = (i as usize + below) * line + j as usize * pixel;
            // SAFETY: an output where it is loaded.
            unsafe { dy.load_if(there, at, T::from_f32(0.0)) }
        };
        // SAFETY: a position of the window that is over the element.
        let weight = |j: u32| unsafe { by_x.load(last[1] - j * window.stride[1]) };
        let there = [true, i + 1 < end];
        let along = along_two(each[1], there, load, weight);
        unrolled!(I in [0 1] {
            if there[I] {
                // SAFETY: as above.
                let weight = unsafe { by_y.load(last[0] - (i + I as u32) * window.stride[0]) };
                sum = float::fma(weight, along[I], sum);
            }
        });
        i += 2;
    }
    sum
}
