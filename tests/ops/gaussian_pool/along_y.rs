//! Windows that are far apart along y over row-major images: columns first.

use ferrolayer::Layout;
use ferrolayer::ops::Window;

use super::{Case, elements::of_maps};

/// Rows that are whole packs and that are not, shorter than a block's threads and longer than a turn's; windows that reach outside, past the end and
/// over all rows; lines of several planes and several turns a block; as many Gaussians as go at once, and more, of all channels and of each.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let list = [
        ([2, 3, 33, 36], window(9, 4), 1),
        ([2, 3, 34, 37], window(11, 5).padding([5, 5]), 3),
        ([2, 2, 25, 28], window(11, 4).padding([5, 2]).ceil_mode(true), 2),
        ([2, 2, 25, 30], window(9, 6).padding([0, 4]).ceil_mode(true), 5),
        ([3, 5, 16, 20], window(16, 8), 4),
        ([3, 5, 13, 14], window(12, 12).padding([3, 3]), 6),
        ([1, 1, 22, 1100], window(10, 7), 1),
        ([1, 1, 21, 1101], window(9, 12).padding([4, 4]), 3),
        ([1, 1, 10, 4100], window(9, 5), 2),
        ([9, 9, 29, 32], window(9, 5), 1),
        ([9, 9, 29, 31], window(9, 5).padding([1, 2]), 3),
        ([2, 3, 24, 32], window(7, 4), 1),
        ([2, 3, 24, 32], window(8, 5).padding([4, 3]), 1),
        ([2, 3, 24, 33], Window::new([9, 3]).stride([4, 2]).padding([2, 1]), 3),
        ([2, 3, 24, 32], Window::new([3, 12]).stride([5, 1]).padding([1, 6]), 1),
        ([2, 3, 24, 32], Window::new([5, 1]).stride([4, 1]), 2),
    ];
    of_maps(&list, &[Layout::RowMajor], &[true, false])
}
