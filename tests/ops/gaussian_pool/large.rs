//! Few windows of many positions.

use ferrolayer::ops::Window;

use super::{Case, cases as all_of};

/// A warp an output and several; windows that reach outside; more channels than lanes and numbers of them that do not divide these; planes so
/// large that they go so though they have one window.
pub(super) fn cases() -> Vec<Case> {
    let window = |size: [usize; 2]| Window::new(size);
    all_of(&[
        ([2, 3, 24, 30], window([20, 17]).stride([9, 8]).padding([5, 4])),
        ([1, 35, 70, 20], window([65, 17]).stride([40, 9]).padding([30, 8])),
        ([2, 5, 90, 13], window([90, 13])),
        ([1, 2, 130, 128], window([130, 128])),
    ])
}
