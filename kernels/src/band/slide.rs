//! Forward over small windows.

use cuda_std::prelude::*;

use super::choice::{Costs, MOST_BYTES, Weights};
use super::{BandLaunch, Bands, Staged, inputs_of, staged_bytes, wait};
use crate::window::{Nchw, Window};

/// The weights of maxima and averages.
pub(super) fn light(window: &Window<Nchw>, bytes: usize) -> Weights {
    let [size, stride] = [window.size[0], window.stride[0]];
    Weights::light(bytes, f64::from(size.saturating_sub(stride)) / f64::from(stride))
}

impl Bands {
    /// Over the outputs of windows without dilation, of whose inputs an element has `bytes`.
    pub fn of_outputs(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        Self::of_output_columns(window, window.output[1], bytes, light(window, bytes))
    }

    /// As [`of_outputs`](Self::of_outputs), with so many columns of outputs, each of one or more, for kernels that sum what windows have of a row
    /// again for each run of rows.
    pub(crate) fn of_weighted_outputs(window: &Window<Nchw>, columns: u32, bytes: usize) -> Option<(Self, BandLaunch)> {
        let [size, stride] = [window.size[0], window.stride[0]];
        let again = f64::from(size.saturating_sub(stride)) / f64::from(stride);
        Self::of_output_columns(window, columns, bytes, Weights::weighted(bytes, again))
    }

    /// As [`of_outputs`](Self::of_outputs), with so many columns of outputs, each of one or more.
    pub(super) fn of_output_columns(
        window: &Window<Nchw>,
        columns: u32,
        bytes: usize,
        weights: Weights,
    ) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        let [height, stride, size] = [window.input, window.stride, window.size].map(|pair| u64::from(pair[0]));
        let (line, outputs) = (u64::from(window.input[1]) * bytes as u64, u64::from(window.output[1]) * bytes as u64);
        let reach = |rows: u64| height.min((rows - 1) * stride + size);
        let whole = u64::from(window.output[0]);
        let costs = Costs {
            planes: window.planes,
            height: window.output[0],
            plane_bytes: height * line + whole * outputs,
            most_bytes: MOST_BYTES,
            moved: |rows| reach(rows) * line + rows * outputs,
            shared: |rows, depth| staged_bytes(depth * line * if rows == whole { height } else { reach(rows) }),
        };
        Self::new(columns, weights, &costs)
    }
}

/// The inputs of the block's outputs, once they are there.
///
/// # Safety
/// `x` holds the window's inputs, and begins at a multiple of 16 bytes; `bands` are of its outputs, with the launch's grid, block
/// and shared memory.
#[device_inline]
pub(crate) unsafe fn stage<T: Storage>(x: Global<T>, window: &Window<Nchw>, bands: &Bands) -> Staged<T> {
    let span = bands.block.span();
    // SAFETY: the launch's shared memory is for these rows.
    unsafe {
        let staged = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(window, &span), window.input);
        wait(staged);
        staged
    }
}

/// Slides windows of `SIZE` by `SIZE` positions, `STRIDE` apart, over the band's inputs: `of_row(values)` is what is kept of
/// a window's row, with `outside` for what is not in the image, and `finish(output, row, column, rows)` is called for each
/// output of this thread. Rows that a window shares with the one before it are kept.
///
/// # Safety
/// The inputs are [staged](stage) for these `bands`; the window has this size and stride both ways and no dilation.
#[device_inline]
pub(crate) unsafe fn slide<T: Storage, R: Copy, const SIZE: usize, const STRIDE: usize>(
    staged: &Staged<T>,
    window: &Window<Nchw>,
    bands: &Bands,
    outside: f32,
    of_row: impl Fn([f32; SIZE]) -> R,
    finish: impl Fn(usize, u32, u32, [R; SIZE]),
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    let otherwise = T::from_f32(outside);
    bands.for_each_column(&part, |column| {
        // What lies before the image wraps round to far after it. One comparison says of row and column whether an input is
        // there: the row is below its column's height.
        let left = (column * STRIDE as u32).wrapping_sub(window.padding[1]);
        let mut height = [0; SIZE];
        unrolled!(J in [0 1 2] {
            if J < SIZE { height[J] = if left.wrapping_add(J as u32) < window.input[1] { window.input[0] } else { 0 }; }
        });
        let mut input = (part.rows[0] * STRIDE as u32).wrapping_sub(window.padding[0]);
        let mut place = staged.place(part.plane, input, left);
        let mut next = || {
            let mut values = [outside; SIZE];
            unrolled!(J in [0 1 2] {
                if J < SIZE {
                    let place = place.wrapping_add(J as u32);
                    // SAFETY: in the image, and then staged: of this thread's rows.
                    values[J] = unsafe { staged.load_if(input < height[J], place, otherwise) }.to_f32();
                }
            });
            input = input.wrapping_add(1);
            place = place.wrapping_add(window.input[1]);
            of_row(values)
        };
        let mut rows = [of_row([outside; SIZE]); SIZE];
        unrolled!(I in [0 1 2] { if I + STRIDE < SIZE { rows[I + STRIDE] = next(); } });
        let plane = window.output_plane(span.first_plane + part.plane);
        let mut output = plane + part.rows[0] as usize * window.output_line() + column as usize;
        let mut row = part.rows[0];
        while row < part.rows[1] {
            unrolled!(I in [0 1 2] { if I + STRIDE < SIZE { rows[I] = rows[I + STRIDE]; } });
            unrolled!(I in [0 1 2] { if I < SIZE && I + STRIDE >= SIZE { rows[I] = next(); } });
            finish(output, row, column, rows);
            output += window.output_line();
            row += 1;
        }
    });
}
