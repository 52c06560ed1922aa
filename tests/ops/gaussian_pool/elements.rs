//! Row-major passes that are little, of more than a few outputs.

use ferrolayer::ops::Window;

use super::{Case, cases as all_of};

/// Windows that reach outside and that do not, of rows that are loaded at once, more than that and less; several planes a block.
pub(super) fn cases() -> Vec<Case> {
    let window = |size: [usize; 2]| Window::new(size);
    let each = [
        ([64, 9, 12, 13], window([5, 4]).stride([3, 3]).padding([2, 1])),
        ([400, 3, 17, 14], window([9, 10]).stride([4, 4])),
        ([9, 13, 3, 130], window([2, 3]).stride([3, 3])),
    ];
    each.into_iter().flat_map(|case| all_of(&[case])).collect()
}
