//! Backward over windows of 2×2 or 3×3 positions, two apart, padded by 0 or 1.
//!
//! Inputs are taken in cells of two by two. Along each axis two windows cover a cell's inputs: without padding that which
//! begins at the cell's first input, and the one before it; with padding that which begins before the first input, and the
//! next. A thread goes down a column of cells, so that an output is read once or twice, and leaves the sums in shared
//! memory, whence they are stored in vectors.

use cuda_std::device_inline;

use super::choice::{Costs, MOST_BYTES, Weights};
use super::{BandLaunch, Bands, Part, Span, Tile, least, staged_bytes};
use crate::window::{Nchw, Window};

/// The position in a window of the input number `input` of a cell, in the first or the last of the windows over the cell.
pub(crate) const fn position<const SIZE: u32, const PADDING: u32>(last: bool, input: u32) -> Option<u32> {
    // Where the cell begins in the first window; the last begins two further on.
    let position = (input + if PADDING == 0 { 2 } else { 1 }).wrapping_sub(if last { 2 } else { 0 });
    if position < SIZE { Some(position) } else { None }
}

/// Rows of outputs before a run's own whose windows reach into it.
pub(super) fn again(window: &Window<Nchw>) -> u32 {
    window.size[0].div_ceil(window.stride[0]) - 1
}

impl Bands {
    /// Over the cells of the inputs, for outputs of which an element has `bytes`, those of each tensor.
    pub fn of_cells(window: &Window<Nchw>, bytes: &[usize]) -> Option<(Self, BandLaunch)> {
        let weights = match bytes[0] {
            4 => Weights { together: true, ..Weights::HEAVY },
            few => Weights::light(few, again(window).into()),
        };
        Self::of_cell_columns(window, window.input[1].div_ceil(2), bytes, size_of::<f32>(), weights)
    }

    /// As [`of_cells`](Self::of_cells), with so many columns of one or more cells, for kernels that sum what outputs give along a row again for
    /// each run of rows.
    pub(crate) fn of_weighted_cells(window: &Window<Nchw>, columns: u32, bytes: usize) -> Option<(Self, BandLaunch)> {
        let weights = Weights::weighted(bytes, again(window).into());
        Self::of_cell_columns(window, columns, &[bytes], 0, weights)
    }

    /// As [`of_weighted_cells`](Self::of_weighted_cells), of windows of any distance, and `kept` bytes for each input.
    pub(crate) fn of_gradient_cells(
        window: &Window<Nchw>,
        columns: u32,
        bytes: usize,
        kept: usize,
    ) -> Option<(Self, BandLaunch)> {
        let weights = Weights::weighted(bytes, again(window).into());
        Self::of_cell_columns(window, columns, &[bytes], kept, weights)
    }

    /// As [`of_cells`](Self::of_cells), with so many columns of one or more cells, and `kept` bytes for each input.
    pub(super) fn of_cell_columns(
        window: &Window<Nchw>,
        columns: u32,
        bytes: &[usize],
        kept: usize,
        weights: Weights,
    ) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        let stride = u64::from(window.stride[0]);
        let rows = window.input[0].div_ceil(window.stride[0]);
        let [height, width] = window.input.map(u64::from);
        let (whole, before) = (u64::from(window.output[0]), u64::from(again(window)));
        let line = |bytes: &usize| u64::from(window.output[1]) * *bytes as u64;
        let lines: u64 = bytes.iter().map(line).sum();
        let (sums, written) = (width * kept as u64, width * bytes[0] as u64);
        let costs = Costs {
            planes: window.planes,
            height: rows,
            plane_bytes: whole * lines + height * written,
            most_bytes: MOST_BYTES,
            moved: |cells| (cells + before) * lines + stride * cells * written,
            shared: |cells, depth| {
                let (outputs, inputs) = if cells == u64::from(rows) {
                    (whole, height)
                } else {
                    (whole.min(cells + before), height.min(stride * cells))
                };
                let staged: u64 = bytes.iter().map(|bytes| staged_bytes(depth * outputs * line(bytes))).sum();
                if kept == 0 { staged } else { staged + staged_bytes(depth * inputs * sums) }
            },
        };
        Self::new(columns, weights, &costs)
    }
}

/// What an output gives to inputs of its window.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub share: f32,
    /// What is compared with an input's position in the window.
    pub position: u32,
}

/// The rows of outputs that give to the block's cells.
#[device_inline]
pub(crate) fn outputs_of_cells<const SIZE: u32, const PADDING: u32>(window: &Window<Nchw>, span: &Span) -> [u32; 2] {
    if span.whole {
        return [0, window.output[0]];
    }
    let before = if SIZE > 2 && PADDING == 0 { 1 } else { 0 };
    let end = least(span.rows[1] + PADDING, window.output[0]);
    [least(span.rows[0].saturating_sub(before), end), end]
}

/// The rows of inputs of the block's cells.
#[device_inline]
pub(crate) fn inputs_of_cells(window: &Window<Nchw>, span: &Span) -> [u32; 2] {
    span.rows.map(|row| least(2 * row, window.input[0]))
}

/// Puts into the tile what the outputs give to the inputs of this thread's cells, windows of `SIZE` by `SIZE` positions:
/// `given(inside, plane, row, column)` of the output at that row and column of the block's plane, which is there if it is
/// `inside`, and `add(sum, given, position)` for each input that the output's window has at `position`. Inputs get what
/// outputs give in the outputs' order.
///
/// # Safety
/// The window has this size and padding, is two from the next both ways and has no dilation; `bands` are of its cells, and
/// the tile of [`inputs_of_cells`].
#[device_inline]
pub(crate) unsafe fn gather<const SIZE: u32, const PADDING: u32>(
    tile: &Tile,
    window: &Window<Nchw>,
    bands: &Bands,
    part: &Part,
    given: impl Fn(bool, u32, u32, u32) -> Given,
    add: impl Fn(f32, Given, u32) -> f32,
) {
    let [height, width] = window.input;
    let sums = tile.sums();
    // Whether the first of two windows covers anything, and how far the last is from the cell.
    let two = const { position::<SIZE, PADDING>(false, 0).is_some() };
    bands.for_each_column(part, |column| {
        // Rows below which there are outputs of the windows over this column. One comparison says of row and column whether
        // an output, or an input, is there.
        let last = column + PADDING;
        let rows_if = |there: bool, rows: u32| if there { rows } else { 0 };
        let of_last = rows_if(last < window.output[1], window.output[0]);
        let of_first = rows_if(two && last.wrapping_sub(1) < window.output[1], window.output[0]);
        let of_row = |row: u32| {
            let right = given(row < of_last, part.plane, row, last);
            let left = if two { given(row < of_first, part.plane, row, last.wrapping_sub(1)) } else { right };
            [left, right]
        };
        // What a row of outputs gives to the row of inputs that its windows have at row `i`.
        let add_row = |mut row: [f32; 2], given: [Given; 2], i: Option<u32>| {
            unrolled!(LAST in [0 1] {
                unrolled!(C in [0 1] {
                    if let (Some(i), Some(j)) = (i, position::<SIZE, PADDING>(LAST == 1, C as u32)) {
                        row[C] = add(row[C], given[LAST], i * SIZE + j);
                    }
                });
            });
            row
        };
        let odd = rows_if(2 * column + 1 < width, height);
        let mut cell = part.rows[0];
        let mut place = tile.place(part.plane, 2 * cell, 2 * column);
        let mut above = of_row(if two { (cell + PADDING).wrapping_sub(1) } else { u32::MAX });
        while cell < part.rows[1] {
            let here = of_row(cell + PADDING);
            let mut inputs = [[0.0; 2]; 2];
            unrolled!(R in [0 1] {
                inputs[R] = add_row(inputs[R], above, position::<SIZE, PADDING>(false, R as u32));
                inputs[R] = add_row(inputs[R], here, position::<SIZE, PADDING>(true, R as u32));
            });
            let (second, below) = (2 * cell + 1, place + width);
            // SAFETY: the tile has the places of the rows and columns that are there, and each belongs to one thread. The
            // first row and the first column of a cell are.
            unsafe {
                sums.store(place, inputs[0][0]);
                sums.store_if(second - 1 < odd, place + 1, inputs[0][1]);
                sums.store_if(second < height, below, inputs[1][0]);
                sums.store_if(second < odd, below + 1, inputs[1][1]);
            }
            above = here;
            cell += 1;
            place = below + width;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::position;

    /// Every position of a window is of one input of one cell.
    #[test]
    fn windows_over_a_cell_have_its_inputs() {
        let both =
            |of: [fn(bool, u32) -> Option<u32>; 1]| [false, true].map(|last| [0, 1].map(|input| of[0](last, input)));
        assert_eq!(both([position::<2, 0>]), [[None, None], [Some(0), Some(1)]]);
        assert_eq!(both([position::<3, 0>]), [[Some(2), None], [Some(0), Some(1)]]);
        assert_eq!(both([position::<3, 1>]), [[Some(1), Some(2)], [None, Some(0)]]);
    }
}
