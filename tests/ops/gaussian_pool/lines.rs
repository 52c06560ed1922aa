//! Lines of pixels whose channels are neighbours, as the CPU goes over them: fewer lanes than a vector and more, no whole
//! vectors, and images of several tasks and batches of rows.

use ferrolayer::ops::Window;

use super::{Case, cases as of};

pub(super) fn cases() -> Vec<Case> {
    let window = |size| Window::new(size).stride([1, 1]);
    of(&[
        ([1, 5, 8, 11], window([5, 4]).stride([3, 3]).padding([2, 1])),
        ([1, 5, 8, 11], window([5, 4]).stride([3, 5]).padding([2, 1]).ceil_mode(true)),
        ([2, 17, 7, 9], window([3, 3]).stride([2, 2]).padding([1, 1])),
        ([1, 33, 6, 6], window([3, 3]).padding([1, 1])),
        ([1, 70, 5, 6], window([2, 3]).stride([2, 2]).padding([0, 1])),
        ([1, 70, 24, 100], window([3, 3]).stride([2, 2]).padding([1, 1])),
        ([1, 2, 40, 700], window([3, 3]).stride([2, 2]).padding([1, 1])),
        ([1, 2, 40, 200], window([2, 3]).stride([3, 2])),
    ])
}
