//! Planes of one window.

use ferrolayer::ops::Window;

use super::{Case, cases as all_of};

/// Windows as large as planes, larger and smaller; planes of which vectors have parts of two, a last vector that is not whole.
pub(super) fn cases() -> Vec<Case> {
    let window = |size: [usize; 2]| Window::new(size);
    all_of(&[
        ([3, 5, 7, 7], window([7, 7])),
        ([2, 3, 4, 5], window([4, 5])),
        ([4, 7, 3, 3], window([3, 3])),
        ([1, 3, 8, 6], window([5, 4])),
        ([2, 4, 6, 7], window([9, 9]).padding([4, 4])),
        ([2, 130, 5, 5], window([5, 5])),
        ([1, 2, 40, 33], window([40, 33])),
    ])
}

/// Planes larger than their window, and so large that the CPU has several tasks of one.
pub(super) fn large_cases() -> Vec<Case> {
    all_of(&[([2, 2, 60, 50], Window::new([40, 33])), ([1, 2, 130, 130], Window::new([130, 130]))])
}
