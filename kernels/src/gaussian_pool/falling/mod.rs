//! Gaussian pooling of row-major images, of square windows of a few known sizes one or two pixels apart whose weights are the same everywhere
//! and which all planes share: by [bands](crate::band) of rows in shared memory, down columns.
//!
//! A thread goes down its columns of outputs ([`gaussian_pool_falling`]). Each row of inputs it sums along x once, with weights in registers,
//! and adds that, times their weights along y, to the sums of the windows that are open at that row, which come round: nothing is moved. Where
//! rows are a multiple of four elements a thread has four neighbouring columns of inputs and what its windows reach beside them, by vectors; else a
//! column of outputs, and its inputs one by one. Backward, of windows one apart, is the same of `dy` by the window turned round.
//!
//! Backward, of windows two apart ([`gaussian_pool_backward_falling`]), a thread goes down four columns of inputs: of each row of outputs it
//! works out once what that gives along x, and keeps it while windows of that row are over its inputs.
//!
//! The weights are computed while the block's rows are on their way.
//!
//! Bound by memory; in 16 bits by instructions.

use cuda_std::prelude::*;

mod backward;
mod forward;

pub use backward::*;
pub use forward::*;

use super::Geometry;
use super::weights::along_axes;
use crate::band::{self, BandLaunch, Bands, Staged};
use crate::window::{Nchw, Window};

/// Columns of inputs from one thread's first to the next one's, where vectors are loaded or stored.
pub const FOUR: u32 = 4;
/// Shared memory has as many weights along an axis.
const VECTOR: u32 = 12;

/// Sizes, how far windows are apart, and paddings of columns that there are kernels for forward by fours.
pub const FOURS: [(u32, u32, u32); 10] =
    [(3, 1, 0), (3, 1, 1), (3, 1, 2), (5, 1, 0), (5, 1, 2), (5, 1, 4), (5, 2, 0), (5, 2, 2), (7, 2, 0), (7, 2, 3)];

/// Sizes, and how far windows are apart, that there are kernels for forward of any width and padding.
pub const ONES: [(u32, u32); 4] = [(3, 1), (5, 1), (5, 2), (7, 2)];

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

/// The weights along y and x.
struct Weights<const SIZE: usize> {
    by_y: [f32; SIZE],
    by_x: [f32; SIZE],
}

impl<const SIZE: usize> Weights<SIZE> {
    /// Those of a Gaussian, each the other way round where they are `turned`, when these rows are there.
    ///
    /// # Safety
    /// `parameters` hold the Gaussian, and `geometry` has windows of that size; all threads of the block, of whole warps in one dimension, come
    /// here, once; the rows' shared memory is still theirs.
    #[device_inline]
    unsafe fn beside<T: Storage>(
        rows: Staged<T>,
        parameters: [Global<f32>; 2],
        variances: u32,
        geometry: &Geometry,
        turned: bool,
    ) -> Self {
        let room = shared_array![f32; 2 * VECTOR as usize].handle();
        let mut weights = Self { by_y: [0.0; SIZE], by_x: [0.0; SIZE] };
        // SAFETY: the caller's; shared memory has room for both vectors.
        unsafe {
            along_axes(room, parameters, geometry, variances, 0, turned);
            // Its barrier is for the weights, too.
            band::wait(rows);
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] {
                if I < SIZE {
                    weights.by_y[I] = room.load(I as u32);
                    weights.by_x[I] = room.load((SIZE + I) as u32);
                }
            });
        }
        weights
    }
}
