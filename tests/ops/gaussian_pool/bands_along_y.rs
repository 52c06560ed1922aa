//! Windows that are far apart along y over row-major images whose rows are no multiple of four: by bands, columns first.

use ferrolayer::Layout;
use ferrolayer::ops::Window;

use super::{Case, elements::of_maps};

/// What goes this way on a real GPU, too: planes of some hundred pixels, of which a block has several, and large ones in several bands; windows that reach
/// outside and past the end; Gaussians of all channels and of each, one and two a map.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let list = [
        ([9, 9, 29, 31], window(9, 5), 1),
        ([2, 3, 29, 31], window(9, 5).padding([1, 2]), 1),
        ([3, 5, 30, 33], window(11, 4).padding([5, 5]), 1),
        ([1, 2, 66, 70], window(16, 8), 1),
        ([2, 2, 65, 67], window(9, 5).padding([4, 4]).ceil_mode(true), 2),
        ([1, 2, 70, 61], Window::new([10, 3]).stride([4, 2]).padding([0, 1]), 1),
        ([1, 3, 300, 131], window(9, 4), 1),
    ];
    of_maps(&list, &[Layout::RowMajor], &[true, false])
}
