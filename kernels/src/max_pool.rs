//! Maximum pooling: `y` is the largest element of each window, and `indices` which of the window's positions it came from
//! (Ranzato et al., CVPR 2007; NaN, ties and edges as `ferrolayer::ops::max_pool` says).
//!
//! One thread for a column of a few rows of one plane, as [`Layout`] lays them: of outputs forward, of inputs backward.
//! - Forward visits the positions inside the image in row-major order. [`max_pool_forward_2x2_f32`] and
//!   [`max_pool_forward_3x3_f32`] are the same with the loops unrolled, so that all loads are under way at once.
//! - Backward gathers: each input visits the windows that cover it, in the order of the outputs, and takes `dy` where the
//!   index names it. No atomics, no zeros written beforehand, and no difference between windows that overlap and windows
//!   that leave gaps.
//!
//! Bound by memory: forward reads 4 bytes an input and writes 5 or 6 an output, backward the reverse; windows that overlap
//! meet in the caches.
//!
//! # Safety
//! `x` and `dx` hold `window.planes` planes of `window.input` elements, `y`, `dy`, `indices` and `flat` as many of
//! `window.output`; `layout` is over the outputs (forward, flat indices) or the inputs (backward), and the launch has its
//! grid and block; `window` keeps its promises.

use cuda_std::prelude::*;

use crate::elementwise::put;
use crate::window::{Covering, Layout, MIN_BLOCKS, THREADS, Window};

/// An integer that names a position of a window.
trait Position: Copy {
    fn narrow(position: u32) -> Self;
    fn widen(self) -> u32;
}

impl Position for u8 {
    #[inline(always)]
    fn narrow(position: u32) -> Self {
        position as Self
    }
    #[inline(always)]
    fn widen(self) -> u32 {
        self as u32
    }
}

impl Position for u16 {
    #[inline(always)]
    fn narrow(position: u32) -> Self {
        position as Self
    }
    #[inline(always)]
    fn widen(self) -> u32 {
        self as u32
    }
}

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
/// The module's.
#[inline(always)]
unsafe fn forward<P: Position>(
    x: Global<f32>,
    y: GlobalMut<f32>,
    indices: Option<GlobalMut<P>>,
    window: Window,
    layout: Layout,
    maximum: impl Fn(Global<f32>, u32, u32) -> Maximum,
) {
    let Some(plane) = layout.plane() else { return };
    // SAFETY: the plane, the row and the column exist, by the layout.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for column in layout.columns() {
            for row in layout.rows() {
                let Maximum { value, position } = maximum(x, row, column);
                let output = window.output_plane(plane) + (row * window.output[1] + column) as usize;
                y.store(output, value);
                if let Some(indices) = indices {
                    indices.store(output, P::narrow(position));
                }
            }
        }
    }
}

/// The maximum of any window, over `x`'s plane.
///
/// # Safety
/// The module's; the output exists.
#[inline(always)]
unsafe fn any_window(window: Window, x: Global<f32>, row: u32, column: u32) -> Maximum {
    let ([height, width], [size_down, size_right]) = (window.input, window.size);
    let (down, right) = (window.first_inside(0, row), window.first_inside(1, column));
    let mut maximum = Maximum::of_nothing(down.position * size_right + right.position);
    let (mut i, mut y) = (down.position, down.coordinate);
    while i < size_down && y < height {
        let line = y * width;
        let (mut j, mut x_) = (right.position, right.coordinate);
        while j < size_right && x_ < width {
            // SAFETY: `y < height` and `x_ < width`.
            maximum = maximum.or(unsafe { x.load((line + x_) as usize) }, i * size_right + j);
            j += 1;
            x_ += window.dilation[1];
        }
        i += 1;
        y += window.dilation[0];
    }
    maximum
}

/// The maximum of a window of `SIZE` by `SIZE` positions without dilation, over `x`'s plane.
///
/// # Safety
/// As [`any_window`]; the window is of that size.
#[inline(always)]
unsafe fn small_window<const SIZE: u32>(window: Window, x: Global<f32>, row: u32, column: u32) -> Maximum {
    let ([height, width], [above, left]) = (window.input, window.padding);
    let (down, right) = (row * window.stride[0], column * window.stride[1]);
    let mut maximum = Maximum::of_nothing(above.saturating_sub(down) * SIZE + left.saturating_sub(right));
    let mut i = 0;
    while i < SIZE {
        // What lies before the image wraps round to far after it.
        let y = (down + i).wrapping_sub(above);
        let mut j = 0;
        while j < SIZE {
            let x_ = (right + j).wrapping_sub(left);
            let inside = (y < height) & (x_ < width);
            let index = y.wrapping_mul(width).wrapping_add(x_) as usize;
            // SAFETY: in the plane where it is loaded. Minus infinity wins over nothing.
            maximum = maximum.or(unsafe { x.load_if(inside, index, f32::NEG_INFINITY) }, i * SIZE + j);
            j += 1;
        }
        i += 1;
    }
    maximum
}

/// Maxima and, where asked for, indices of windows of up to 256 positions.
///
/// # Safety
/// The module's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_forward_u8_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    indices: Option<GlobalMut<u8>>,
    window: Window,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, indices, window, layout, |x, row, column| any_window(window, x, row, column)) }
}

/// As [`max_pool_forward_u8_f32`], for windows of more positions.
///
/// # Safety
/// The module's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_forward_u16_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    indices: Option<GlobalMut<u16>>,
    window: Window,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, indices, window, layout, |x, row, column| any_window(window, x, row, column)) }
}

/// As [`max_pool_forward_u8_f32`], for windows of 2 by 2 positions without dilation.
///
/// # Safety
/// The module's; the window is such.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_forward_2x2_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    indices: Option<GlobalMut<u8>>,
    window: Window,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, indices, window, layout, |x, row, column| small_window::<2>(window, x, row, column)) }
}

/// As [`max_pool_forward_u8_f32`], for windows of 3 by 3 positions without dilation.
///
/// # Safety
/// The module's; the window is such.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_forward_3x3_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    indices: Option<GlobalMut<u8>>,
    window: Window,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, indices, window, layout, |x, row, column| small_window::<3>(window, x, row, column)) }
}

/// # Safety
/// The module's.
#[inline(always)]
unsafe fn backward<P: Position>(
    dy: Global<f32>,
    indices: Global<P>,
    dx: GlobalMut<f32>,
    beta: f32,
    window: Window,
    covering: Covering,
    layout: Layout,
) {
    let Some(plane) = layout.plane() else { return };
    // SAFETY: the plane, the row and the column exist, by the layout, and so do the outputs that cover them.
    unsafe {
        let (dy, indices) = (dy.offset(window.output_plane(plane)), indices.offset(window.output_plane(plane)));
        for column in layout.columns() {
            let across = covering.outputs(&window, 1, column);
            for row in layout.rows() {
                let mut sum = 0.0;
                let down = covering.outputs(&window, 0, row);
                for output_row in down.clone() {
                    // The window's row that this input is in, if dilation does not step over it.
                    let offset = row + window.padding[0] - output_row * window.stride[0];
                    let i = covering.dilation[0].divide(offset);
                    if i * window.dilation[0] != offset {
                        continue;
                    }
                    for output_column in across.clone() {
                        let offset = column + window.padding[1] - output_column * window.stride[1];
                        let output = (output_row * window.output[1] + output_column) as usize;
                        // The index names this input if it lies in the window's row `i`, the right distance on.
                        let j = indices.load(output).widen().wrapping_sub(i * window.size[1]);
                        let share = dy.load(output);
                        let named = (j < window.size[1]) & (j.wrapping_mul(window.dilation[1]) == offset);
                        sum = if named { sum + share } else { sum };
                    }
                }
                put(dx, window.input_plane(plane) + (row * window.input[1] + column) as usize, sum, beta);
            }
        }
    }
}

/// `dx = sum of dy over the outputs whose index names the input + beta * dx`, for windows of up to 256 positions.
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_backward_u8_f32(
    dy: Global<f32>,
    indices: Global<u8>,
    dx: GlobalMut<f32>,
    beta: f32,
    window: Window,
    covering: Covering,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { backward(dy, indices, dx, beta, window, covering, layout) }
}

/// As [`max_pool_backward_u8_f32`], for windows of more positions.
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_backward_u16_f32(
    dy: Global<f32>,
    indices: Global<u16>,
    dx: GlobalMut<f32>,
    beta: f32,
    window: Window,
    covering: Covering,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { backward(dy, indices, dx, beta, window, covering, layout) }
}

/// # Safety
/// The module's.
#[inline(always)]
unsafe fn flat_indices<P: Position>(
    indices: Global<P>,
    flat: GlobalMut<u32>,
    window: Window,
    covering: Covering,
    layout: Layout,
) {
    let Some(plane) = layout.plane() else { return };
    for column in layout.columns() {
        for row in layout.rows() {
            let output = window.output_plane(plane) + (row * window.output[1] + column) as usize;
            // SAFETY: the plane, the row and the column exist, by the layout.
            let position = unsafe { indices.load(output) }.widen();
            let i = covering.width.divide(position);
            let j = position - i * window.size[1];
            let y = (row * window.stride[0] + i * window.dilation[0]).wrapping_sub(window.padding[0]);
            let x = (column * window.stride[1] + j * window.dilation[1]).wrapping_sub(window.padding[1]);
            // SAFETY: as above.
            unsafe { flat.store(output, y.wrapping_mul(window.input[1]).wrapping_add(x)) };
        }
    }
}

/// `flat = h * width + w` of the inputs that the indices name, for windows of up to 256 positions.
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_flat_indices_u8(
    indices: Global<u8>,
    flat: GlobalMut<u32>,
    window: Window,
    covering: Covering,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { flat_indices(indices, flat, window, covering, layout) }
}

/// As [`max_pool_flat_indices_u8`], for windows of more positions.
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn max_pool_flat_indices_u16(
    indices: Global<u16>,
    flat: GlobalMut<u32>,
    window: Window,
    covering: Covering,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { flat_indices(indices, flat, window, covering, layout) }
}
