//! Images that reach each way of the kernels whose blocks stage rows.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::Case;

/// Channels of one group and of several, of which the last is not full; parts across and down, padding that is even and odd,
/// windows that end after the image, fewer rows of windows than are open at once; one Gaussian and three.
pub(super) fn cases() -> Vec<Case> {
    let window = Window::new([11; 2]).stride([2; 2]);
    let list = [
        ([1, 64, 19, 46], window),
        ([1, 72, 24, 58], window.padding([2, 5]).ceil_mode(true)),
        ([2, 64, 12, 81], window.padding([5, 4])),
        ([1, 56, 45, 64], window.padding([1, 0]).ceil_mode(true)),
    ];
    let mut cases = vec![];
    for (i, (x, window)) in list.into_iter().enumerate() {
        for (kernels, per_axis) in [(1, true), (3, false), (1, false), (3, true)] {
            let normalize = if window.padding == [0, 0] && i % 2 == 0 { Normalize::Valid } else { Normalize::Window };
            let layout = Layout::ChannelsLast;
            cases.push(Case { x, layout, window, normalize, kernels, shared: true, per_axis });
        }
    }
    cases
}

/// One that is small, with one Gaussian and with three.
pub(super) fn nan_cases() -> Vec<Case> {
    let window = Window::new([11; 2]).stride([2; 2]).padding([2, 1]);
    let (x, layout, normalize) = ([1, 64, 14, 42], Layout::ChannelsLast, Normalize::Window);
    [1, 3].map(|kernels| Case { x, layout, window, normalize, kernels, shared: true, per_axis: true }).into()
}
