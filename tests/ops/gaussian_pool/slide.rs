//! Images and windows that reach each way of the kernels that slide, and of that for windows that do not overlap.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;

/// Windows of the known sizes, of channels that are and are not a multiple of four, that share one Gaussian or not.
pub(super) fn cases() -> Vec<Case> {
    let window = |size| Window::new([size; 2]).stride([2, 2]);
    let list = [
        ([2, 4, 9, 10], window(3).padding([1, 1])),
        ([1, 64, 7, 6], window(3)),
        ([1, 65, 5, 8], window(3).padding([1, 0]).ceil_mode(true)),
        ([1, 8, 30, 26], window(11).padding([5, 5])),
        ([2, 4, 24, 27], window(11).padding([3, 4]).ceil_mode(true)),
        ([1, 5, 21, 22], window(11)),
    ];
    let parameters =
        [(1, true, false), (1, true, true), (1, false, true), (3, true, false), (2, false, true), (1, true, true)];
    let mut cases = vec![];
    for (i, (x, window)) in list.into_iter().enumerate() {
        for (j, normalize) in [Normalize::Window, Normalize::Valid].into_iter().enumerate() {
            for k in [0, 2, 3] {
                let (kernels, shared, per_axis) = parameters[(i + j + k) % parameters.len()];
                let layout = Layout::ChannelsLast;
                cases.push(Case { x, layout, window, normalize, kernels, shared, per_axis });
            }
        }
    }
    cases
}

/// Windows that leave gaps or none, of more and of fewer rows than are loaded at once; several planes a block, lines of more
/// than one part, windows that end after the image.
pub(super) fn apart() -> Vec<([usize; 4], Window)> {
    vec![
        ([40, 3, 7, 7], Window::new([7, 7])),
        ([2, 2, 12, 13], Window::new([4, 4])),
        ([1, 2, 33, 30], Window::new([8, 8]).padding([3, 4]).ceil_mode(true)),
        ([2, 3, 10, 11], Window::new([3, 3]).padding([1, 1])),
        ([1, 2, 19, 21], Window::new([2, 3]).stride([5, 4]).padding([1, 0])),
        ([1, 1, 23, 22], Window::new([17, 11]).stride([18, 11]).padding([8, 5])),
        ([2, 1, 5, 1100], Window::new([2, 4])),
        ([3, 2, 6, 9], Window::new([6, 9])),
    ]
}
