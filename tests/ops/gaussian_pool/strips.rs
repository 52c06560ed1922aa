//! Images and windows that reach each way of the kernels by strips and of those down columns.

use ferrolayer::ops::Window;

/// Windows of known sizes and others, some larger than what is taken at once; several planes a block and several tiles a
/// plane, whose strips they do not share out evenly; rows of odd and even lengths; gaps between windows; planes
/// whose columns are more than a block's threads, and planes in parts.
pub(super) fn cases() -> Vec<([usize; 4], Window)> {
    let window = |size| Window::new(size).stride([1, 1]);
    vec![
        ([2, 2, 46, 38], window([11, 11]).stride([2, 2]).padding([5, 5])),
        ([1, 1, 116, 130], window([11, 11]).stride([2, 2])),
        ([1, 1, 90, 121], window([11, 11]).stride([2, 2]).padding([4, 3]).ceil_mode(true)),
        ([7, 3, 6, 8], window([3, 3]).stride([2, 2]).padding([1, 1])),
        ([9, 5, 5, 6], window([3, 3]).stride([2, 2])),
        ([1, 2, 75, 84], window([3, 3]).stride([2, 2]).padding([0, 1])),
        ([1, 1, 60, 57], window([9, 9]).stride([3, 3]).padding([4, 4])),
        ([2, 1, 31, 30], window([13, 15]).padding([6, 7])),
        ([1, 1, 40, 46], window([25, 7]).stride([2, 2]).padding([12, 0]).ceil_mode(true)),
        ([1, 1, 33, 32], window([17, 17]).stride([3, 3]).padding([1, 8])),
        ([1, 2, 28, 29], window([1, 2]).stride([3, 3])),
        ([1, 1, 70, 470], window([12, 9]).stride([2, 2]).padding([6, 1])),
        ([1, 3, 190, 44], window([10, 11]).stride([3, 3]).padding([5, 3])),
        ([5, 2, 37, 34], window([4, 3]).stride([2, 2]).padding([2, 1])),
    ]
}
