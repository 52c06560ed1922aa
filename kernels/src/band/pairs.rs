//! Small windows, two apart, in images whose rows are a multiple of four elements: two columns of windows a thread.
//!
//! Every row then begins at a multiple of four elements in memory, and so in shared memory. A thread has the four inputs
//! from the first window of its pair on by one load, and that beside them by another, where one column a thread takes a load,
//! an address and a comparison for each input: with 16 bits an element, whose bytes are half, these bound the pass. Backward
//! has all of four columns of two rows of inputs at once, and stores them as vectors from registers.

use cuda_std::prelude::*;

use super::cells::{Given, again, position};
use super::choice::Weights;
use super::slide::light;
use super::{BandLaunch, Bands, Part, Span, Staged};
use crate::elementwise::put4;
use crate::window::{Nchw, Window};

/// Blocks that a multiprocessor has room for, at least: 64 registers a thread.
pub const MIN_BLOCKS: u32 = 4;

/// Inputs of a pair: a vector.
const EACH: u32 = 4;

impl Bands {
    /// As [`of_outputs`](Self::of_outputs), by pairs of columns.
    pub fn of_output_pairs(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        Self::of_pairs(window, bytes, light(window, bytes))
    }

    /// As [`of_output_pairs`](Self::of_output_pairs), for kernels that draw a number for each output.
    pub fn of_drawn_pairs(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        Self::of_pairs(window, bytes, Weights::HEAVY)
    }

    fn of_pairs(window: &Window<Nchw>, bytes: usize, weights: Weights) -> Option<(Self, BandLaunch)> {
        let fits = window.input[1].is_multiple_of(EACH);
        fits.then(|| Self::of_output_columns(window, window.output[1].div_ceil(2), bytes, weights))?
    }

    /// As [`of_cells`](Self::of_cells), by pairs of cells, whose inputs are not kept.
    pub fn of_cell_pairs(window: &Window<Nchw>, bytes: &[usize]) -> Option<(Self, BandLaunch)> {
        let fits = window.input[1].is_multiple_of(EACH);
        let weights = Weights { together: false, ..Weights::light(bytes[0], again(window).into()) };
        // Where memory bounds the pass, many small blocks one after another write into a smaller window of it at a time; of these
        // what a thread does once is not hidden: 14 rows in runs of 2 were far slower than 16 in runs of 4.
        let small = Weights { most_run: 4, most_rows: 16, once: 1.5, ..weights };
        // Of averages 2×2, 8 rows in runs of 2 took 0.986 of the time of 16 in runs of 4.
        let smaller = Weights { most_run: 2, most_rows: 8, ..small };
        let weights = match bytes {
            [2, ..] => weights,
            [_] if window.size == [2; 2] => smaller,
            _ => small,
        };
        fits.then(|| Self::of_cell_columns(window, window.input[1] / EACH, bytes, 0, weights))?
    }
}

#[device_inline]
fn rows_if(there: bool, rows: u32) -> u32 {
    if there { rows } else { 0 }
}

/// As [`slide`](super::slide::slide) for windows two apart, padded by `PADDING`; `finish(output, row, column, rows)` gets the
/// first output of a pair and the rows of both. The second may lie past the row's end.
///
/// # Safety
/// As `slide`'s; the padding is such, and `bands` are [of pairs](Bands::of_output_pairs).
#[device_inline]
pub(crate) unsafe fn slide<T: Storage, R: Copy, const SIZE: usize, const PADDING: u32>(
    staged: &Staged<T>,
    window: &Window<Nchw>,
    bands: &Bands,
    outside: f32,
    of_row: impl Fn([f32; SIZE]) -> R,
    finish: impl Fn(usize, u32, u32, [[R; 2]; SIZE]),
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    let otherwise = T::from_f32(outside);
    bands.for_each_column(&part, |pair| {
        let first = pair * EACH;
        // The input that the windows have before the vector's or after them. What lies before the image wraps round to far
        // after it, so that one comparison says of row and column whether an input is there.
        let to_beside = if PADDING > 0 { u32::MAX } else { EACH };
        let of_vector = rows_if(first < window.input[1], window.input[0]);
        let of_beside = rows_if(first.wrapping_add(to_beside) < window.input[1], window.input[0]);
        let mut input = (part.rows[0] * 2).wrapping_sub(PADDING);
        let mut place = staged.place(part.plane, input, first);
        let mut next = || {
            // SAFETY: in the image, and then staged: of this thread's rows; a row begins at a multiple of four.
            let four = unsafe { staged.load4_if(input < of_vector, place, Vec4::splat(otherwise)) }.map(T::to_f32);
            let mut values = [outside; 5];
            unrolled!(J in [0 1 2 3] { values[J + if PADDING > 0 { 1 } else { 0 }] = four.to_array()[J]; });
            if SIZE > 2 {
                // SAFETY: as above.
                let beside = unsafe { staged.load_if(input < of_beside, place.wrapping_add(to_beside), otherwise) };
                values[if PADDING > 0 { 0 } else { 4 }] = beside.to_f32();
            }
            input = input.wrapping_add(1);
            place = place.wrapping_add(window.input[1]);
            let of = |from: usize| {
                let mut of_window = [outside; SIZE];
                unrolled!(J in [0 1 2] { if J < SIZE { of_window[J] = values[from + J]; } });
                of_row(of_window)
            };
            [of(0), of(2)]
        };
        let mut rows = [[of_row([outside; SIZE]); 2]; SIZE];
        if SIZE > 2 {
            rows[SIZE - 1] = next();
        }
        let plane = window.output_plane(span.first_plane + part.plane);
        let mut output = plane + part.rows[0] as usize * window.output_line() + (2 * pair) as usize;
        let mut row = part.rows[0];
        while row < part.rows[1] {
            if SIZE > 2 {
                rows[0] = rows[SIZE - 1];
            }
            unrolled!(I in [0 1 2] { if I < SIZE && I + 2 >= SIZE { rows[I] = next(); } });
            finish(output, row, 2 * pair, rows);
            output += window.output_line();
            row += 1;
        }
    });
}

/// Stores a pair of outputs, the second if it is there.
///
/// # Safety
/// `to` holds the first, which is at this column, and begins at a multiple of both together.
#[device_inline]
pub(crate) unsafe fn store<T: Vector2>(
    to: GlobalMut<T>,
    window: &Window<Nchw>,
    output: usize,
    column: u32,
    pair: [T; 2],
) {
    // SAFETY: the caller's. Where rows have an even number of outputs, each pair begins at an even one and is whole.
    unsafe {
        if window.output[1].is_multiple_of(2) {
            to.store2(output, Vec2::from(pair));
        } else {
            to.store(output, pair[0]);
            to.store_if(column + 1 < window.output[1], output + 1, pair[1]);
        }
    }
}

/// As [`cells::gather`](super::cells::gather), by pairs of cells: `dx = result + beta * dx`.
///
/// # Safety
/// As `gather`'s; `dx` holds the window's inputs, and begins at a multiple of 16 bytes; `bands` are
/// [of pairs](Bands::of_cell_pairs).
#[device_inline]
pub(crate) unsafe fn gather<T: Storage, const SIZE: u32, const PADDING: u32>(
    (dx, beta): (GlobalMut<T>, f32),
    window: &Window<Nchw>,
    bands: &Bands,
    (span, part): (&Span, &Part),
    given: impl Fn(bool, u32, u32, u32) -> Given,
    add: impl Fn(f32, Given, u32) -> f32,
) {
    let [height, width] = window.input;
    // Whether two windows cover a cell along each axis, or one does.
    let two = const { position::<SIZE, PADDING>(false, 0).is_some() };
    bands.for_each_column(part, |pair| {
        // The first of the outputs that give to the two cells: three, or two.
        let first = (2 * pair + PADDING).wrapping_sub(if two { 1 } else { 0 });
        let mut of_output = [0; 3];
        unrolled!(K in [0 1 2] {
            of_output[K] = rows_if(first.wrapping_add(K as u32) < window.output[1], window.output[0]);
        });
        let of_row = |row: u32| {
            let at = |k: usize| given(row < of_output[k], part.plane, row, first.wrapping_add(k as u32));
            let [left, right] = [at(0), at(1)];
            [left, right, if two { at(2) } else { right }]
        };
        // What a row of outputs gives to the row of inputs that its windows have at row `i`.
        let add_row = |mut row: [f32; 4], given: [Given; 3], i: Option<u32>| {
            unrolled!(CELL in [0 1] {
                unrolled!(LAST in [0 1] {
                    unrolled!(C in [0 1] {
                        if let (Some(i), Some(j)) = (i, position::<SIZE, PADDING>(LAST == 1, C as u32)) {
                            let from = given[CELL + if two { LAST } else { 0 }];
                            row[2 * CELL + C] = add(row[2 * CELL + C], from, i * SIZE + j);
                        }
                    });
                });
            });
            row
        };
        let mut cell = part.rows[0];
        let mut input = window.input_plane(span.first_plane + part.plane)
            + (2 * cell) as usize * window.input_line()
            + (pair * EACH) as usize;
        let mut above = of_row(if two { (cell + PADDING).wrapping_sub(1) } else { u32::MAX });
        while cell < part.rows[1] {
            let here = of_row(cell + PADDING);
            let mut inputs = [[0.0; 4]; 2];
            unrolled!(R in [0 1] {
                inputs[R] = add_row(inputs[R], above, position::<SIZE, PADDING>(false, R as u32));
                inputs[R] = add_row(inputs[R], here, position::<SIZE, PADDING>(true, R as u32));
            });
            // SAFETY: the cell's first row is there, all of the vector's columns are, and a row begins at a multiple of four.
            unsafe {
                put4(dx, input, Vec4::from(inputs[0]), beta);
                if 2 * cell + 1 < height {
                    put4(dx, input + width as usize, Vec4::from(inputs[1]), beta);
                }
            }
            above = here;
            cell += 1;
            input += 2 * width as usize;
        }
    });
}
