//! Average pooling: `y` is the sum of each window over a divisor (LeCun et al., NIPS 1989; what counts for the divisor,
//! [`Divisor`] says).
//!
//! Launch: one thread for one place in a few rows of a plane, as [`Tiling`] lays them: of outputs forward, of inputs
//! backward; neighbouring threads have neighbouring columns, or channels where these are last.
//! - Forward adds the positions inside the image in row-major order.
//! - Backward gathers: each input adds `dy / divisor` over the windows that cover it, in the order of the outputs. No
//!   atomics, and no zeros written beforehand.
//!
//! That is any layout's and any size's. Where rows have room in shared memory, row-major images go by [bands](crate::band),
//! and common windows with the channels last by [patches](crate::patch).
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

use crate::band::any::{Item, Lines, for_each_item, outputs_of, steps_inside};
use crate::band::cells::{self, Given, inputs_of_cells, outputs_of_cells};
use crate::band::slide::slide;
use crate::band::{self, Bands, Block, Staged, Tile, inputs_of, pairs};
use crate::elementwise::{get, put};
use crate::patch::{self, Patches, Shares};
use crate::warps::{self, Warps};
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

/// As [`avg_pool_forward`], by [patches](crate::patch), for windows of a known geometry.
///
/// # Safety
/// The module's, but for the tiling; `Fixed<SIZE, STRIDE, PADDING>` fits the window, memory begins at multiples of 16 bytes,
/// and `patches` are of the window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_forward_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    patches: Patches,
) {
    let finish = |output, row, column, rows: [[f32; 4]; SIZE]| {
        let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
        let mut mean = [0.0; 4];
        unrolled!(K in [0 1 2 3] { mean[K] = sum_of(rows.map(|lanes| lanes[K])) / of; });
        // SAFETY: the output exists, and its channels begin at a multiple of four.
        unsafe { y.store4(output, Vec4::from(mean.map(T::from_f32))) };
    };
    // SAFETY: the caller's.
    unsafe { patch::each::<T, f32, SIZE, PADDING>(x, &window, &patches, 0.0, sum_of, finish) };
}

/// As [`avg_pool_forward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and `bands` are of the
/// window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 1), (3, 2), (3, 3)])
)]
pub unsafe fn avg_pool_forward_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [f32; SIZE]| {
        let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
        // SAFETY: the output exists.
        unsafe { y.store(output, T::from_f32(sum_of(rows) / of)) };
    };
    // SAFETY: the caller's.
    unsafe { slide::<T, f32, SIZE, STRIDE>(x, &window, &bands, 0.0, sum_of, finish) };
}

/// As [`avg_pool_forward_band`], [two columns a thread](crate::band::pairs), for windows two apart, padded by `PADDING`.
///
/// # Safety
/// As [`avg_pool_forward_band`]'s; the padding is such; `y` begins at a multiple of 16 bytes, and `bands` are of pairs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_forward_pairs<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [[f32; 2]; SIZE]| {
        let counted = divisor.counted(&window, 0, row);
        let of = |which: usize| {
            let of = divisor.of(counted, divisor.counted(&window, 1, column + which as u32));
            T::from_f32(sum_of(rows.map(|pair| pair[which])) / of)
        };
        // SAFETY: the first output exists, at this column.
        unsafe { pairs::store(y, &window, output, column, [of(0), of(1)]) };
    };
    // SAFETY: the caller's.
    unsafe { pairs::slide::<T, f32, SIZE, PADDING>(x, &window, &bands, 0.0, sum_of, finish) };
}

/// The sum of a row of a window, or of its rows.
#[inline(always)]
fn sum_of<const SIZE: usize>(values: [f32; SIZE]) -> f32 {
    let mut sum = values[0];
    unrolled!(J in [1 2] { if J < SIZE { sum += values[J]; } });
    sum
}

/// As [`avg_pool_forward`], by [bands](crate::band), for windows of any size: the sums of the windows' columns, and of these
/// the sums.
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `block` is of the window's outputs, with the
/// launch's grid, block and shared memory, which has an `f32` for each column; `columns` are of its outputs' height and
/// inputs' width, `outputs` of its outputs.
#[kernel(max_threads = band::THREADS, min_blocks = band::MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_forward_any<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    block: Block,
    columns: Lines,
    outputs: Lines,
) {
    let span = block.span();
    // SAFETY: the launch's shared memory is for these rows and for the columns of all outputs; the outputs exist.
    unsafe {
        let x = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let sums = x.behind::<f32>();
        band::wait(x);
        for_each_item(&span, &columns, span.rows, |Item { number, plane, row, column }| {
            let [first, end] = steps_inside(&window, 0, row);
            let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
            let mut place = x.place(plane, top.wrapping_add(first), column);
            let (mut sum, mut i) = (0.0, first);
            while i < end {
                sum += x.load(place).to_f32();
                place += window.input[1];
                i += 1;
            }
            sums.store(number, sum);
        });
        thread::sync_threads();
        let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        for_each_item(&span, &outputs, span.rows, |Item { number, plane, row, column }| {
            let [first, end] = steps_inside(&window, 1, column);
            let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
            let line = plane * (span.rows[1] - span.rows[0]) + row - span.rows[0];
            let at = (line * window.input[1]).wrapping_add(left);
            let (mut sum, mut j) = (0.0, first);
            while j < end {
                sum += sums.load(at.wrapping_add(j));
                j += 1;
            }
            let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
            y.store(output + number as usize, T::from_f32(sum / of));
        });
    }
}

/// As [`avg_pool_forward`], [a warp an output](crate::warps).
///
/// # Safety
/// The module's, but for the tiling; `warps` are over the window's outputs, with the launch's grid.
#[kernel(block = warps::THREADS, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_forward_warp<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    warps: Warps,
) {
    let Some((output, row, column)) = warps.output(&window) else { return };
    let mut sum = 0.0;
    // SAFETY: the output exists.
    unsafe {
        let x = x.offset(window.input_plane(thread::block_idx_x()));
        warps::for_each(x, &window, &warps, [row, column], 0.0, |value, _, _| sum += value);
        let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
        y.store_if(warp::lane_id() == 0, output, T::from_f32(warp::reduce_sum(sum) / of));
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
                        sum += quotients.of(&window, [share], output_row, output_column)[0];
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
    instances(T = [f32, f16, bf16], (SIZE, STRIDE, PADDING) = [(2, 2, 0), (3, 2, 0), (3, 2, 1)])
)]
pub unsafe fn avg_pool_backward_patch<T: Storage, const SIZE: u32, const STRIDE: u32, const PADDING: u32>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nhwc>,
    divisor: Divisor,
    patches: Patches,
) {
    let quotients = Quotients::new(&window, divisor);
    let add = |sum: f32, share: f32, _, _| sum + share;
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let shares = |inside, output, row, column| {
            let dy = dy.load4_if(inside, output, Vec4::splat(T::from_f32(0.0))).map(T::to_f32);
            Shares { share: quotients.of(&window, dy.to_array(), row, column), position: [0; 4] }
        };
        patch::gather::<T, SIZE, STRIDE, PADDING>(dx, beta, &window, &patches, shares, add);
    }
}

/// As [`avg_pool_backward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, two apart, padded by
/// `PADDING`.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `dy` and `dx` begin at multiples of 16 bytes, and `bands` are of the
/// window's cells, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_backward_band<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
) {
    let quotients = Quotients::new(&window, divisor);
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: the caller's; the launch's shared memory is for these rows.
    unsafe {
        let rows = outputs_of_cells::<SIZE, PADDING>(&window, &span);
        let dy = Staged::copy(dynamic_shared::<T>(), dy, &span, rows, window.output);
        let tile = Tile::new(dy.behind(), &span, inputs_of_cells(&window, &span), window.input);
        band::wait(dy);
        let given = |inside, plane, row, column| quotients.given(&dy, &window, inside, plane, row, column);
        cells::gather::<SIZE, PADDING>(&tile, &window, &bands, &part, given, |sum, given, _| sum + given.share);
        tile.write_out(dx, beta);
    }
}

/// As [`avg_pool_backward_band`], [two cells a thread](crate::band::pairs).
///
/// # Safety
/// As [`avg_pool_backward_band`]'s; `bands` are of pairs of cells.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_backward_pairs<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
) {
    let quotients = Quotients::new(&window, divisor);
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: the caller's; the launch's shared memory is for these rows.
    unsafe {
        let rows = outputs_of_cells::<SIZE, PADDING>(&window, &span);
        let dy = Staged::copy(dynamic_shared::<T>(), dy, &span, rows, window.output);
        band::wait(dy);
        let given = |inside, plane, row, column| quotients.given(&dy, &window, inside, plane, row, column);
        let add = |sum: f32, given: Given, _| sum + given.share;
        pairs::gather::<T, SIZE, PADDING>((dx, beta), &window, &bands, (&span, &part), given, add);
    }
}

/// As [`avg_pool_backward`], by [bands](crate::band), for windows of any size: what the outputs give to each column, and of
/// that what they give to each row.
///
/// # Safety
/// The module's, but for the tiling; `covering` is the window's; `dy` and `dx` begin at multiples of 16 bytes; `bands` are of
/// the window's inputs, with the launch's grid, block and shared memory, which has an `f32` for each output and for each row
/// of outputs and column of inputs; `outputs` are of its outputs.
#[kernel(max_threads = band::THREADS, min_blocks = band::FEWER_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_backward_any<T: Storage>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    covering: Covering,
    divisor: Divisor,
    bands: Bands,
    outputs: Lines,
) {
    let quotients = Quotients::new(&window, divisor);
    let span = bands.block.span();
    let part = bands.part(&span);
    let rows = outputs_of(&window, &covering, &span);
    let width = window.input[1];
    let few = [0, 1].map(|axis| window.size[axis] <= FEW * window.stride[axis]);
    // SAFETY: the launch's shared memory is for these rows, their quotients, their columns and the inputs.
    unsafe {
        let dy = Staged::copy(dynamic_shared::<T>(), dy, &span, rows, window.output);
        let given = dy.behind::<f32>();
        let shares = given.offset(outputs.padded(&span, rows));
        let lines = span.depth * (rows[1] - rows[0]);
        let tile = Tile::new(shares.offset((lines * width + 3) & !3), &span, span.rows, window.input);
        band::wait(dy);
        for_each_item(&span, &outputs, rows, |Item { number, plane, row, column }| {
            let dy = dy.load(dy.place(plane, row, column)).to_f32();
            given.store(number, quotients.of(&window, [dy], row, column)[0]);
        });
        thread::sync_threads();
        // Each run of rows of inputs begins with as many rows of outputs, and takes every so manyth from there on.
        let (first, step) = bands.group(&part, &span);
        bands.for_each_column(&part, |column| {
            let [begin, end] = covering.over(&window, 1, column);
            let (mut line, last) = (part.plane * (rows[1] - rows[0]) + first, (part.plane + 1) * (rows[1] - rows[0]));
            while line < last {
                shares.store(line * width + column, sum_over(given, line * window.output[1], 1, [begin, end], few[1]));
                line += step;
            }
        });
        thread::sync_threads();
        bands.for_each_column(&part, |column| {
            let mut over = covering.down(&window, part.rows[0]);
            let mut place = tile.place(part.plane, part.rows[0], column);
            let line = (part.plane * (rows[1] - rows[0])).wrapping_sub(rows[0]);
            let from = line.wrapping_mul(width).wrapping_add(column);
            let mut row = part.rows[0];
            while row < part.rows[1] {
                tile.sums().store(place, sum_over(shares, from, width, [over.begin, over.end(&window)], few[0]));
                place += width;
                row += 1;
                over.next(&window);
            }
        });
        tile.write_out(dx, beta);
    }
}

/// The most windows over an input along an axis that are looked at without a branch.
const FEW: u32 = 4;

/// The sum of what is `step` apart, from number `begin` to before `end`, in order; number 0 is at `from`. These are at most
/// [`FEW`], if `few`.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn sum_over(of: Shared<f32>, from: u32, step: u32, [begin, end]: [u32; 2], few: bool) -> f32 {
    let mut at = begin.wrapping_mul(step).wrapping_add(from);
    let mut sum = 0.0;
    // SAFETY: the caller's.
    unsafe {
        if few {
            let count = end.wrapping_sub(begin).cast_signed();
            unrolled!(K in [0 1 2 3] {
                sum += of.load_if((K as i32) < count, at, 0.0);
                at = at.wrapping_add(step);
            });
        } else {
            let mut number = begin;
            while number < end {
                sum += of.load(at);
                at = at.wrapping_add(step);
                number += 1;
            }
        }
    }
    sum
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
    ) -> [f32; LANES] {
        if self.divisor.given != 0.0 {
            // The launch's: no thread takes the other way.
            dy.map(|dy| dy * self.reciprocal)
        } else {
            let rows = self.divisor.counted(window, 0, row);
            let of = self.divisor.of(rows, self.divisor.counted(window, 1, column));
            let exists = (row < window.output[0]) & (column < window.output[1]);
            dy.map(|dy| if of == self.full || !exists { dy * self.reciprocal } else { dy / of })
        }
    }

    /// What the output at this row and column of a band's plane gives, if it is `inside`; else nothing.
    ///
    /// # Safety
    /// The band has it where it is inside.
    #[inline(always)]
    unsafe fn given<T: Storage>(
        &self,
        dy: &Staged<T>,
        window: &Window<Nchw>,
        inside: bool,
        plane: u32,
        row: u32,
        column: u32,
    ) -> Given {
        // SAFETY: the caller's.
        let dy = unsafe { dy.load_if(inside, dy.place(plane, row, column), T::from_f32(0.0)) }.to_f32();
        let [share] = self.of(window, [dy], row, column);
        Given { share, position: 0 }
    }
}
