//! The choice of a launch by bands, which takes longer than the launch: remembered for the windows of late.

use std::cell::RefCell;

use kernels::band::{BandLaunch, Bands};
use kernels::gaussian_pool::{all_gradients, falling};
use kernels::pieces::Pieces;
use kernels::window::{Nchw, Order, Window};

use crate::recent::Recent;

/// Results that are enough threads, at least: outputs, and elements of a gradient.
const LEAST: [u64; 2] = [1 << 10, 1 << 12];
/// Elements of all windows, forward, at most. Windows one apart may have more where few planes are few bands; of windows two apart they are
/// fewer: of those pairs share what is loaded for them.
const FEW_OF_ALL: u64 = 1 << 22;
const FEW_OF_FEW_PLANES: u64 = 1 << 24;
const FEW_PLANES: u64 = 256;
const FEW_TWO_APART: u64 = 1 << 18;
/// Elements of a window that a thread goes through one after another, at most, of windows two apart and further.
const FEW_POSITIONS: [u64; 2] = [16, 25];
/// Loads of an element of the image, in hundredths, by pieces of windows three and more apart, at most; and of sums of 32 bits.
const MOST_LOADS: [u64; 2] = [230, 200];
/// Elements of a gradient of averages and of picked positions, at most, and windows over all of them.
pub(crate) const FEW_AVERAGED: u64 = 1 << 18;
pub(crate) const FEW_PICKED: u64 = 1 << 16;
const FEW_OVER_ALL: u64 = 1 << 23;

/// Whether a pass forward takes less time by a thread for each output than by bands, which stage what windows share.
pub(crate) fn is_little<L: Order>(window: &Window<L>) -> bool {
    let positions = window.size.map(u64::from).into_iter().product();
    let (most, most_positions) = match window.stride[1] {
        1 if planes(window) <= FEW_PLANES => (FEW_OF_FEW_PLANES, u64::MAX),
        1 => (FEW_OF_ALL, u64::MAX),
        2 => (FEW_TWO_APART, FEW_POSITIONS[0]),
        _ => (FEW_OF_ALL, FEW_POSITIONS[1]),
    };
    let outputs = elements(window, window.output);
    outputs >= LEAST[0] && positions <= most_positions && outputs.saturating_mul(positions) <= most
}

/// The same of a pass backward, of so few inputs at most.
pub(crate) fn is_little_backward<L: Order>(window: &Window<L>, few: u64) -> bool {
    let over = [0, 1].map(|axis| u64::from(window.size[axis].min(window.input[axis]).div_ceil(window.stride[axis])));
    let inputs = elements(window, window.input);
    (LEAST[1]..=few).contains(&inputs) && inputs * over[0] * over[1] <= FEW_OVER_ALL
}

/// What a launch by pieces takes, of elements with so many bytes, if no other kernel takes less time: of windows that share little, and of others where
/// there is little. What is added up is not for long windows that share more, of which bands of rows keep sums for several.
pub(crate) fn apart(window: &Window<Nchw>, bytes: usize, added: bool) -> Option<(Pieces, u32)> {
    let (size, stride) = (u64::from(window.size[0]), u64::from(window.stride[0].min(window.stride[1])));
    let is_known = matches!(size, 4 | 8) && window.stride == window.size;
    // Loads of an element, in hundredths.
    let loads = (size * size).saturating_mul(100) / (stride * stride);
    let most = if added && bytes == size_of::<f32>() { MOST_LOADS[1] } else { MOST_LOADS[0] };
    let shares_little = size <= stride || stride >= 3 && (loads <= most || size <= 5 && size < 2 * stride);
    let products = elements(window, window.output).saturating_mul(size * size);
    let is_little = stride >= 2 && products <= FEW_OF_ALL;
    // Whole small planes have kernels of their own.
    let is_whole = window.size == window.input;
    if is_known || !is_whole && (shares_little || is_little) { Pieces::apart(window) } else { None }
}

/// Elements of planes of this height and width.
pub(crate) fn elements<L: Order>(window: &Window<L>, [height, width]: [u32; 2]) -> u64 {
    (u64::from(height) * u64::from(width)).saturating_mul(planes(window))
}

fn planes<L: Order>(window: &Window<L>) -> u64 {
    u64::from(window.planes) * u64::from(window.channels)
}

/// Choices that a thread remembers: a small network's pooling, forward and backward.
const RECENT: usize = 8;

/// For which kernels rows and threads are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// [`Bands::of_outputs`].
    Outputs,
    /// [`Bands::of_output_pairs`].
    OutputPairs,
    /// [`Bands::of_drawn_pairs`].
    DrawnPairs,
    /// [`Bands::of_cells`].
    Cells,
    /// [`Bands::of_cell_pairs`].
    CellPairs,
    /// [`falling::plan`] by fours of columns.
    FallingFours,
    /// The same by columns of outputs.
    FallingOnes,
    /// [`falling::plan_backward`].
    FallingCells,
    /// [`all_gradients::plan`] of all gradients.
    LearntCells,
    /// The same of the input's gradient alone.
    InputCells,
}

type Launch = Option<(Bands, BandLaunch)>;

/// What a choice depends on.
type Key = (Choice, Window<Nchw>, [usize; 2]);

impl Choice {
    /// The launch, for tensors whose elements have so many bytes: one, or two of which the second is the indices'.
    pub fn of(self, window: &Window<Nchw>, bytes: &[usize]) -> Launch {
        thread_local! {
            static CHOICES: RefCell<Recent<Key, Launch, RECENT>> = RefCell::default();
        }
        let key = (self, *window, [bytes[0], bytes.get(1).copied().unwrap_or(0)]);
        CHOICES.with_borrow_mut(|recent| {
            recent.get(key, || match self {
                Self::Outputs => Bands::of_outputs(window, bytes[0]),
                Self::OutputPairs => Bands::of_output_pairs(window, bytes[0]),
                Self::DrawnPairs => Bands::of_drawn_pairs(window, bytes[0]),
                Self::Cells => Bands::of_cells(window, bytes),
                Self::CellPairs => Bands::of_cell_pairs(window, bytes),
                Self::FallingFours => falling::plan(window, bytes[0], true),
                Self::FallingOnes => falling::plan(window, bytes[0], false),
                Self::FallingCells => falling::plan_backward(window, bytes[0]),
                Self::LearntCells => all_gradients::plan(window, bytes[0], true),
                Self::InputCells => all_gradients::plan(window, bytes[0], false),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(height: u32) -> Window<Nchw> {
        let (input, output) = ([height, 112], [height / 2, 56]);
        let pairs = [[2, 2], [2, 2], [0, 0], [1, 1]];
        let [size, stride, padding, dilation] = pairs;
        Window { planes: 64, channels: 1, input, output, size, stride, padding, dilation, ..Window::default() }
    }

    /// Each is what it is without remembering, first and again, also after more windows than are remembered.
    #[test]
    fn what_is_remembered_is_what_was_chosen() {
        for _ in 0..2 {
            for height in (2..60).step_by(2).chain([112, 2, 112]) {
                let window = window(height);
                for bytes in [2, 4] {
                    assert_eq!(Choice::Outputs.of(&window, &[bytes]), Bands::of_outputs(&window, bytes));
                    assert_eq!(Choice::OutputPairs.of(&window, &[bytes]), Bands::of_output_pairs(&window, bytes));
                    assert_eq!(Choice::DrawnPairs.of(&window, &[bytes]), Bands::of_drawn_pairs(&window, bytes));
                    let both = [bytes, 1];
                    assert_eq!(Choice::Cells.of(&window, &both), Bands::of_cells(&window, &both));
                    assert_eq!(Choice::Cells.of(&window, &[bytes]), Bands::of_cells(&window, &[bytes]));
                    assert_eq!(Choice::CellPairs.of(&window, &both), Bands::of_cell_pairs(&window, &both));
                    assert_eq!(Choice::FallingFours.of(&window, &[bytes]), falling::plan(&window, bytes, true));
                    assert_eq!(Choice::FallingOnes.of(&window, &[bytes]), falling::plan(&window, bytes, false));
                    assert_eq!(Choice::FallingCells.of(&window, &[bytes]), falling::plan_backward(&window, bytes));
                    assert_eq!(Choice::LearntCells.of(&window, &[bytes]), all_gradients::plan(&window, bytes, true));
                    assert_eq!(Choice::InputCells.of(&window, &[bytes]), all_gradients::plan(&window, bytes, false));
                }
            }
        }
    }
}
