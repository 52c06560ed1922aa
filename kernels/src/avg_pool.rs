//! Average pooling: `y` is the sum of each window over a divisor (LeCun et al., NIPS 1989; what counts for the divisor,
//! [`Divisor`] says).
//!
//! Launch: one thread for one place in a few rows of a plane, as [`Tiling`] lays them: of outputs forward, of inputs
//! backward; neighbouring threads have neighbouring columns, or channels where these are last.
//! - Forward adds the positions inside the image in row-major order. [`avg_pool_forward_small`] is the same with the loops
//!   unrolled, so that all loads are under way at once, and [`avg_pool_forward_patch`] by [patches](crate::patch).
//! - Backward gathers: each input adds `dy / divisor` over the windows that cover it, in the order of the outputs. No
//!   atomics, and no zeros written beforehand.
//!
//! Sums and quotients are `f32`, rounded once when they are stored.
//!
//! Bound by memory: forward reads each input and writes each output once, backward the reverse; windows that overlap meet
//! in the caches.
//!
//! # Safety
//! `x` and `dx` hold `window.planes` planes of `window.input` pixels of `window.channels` elements, `y` and `dy` as many of
//! `window.output`; `tiling` is over the outputs (forward) or the inputs (backward), and the launch has its grid and block;
//! the window has no dilation and keeps its promises.

use cuda_std::prelude::*;

use crate::elementwise::{get, put};
use crate::patch::{Patches, Shares, gather, lanes, slide_channels_apart, slide_channels_last, store_pair};
use crate::window::{Covering, FEWER_BLOCKS, MIN_BLOCKS, Nchw, Nhwc, Order, Pixel, THREADS, Tiling, Window};

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
    /// The divisor of every window, where all have the same, or zero.
    pub given: f32,
}

// SAFETY: `repr(C)` with only `u32` and `f32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Divisor {}

impl Divisor {
    /// The positions along `axis` of an output's window that count.
    #[inline(always)]
    fn counted<L: Order>(&self, window: &Window<L>, axis: usize, output: u32) -> f32 {
        // Wrapping, for outputs that do not exist and whose divisor is not used.
        let first = output.wrapping_mul(window.stride[axis]);
        let last = first.wrapping_add(window.size[axis]);
        let end = if last < self.end[axis] { last } else { self.end[axis] };
        let begin = if first > self.begin[axis] { first } else { self.begin[axis] };
        end.wrapping_sub(begin) as f32
    }

    /// The divisor of a window with as many rows and columns that count.
    #[inline(always)]
    fn of(&self, rows: f32, columns: f32) -> f32 {
        if self.given == 0.0 { rows * columns } else { self.given }
    }
}

/// # Safety
/// The module's; `sum` gives that of the output's window, whose inputs' plane and channel begin at what it gets.
#[inline(always)]
unsafe fn forward<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    divisor: Divisor,
    tiling: Tiling,
    sum: impl Fn(Global<T>, u32, u32) -> f32,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            let columns = divisor.counted(&window, 1, column);
            for row in tiling.rows() {
                let sum = sum(x.offset(channel as usize), row, column);
                let average = sum / divisor.of(divisor.counted(&window, 0, row), columns);
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(average));
            }
        }
    }
}

/// The sum of any window, over the plane and channel that begin at `x`.
///
/// # Safety
/// The module's; the output exists.
#[inline(always)]
unsafe fn any_window<T: Storage, L: Order>(window: Window<L>, x: Global<T>, row: u32, column: u32) -> f32 {
    let rows = window.inside(0, row);
    let columns = window.inside(1, column);
    let mut sum = 0.0;
    for y in rows {
        let line = y as usize * window.input_line();
        for x_ in columns.clone() {
            // SAFETY: inside the image.
            sum += unsafe { get(x, line + (x_ * window.pixel()) as usize) };
        }
    }
    sum
}

/// The sum of a window of `SIZE` by `SIZE` positions, over the plane and channel that begin at `x`.
///
/// # Safety
/// As [`any_window`]; the window is of that size.
#[inline(always)]
unsafe fn small_window<T: Storage, L: Order, const SIZE: u32>(
    window: Window<L>,
    x: Global<T>,
    row: u32,
    column: u32,
) -> f32 {
    let ([height, width], [above, left]) = (window.input, window.padding);
    let mut sum = 0.0;
    let mut i = 0;
    while i < SIZE {
        // What lies before the image wraps round to far after it.
        let y = (row * window.stride[0] + i).wrapping_sub(above);
        let line = (y as usize).wrapping_mul(window.input_line());
        let mut j = 0;
        while j < SIZE {
            let x_ = (column * window.stride[1] + j).wrapping_sub(left);
            let inside = (y < height) & (x_ < width);
            let index = line.wrapping_add(x_.wrapping_mul(window.pixel()) as usize);
            // SAFETY: in the plane where it is loaded.
            sum += unsafe { x.load_if(inside, index, T::from_f32(0.0)) }.to_f32();
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
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16], L = [Nchw, Nhwc]))]
pub unsafe fn avg_pool_forward<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    divisor: Divisor,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, window, divisor, tiling, |x, row, column| any_window(window, x, row, column)) }
}

/// As [`avg_pool_forward`], for windows of `SIZE` by `SIZE` positions.
///
/// # Safety
/// The module's; the window is such.
#[kernel(
    max_threads = THREADS,
    min_blocks = MIN_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], SIZE = [2, 3])
)]
pub unsafe fn avg_pool_forward_small<T: Storage, L: Order, const SIZE: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    divisor: Divisor,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    unsafe {
        forward(x, y, window, divisor, tiling, |x, row, column| small_window::<T, L, SIZE>(window, x, row, column))
    }
}

/// As [`avg_pool_forward`], by [patches](crate::patch), for windows of a known geometry.
///
/// # Safety
/// The module's, but for the tiling; `Fixed<SIZE, STRIDE, PADDING>` fits the window, memory begins at multiples of 16 bytes,
/// and `patches` are of the window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], (SIZE, STRIDE, PADDING) = [(2, 2, 0), (3, 2, 0), (3, 2, 1)])
)]
pub unsafe fn avg_pool_forward_patch<T: Storage, L: Order, const SIZE: u32, const STRIDE: u32, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    divisor: Divisor,
    patches: Patches<L>,
) {
    let begin = |_, _| 0.0;
    let step = |sum: f32, value: f32, _| sum + value;
    let of = |row, column| divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
    // SAFETY: the caller's; the outputs exist, but perhaps the second of two, whose average is not stored.
    unsafe {
        if L::CHANNELS_LAST {
            let finish = |output, row, column, sums: [f32; 4]| {
                let of = of(row, column);
                let [a, b, c, d] = sums.map(|sum| T::from_f32(sum / of));
                y.store4(output, Vec4::new(a, b, c, d));
            };
            slide_channels_last::<T, L, _, SIZE, STRIDE, PADDING>(x, &window, &patches, 0.0, begin, step, finish);
        } else {
            let finish = |output, row, column, [a, b]: [f32; 2]| {
                let averages = [a / of(row, column), b / of(row, column + 1)].map(T::from_f32);
                store_pair(y, output, averages, column, window.output[1]);
            };
            slide_channels_apart::<T, L, _, SIZE, STRIDE, PADDING>(x, &window, &patches, 0.0, begin, step, finish);
        }
    }
}

/// `dx = sum of dy / divisor over the windows that cover the input + beta * dx`.
///
/// # Safety
/// The module's; `covering` is the window's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16], L = [Nchw, Nhwc]))]
pub unsafe fn avg_pool_backward<T: Storage, L: Order>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<L>,
    covering: Covering,
    divisor: Divisor,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    let quotients = Quotients::new(&window, divisor);
    // SAFETY: the plane, the row and the place exist, by the tiling, and so do the outputs that cover them.
    unsafe {
        let dy = dy.offset(window.output_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            let across = covering.outputs(&window, 1, column);
            for row in tiling.rows() {
                let mut sum = 0.0;
                for output_row in covering.outputs(&window, 0, row) {
                    let line = output_row as usize * window.output_line();
                    for output_column in across.clone() {
                        let share = get(dy, line + (output_column * window.pixel() + channel) as usize);
                        sum += quotients.of(&window, [share], output_row, output_column).share[0];
                    }
                }
                let input = window.input_plane(plane) + row as usize * window.input_line() + place as usize;
                put(dx, input, sum, beta);
            }
        }
    }
}

/// As [`avg_pool_backward`], by [patches](crate::patch), for windows of a known geometry.
///
/// # Safety
/// The module's; `Fixed<SIZE, STRIDE, PADDING>` fits the window, `dx` and `dy` begin at multiples of 16 bytes, and `patches`
/// are the window's, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], (SIZE, STRIDE, PADDING) = [(2, 2, 0), (3, 2, 0), (3, 2, 1)])
)]
pub unsafe fn avg_pool_backward_patch<T: Storage, L: Order, const SIZE: u32, const STRIDE: u32, const PADDING: u32>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<L>,
    divisor: Divisor,
    patches: Patches<L>,
) {
    let quotients = Quotients::new(&window, divisor);
    let add = |sum: f32, share: f32, _, _| sum + share;
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        if L::CHANNELS_LAST {
            let shares = |inside, output, row, column| {
                let dy = lanes::<T, 4>(dy, inside, output, T::from_f32(0.0)).map(T::to_f32);
                quotients.of(&window, dy, row, column)
            };
            gather::<T, L, 4, SIZE, STRIDE, PADDING>(dx, beta, &window, &patches, shares, add);
        } else {
            let shares = |inside, output, row, column| {
                let dy = lanes::<T, 1>(dy, inside, output, T::from_f32(0.0)).map(T::to_f32);
                quotients.of(&window, dy, row, column)
            };
            gather::<T, L, 1, SIZE, STRIDE, PADDING>(dx, beta, &window, &patches, shares, add);
        }
    }
}

/// What is divided by the windows' divisors.
///
/// Nearly all windows have the same: by that no one divides. It is a product with the reciprocal and not a division of a
/// sum, which may pass the largest float where the quotients do not.
#[derive(Clone, Copy)]
struct Quotients {
    divisor: Divisor,
    full: f32,
    reciprocal: f32,
}

impl Quotients {
    #[inline(always)]
    fn new<L: Order>(window: &Window<L>, divisor: Divisor) -> Self {
        let full = divisor.of(window.size[0] as f32, window.size[1] as f32);
        Self { divisor, full, reciprocal: 1.0 / full }
    }

    /// What an output with these gradients gives to each input of its window; nothing, where they are zeros for an output
    /// that does not exist.
    #[inline(always)]
    fn of<L: Order, const LANES: usize>(
        &self,
        window: &Window<L>,
        dy: [f32; LANES],
        row: u32,
        column: u32,
    ) -> Shares<LANES> {
        let share = if self.divisor.given != 0.0 {
            // The launch's: no thread takes the other way.
            dy.map(|dy| dy * self.reciprocal)
        } else {
            let rows = self.divisor.counted(window, 0, row);
            let of = self.divisor.of(rows, self.divisor.counted(window, 1, column));
            let exists = (row < window.output[0]) & (column < window.output[1]);
            dy.map(|dy| if of == self.full || !exists { dy * self.reciprocal } else { dy / of })
        };
        Shares { share, position: [0; LANES] }
    }
}
