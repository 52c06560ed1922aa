//! Backward: the input's gradient, of windows two apart.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::FOUR;
use crate::band::{self, Bands, Span, Staged, least};
use crate::elementwise::put4;
use crate::gaussian_pool::sets::Sets;
use crate::window::{Nchw, Window};

/// Cells of two columns of inputs of a thread.
const CELLS: u32 = FOUR / 2;
/// Windows over an input along an axis, at most.
const OVER: usize = 6;

/// Blocks that a multiprocessor has room for, at least: as many as leave a thread the registers for the weights, and for the rows that it keeps.
const fn min_blocks(size: usize) -> u32 {
    if size > 7 { 3 } else { 4 }
}

/// The last row of outputs, or column, whose windows are over a cell of two rows of inputs, without the end of the image, less the cell's number.
#[device_inline]
fn last(padding: u32) -> u32 {
    padding.div_ceil(2)
}

/// The rows of outputs that give to the block's cells.
#[device_inline]
fn outputs_of(window: &Window<Nchw>, span: &Span, over: u32) -> [u32; 2] {
    if span.whole {
        return [0, window.output[0]];
    }
    let last = last(window.padding[0]);
    let end = least(span.rows[1] + last, window.output[0]);
    [least((span.rows[0] + last + 1).saturating_sub(over), end), end]
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, of windows of `SIZE` by `SIZE` positions, two apart, padded along both
/// axes by an odd number of positions where `ODD` is 1, and else by an even one. A thread has four columns of inputs and goes down them by
/// twos: what each row of outputs gives along x it works out once, and keeps for as long as windows of it are over a row of inputs.
///
/// # Safety
/// The parent's parent's. `dx` holds the inputs of `window`, which is such and whose rows are a multiple of four, and `dy` its outputs; `mean` and
/// `var` are those of `sets`, one a plane; `bands` are [of cells](super::plan_backward), with the launch's grid and block, and shared memory for
/// the [weights](Sets::bytes) and the launch's.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = min_blocks(SIZE),
    instances(T = [f32, f16, bf16], (SIZE, ODD) = [(5, 0), (5, 1), (7, 0), (7, 1), (11, 1)])
)]
pub unsafe fn gaussian_pool_backward_falling<T: Storage, const SIZE: usize, const ODD: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
) {
    let over = const { SIZE.div_ceil(2) };
    let span = bands.block.span();
    // SAFETY: the caller's; all threads come here, and the launch's shared memory is for these rows.
    let (staged, weights) = unsafe {
        let rows = outputs_of(&window, &span, over as u32);
        sets.stage::<_, SIZE>([mean, var], &span, false, |room| {
            Staged::copy(room.cast(), dy, &span, rows, window.output)
        })
    };
    let part = bands.part(&span);
    // SAFETY: this thread's plane is one of the block's, if it has any columns.
    let weights = unsafe { weights.load(part.plane, 0) };
    for place in bands.each_column(&part) {
        let [height, width] = window.output;
        // The first of the outputs that give to the cells. What lies before the first wraps round to far after the last. One comparison says of
        // row and column whether an output is there: the row is below its column's height.
        let first = (CELLS * place + last(window.padding[1])).wrapping_sub(over as u32 - 1);
        let mut below = [0; OVER + 1];
        unrolled!(J in [0 1 2 3 4 5 6] {
            if J <= over && first.wrapping_add(J as u32) < width { below[J] = height; }
        });
        let line = window.input_line();
        let mut input = window.input_plane(span.first_plane + part.plane)
            + (2 * part.rows[0]) as usize * line
            + (place * FOUR) as usize;
        // Of rows of outputs what each gives to the four columns, as they come round; the first cell has as many as windows are over it at most.
        let mut kept = [[0.0; FOUR as usize]; OVER];
        let mut output = (part.rows[0] + last(window.padding[0])).wrapping_sub(over as u32 - 1);
        let cells = part.rows[1] - part.rows[0];
        let mut cell = part.rows[0].wrapping_sub(over as u32 - 1);
        while cell != part.rows[1] {
            unrolled!(C in [0 1 2 3 4 5] {
                if C < over && cell != part.rows[1] {
                    let at = staged.place(part.plane, output, first);
                    let mut given = [0.0; OVER + 1];
                    unrolled!(J in [0 1 2 3 4 5 6] {
                        if J <= over {
                            let (inside, at) = (output < below[J], at.wrapping_add(J as u32));
                            // SAFETY: one of the outputs that give to this thread's rows, and then staged.
                            given[J] = unsafe { staged.load_if(inside, at, T::from_f32(0.0)) }.to_f32();
                        }
                    });
                    kept[C] = [0.0; FOUR as usize];
                    unrolled!(K in [0 1 2 3] { unrolled!(A in [0 1 2 3 4 5] {
                        if let Some(i) = position::<SIZE, ODD>(K % 2, A) {
                            kept[C][K] = float::fma(weights.by_x[i], given[over - 1 + K / 2 - A], kept[C][K]);
                        }
                    }); });
                    // The first rows of outputs are for the first cell.
                    if cell.wrapping_sub(part.rows[0]) < cells {
                        unrolled!(R in [0 1] {
                            let mut sums = [0.0; FOUR as usize];
                            unrolled!(A in [0 1 2 3 4 5] {
                                if let Some(i) = position::<SIZE, ODD>(R, A) {
                                    unrolled!(K in [0 1 2 3] {
                                        sums[K] = float::fma(weights.by_y[i], kept[(C + over - A) % over][K], sums[K]);
                                    });
                                }
                            });
                            if 2 * cell + (R as u32) < window.input[0] {
                                // SAFETY: the row is there, and rows are a multiple of four.
                                unsafe { put4(dx, input + R * line, Vec4::from(sums), beta) };
                            }
                        });
                        input += 2 * line;
                    }
                    output = output.wrapping_add(1);
                    cell = cell.wrapping_add(1);
                }
            });
        }
    }
}

/// The position of a cell's input, its first or second, in the window that is so many before the last over the cell; none if it is not in it.
#[device_inline]
const fn position<const SIZE: usize, const ODD: u32>(input: usize, before: usize) -> Option<usize> {
    let position = 2 * before + input;
    // With an odd padding the last window over a cell begins with its second input.
    let position = if ODD == 0 { Some(position) } else { position.checked_sub(1) };
    match position {
        Some(position) if position < SIZE => Some(position),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::position;

    /// Every position of a window is of one input of one cell.
    #[test]
    fn windows_over_a_cell_have_its_inputs() {
        let of =
            |of: fn(usize, usize) -> Option<usize>| [0, 1].map(|input| [0, 1, 2, 3].map(|before| of(input, before)));
        assert_eq!(of(position::<5, 0>), [[Some(0), Some(2), Some(4), None], [Some(1), Some(3), None, None]]);
        assert_eq!(of(position::<5, 1>), [[None, Some(1), Some(3), None], [Some(0), Some(2), Some(4), None]]);
        assert_eq!(of(position::<7, 1>), [[None, Some(1), Some(3), Some(5)], [Some(0), Some(2), Some(4), Some(6)]]);
    }
}
