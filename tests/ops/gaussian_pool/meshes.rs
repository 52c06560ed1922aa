//! Images and windows that reach each way of the kernels by meshes.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;

/// Each size, and padding of each remainder; several planes a block and several bands a plane; rows of odd and even lengths; rows and
/// columns that no window covers; and one with a Gaussian for each channel, for which there is no such kernel.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, padding| Window::new([size; 2]).stride([3; 2]).padding([padding; 2]);
    let list = [
        ([2, 3, 31, 33], window(9, 4)),
        ([1, 2, 58, 47], window(11, 5)),
        ([1, 1, 40, 62], window(11, 0)),
        ([7, 3, 8, 11], window(5, 2)),
        ([1, 3, 61, 29], window(7, 3)),
        ([2, 2, 13, 28], window(9, 2).padding([0, 1])),
        ([1, 1, 12, 300], window(7, 1)),
        ([1, 2, 30, 31], window(5, 2).ceil_mode(true)),
        ([1, 3, 21, 20], window(9, 4)),
    ];
    let case = |(i, (x, window))| Case {
        x,
        layout: Layout::RowMajor,
        window,
        normalize: Normalize::Window,
        kernels: 1,
        shared: i != 8,
        per_axis: i % 2 == 0,
    };
    list.into_iter().enumerate().map(case).collect()
}
