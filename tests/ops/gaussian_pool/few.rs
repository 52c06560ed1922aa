//! Images and windows that reach each way of the kernels for channels that are last and no whole vectors.

use ferrolayer::ops::Window;

use super::{Case, packs};

/// Windows of 2×2 and 3×3 of each stride, whose blocks take several images, and rows of one; larger ones by lines, of several rows and
/// parts of a line; rows and columns that no window covers; a few planes that follow each other.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([3, 3, 15, 17], window(3, 2, 1)),
        ([2, 5, 20, 13], window(3, 2, 0)),
        ([1, 7, 9, 10], window(3, 1, 1)),
        ([2, 3, 19, 14], window(3, 3, 0)),
        ([1, 31, 9, 14], window(3, 4, 1)),
        ([1, 3, 12, 22], window(3, 3, 1).stride([3, 5])),
        ([1, 3, 12, 22], window(3, 1, 1).stride([1, 2])),
        ([3, 3, 7, 7], window(2, 2, 0)),
        ([2, 5, 9, 8], window(2, 1, 1)),
        ([1, 7, 10, 13], window(2, 3, 1)),
        ([1, 3, 12, 22], window(2, 1, 1).stride([3, 2])),
        ([1, 3, 40, 41], window(11, 4, 5)),
        ([2, 6, 23, 21], window(5, 1, 2)),
        ([1, 33, 13, 14], window(7, 3, 3)),
        ([1, 3, 30, 70], window(4, 2, 0)),
        ([2, 5, 31, 33], window(11, 2, 0)),
    ];
    packs::of_one(&list)
}
