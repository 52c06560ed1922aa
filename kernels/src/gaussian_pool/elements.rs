//! Gaussian pooling of windows whose weights are the same everywhere and which all channels share, in either order of memory: an output, or
//! four of them one below the other, a thread; backward, the input's gradient alone, an element of it.
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, and `dx` likewise over the windows that cover an element. Of windows
//! one apart that is the pooling of `dy` by the window turned round.
//!
//! Launch: blocks of [`ELEMENTS_BLOCK`] threads in one dimension; neighbouring threads have neighbouring elements of a row of pixels. A block
//! computes the weights along each axis, a warp an axis, into shared memory. Outputs one below the other share the rows that their
//! windows have in common, which are summed along x once. Of 2×2, 3×3, 5×5 and 7×7 windows all inputs of a thread are on their way before the
//! weights are computed; backward of 5×5 and 7×7, two apart.
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
#[derive(Clone, Copy)]
struct Place {
    plane: u32,
    /// The first of its rows.
    row: u32,
    column: u32,
    channel: u32,
}

impl Elements {
    /// Over the window's planes of this height and width in pixels, none of which is zero, and the blocks; `None` where there are too many to
    /// count.
    pub fn new(window: &Window<Nhwc>, [height, width]: [u32; 2], rows: u32) -> Option<(Self, u32)> {
        let of_line = width.checked_mul(window.channels)?;
        let of_plane = of_line.checked_mul(height.div_ceil(rows))?;
        let threads = of_plane.checked_mul(window.planes).filter(|&threads| threads < 1 << 30)?;
        let [by_plane, by_line, by_channels] = [of_plane, of_line, window.channels].map(Divider::new);
        let elements = Self { threads, rows, of_plane, of_line, by_plane, by_line, by_channels };
        Some((elements, threads.div_ceil(ELEMENTS_BLOCK)))
    }

    /// Bytes of a block's shared memory for windows of so many rows and columns.
    pub fn shared_bytes([height, width]: [u32; 2]) -> u32 {
        (height + width) * 4
    }

    /// This thread's place, if it has one.
    #[device_inline]
    fn place(&self, channels: u32) -> Option<Place> {
        let number = thread::block_idx_x() * ELEMENTS_BLOCK + thread::thread_idx_x();
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

/// Positions along each axis of the windows whose size is compiled in.
pub const KNOWN_SIZES: [u32; 4] = [2, 3, 5, 7];
/// The most of them.
const MOST_KNOWN: usize = 7;
/// Rows that the windows of a thread's outputs have together, at most, of such windows.
const MOST_LINES: usize = MOST_KNOWN + MOST_ROWS as usize - 1;

/// `y` = `x` pooled by one Gaussian, plus `beta * y`. Backward, of windows one apart, it is the pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose windows are of `geometry`'s size, `SIZE` by `SIZE` where that is not 0 and then
/// one apart along y if `ROWS` is not 1; `mean` holds two and `var` `variances` elements; `elements` are the window's outputs, `ROWS` a thread,
/// with the launch's grid, and shared memory is what [`Elements::shared_bytes`] says.
#[kernel(
    block = ELEMENTS_BLOCK,
    instances(
        T = [f32, f16, bf16],
        (SIZE, ROWS) = [(0, 1), (0, 4), (2, 1), (2, 4), (3, 1), (3, 4), (5, 1), (5, 4), (7, 1), (7, 4)]
    )
)]
pub unsafe fn gaussian_pool_forward_elements<T: Storage, const SIZE: usize, const ROWS: usize>(
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
    let place = elements.place(window.channels);
    // SAFETY: the caller's; all threads come here.
    let weights = || unsafe {
        let by_y = dynamic_shared::<f32>();
        along_axes(by_y, [mean, var], &geometry, variances, 0, turned != 0);
        thread::sync_threads();
        [by_y, by_y.offset(window.size[0])]
    };
    // SAFETY: as above.
    unsafe {
        let sums = if SIZE == 0 {
            any::<T, ROWS>(x, &window, &place, weights)
        } else {
            known::<T, SIZE, ROWS>(x, &window, &place, weights)
        };
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

/// The sums of a thread's outputs, if it has a place, of windows of any size.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn any<T: Storage, const ROWS: usize>(
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

/// The same of windows of `SIZE` by `SIZE` positions, whose inputs are on their way before the weights are computed.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn known<T: Storage, const SIZE: usize, const ROWS: usize>(
    x: Global<T>,
    window: &Window<Nhwc>,
    place: &Option<Place>,
    weights: impl FnOnce() -> [Shared<f32>; 2],
) -> [f32; ROWS] {
    let (pixel, line) = (window.channels as usize, window.input_line());
    let Place { plane, row, column, channel } = match *place {
        Some(place) => place,
        None => Place { plane: 0, row: 0, column: 0, channel: 0 },
    };
    let [top, left] =
        [(0, row), (1, column)].map(|(axis, output)| (output * window.stride[axis]).wrapping_sub(window.padding[axis]));
    // One comparison says of row and column whether an input is there: the row is below its column's height.
    let mut height = [0; MOST_KNOWN];
    unrolled!(J in [0 1 2 3 4 5 6] {
        if J < SIZE && place.is_some() & (left.wrapping_add(J as u32) < window.input[1]) { height[J] = window.input[0]; }
    });
    // Before the first element where padding is, from where it is counted on.
    let at = (top as i32 as isize as usize)
        .wrapping_mul(line)
        .wrapping_add((left as i32 as isize as usize).wrapping_mul(pixel));
    // SAFETY: the plane and the channel exist.
    let x = unsafe { x.offset(window.input_plane(plane) + channel as usize) };
    let mut inputs = [[T::from_f32(0.0); MOST_KNOWN]; MOST_LINES];
    unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
        unrolled!(J in [0 1 2 3 4 5 6] { if I < SIZE + ROWS - 1 && J < SIZE {
            let at = at.wrapping_add(I * line).wrapping_add(J * pixel);
            // SAFETY: inside of the image where it is loaded.
            inputs[I][J] = unsafe { x.load_if(top.wrapping_add(I as u32) < height[J], at, inputs[I][J]) };
        } });
    });
    let shared = weights();
    let [mut by_y, mut by_x] = [[0.0; MOST_KNOWN]; 2];
    unrolled!(J in [0 1 2 3 4 5 6] {
        // SAFETY: positions of the window.
        if J < SIZE { unsafe { (by_y[J], by_x[J]) = (shared[0].load(J as u32), shared[1].load(J as u32)); } }
    });
    let mut sums = [0.0; ROWS];
    unrolled!(I in [0 1 2 3 4 5 6 7 8 9] { if I < SIZE + ROWS - 1 {
        let mut along = 0.0;
        unrolled!(J in [0 1 2 3 4 5 6] { if J < SIZE { along = float::fma(by_x[J], inputs[I][J].to_f32(), along); } });
        unrolled!(R in [0 1 2 3] { if R < ROWS && I >= R && I < R + SIZE {
            sums[R] = float::fma(by_y[I.wrapping_sub(R)], along, sums[R]);
        } });
    } });
    sums
}

/// Positions along each axis of the windows two apart whose size is compiled in backward.
pub const KNOWN_BACKWARD: [u32; 2] = [5, 7];
/// Such windows over an element along an axis, at most.
const MOST_OVER: usize = 4;

/// `dx = sum over windows that cover the element of weight * dy + beta * dx`, of one Gaussian.
///
/// # Safety
/// The parent module's. `dy` and `dx` are what `window` says, whose windows are of `geometry`'s size, as `covering` is, and where `SIZE` is not 0
/// `SIZE` by `SIZE` and two apart; `mean` holds two and `var` `variances` elements; `elements` are the window's inputs, one a thread, with the
/// launch's grid, and shared memory is what [`Elements::shared_bytes`] says.
#[kernel(block = ELEMENTS_BLOCK, instances(T = [f32, f16, bf16], SIZE = [0, 5, 7]))]
pub unsafe fn gaussian_pool_backward_elements<T: Storage, const SIZE: usize>(
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
    let place = elements.place(window.channels);
    // SAFETY: as above.
    let sum = unsafe {
        if SIZE == 0 {
            over_any(dy, &window, &covering, &place, weights)
        } else {
            over_known::<T, SIZE>(dy, &window, &covering, &place, weights)
        }
    };
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
unsafe fn over_any<T: Storage>(
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
    let over = [(0, row), (1, column)].map(|(axis, place)| covering.over(window, axis, place));
    let last = [(0, row), (1, column)].map(|(axis, place)| place + window.padding[axis]);
    // SAFETY: the plane and the channel exist.
    let dy = unsafe { dy.offset(window.output_plane(plane) + channel as usize) };
    let [mut i, end] = over[0];
    while i < end {
        let load = |below: usize, there: bool, j: u32| {
            let at = (i as usize + below) * line + j as usize * pixel;
            // SAFETY: an output where it is loaded.
            unsafe { dy.load_if(there, at, T::from_f32(0.0)) }
        };
        // SAFETY: a position of the window that is over the element.
        let weight = |j: u32| unsafe { by_x.load(last[1] - j * window.stride[1]) };
        let there = [true, i + 1 < end];
        let along = along_two(over[1], there, load, weight);
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

/// The same of windows of `SIZE` by `SIZE` positions, two apart, all of whose gradients are on their way before the weights are computed.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn over_known<T: Storage, const SIZE: usize>(
    dy: Global<T>,
    window: &Window<Nhwc>,
    covering: &Covering,
    place: &Option<Place>,
    weights: impl FnOnce() -> [Shared<f32>; 2],
) -> f32 {
    let (pixel, line) = (window.channels as usize, window.output_line());
    let Place { plane, row, column, channel } = match *place {
        Some(place) => place,
        None => Place { plane: 0, row: 0, column: 0, channel: 0 },
    };
    let [[top, below], [left, right]] = [(0, row), (1, column)].map(|(axis, place)| covering.over(window, axis, place));
    let below = if place.is_some() { below } else { top };
    // SAFETY: the plane and the channel exist.
    let dy = unsafe { dy.offset(window.output_plane(plane) + channel as usize) };
    let at = top as usize * line + left as usize * pixel;
    let mut gradients = [[T::from_f32(0.0); MOST_OVER]; MOST_OVER];
    unrolled!(I in [0 1 2 3] {
        unrolled!(J in [0 1 2 3] { if I < SIZE.div_ceil(2) && J < SIZE.div_ceil(2) {
            let there = (top + (I as u32) < below) & (left + (J as u32) < right);
            // SAFETY: an output where it is loaded.
            gradients[I][J] = unsafe { dy.load_if(there, at + I * line + J * pixel, gradients[I][J]) };
        } });
    });
    let [by_y, by_x] = weights();
    // The position in the first window over it; in each that follows it is two less. Where there is none its gradient is zero, and the
    // weight any.
    let [y, x] = [(row, 0, top), (column, 1, left)]
        .map(|(place, axis, first)| (place + window.padding[axis]).wrapping_sub(first * 2));
    let weight = |weights: Shared<f32>, position: u32, window: u32| {
        let position = position.wrapping_sub(window * 2);
        // SAFETY: a position of the window.
        unsafe { weights.load(if position < SIZE as u32 { position } else { 0 }) }
    };
    let mut across = [0.0; MOST_OVER];
    unrolled!(J in [0 1 2 3] { if J < SIZE.div_ceil(2) { across[J] = weight(by_x, x, J as u32); } });
    let mut sum = 0.0;
    unrolled!(I in [0 1 2 3] { if I < SIZE.div_ceil(2) {
        let mut along = 0.0;
        unrolled!(J in [0 1 2 3] { if J < SIZE.div_ceil(2) {
            along = float::fma(across[J], gradients[I][J].to_f32(), along);
        } });
        sum = float::fma(weight(by_y, y, I as u32), along, sum);
    } });
    sum
}
