//! Windows of few positions and of any height and width, by packs of channels.

use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, LAYOUTS, compare, elements::of_maps};
use crate::support::*;

/// Windows of a row, of a column and of both, side by side, apart and one over another; fewer taps than are loaded at once, as many and more; packs of each
/// number of bytes, a pixel's in one group and in several, the last of which has fewer; inputs that no window covers, windows that reach outside; and
/// several turns a block.
pub(super) fn cases() -> Vec<Case> {
    let window = |size: [usize; 2], stride: [usize; 2]| Window::new(size).stride(stride);
    let list = [
        ([2, 3, 9, 24], window([1, 2], [1, 2]), 1),
        ([2, 6, 8, 11], window([1, 3], [1, 1]).padding([0, 1]), 1),
        ([3, 8, 12, 7], window([2, 1], [2, 1]), 1),
        ([2, 5, 7, 22], window([1, 5], [1, 2]).padding([0, 2]).ceil_mode(true), 1),
        ([2, 12, 10, 13], window([2, 4], [2, 4]), 1),
        ([1, 16, 9, 11], window([3, 5], [1, 1]).padding([1, 2]), 1),
        ([2, 4, 13, 14], window([3, 2], [4, 3]).padding([1, 1]), 1),
        ([5, 33, 11, 12], window([2, 2], [1, 2]), 1),
        ([1, 134, 5, 8], window([1, 4], [2, 3]).padding([0, 2]), 1),
        ([1, 516, 4, 5], window([2, 3], [2, 1]), 1),
        ([1, 3, 9, 8], window([3, 3], [3, 3]), 1),
    ];
    of_maps(&list, &LAYOUTS, &[false, true])
}

/// As many as take several turns a block on a real GPU.
pub(super) fn tests() -> Vec<Trial> {
    let window = |size: [usize; 2], stride: [usize; 2]| Window::new(size).stride(stride);
    let list = [
        ([2, 3, 333, 511], window([1, 3], [1, 1]).padding([0, 1]), 1),
        ([16, 12, 57, 56], window([2, 4], [2, 4]), 1),
        ([8, 64, 55, 57], window([1, 5], [1, 2]).padding([0, 2]), 1),
    ];
    let test = |(i, case): (usize, Case)| {
        on_real_gpu(&format!("gaussian_pool::taps::several_turns::{i}"), move |gpu| {
            compare::<f32>(gpu, &case, 17)?;
            compare::<f16>(gpu, &case, 17)?;
            compare::<bf16>(gpu, &case, 17)
        })
    };
    of_maps(&list, &LAYOUTS, &[false, true]).into_iter().enumerate().map(test).collect()
}
