//! Maximum pooling: `y` is the largest element of each window, and `indices` which of the window's positions it came from
//! (Ranzato et al., CVPR 2007; NaN, ties and edges as `ferrolayer::ops::max_pool` says).
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. It visits the positions inside the image in row-major order.
//! [`max_pool_forward_small`] is the same with the loops unrolled, so that all loads are under way at once, and
//! [`max_pool_forward_patch`] by [patches](crate::patch), for windows that are common. Backward is [`route`](crate::route)'s.
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

use cuda_std::prelude::*;

use crate::elementwise::get;
use crate::patch::{Patches, slide_channels_apart, slide_channels_last, store_pair};
use crate::window::{Covering, FEWEST_BLOCKS, MIN_BLOCKS, Nchw, Nhwc, Order, Pixel, Position, THREADS, Tiling, Window};

/// The largest element so far, and its position in the window.
#[derive(Clone, Copy)]
struct Maximum {
    value: f32,
    position: u32,
}

impl Maximum {
    /// The maximum of nothing; `first` is the position that wins where all are minus infinity.
    #[inline(always)]
    fn of_nothing(first: u32) -> Self {
        Self { value: f32::NEG_INFINITY, position: first }
    }

    /// `value` wins if it is greater, or the first NaN: "not less or equal" is true of NaN too.
    #[inline(always)]
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    fn or(self, value: f32, position: u32) -> Self {
        let wins = !(value <= self.value) & !self.value.is_nan();
        Self { value: if wins { value } else { self.value }, position: if wins { position } else { self.position } }
    }
}

/// # Safety
/// The module's; `maximum` gives that of the output's window, whose inputs' plane and channel begin at what it gets.
#[inline(always)]
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
                let Maximum { value, position } = maximum(x.offset(channel as usize), row, column);
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(value));
                if let Some(indices) = indices {
                    indices.store(output, P::narrow(position));
                }
            }
        }
    }
}

/// The maximum of any window, over the plane and channel that begin at `x`.
///
/// # Safety
/// The module's; the output exists.
#[inline(always)]
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

/// The maximum of a window of `SIZE` by `SIZE` positions without dilation, over the plane and channel that begin at `x`.
///
/// # Safety
/// As [`any_window`]; the window is of that size.
#[inline(always)]
unsafe fn small_window<T: Storage, L: Order, const SIZE: u32>(
    window: Window<L>,
    x: Global<T>,
    row: u32,
    column: u32,
) -> Maximum {
    let ([height, width], [above, left]) = (window.input, window.padding);
    let (down, right) = (row * window.stride[0], column * window.stride[1]);
    let mut maximum = Maximum::of_nothing(above.saturating_sub(down) * SIZE + left.saturating_sub(right));
    let mut i = 0;
    while i < SIZE {
        // What lies before the image wraps round to far after it.
        let y = (down + i).wrapping_sub(above);
        let line = (y as usize).wrapping_mul(window.input_line());
        let mut j = 0;
        while j < SIZE {
            let x_ = (right + j).wrapping_sub(left);
            let inside = (y < height) & (x_ < width);
            let index = line.wrapping_add(x_.wrapping_mul(window.pixel()) as usize);
            // SAFETY: in the plane where it is loaded. Minus infinity wins over nothing.
            let value = unsafe { x.load_if(inside, index, T::from_f32(f32::NEG_INFINITY)) };
            maximum = maximum.or(value.to_f32(), i * SIZE + j);
            j += 1;
        }
        i += 1;
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

/// As [`max_pool_forward`], for windows of `SIZE` by `SIZE` positions without dilation.
///
/// # Safety
/// The module's; the window is such.
#[kernel(
    max_threads = THREADS,
    min_blocks = MIN_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], SIZE = [2, 3])
)]
pub unsafe fn max_pool_forward_small<T: Storage, L: Order, const SIZE: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<L>,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    unsafe {
        forward(x, y, indices, window, tiling, |x, row, column| small_window::<T, L, SIZE>(window, x, row, column))
    }
}

/// As [`max_pool_forward`], for windows of a known geometry.
///
/// # Safety
/// The module's, but for the tiling; `Fixed<SIZE, STRIDE, PADDING>` fits the window, memory begins at multiples of 16 bytes,
/// and `patches` are of the window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWEST_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], (SIZE, STRIDE, PADDING) = [(2, 2, 0), (3, 2, 0), (3, 2, 1)])
)]
pub unsafe fn max_pool_forward_patch<T: Storage, L: Order, const SIZE: u32, const STRIDE: u32, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<L>,
    patches: Patches<L>,
) {
    let begin = |row: u32, column: u32| {
        let [i, j] = [row, column].map(|output| PADDING.saturating_sub(output * STRIDE));
        Maximum::of_nothing(i * SIZE + j)
    };
    let step = |maximum: Maximum, value, position| maximum.or(value, position);
    let outside = f32::NEG_INFINITY;
    // SAFETY: the caller's; the outputs exist.
    unsafe {
        if L::CHANNELS_LAST {
            let finish = |output, _, _, found: [Maximum; 4]| {
                let [a, b, c, d] = found.map(|maximum| T::from_f32(maximum.value));
                y.store4(output, Vec4::new(a, b, c, d));
                if let Some(indices) = indices {
                    let [a, b, c, d] = found.map(|maximum| u8::narrow(maximum.position));
                    indices.store4(output, Vec4::new(a, b, c, d));
                }
            };
            slide_channels_last::<T, L, _, SIZE, STRIDE, PADDING>(x, &window, &patches, outside, begin, step, finish);
        } else {
            let width = window.output[1];
            let finish = |output, _, column, found: [Maximum; 2]| {
                store_pair(y, output, found.map(|maximum| T::from_f32(maximum.value)), column, width);
                if let Some(indices) = indices {
                    store_pair(indices, output, found.map(|maximum| u8::narrow(maximum.position)), column, width);
                }
            };
            slide_channels_apart::<T, L, _, SIZE, STRIDE, PADDING>(x, &window, &patches, outside, begin, step, finish);
        }
    }
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
