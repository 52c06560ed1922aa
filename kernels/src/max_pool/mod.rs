//! Maximum pooling: `y` is the largest element of each window, and `indices` which of the window's positions it came from
//! (Ranzato et al., CVPR 2007; NaN, ties and edges as `ferrolayer::ops::max_pool` says).
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. It visits the positions inside the image in row-major order.
//! That is any layout's and any size's. Where rows have room in shared memory, row-major images go by [bands](crate::band),
//! and common windows with the channels last by [patches](crate::patch); of 16 bits common windows go two at once, by
//! [fours](crate::patch::quads) or by [octets](crate::patch::octets) of channels; windows that share little go by
//! [pieces](crate::pieces), such that are not square, and 2×2 one apart, by [spans](crate::spans), and those that are a whole small plane by [threads of their own](crate::wholes), large ones of whole rows
//! of 16 bytes by [chunks](crate::chunks) of these; windows one apart of a known size, where there is much, go down
//! [strips](crate::falling) with the channels last, and over [planes abreast](crate::abreast) where these are row-major; other windows with the channels last by [vectors](crate::vectors) of these. Backward
//! is [`route`](crate::route)'s.
//!
//! Maxima are compared as `f32`, and are elements of the input: nothing is rounded.
//!
//! Bound by memory: reads each input, and writes an element and one or two bytes for each output; windows that overlap
//! meet in the caches.
//!
//! # Safety
//! `x` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `y`, `indices` and `flat` as
//! many of `window.output`; `tiling` is over the outputs, and the launch has its grid and block; `window` keeps its
//! promises; indices of type `P` can name its positions.

mod abreast;
mod apart;
mod doubling;
mod falling;
mod large;
mod meshes;
mod octets;
mod ranked;
mod small;
mod spans;
mod vectors;

pub use abreast::*;
pub use apart::*;
use cuda_std::prelude::*;
pub use falling::*;
pub use large::*;
pub use meshes::*;
pub use octets::*;
pub use ranked::{MOST_POSITIONS, Ranked};
pub use small::*;
pub use spans::*;
pub use vectors::*;

use crate::elementwise::get;
use crate::window::{Covering, MIN_BLOCKS, Nchw, Nhwc, Order, Pixel, Position, THREADS, Tiling, Window};

/// The largest element so far, and its position in the window.
#[derive(Clone, Copy)]
struct Maximum {
    value: f32,
    position: u32,
}

impl Maximum {
    /// The maximum of nothing; `first` is the position that wins where all are minus infinity.
    #[device_inline]
    fn of_nothing(first: u32) -> Self {
        Self { value: f32::NEG_INFINITY, position: first }
    }

    /// Whether `value` is greater, or the first NaN: "not less or equal" is true of NaN too.
    #[device_inline]
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    fn loses_to(self, value: f32) -> bool {
        !(value <= self.value) & !self.value.is_nan()
    }

    /// The maximum of this and what comes after it.
    #[device_inline]
    fn or(self, value: f32, position: u32) -> Self {
        if self.loses_to(value) { Self { value, position } } else { self }
    }

    /// As [`or`](Self::or), of numbers.
    #[device_inline]
    fn or_greater(self, value: f32, position: u32) -> Self {
        if value > self.value { Self { value, position } } else { self }
    }

    /// As [`or`](Self::or) of numbers. With a NaN the value is one, and the position no matter.
    #[device_inline]
    fn or_number(self, other: Self) -> Self {
        let position = if other.value > self.value { other.position } else { self.position };
        Self { value: float::maximum(self.value, other.value), position }
    }

    /// As [`or`](Self::or), in any order: of equals, or of NaNs, that with the smaller position.
    #[device_inline]
    fn or_earlier(self, other: Self) -> Self {
        let same = (other.value == self.value) | (other.value.is_nan() & self.value.is_nan());
        if self.loses_to(other.value) | (same & (other.position < self.position)) { other } else { self }
    }
}

/// # Safety
/// The module's; `maximum` gives that of the output's window, whose inputs' plane and channel begin at what it gets.
#[device_inline]
unsafe fn forward<T: Storage, L: Order, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<L>,
    tiling: Tiling,
    maximum: impl Fn(Global<T>, u32, u32) -> Maximum,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            for row in tiling.rows() {
                let maximum = maximum(x.offset(channel as usize), row, column);
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                store(y, indices, output, maximum);
            }
        }
    }
}

/// # Safety
/// The output exists.
#[device_inline]
unsafe fn store<T: Storage, P: Position>(
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    output: usize,
    Maximum { value, position }: Maximum,
) {
    // SAFETY: the caller's.
    unsafe {
        y.store(output, T::from_f32(value));
        if let Some(indices) = indices {
            indices.store(output, P::narrow(position));
        }
    }
}

/// The maximum of any window, over the plane and channel that begin at `x`.
///
/// # Safety
/// The module's; the output exists.
#[device_inline]
unsafe fn any_window<T: Storage, L: Order>(window: Window<L>, x: Global<T>, row: u32, column: u32) -> Maximum {
    let ([height, width], [size_down, size_right]) = (window.input, window.size);
    let (down, right) = (window.first_inside(0, row), window.first_inside(1, column));
    let mut maximum = Maximum::of_nothing(down.position * size_right + right.position);
    let (mut i, mut y) = (down.position, down.coordinate);
    while i < size_down && y < height {
        let line = y as usize * window.input_line();
        let (mut j, mut x_) = (right.position, right.coordinate);
        while j < size_right && x_ < width {
            // SAFETY: `y < height` and `x_ < width`.
            let value = unsafe { get(x, line + (x_ * window.pixel()) as usize) };
            maximum = maximum.or(value, i * size_right + j);
            j += 1;
            x_ += window.dilation[1];
        }
        i += 1;
        y += window.dilation[0];
    }
    maximum
}

/// Maxima and, where asked for, indices of any windows.
///
/// # Safety
/// The module's.
#[kernel(
    max_threads = THREADS,
    min_blocks = MIN_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], P = [u8, u16])
)]
pub unsafe fn max_pool_forward<T: Storage, L: Order, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<L>,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, indices, window, tiling, |x, row, column| any_window(window, x, row, column)) }
}

/// `flat = h * width + w` of the inputs that the indices name, which the host has checked to be below 2³².
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS, instances(L = [Nchw, Nhwc], P = [u8, u16]))]
pub unsafe fn max_pool_flat_indices<L: Order, P: Position>(
    indices: Global<P>,
    flat: GlobalMut<u32>,
    window: Window<L>,
    covering: Covering,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    for place in tiling.places() {
        let column = tiling.pixel(&window, place).column;
        for row in tiling.rows() {
            let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
            // SAFETY: the plane, the row and the place exist, by the tiling.
            let position = unsafe { indices.load(output) }.widen();
            let i = covering.width.divide(position);
            let j = position - i * window.size[1];
            // Wrapping, so that an index that forward never gives means as little here as on the CPU.
            let y = (row * window.stride[0] + i * window.dilation[0]).wrapping_sub(window.padding[0]);
            let x = (column * window.stride[1] + j * window.dilation[1]).wrapping_sub(window.padding[1]);
            // SAFETY: as above.
            unsafe { flat.store(output, y.wrapping_mul(window.input[1]).wrapping_add(x)) };
        }
    }
}
