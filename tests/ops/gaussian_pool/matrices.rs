//! Images that reach each way of the kernels that pool by matrix products.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;

/// Windows of each remainder of a size and a padding by what is loaded at once, and of two sizes; rows of windows of an even number and of an odd
/// one; one strip and several, of which the last is full or not; parts of strips, of even and odd steps; one Gaussian and three, for all channels
/// and for each. Of each a few, for each type.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, padding| Window::new(size).stride([2; 2]).padding(padding);
    let list = [
        ([1, 3, 37, 80], window([11, 11], [0, 0])),
        ([2, 2, 36, 40], window([5, 5], [2, 2])),
        ([1, 3, 21, 64], window([7, 7], [3, 3])),
        ([1, 1, 150, 136], window([11, 11], [5, 5])),
        ([2, 1, 18, 56], window([15, 15], [7, 7])),
        ([1, 2, 40, 72], window([9, 6], [4, 3])),
        ([1, 2, 33, 56], window([2, 13], [1, 6]).ceil_mode(true)),
        ([3, 1, 16, 48], window([8, 5], [3, 1]).ceil_mode(true)),
        ([1, 4, 19, 200], window([11, 15], [1, 0])),
    ];
    let each = |(i, (x, window)): (usize, ([usize; 4], Window))| {
        [(1, true), (3, true), (1, false), (3, false)].into_iter().enumerate().map(move |(j, (kernels, shared))| {
            let normalize = if window.padding == [0, 0] { Normalize::Valid } else { Normalize::Window };
            let (layout, per_axis) = (Layout::RowMajor, (i + j).is_multiple_of(2));
            Case { x, layout, window, normalize, kernels, shared, per_axis }
        })
    };
    list.into_iter().enumerate().flat_map(each).collect()
}

/// Small ones, with one Gaussian and with three.
pub(super) fn nan_cases() -> Vec<Case> {
    let (x, layout, normalize) = ([1, 2, 23, 48], Layout::RowMajor, Normalize::Window);
    [(1, [2, 1]), (3, [5, 4])]
        .map(|(kernels, padding)| {
            let window = Window::new([11; 2]).stride([2; 2]).padding(padding);
            Case { x, layout, window, normalize, kernels, shared: true, per_axis: true }
        })
        .into()
}
