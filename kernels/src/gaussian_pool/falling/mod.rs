//! Gaussian pooling of row-major images, of square windows of a few known sizes one or two pixels apart whose weights are the same everywhere
//! in all planes or in all of a channel: by [bands](crate::band) of rows in shared memory, down columns.
//!
//! A thread goes down its columns of outputs ([`gaussian_pool_falling`]). Each row of inputs it sums along x once, with weights in registers,
//! and adds that, times their weights along y, to the sums of the windows that are open at that row, which come round: nothing is moved. Where
//! rows are a multiple of four elements a thread has four neighbouring columns of inputs and what its windows reach beside them, by vectors; else a
//! column of outputs, and its inputs one by one. Backward, of windows one apart, is the same of `dy` by the window turned round.
//!
//! Backward, of windows two apart ([`gaussian_pool_backward_falling`]), a thread goes down four columns of inputs: of each row of outputs it
//! works out once what that gives along x, and keeps it while windows of that row are over its inputs.
//!
//! The weights are computed while the block's rows are on their way ([`Sets`](super::sets::Sets)). Of several Gaussians a map the rows are read once.
//!
//! Bound by memory; in 16 bits by instructions.

mod backward;
mod forward;

pub use backward::*;
pub use forward::*;

use crate::band::{BandLaunch, Bands};
use crate::window::{Nchw, Window};

/// Columns of inputs from one thread's first to the next one's, where vectors are loaded or stored.
pub const FOUR: u32 = 4;

/// Sizes, how far windows are apart, and paddings of columns that there are kernels for forward by fours.
pub const FOURS: [(u32, u32, u32); 10] =
    [(3, 1, 0), (3, 1, 1), (3, 1, 2), (5, 1, 0), (5, 1, 2), (5, 1, 4), (5, 2, 0), (5, 2, 2), (7, 2, 0), (7, 2, 3)];

/// Sizes, and how far windows are apart, that there are kernels for forward of any width and padding.
pub const ONES: [(u32, u32); 6] = [(3, 1), (5, 1), (5, 2), (7, 2), (3, 3), (4, 4)];

/// Sizes of windows two apart that there are kernels for backward, and whether they are padded by an odd number of positions.
pub const BACKWARD: [(u32, bool); 5] = [(5, false), (5, true), (7, false), (7, true), (11, true)];

/// How far the first window of a thread begins after the first vector that it loads, where columns are padded by so many.
pub const fn lead(padding: u32) -> u32 {
    padding.next_multiple_of(FOUR) - padding
}

/// The bands of a launch forward for windows of elements of so many bytes: of four columns of inputs a thread, or of one column of outputs.
pub fn plan(window: &Window<Nchw>, bytes: usize, fours: bool) -> Option<(Bands, BandLaunch)> {
    let columns = if fours { window.output[1].div_ceil(FOUR / window.stride[1]) } else { window.output[1] };
    let fits = !fours || window.input[1].is_multiple_of(FOUR);
    fits.then(|| Bands::of_weighted_outputs(window, columns, bytes))?
}

/// The same backward; none where rows are no multiple of four elements, or padded along one axis by an even and along the other by an odd number.
pub fn plan_backward(window: &Window<Nchw>, bytes: usize) -> Option<(Bands, BandLaunch)> {
    let fits = window.input[1].is_multiple_of(FOUR) && window.padding[0] % 2 == window.padding[1] % 2;
    fits.then(|| Bands::of_weighted_cells(window, window.input[1] / FOUR, bytes))?
}
