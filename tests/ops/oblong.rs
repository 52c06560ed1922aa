//! Windows that are not as high as they are wide, or not as far apart or padded both ways, of the columns that kernels are for.

use ferrolayer::ops::Window;

use kernels::spans::KNOWN;

use crate::support::followed;

/// Of each number of columns, steps and padding windows of several heights and steps, over rows that are a multiple of four elements and that are not, as are those of outputs;
/// rows shorter than a thread's, windows that end past the image, rows and columns that none covers, and several planes.
pub fn oblong() -> Vec<([usize; 4], Window)> {
    let each = KNOWN.into_iter().enumerate().flat_map(|(i, geometry)| {
        let [columns, across, padding] = geometry.map(|number| number as usize);
        let of = move |height: usize, down: usize, above: usize| {
            let above = above.min(height / 2);
            // Not square, as far as the image goes.
            let height = if [height, down, above] == [columns, across, padding] { height + 1 } else { height };
            Window::new([height, columns]).stride([down, across]).padding([above, padding])
        };
        let j = i % 3;
        [
            ([2, 3, 9, 24], of([1, 3, 2][j], [1, 2, 4][j], 0)),
            ([1, 2, 11, 23], of([2, 1, 5][j], [2, 1, 1][j], 1).ceil_mode(true)),
            ([3, 2, 7, 4 * across * 4], of([7, 4, 3][j], [3, 1, 2][j], [3, 0, 1][j])),
            ([2, 1, 8, columns + 3], of([4, 2, 1][j], [4, 1, 3][j], 2).ceil_mode(true)),
        ]
    });
    followed(each.collect())
}

/// As many as have blocks on all multiprocessors.
pub fn oblong_much() -> [([usize; 4], Window); 6] {
    [
        ([8, 64, 56, 112], Window::new([1, 2])),
        ([8, 62, 57, 59], Window::new([2, 2]).stride([2, 1]).padding([0, 1])),
        ([4, 64, 112, 56], Window::new([3, 1]).stride([2, 1]).padding([1, 0])),
        ([8, 32, 63, 90], Window::new([3, 3]).stride([2, 1]).padding([1, 1])),
        ([8, 64, 48, 64], Window::new([2, 4])),
        ([8, 31, 61, 118], Window::new([3, 5]).stride([1, 2]).padding([1, 2]).ceil_mode(true)),
    ]
}
