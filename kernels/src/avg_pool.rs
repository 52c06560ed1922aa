//! Average pooling: `y` is the sum of each window over a divisor (LeCun et al., NIPS 1989; what counts for the divisor,
//! [`Divisor`] says).
//!
//! One thread for a column of a few rows of one plane, as [`Layout`] lays them: of outputs forward, of inputs backward.
//! - Forward adds the positions inside the image in row-major order. [`avg_pool_forward_2x2_f32`] and
//!   [`avg_pool_forward_3x3_f32`] are the same with the loops unrolled, so that all loads are under way at once.
//! - Backward gathers: each input adds `dy / divisor` over the windows that cover it, in the order of the outputs. No
//!   atomics, and no zeros written beforehand.
//!
//! Bound by memory: forward reads 4 bytes an input and writes 4 an output, backward the reverse; windows that overlap meet
//! in the caches.
//!
//! # Safety
//! `x` and `dx` hold `window.planes` planes of `window.input` elements, `y` and `dy` as many of `window.output`; `layout`
//! is over the outputs (forward) or the inputs (backward), and the launch has its grid and block; the window has no
//! dilation and keeps its promises.

use cuda_std::prelude::*;

use crate::elementwise::put;
use crate::window::{Covering, Layout, MIN_BLOCKS, THREADS, Window};

/// What a window's sum is divided by.
///
/// The number of its positions that count, which along each axis are those from `begin` to `end`, measured from where the
/// padding begins; or `given`, unless that is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divisor {
    /// The first row and column that count.
    pub begin: [u32; 2],
    /// The first row and column that count no more.
    pub end: [u32; 2],
    /// The divisor of every window, or zero.
    pub given: f32,
}

// SAFETY: `repr(C)` with only `u32` and `f32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Divisor {}

impl Divisor {
    /// The positions along `axis` of an output's window that count.
    #[inline(always)]
    fn counted(&self, window: &Window, axis: usize, output: u32) -> f32 {
        let first = output * window.stride[axis];
        let last = first + window.size[axis];
        let end = if last < self.end[axis] { last } else { self.end[axis] };
        let begin = if first > self.begin[axis] { first } else { self.begin[axis] };
        (end - begin) as f32
    }

    /// The divisor of a window with as many rows and columns that count.
    #[inline(always)]
    fn of(&self, rows: f32, columns: f32) -> f32 {
        if self.given == 0.0 { rows * columns } else { self.given }
    }
}

/// # Safety
/// The module's.
#[inline(always)]
unsafe fn forward(
    x: Global<f32>,
    y: GlobalMut<f32>,
    window: Window,
    divisor: Divisor,
    layout: Layout,
    sum: impl Fn(Global<f32>, u32, u32) -> f32,
) {
    let Some(plane) = layout.plane() else { return };
    // SAFETY: the plane, the row and the column exist, by the layout.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for column in layout.columns() {
            let columns = divisor.counted(&window, 1, column);
            for row in layout.rows() {
                let average = sum(x, row, column) / divisor.of(divisor.counted(&window, 0, row), columns);
                y.store(window.output_plane(plane) + (row * window.output[1] + column) as usize, average);
            }
        }
    }
}

/// The sum of any window, over `x`'s plane.
///
/// # Safety
/// The module's; the output exists.
#[inline(always)]
unsafe fn any_window(window: Window, x: Global<f32>, row: u32, column: u32) -> f32 {
    let rows = window.inside(0, row);
    let columns = window.inside(1, column);
    let mut sum = 0.0;
    for y in rows {
        for x_ in columns.clone() {
            // SAFETY: inside the image.
            sum += unsafe { x.load((y * window.input[1] + x_) as usize) };
        }
    }
    sum
}

/// The sum of a window of `SIZE` by `SIZE` positions, over `x`'s plane.
///
/// # Safety
/// As [`any_window`]; the window is of that size.
#[inline(always)]
unsafe fn small_window<const SIZE: u32>(window: Window, x: Global<f32>, row: u32, column: u32) -> f32 {
    let ([height, width], [above, left]) = (window.input, window.padding);
    let mut sum = 0.0;
    let mut i = 0;
    while i < SIZE {
        // What lies before the image wraps round to far after it.
        let y = (row * window.stride[0] + i).wrapping_sub(above);
        let mut j = 0;
        while j < SIZE {
            let x_ = (column * window.stride[1] + j).wrapping_sub(left);
            let inside = (y < height) & (x_ < width);
            // SAFETY: in the plane where it is loaded.
            sum += unsafe { x.load_if(inside, y.wrapping_mul(width).wrapping_add(x_) as usize, 0.0) };
            j += 1;
        }
        i += 1;
    }
    sum
}

/// Averages of any windows.
///
/// # Safety
/// The module's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn avg_pool_forward_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    window: Window,
    divisor: Divisor,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, window, divisor, layout, |x, row, column| any_window(window, x, row, column)) }
}

/// As [`avg_pool_forward_f32`], for windows of 2 by 2 positions.
///
/// # Safety
/// The module's; the window is such.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn avg_pool_forward_2x2_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    window: Window,
    divisor: Divisor,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, window, divisor, layout, |x, row, column| small_window::<2>(window, x, row, column)) }
}

/// As [`avg_pool_forward_f32`], for windows of 3 by 3 positions.
///
/// # Safety
/// The module's; the window is such.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn avg_pool_forward_3x3_f32(
    x: Global<f32>,
    y: GlobalMut<f32>,
    window: Window,
    divisor: Divisor,
    layout: Layout,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, window, divisor, layout, |x, row, column| small_window::<3>(window, x, row, column)) }
}

/// `dx = sum of dy / divisor over the windows that cover the input + beta * dx`.
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS)]
pub unsafe fn avg_pool_backward_f32(
    dy: Global<f32>,
    dx: GlobalMut<f32>,
    beta: f32,
    window: Window,
    covering: Covering,
    divisor: Divisor,
    layout: Layout,
) {
    let Some(plane) = layout.plane() else { return };
    // Nearly all windows have the same divisor: of these no one divides. It is a product with the reciprocal and not a
    // division of their sum, which may pass the largest float where the quotients do not.
    let full = divisor.of(window.size[0] as f32, window.size[1] as f32);
    let reciprocal = 1.0 / full;
    // SAFETY: the plane, the row and the column exist, by the layout, and so do the outputs that cover them.
    unsafe {
        let dy = dy.offset(window.output_plane(plane));
        for column in layout.columns() {
            let across = covering.outputs(&window, 1, column);
            for row in layout.rows() {
                let mut sum = 0.0;
                for output_row in covering.outputs(&window, 0, row) {
                    let rows = divisor.counted(&window, 0, output_row);
                    for output_column in across.clone() {
                        let of = divisor.of(rows, divisor.counted(&window, 1, output_column));
                        let share = dy.load((output_row * window.output[1] + output_column) as usize);
                        sum += if of == full { share * reciprocal } else { share / of };
                    }
                }
                put(dx, window.input_plane(plane) + (row * window.input[1] + column) as usize, sum, beta);
            }
        }
    }
}
