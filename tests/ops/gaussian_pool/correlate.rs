//! Images that reach each way of the kernel that correlates them with the gradients of windows.

use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::{Device, Real};

use super::{Case, compare};
use crate::support::*;

/// Channels of one group and of several, of which the last is not full; tiles that are cut off; padding that is
/// even and odd, windows that end after the image, pixels that no window covers; blocks of part of a column and of several.
pub(super) fn cases() -> Vec<Case> {
    let window = Window::new([11; 2]).stride([2; 2]);
    let list = [
        ([1, 64, 34, 26], window),
        ([3, 16, 14, 43], window.padding([2, 5]).ceil_mode(true)),
        ([1, 88, 23, 24], window.padding([5, 1])),
        ([2, 32, 12, 11], window),
        ([1, 32, 40, 59], window.padding([4, 4])),
    ];
    let mut cases = vec![];
    for (i, (x, window)) in list.into_iter().enumerate() {
        for (j, per_axis) in [true, false].into_iter().enumerate() {
            let normalize = if window.padding == [0, 0] && j == 0 { Normalize::Valid } else { Normalize::Window };
            let (layout, kernels) = (Layout::ChannelsLast, if i == 4 && j == 1 { 2 } else { 1 });
            cases.push(Case { x, layout, window, normalize, kernels, shared: true, per_axis });
        }
    }
    cases
}

/// One that a GPU takes by this kernel: what is small goes otherwise there.
pub(super) fn matches_cpu_at_full_size<T: Real>(gpu: &Device) -> Outcome {
    let window = Window::new([11; 2]).stride([2; 2]).padding([0, 4]);
    let (x, layout, normalize) = ([40, 32, 62, 60], Layout::ChannelsLast, Normalize::Window);
    let case = Case { x, layout, window, normalize, kernels: 1, shared: true, per_axis: true };
    compare::<T>(gpu, &case, 31)
}
