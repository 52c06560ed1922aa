//! The choice of a launch by bands, which takes longer than the launch: remembered for the windows of late.

use std::cell::RefCell;

use kernels::band::{BandLaunch, Bands};
use kernels::window::{Nchw, Order, Window};

use crate::recent::Recent;

/// Results that are enough threads, at least, and planes of which bands have few, at most.
const LEAST: u64 = 1 << 12;
const FEW_PLANES: u64 = 128;
/// Elements of a window, and windows over an element, that a thread goes through one after another, at most; and those of all threads.
const FEW_POSITIONS: u64 = 49;
const FEW_OF_ALL: u64 = 1 << 23;
const FEW_OVER: u64 = 9;
const FEW_OVER_ALL: u64 = 1 << 20;

/// Whether a pass forward takes less time by a thread for each output than by bands, of which few planes have few.
pub(crate) fn is_little<L: Order>(window: &Window<L>) -> bool {
    let positions = window.size.map(u64::from).into_iter().product();
    positions <= FEW_POSITIONS && is_few(window, window.output, positions, FEW_OF_ALL)
}

/// The same of a pass backward, and inputs.
pub(crate) fn is_little_backward<L: Order>(window: &Window<L>) -> bool {
    let over = [0, 1].map(|axis| u64::from(window.size[axis].min(window.input[axis]).div_ceil(window.stride[axis])));
    let over = over[0] * over[1];
    over <= FEW_OVER && is_few(window, window.input, over, FEW_OVER_ALL)
}

fn is_few<L: Order>(window: &Window<L>, [height, width]: [u32; 2], each: u64, most: u64) -> bool {
    let planes = u64::from(window.planes) * u64::from(window.channels);
    let results = (u64::from(height) * u64::from(width)).saturating_mul(planes);
    results >= LEAST && planes <= FEW_PLANES && results.saturating_mul(each) <= most
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
                }
            }
        }
    }
}
