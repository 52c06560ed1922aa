//! Gaussian pooling with the channels last of 2×2 and 3×3 windows that do not overlap, whose weights are the same everywhere and which all
//! channels share, an element a thread: for channels that are no whole vectors, and backward for a few planes that follow each other, which
//! are images of one channel.
//!
//! Launch: as [`Tiling`] lays threads: forward over outputs, backward over inputs.
//! A thread's first loads, and those of the parameters before them, are on their way before two threads of the block compute the
//! weights along each axis.
//!
//! Bound by memory, and where there is little to do by what a launch and the weights take.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::patches::put_weights;
use super::weights::Shape;
use crate::elementwise::put;
use crate::window::{Covering, Nhwc, Pixel, Tiling, Window};

/// Positions of a window along each axis, of which there are kernels.
pub const SIZES: [u32; 2] = [2, 3];

/// Threads of a block, at most.
pub const FEW_BLOCK: u32 = 128;
/// Such blocks that a multiprocessor has room for, at least: 64 registers a thread.
const MIN_BLOCKS: u32 = 8;
/// Elements of an image, at most.
pub const MOST_ELEMENTS: u64 = 1 << 30;

/// `y` = `x` pooled by one Gaussian.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose windows are `SIZE` by `SIZE` and whose images have at most [`MOST_ELEMENTS`];
/// `mean` holds two and `var` `variances` elements; `tiling` is over the outputs, with the launch's grid and block.
#[kernel(max_threads = FEW_BLOCK, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn gaussian_pool_forward_few<T: Storage, const SIZE: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    window: Window<Nhwc>,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    let shapes = [true, false].map(|vertical| unsafe { Shape::load([mean, var], 0, vertical, variances) });
    let (plane, place, mut rows) = (tiling.plane(), tiling.places().next(), tiling.rows());
    let row = rows.next();
    let there = plane.is_some() & place.is_some() & row.is_some();
    let (plane, place, mut row) = (plane.unwrap_or(0), place.unwrap_or(0), row.unwrap_or(0));
    let Pixel { column, channel } = tiling.pixel(&window, place);
    let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
    let (line, pixel) = (window.input_line() as u32, window.pixel());
    // One comparison says of row and column whether an input is there: the row is below its column's height.
    let mut height = [0; SIZE];
    unrolled!(J in [0 1 2] {
        if J < SIZE && there & (left.wrapping_add(J as u32) < window.input[1]) { height[J] = window.input[0]; }
    });
    let at = left.wrapping_mul(pixel).wrapping_add(channel);
    // SAFETY: the plane exists, if it is there.
    let (x, y) = unsafe { (x.offset(window.input_plane(plane)), y.offset(window.output_plane(plane))) };
    let load = |row: u32| {
        let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
        let mut inputs = [[T::from_f32(0.0); SIZE]; SIZE];
        unrolled!(I in [0 1 2] {
            let top = top.wrapping_add(I as u32);
            unrolled!(J in [0 1 2] { if I < SIZE && J < SIZE {
                let at = top.wrapping_mul(line).wrapping_add(at).wrapping_add(J as u32 * pixel);
                // SAFETY: inside the image where it is loaded.
                inputs[I][J] = unsafe { x.load_if(top < height[J], at as usize, inputs[I][J]) };
            } });
        });
        inputs
    };
    let mut inputs = load(row);
    // SAFETY: the caller's; written a barrier ago.
    let [by_y, by_x] = unsafe {
        let weights = put_weights(SIZE as u32, |axis| if axis == 0 { shapes[0] } else { shapes[1] });
        [weights.load4(0).to_array(), weights.load4(4).to_array()]
    };
    if !there {
        return;
    }
    loop {
        let mut total = 0.0;
        unrolled!(I in [0 1 2] { if I < SIZE {
            let mut sum = 0.0;
            unrolled!(J in [0 1 2] { if J < SIZE { sum = float::fma(by_x[J], inputs[I][J].to_f32(), sum); } });
            total = float::fma(by_y[I], sum, total);
        } });
        // SAFETY: the output exists.
        unsafe { y.store((row * window.output_line() as u32 + place) as usize, T::from_f32(total)) };
        let Some(next) = rows.next() else { break };
        row = next;
        inputs = load(row);
    }
}

/// `dx = weight * dy + beta * dx` of the window over the pixel, of windows that do not overlap.
///
/// # Safety
/// As [`gaussian_pool_forward_few`]'s, of `dy` and `dx`; `tiling` is over the inputs; `covering` is the window's.
#[kernel(max_threads = FEW_BLOCK, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn gaussian_pool_backward_few<T: Storage, const SIZE: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    window: Window<Nhwc>,
    covering: Covering,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    let shapes = [true, false].map(|vertical| unsafe { Shape::load([mean, var], 0, vertical, variances) });
    let (plane, place, mut rows) = (tiling.plane(), tiling.places().next(), tiling.rows());
    let row = rows.next();
    let there = plane.is_some() & place.is_some() & row.is_some();
    let (plane, place, mut row) = (plane.unwrap_or(0), place.unwrap_or(0), row.unwrap_or(0));
    let Pixel { column, channel } = tiling.pixel(&window, place);
    // The last window that begins before an input along an axis, and the input's position there.
    let last = |axis: usize, input: u32| {
        let padded = input + window.padding[axis];
        let output = covering.last(&window, axis, input);
        (output, padded - output * window.stride[axis])
    };
    let (right, from_left) = last(1, column);
    let load = |down: u32, from_top: u32| {
        let covers = (from_top < SIZE) & (from_left < SIZE) & (down < window.output[0]) & (right < window.output[1]);
        let pixel = right as usize * window.pixel() as usize + channel as usize;
        let at = window.output_plane(plane) + down as usize * window.output_line() + pixel;
        // SAFETY: an output where it is loaded.
        unsafe { dy.load_if(there & covers, at, T::from_f32(0.0)) }
    };
    let (mut down, mut from_top) = last(0, row);
    let mut output = load(down, from_top);
    // SAFETY: the caller's.
    let weights = unsafe { put_weights(SIZE, |axis| if axis == 0 { shapes[0] } else { shapes[1] }) };
    if !there {
        return;
    }
    // Positions past the window's have the weight after its last, which is zero.
    let along = |axis: u32, position: u32| {
        let position = if position < SIZE { position } else { SIZE };
        // SAFETY: a vector has four elements, written a barrier ago.
        unsafe { weights.load(4 * axis + position) }
    };
    let by_x = along(1, from_left);
    loop {
        let total = along(0, from_top) * (by_x * output.to_f32());
        let input = window.input_plane(plane) + row as usize * window.input_line() + place as usize;
        // SAFETY: the input exists.
        unsafe { put(dx, input, total, beta) };
        let Some(next) = rows.next() else { break };
        row = next;
        (down, from_top) = last(0, row);
        output = load(down, from_top);
    }
}
