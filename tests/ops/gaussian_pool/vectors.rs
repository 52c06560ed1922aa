//! Images and windows that reach each way of the kernels by vectors of channels, by runs of outputs and by positions.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;
use crate::support::by_vectors;

/// As pooling's, with one Gaussian that all channels share, and the first with one for each channel, for which there is no such
/// kernel; every third with several Gaussians a map. Then windows one apart: runs that are cut off, images of fewer rows than a run, rows
/// of one vector and of several; 2×2 and 3×3 ones of other strides.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, padding| Window::new([size; 2]).stride([1; 2]).padding([padding; 2]);
    let runs = [
        ([2, 16, 9, 11], window(3, 1), Layout::ChannelsLast),
        ([1, 8, 6, 9], window(5, 2), Layout::ChannelsLast),
        ([1, 24, 13, 5], window(5, 1), Layout::ChannelsLast),
        ([2, 8, 7, 4], window(3, 0), Layout::ChannelsLast),
        ([1, 8, 2, 2], window(3, 1), Layout::ChannelsLast),
        ([1, 8, 33, 3], window(3, 1), Layout::ChannelsLast),
        ([1, 8, 31, 4], window(5, 2), Layout::ChannelsLast),
        ([1, 2, 29, 8], window(3, 1), Layout::RowMajor),
        ([2, 16, 9, 7], window(2, 0).stride([2; 2]), Layout::ChannelsLast),
        ([2, 40, 7, 8], window(2, 1).stride([3, 1]), Layout::ChannelsLast),
        ([1, 8, 10, 9], window(3, 1).stride([3, 4]), Layout::ChannelsLast),
        ([2, 3, 9, 8], window(3, 1), Layout::RowMajor),
        ([1, 5, 6, 24], window(3, 1), Layout::RowMajor),
        ([3, 1, 2, 16], window(3, 1), Layout::RowMajor),
    ];
    let case = |x, window, layout, shared, kernels| {
        [false, true].map(|per_axis| Case {
            x,
            layout,
            window,
            normalize: Normalize::Window,
            kernels,
            shared,
            per_axis,
        })
    };
    let of_any = by_vectors().into_iter().enumerate();
    let of_any = of_any.flat_map(|(i, (x, window))| case(x, window, Layout::ChannelsLast, i != 0, [1, 1, 2][i % 3]));
    of_any.chain(runs.into_iter().flat_map(|(x, window, layout)| case(x, window, layout, true, 1))).collect()
}
