//! Channels with Gaussians of their own: elements with all channels' weights in shared memory.

use ferrolayer::ops::Window;

use super::{Case, LAYOUTS, elements::of_maps};

/// With the channels last windows far apart, of channels fewer and more than a block's threads, and several turns a block; in both layouts little;
/// several Gaussians a map; windows that reach outside and that overlap.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let list = [
        ([2, 6, 22, 17], window(3, 4).padding([1, 1]), 1),
        ([2, 31, 16, 15], window(4, 3), 2),
        ([1, 300, 11, 10], window(5, 5).padding([1, 2]), 1),
        ([5, 33, 21, 20], window(5, 3).padding([2, 2]).ceil_mode(true), 1),
        ([2, 9, 26, 25], window(11, 5).padding([5, 5]), 3),
        ([2, 5, 12, 13], window(2, 2), 1),
        ([2, 6, 12, 13], window(3, 1).padding([1, 1]), 1),
        ([2, 6, 12, 13], window(3, 2).padding([1, 1]), 2),
        ([3, 2, 14, 19], Window::new([4, 3]).stride([3, 5]).padding([1, 0]), 3),
        ([2, 3, 9, 14], Window::new([2, 7]).stride([1, 2]).padding([1, 3]), 1),
    ];
    of_maps(&list, &LAYOUTS, &[false])
}
