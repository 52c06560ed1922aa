//! Gaussian pooling forward of row-major windows of any size whose weights are the same everywhere and which all channels share: an output a
//! thread.
//!
//! `y = sum over the window of weight_y * weight_x * x`. Launch: blocks of [`ELEMENTS_BLOCK`] threads in one dimension, which have outputs in
//! the order of memory. A block computes the weights along each axis, a warp an axis, and of these their products, into shared memory.
//!
//! A window costs a product for each position, and not one for each row and column: it is for so few products in all that a launch and the
//! weights are most of what a pass takes, and for planes too small for blocks that go down them.
//!
//! Bound by what a launch and the weights take, and by the time that memory takes to answer.

use cuda_std::prelude::*;

use super::Geometry;
use super::vectors::Weights;
use crate::band::any::steps_inside;
use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const ELEMENTS_BLOCK: u32 = 256;
/// Elements of a row of a window that are loaded before the first of them is used.
const AHEAD: u32 = 4;

/// How threads are laid over outputs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Outputs of all planes.
    outputs: u32,
    by_plane: Divider,
    by_width: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Elements {}

impl Elements {
    /// Over the window's outputs, and the blocks; `None` where there are too many to count.
    pub fn new(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let [height, width] = window.output;
        let of_plane = height.checked_mul(width)?;
        let outputs = of_plane.checked_mul(window.planes).filter(|&outputs| outputs < 1 << 30)?;
        let elements = Self { outputs, by_plane: Divider::new(of_plane), by_width: Divider::new(width) };
        Some((elements, outputs.div_ceil(ELEMENTS_BLOCK)))
    }
}

/// `y` = `x` pooled by one Gaussian.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` and `geometry` say, which are of the same windows; `mean` holds two and `var` as many
/// elements as `weights` says, which are the window's; `elements` are the window's, with the launch's grid, and shared memory is what
/// [`Weights::shared_bytes`] says.
#[kernel(block = ELEMENTS_BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward_elements<T: Storage>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    weights: Weights,
    geometry: Geometry,
    window: Window<Nchw>,
    elements: Elements,
) {
    // SAFETY: the caller's; all threads come here.
    let products = unsafe { weights.products([mean, var], &geometry, 0) };
    let number = thread::block_idx_x() * ELEMENTS_BLOCK + thread::thread_idx_x();
    if number >= elements.outputs {
        return;
    }
    let plane = elements.by_plane.divide(number);
    let place = number - plane * (window.output[0] * window.output[1]);
    let row = elements.by_width.divide(place);
    let column = place - row * window.output[1];
    let [first, end] = steps_inside(&window, 0, row);
    let [left, right] = steps_inside(&window, 1, column);
    let [top, begin] =
        [(0, row), (1, column)].map(|(axis, output)| (output * window.stride[axis]).wrapping_sub(window.padding[axis]));
    // SAFETY: the plane exists.
    let x = unsafe { x.offset(window.input_plane(plane)) };
    let mut sum = 0.0;
    let mut i = first;
    while i < end {
        let line = top.wrapping_add(i) as usize * window.input_line();
        let mut j = left;
        while j < right {
            let mut values = [T::from_f32(0.0); AHEAD as usize];
            unrolled!(K in [0 1 2 3] {
                let j = j + K as u32;
                // SAFETY: inside the image where it is loaded.
                values[K] = unsafe { x.load_if(j < right, line + begin.wrapping_add(j) as usize, values[K]) };
            });
            unrolled!(K in [0 1 2 3] {
                // Columns past the last, of zeros, have its weight.
                let j = if j + (K as u32) < right { j + K as u32 } else { right - 1 };
                // SAFETY: a position of the window, of which there is a product.
                let weight = unsafe { products.load(i * window.size[1] + j) };
                sum = float::fma(weight, values[K].to_f32(), sum);
            });
            j += AHEAD;
        }
        i += 1;
    }
    // SAFETY: the output exists.
    unsafe { y.store(number as usize, T::from_f32(sum)) };
}
