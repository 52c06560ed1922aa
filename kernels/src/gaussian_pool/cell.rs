//! Cells: what the kernels share that make gradients of windows of a size compiled in.
//!
//! A cell has as many rows and columns of inputs as windows are apart. Its inputs have positions in the same windows, which are known when compiled,
//! but for how many of them the padding cuts off before the first: their phase.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::sets::Weights;

/// Outputs of a row over a thread's inputs, at most.
pub(super) const OVER: usize = 8;
/// Columns of inputs of a thread, at most.
pub(super) const COLUMNS: usize = 4;

/// The position of a cell's input in the window that is so many before the last over the cell; none if it is not in it.
#[device_inline]
pub(super) const fn position<const SIZE: usize, const STRIDE: usize, const PHASE: usize>(
    input: usize,
    before: usize,
) -> Option<usize> {
    // With a phase the last window over a cell begins with an input after its first.
    match (input + PHASE + STRIDE * before).checked_sub(if PHASE > 0 { STRIDE } else { 0 }) {
        Some(position) if position < SIZE => Some(position),
        _ => None,
    }
}

/// Windows over a cell, along an axis.
pub(super) const fn over(size: usize, stride: usize, phase: usize) -> usize {
    if phase == 0 { size.div_ceil(stride) } else { (size + stride - phase).div_ceil(stride) }
}

/// The rows of outputs that give to a cell, as they come round, and what a thread makes of them.
pub(super) struct Cell<const SIZE: usize, const STRIDE: usize, const PHASE: usize> {
    pub(super) weights: Weights<SIZE>,
    /// Each from the first window over the first cell to the last over the last.
    pub(super) outputs: [[f32; OVER]; SIZE],
    /// Sums of `x · dy`, for each position of the window.
    pub(super) products: [[f32; SIZE]; SIZE],
}

impl<const SIZE: usize, const STRIDE: usize, const PHASE: usize> Cell<SIZE, STRIDE, PHASE> {
    /// Nothing yet.
    #[device_inline]
    pub(super) fn new(weights: Weights<SIZE>) -> Self {
        Self { weights, outputs: [[0.0; OVER]; SIZE], products: [[0.0; SIZE]; SIZE] }
    }

    /// The gradients of so many neighbouring inputs of a cell's row, by the outputs of which those of this number came last. With the inputs
    /// themselves their products with the outputs are added to the positions' sums.
    #[device_inline]
    pub(super) fn gather(
        &mut self,
        newest: usize,
        row: usize,
        columns: usize,
        x: Option<[f32; COLUMNS]>,
    ) -> [f32; COLUMNS] {
        let over = const { over(SIZE, STRIDE, PHASE) };
        let outputs = over + columns.div_ceil(STRIDE) - 1;
        // Along y, then along x.
        let mut down = [0.0; OVER];
        unrolled!(A in [0 1 2 3 4] {
            if A < over && let Some(i) = position::<SIZE, STRIDE, PHASE>(row, A) {
                unrolled!(J in [0 1 2 3 4 5 6 7] {
                    if J < outputs {
                        let dy = self.outputs[(newest + over - A) % over][J];
                        down[J] = float::fma(self.weights.by_y[i], dy, down[J]);
                    }
                });
            }
        });
        let mut sums = [0.0; COLUMNS];
        unrolled!(K in [0 1 2 3] { unrolled!(B in [0 1 2 3 4] {
            if K < columns && B < over && let Some(j) = position::<SIZE, STRIDE, PHASE>(K % STRIDE, B) {
                let output = K / STRIDE + over - 1 - B;
                sums[K] = float::fma(self.weights.by_x[j], down[output], sums[K]);
                unrolled!(A in [0 1 2 3 4] {
                    if A < over && let (Some(x), Some(i)) = (x, position::<SIZE, STRIDE, PHASE>(row, A)) {
                        let dy = self.outputs[(newest + over - A) % over][output];
                        self.products[i][j] = float::fma(x[K], dy, self.products[i][j]);
                    }
                });
            }
        }); });
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::{over, position};

    /// Every position of a window is of one input of one cell.
    #[test]
    fn windows_over_a_cell_have_its_inputs() {
        let of =
            |of: fn(usize, usize) -> Option<usize>| [0, 1].map(|input| [0, 1, 2, 3].map(|before| of(input, before)));
        assert_eq!(of(position::<5, 2, 0>), [[Some(0), Some(2), Some(4), None], [Some(1), Some(3), None, None]]);
        assert_eq!(of(position::<3, 2, 1>), [[None, Some(1), None, None], [Some(0), Some(2), None, None]]);
        assert_eq!(of(position::<7, 2, 1>), [[None, Some(1), Some(3), Some(5)], [Some(0), Some(2), Some(4), Some(6)]]);
        assert_eq!(of(position::<4, 4, 0>), [[Some(0), None, None, None], [Some(1), None, None, None]]);
        assert_eq!(of(position::<3, 1, 0>)[0], [Some(0), Some(1), Some(2), None]);
        assert_eq!([over(5, 2, 0), over(3, 2, 1), over(7, 2, 1), over(4, 4, 0), over(5, 1, 0)], [3, 2, 4, 1, 5]);
    }
}
