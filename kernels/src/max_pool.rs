//! Maximum pooling: `y` is the largest element of each window, and `indices` which of the window's positions it came from
//! (Ranzato et al., CVPR 2007; NaN, ties and edges as `ferrolayer::ops::max_pool` says).
//!
//! Launch: one thread for one place in a few rows of a plane of outputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. It visits the positions inside the image in row-major order.
//! That is any layout's and any size's. Where rows have room in shared memory, row-major images go by [bands](crate::band),
//! and common windows with the channels last by [patches](crate::patch). Backward is [`route`](crate::route)'s.
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

use crate::band::any::{Item, Lines, for_each_item, steps_inside};
use crate::band::slide::slide;
use crate::band::{self, Bands, Block, Staged, inputs_of, pairs};
use crate::elementwise::get;
use crate::patch::{self, Patches};
use crate::warps::{self, Warps};
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

    /// As [`or`](Self::or), in any order: of equals, or of NaNs, that with the smaller position.
    #[inline(always)]
    fn or_earlier(self, other: Self) -> Self {
        let same = (other.value == self.value) | (other.value.is_nan() & self.value.is_nan());
        let wins = self.or(other.value, u32::MAX).position == u32::MAX;
        if wins | (same & (other.position < self.position)) { other } else { self }
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

/// As [`max_pool_forward`], by [patches](crate::patch), for windows of `SIZE` by `SIZE` positions, two apart, padded by
/// `PADDING`.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes, and `patches` are of the
/// window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWEST_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn max_pool_forward_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    let finish = |output, row, column, rows: [[Maximum; 4]; SIZE]| {
        let mut found = [Maximum::of_nothing(0); 4];
        unrolled!(K in [0 1 2 3] { found[K] = of_window(&window, 2, row, column, rows.map(|lanes| lanes[K])); });
        // SAFETY: the output exists, and its channels begin at a multiple of four.
        unsafe {
            y.store4(output, Vec4::from(found.map(|maximum| T::from_f32(maximum.value))));
            if let Some(indices) = indices {
                indices.store4(output, Vec4::from(found.map(|maximum| u8::narrow(maximum.position))));
            }
        }
    };
    // Minus infinity wins over nothing.
    let outside = f32::NEG_INFINITY;
    // SAFETY: the caller's.
    unsafe {
        if SIZE > 2 {
            patch::slide::<T, Maximum, SIZE, PADDING>(x, &window, &patches, outside, of_row, finish);
        } else {
            patch::each::<T, Maximum, SIZE, PADDING>(x, &window, &patches, outside, of_row, finish);
        }
    }
}

/// As [`max_pool_forward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such, without dilation; `x` begins at a multiple of 16 bytes, and `bands`
/// are of the window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 1), (3, 2), (3, 3)])
)]
pub unsafe fn max_pool_forward_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [Maximum; SIZE]| {
        let maximum = of_window(&window, STRIDE as u32, row, column, rows);
        // SAFETY: the output exists.
        unsafe {
            y.store(output, T::from_f32(maximum.value));
            if let Some(indices) = indices {
                indices.store(output, u8::narrow(maximum.position));
            }
        }
    };
    // SAFETY: the caller's. Minus infinity wins over nothing.
    unsafe { slide::<T, Maximum, SIZE, STRIDE>(x, &window, &bands, f32::NEG_INFINITY, of_row, finish) };
}

/// As [`max_pool_forward_band`], [two columns a thread](crate::band::pairs), for windows two apart, padded by `PADDING`.
///
/// # Safety
/// As [`max_pool_forward_band`]'s; the padding is such; `y` and `indices` begin at multiples of 16 bytes, and `bands` are of
/// pairs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn max_pool_forward_pairs<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [[Maximum; 2]; SIZE]| {
        let of = |which: usize| of_window(&window, 2, row, column + which as u32, rows.map(|pair| pair[which]));
        let maxima = [of(0), of(1)];
        // SAFETY: the first output exists, at this column.
        unsafe {
            pairs::store(y, &window, output, column, maxima.map(|maximum| T::from_f32(maximum.value)));
            if let Some(indices) = indices {
                pairs::store(indices, &window, output, column, maxima.map(|maximum| u8::narrow(maximum.position)));
            }
        }
    };
    // SAFETY: the caller's. Minus infinity wins over nothing.
    unsafe { pairs::slide::<T, Maximum, SIZE, PADDING>(x, &window, &bands, f32::NEG_INFINITY, of_row, finish) };
}

/// The first of the greatest in a row of a window, by its column.
#[inline(always)]
fn of_row<const SIZE: usize>(values: [f32; SIZE]) -> Maximum {
    let mut maximum = Maximum { value: values[0], position: 0 };
    unrolled!(J in [1 2] { if J < SIZE { maximum = maximum.or(values[J], J as u32); } });
    maximum
}

/// The maximum of a window by those of its rows: of the first row that has the greatest.
#[inline(always)]
fn of_window<L: Order, const SIZE: usize>(
    window: &Window<L>,
    stride: u32,
    row: u32,
    column: u32,
    rows: [Maximum; SIZE],
) -> Maximum {
    let mut maximum = rows[0];
    unrolled!(I in [1 2] {
        if I < SIZE { maximum = maximum.or(rows[I].value, rows[I].position + (I * SIZE) as u32); }
    });
    if maximum.value == f32::NEG_INFINITY {
        // What is outside is the same: of equals the first that is inside.
        let first = |axis: usize, output: u32| window.padding[axis].saturating_sub(output * stride);
        maximum = Maximum::of_nothing(first(0, row) * SIZE as u32 + first(1, column));
    }
    maximum
}

/// As [`max_pool_forward`], by [bands](crate::band), for windows of any size without dilation: the maxima of the windows'
/// columns, and of these the maxima.
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `block` is of the window's outputs, with the
/// launch's grid, block and shared memory, which has an `f32` and a `P` for each column; `columns` are of its outputs'
/// height and inputs' width, `outputs` of its outputs.
#[kernel(max_threads = band::THREADS, min_blocks = band::MIN_BLOCKS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_any<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    block: Block,
    columns: Lines,
    outputs: Lines,
) {
    let span = block.span();
    // SAFETY: the launch's shared memory is for these rows and for the columns of all outputs; the outputs exist.
    unsafe {
        let x = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let values = x.behind::<f32>();
        let positions = values.offset(columns.padded(&span, span.rows)).cast::<P>();
        band::wait(x);
        for_each_item(&span, &columns, span.rows, |Item { number, plane, row, column }| {
            let [first, end] = steps_inside(&window, 0, row);
            let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
            let mut place = x.place(plane, top.wrapping_add(first), column);
            let mut maximum = Maximum::of_nothing(first);
            let mut i = first;
            while i < end {
                maximum = maximum.or(x.load(place).to_f32(), i);
                place += window.input[1];
                i += 1;
            }
            values.store(number, maximum.value);
            positions.store(number, P::narrow(maximum.position));
        });
        thread::sync_threads();
        let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        for_each_item(&span, &outputs, span.rows, |Item { number, plane, row, column }| {
            let [first, end] = steps_inside(&window, 1, column);
            let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
            let line = plane * (span.rows[1] - span.rows[0]) + row - span.rows[0];
            let mut at = (line * window.input[1]).wrapping_add(left).wrapping_add(first);
            let (mut best, mut row, mut column) = (values.load(at), positions.load(at).widen(), first);
            let mut j = first + 1;
            while j < end {
                at += 1;
                let (value, i) = (values.load(at), positions.load(at).widen());
                // The first in row-major order of the greatest, or of the NaNs.
                let same = (value == best) | (value.is_nan() & best.is_nan());
                let wins = Maximum { value: best, position: 0 }.or(value, 1).position == 1;
                let earlier = wins | (same & (i < row));
                best = if earlier { value } else { best };
                row = if earlier { i } else { row };
                column = if earlier { j } else { column };
                j += 1;
            }
            let output = output + number as usize;
            y.store(output, T::from_f32(best));
            if let Some(indices) = indices {
                indices.store(output, P::narrow(row * window.size[1] + column));
            }
        });
    }
}

/// As [`max_pool_forward`], [a warp an output](crate::warps).
///
/// # Safety
/// The module's, but for the tiling; `warps` are over the window's outputs, with the launch's grid.
#[kernel(block = warps::THREADS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_warp<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    warps: Warps,
) {
    let Some((output, row, column)) = warps.output(&window) else { return };
    let [[i, _], [j, _]] = [steps_inside(&window, 0, row), steps_inside(&window, 1, column)];
    let mut best = Maximum::of_nothing(i * window.size[1] + j);
    // SAFETY: the output exists.
    unsafe {
        let x = x.offset(window.input_plane(thread::block_idx_x()));
        warps::for_each(x, &window, &warps, [row, column], f32::NEG_INFINITY, |value, i, j| {
            best = best.or_earlier(Maximum { value, position: i * window.size[1] + j });
        });
        unrolled!(STEP in [16 8 4 2 1] {
            let value = warp::shuffle_xor(best.value, STEP as u32);
            best = best.or_earlier(Maximum { value, position: warp::shuffle_xor(best.position, STEP as u32) });
        });
        let first = warp::lane_id() == 0;
        y.store_if(first, output, T::from_f32(best.value));
        if let Some(indices) = indices {
            indices.store_if(first, output, P::narrow(best.position));
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
