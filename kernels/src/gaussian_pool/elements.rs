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
use crate::elements::{AHEAD, Elements, Place, along_two, sums};
use crate::elementwise::put;
use crate::window::{Covering, Nhwc, Window};

/// Threads of a block.
pub const ELEMENTS_BLOCK: u32 = 256;
/// Rows of a thread that has several outputs.
pub const MOST_ROWS: u32 = 4;

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

/// Bytes of a block's shared memory for so many Gaussians' weights of windows of so many rows and columns.
pub fn shared_bytes([height, width]: [u32; 2], gaussians: u32) -> u32 {
    (height + width) * gaussians * 4
}

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

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the maps' `K`, plus `beta * y`. Backward, of one Gaussian and windows one apart, it is the
/// pooling of `dy` by the window `turned` round. Inputs are loaded once for `MAPS` Gaussians.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` and `maps` say, whose windows are of `geometry`'s size; `mean` holds two and `var`
/// `variances` elements for each Gaussian, of which `MAPS` divides the number; `elements` are the window's outputs, `ROWS` a thread, with the
/// launch's grid, and shared memory is what [`shared_bytes`] says.
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
            let sums = sums::<T, ROWS, MAPS, AHEAD>(x, &window, place, weight);
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

/// `dx = sum over windows that cover the element of weight * dy + beta * dx`, of all Gaussians of a map.
///
/// # Safety
/// The parent module's. `dy` and `dx` are what `window` and `maps` say, whose windows are of `geometry`'s size, as `covering` is;
/// `mean` holds two and `var` `variances` elements for each Gaussian; `elements` are the window's inputs, one a thread, with the launch's grid,
/// and shared memory is what [`shared_bytes`] says.
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
        let along = along_two::<T, 1, AHEAD>(each[1], there, load, by_x);
        unrolled!(I in [0 1] {
            if there[I] {
                sum = float::fma(weight(last[0] - (i + I as u32) * window.stride[0]), along[I][0], sum);
            }
        });
        i += 2;
    }
    sum
}
