//! Images and windows that reach each way of the kernels in which a thread has whole windows, and a warp a plane.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;

/// Rows of 16-byte pieces whose lanes are mostly busy: tiles of one and of several, with padding of each remainder, planes
/// in parts, windows that end after the image and columns that none covers, one Gaussian and three.
pub(super) fn cases() -> Vec<Case> {
    let window = |size| Window::new([size; 2]).stride([2, 2]);
    let list = [
        ([1, 3, 33, 112], window(11)),
        ([2, 2, 23, 104], window(11).padding([5, 4])),
        ([1, 2, 14, 96], window(3).padding([1, 0])),
        ([5, 1, 9, 88], window(3)),
        ([1, 1, 38, 224], window(11).padding([2, 2]).ceil_mode(true)),
        ([1, 2, 21, 208], window(3).ceil_mode(true)),
        // Rows that are no multiple of 16 bytes, and padding that is odd: `dx` alone goes this way.
        ([1, 3, 17, 113], window(3).padding([1, 1])),
        ([2, 1, 27, 97], window(11).padding([5, 5])),
    ];
    let mut cases = vec![];
    for (i, (x, window)) in list.into_iter().enumerate() {
        for (j, (kernels, shared, per_axis)) in
            [(1, true, false), (1, false, true), (3, true, true)].into_iter().enumerate()
        {
            let normalize =
                if window.padding == [0, 0] && (i + j) % 2 == 0 { Normalize::Valid } else { Normalize::Window };
            cases.push(Case { x, layout: Layout::RowMajor, window, normalize, kernels, shared, per_axis });
        }
    }
    cases
}

/// Three Gaussians a channel, all channels' or each its own: padding of each remainder, tiles of one and of several, planes in parts, and
/// a block's warps of which some have nothing to do.
pub(super) fn maps() -> Vec<Case> {
    let window = |padding| Window::new([11; 2]).stride([2; 2]).padding(padding);
    let list = [
        ([1, 2, 45, 120], window([3, 2]), false),
        ([1, 1, 30, 228], window([0, 0]), true),
        ([1, 3, 24, 112], window([4, 4]), false),
        ([5, 1, 19, 108], window([5, 0]), true),
    ];
    let case = |(i, (x, window, shared))| Case {
        x,
        layout: Layout::RowMajor,
        window,
        normalize: Normalize::Window,
        kernels: 3,
        shared,
        per_axis: i % 2 == 0,
    };
    list.into_iter().enumerate().map(case).collect()
}

/// Small windows of each known size, on rows that are and are not multiples of four elements, cut off by padding or not; some
/// planes a block, and some blocks.
pub(super) fn small() -> Vec<([usize; 4], Window)> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    vec![
        ([3, 4, 7, 7], window(2, 2)),
        ([2, 2, 12, 20], window(2, 2)),
        ([1, 3, 9, 10], window(2, 2).padding([1, 1]).ceil_mode(true)),
        ([2, 5, 13, 14], window(3, 3)),
        ([1, 2, 20, 19], window(4, 4)),
        ([1, 2, 18, 24], window(4, 4).ceil_mode(true)),
        ([1, 2, 33, 30], window(8, 8)),
        ([1, 2, 26, 28], window(8, 8).ceil_mode(true)),
        ([2, 3, 13, 13], window(3, 2)),
        ([2, 2, 14, 15], window(3, 2).padding([1, 1])),
    ]
}
