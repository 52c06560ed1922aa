//! Backward.

use cuda_std::prelude::*;

use super::Divisor;
use crate::band::any::{Item, Lines, for_each_below, for_each_item, outputs_of};
use crate::band::cells::{self, Given, inputs_of_cells, outputs_of_cells};
use crate::band::{self, Bands, Span, Staged, Tile, least, pairs};
use crate::elementwise::{get, put};
use crate::patch::{self, Patches, Shares};
use crate::window::{Covering, FEWER_BLOCKS, MIN_BLOCKS, Nchw, Nhwc, Order, Pixel, THREADS, Tiling, Window};

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

/// As [`avg_pool_backward`], by [patches](crate::patch), for windows of `SIZE` by `SIZE` positions, two apart, padded by `PADDING`.
///
/// # Safety
/// The module's; the window is such, `dx` and `dy` begin at multiples of 16 bytes, and `patches`
/// are the window's, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_backward_patch<T: Storage, const SIZE: u32, const PADDING: u32>(
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
        let none = Vec4::splat(T::from_f32(0.0));
        let load = |inside, output| dy.load4_if(inside, output, none);
        let shares = |dy: Vec4<T>, row, column| {
            let share = quotients.of(&window, dy.map(T::to_f32).to_array(), row, column);
            Shares { share, position: [0; 4] }
        };
        patch::gather::<T, _, SIZE, PADDING>(dx, beta, &window, &patches, none, load, shares, add);
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
        let dy = stage::<T, SIZE, PADDING>(dy, &window, &span);
        let tile = Tile::new(dy.behind(), &span, inputs_of_cells(&window, &span), window.input);
        let given = |inside, plane, row, column| quotients.given(&dy, &window, inside, plane, row, column);
        cells::gather::<SIZE, PADDING>(&tile, &window, &bands, &part, given, add);
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
        let dy = stage::<T, SIZE, PADDING>(dy, &window, &span);
        let given = |inside, plane, row, column| quotients.given(&dy, &window, inside, plane, row, column);
        pairs::gather::<T, SIZE, PADDING>((dx, beta), &window, &bands, (&span, &part), given, add);
    }
}

/// The rows of outputs that give to the block's cells, once they are in shared memory.
///
/// # Safety
/// As [`avg_pool_backward_band`]'s; the launch's shared memory is for these rows.
#[device_inline]
unsafe fn stage<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    window: &Window<Nchw>,
    span: &Span,
) -> Staged<T> {
    let rows = outputs_of_cells::<SIZE, PADDING>(window, span);
    // SAFETY: the caller's.
    unsafe {
        let dy = Staged::copy(dynamic_shared::<T>(), dy, span, rows, window.output);
        band::wait(dy);
        dy
    }
}

/// What an output gives, added to the sum of an input of its window.
#[device_inline]
fn add(sum: f32, given: Given, _position: u32) -> f32 {
    sum + given.share
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

/// As [`avg_pool_backward_any`], for windows `STRIDE` apart and of `GROUPS` whole [groups](crate::band::groups) both ways: a thread
/// goes down a column of inputs, adds what the windows over it give along a row of outputs, keeps that of the last rows, and
/// adds these for each group. Beside the outputs of a row are zeros, so that no thread asks which there are.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `covering` is the window's; `dy` begins at a multiple of 16 bytes;
/// `bands` are of the window's groups, with the launch's grid, block and shared memory, and `given` are of its outputs' height and
/// [`given_width`].
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (STRIDE, GROUPS) = [(2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3)])
)]
pub unsafe fn avg_pool_backward_groups<T: Storage, const STRIDE: usize, const GROUPS: usize>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    covering: Covering,
    divisor: Divisor,
    bands: Bands,
    given: Lines,
) {
    let quotients = Quotients::new(&window, divisor);
    let span = bands.block.span();
    let part = bands.part(&span);
    let groups = GROUPS as u32;
    // A group has the number of the last output over it; those of the image may begin after the first.
    let before = covering.last(&window, 0, 0);
    let end = least(span.rows[1] + before, window.output[0]);
    let rows = [least((span.rows[0] + before).saturating_sub(groups), end), end];
    let (lines, width) = (rows[1] - rows[0], given.width);
    // SAFETY: the launch's shared memory is for these rows and for what they give; the inputs exist.
    unsafe {
        let dy = Staged::copy(dynamic_shared::<T>(), dy, &span, rows, window.output);
        let shares = dy.behind::<f32>();
        band::wait(dy);
        for_each_below(
            &given,
            span.depth * lines,
            |column| column.wrapping_sub(groups),
            |output, column, line| {
                let plane = given.plane(&span, line);
                let row = rows[0] + line - plane * lines;
                let inside = output < window.output[1];
                let dy = dy.load_if(inside, dy.place(plane, row, output), T::from_f32(0.0)).to_f32();
                shares.store(line * width + column, quotients.of(&window, [dy], row, output)[0]);
            },
        );
        thread::sync_threads();
        let rest = window.size[0] - groups * STRIDE as u32;
        bands.for_each_column(&part, |column| {
            let last = covering.last(&window, 1, column);
            let within = column + window.padding[1] - last * STRIDE as u32;
            let one_more = within < window.size[1] - groups * STRIDE as u32;
            let from = (part.plane * lines).wrapping_sub(rows[0]).wrapping_mul(width).wrapping_add(last);
            // What a row of outputs gives; nothing, where there is none. Rows before the first wrap round.
            let of_row = |row: u32| {
                let at = row.wrapping_mul(width).wrapping_add(from);
                let mut sum = 0.0;
                if row < window.output[0] {
                    sum = shares.load_if(one_more, at, 0.0);
                    unrolled!(G in [1 2 3] { if G <= GROUPS { sum += shares.load(at + G as u32); } });
                }
                sum
            };
            let group = [0, 1].map(|end| part.rows[end] + before);
            let input = (group[0] * STRIDE as u32).wrapping_sub(window.padding[0]);
            let plane = window.input_plane(span.first_plane + part.plane) + column as usize;
            let begin = input.cast_signed() as isize * window.input_line() as isize;
            let at = plane.wrapping_add_signed(begin);
            // Asked for once, and not for each group.
            if rest == 0 {
                spread::<T, STRIDE, GROUPS>((dx, beta), &window, group, (input, at), None, of_row);
            } else {
                spread::<T, STRIDE, GROUPS>((dx, beta), &window, group, (input, at), Some(rest), of_row);
            }
        });
    }
}

/// Goes down a column of inputs from row `input`, which begins at `at`, by groups; `of_row` is what a row of outputs gives to it.
/// Windows have `rest` rows of one more group.
///
/// # Safety
/// As [`avg_pool_backward_groups`]'s.
#[device_inline]
unsafe fn spread<T: Storage, const STRIDE: usize, const GROUPS: usize>(
    (dx, beta): (GlobalMut<T>, f32),
    window: &Window<Nchw>,
    group: [u32; 2],
    (mut input, mut at): (u32, usize),
    rest: Option<u32>,
    of_row: impl Fn(u32) -> f32,
) {
    let line = window.input_line();
    let mut last = [0.0; GROUPS];
    let mut output = group[0].wrapping_sub(GROUPS as u32);
    while output != group[1] {
        let here = of_row(output);
        if output.wrapping_sub(group[0]) < group[1] - group[0] {
            // The first rows of a group have one window more.
            let (mut more, mut fewer) = (last[0], last[1]);
            unrolled!(G in [1 2] { if G < GROUPS { more += last[G]; } });
            unrolled!(G in [2] { if G < GROUPS { fewer += last[G]; } });
            (more, fewer) = (more + here, fewer + here);
            let of = |i: usize| if rest.is_some_and(|rest| (i as u32) < rest) { more } else { fewer };
            // SAFETY: the inputs exist.
            unsafe {
                if beta == 0.0 && input < window.input[0].saturating_sub(STRIDE as u32 - 1) {
                    unrolled!(I in [0 1 2 3] {
                        if I < STRIDE { dx.store(at + I * line, T::from_f32(of(I))); }
                    });
                } else {
                    unrolled!(I in [0 1 2 3] {
                        if I < STRIDE && input.wrapping_add(I as u32) < window.input[0] {
                            put(dx, at.wrapping_add(I * line), of(I), beta);
                        }
                    });
                }
            }
            input = input.wrapping_add(STRIDE as u32);
            at = at.wrapping_add(STRIDE * line);
        }
        unrolled!(G in [1 2] { if G < GROUPS { last[G - 1] = last[G]; } });
        last[GROUPS - 1] = here;
        output = output.wrapping_add(1);
    }
}

/// What a row of outputs takes with zeros beside it: as many before it as a window has whole groups, and after it up to the last
/// output that could be over the image.
pub fn given_width(window: &Window<Nchw>, groups: u32) -> u32 {
    // Windows reach over the image or end a stride before it does.
    window.output[1] + groups + 1 + window.size[1] / window.stride[1]
}

/// The most windows over an input along an axis that are looked at without a branch.
const FEW: u32 = 4;

/// The sum of what is `step` apart, from number `begin` to before `end`, in order; number 0 is at `from`. These are at most
/// [`FEW`], if `few`.
///
/// # Safety
/// They are there.
#[device_inline]
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
pub(super) struct Quotients {
    divisor: Divisor,
    full: f32,
    reciprocal: f32,
}

impl Quotients {
    #[device_inline]
    pub fn new<L: Order>(window: &Window<L>, divisor: Divisor) -> Self {
        let full = divisor.of(window.size[0] as f32, window.size[1] as f32);
        Self { divisor, full, reciprocal: 1.0 / full }
    }

    /// What an output with these gradients gives to each input of its window; nothing, where they are zeros for an output
    /// that does not exist.
    #[device_inline]
    pub fn of<L: Order, const LANES: usize>(
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
            let reciprocal = if of == self.full || !exists { self.reciprocal } else { 1.0 / of };
            dy.map(|dy| dy * reciprocal)
        }
    }

    /// What the output at this row and column of a band's plane gives, if it is `inside`; else nothing.
    ///
    /// # Safety
    /// The band has it where it is inside.
    #[device_inline]
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
