//! Images and windows that reach each way of the kernels by patches.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;

/// Channels of a multiple of four and of eight, one patch a block and several, images of an odd and an even number of rows and
/// columns, windows that end after the image, several images a block.
pub(super) fn cases() -> Vec<Case> {
    let window = |size| Window::new([size; 2]).stride([2; 2]);
    let list = [
        ([2, 8, 9, 10], window(3).padding([1; 2])),
        ([1, 72, 6, 7], window(3)),
        ([3, 12, 5, 8], window(2)),
        ([1, 8, 3, 3], window(3)),
        ([2, 40, 10, 13], window(3).ceil_mode(true)),
        ([5, 16, 4, 5], window(3).padding([1; 2]).ceil_mode(true)),
        ([2, 8, 7, 6], window(2).ceil_mode(true)),
    ];
    // Of each in two types on the emulated grid.
    let each = |(i, (x, window)): (usize, ([usize; 4], Window))| {
        [false, true].map(|per_axis| {
            let whole = window.padding == [0; 2] && !window.ceil_mode;
            let normalize = if whole && i % 2 == 0 { Normalize::Valid } else { Normalize::Window };
            Case { x, layout: Layout::ChannelsLast, window, normalize, kernels: 1, shared: true, per_axis }
        })
    };
    list.into_iter().enumerate().flat_map(each).collect()
}
