//! Row-major windows that are not square and whose weights are the same everywhere.

use ferrolayer::Layout::{ChannelsLast, RowMajor};
use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, compare, elements::of_maps};
use crate::oblong::{oblong, oblong_much};
use crate::support::*;

pub(super) fn cases() -> Vec<Case> {
    let list: Vec<_> = oblong().into_iter().map(|(shape, window)| (shape, window, 1)).collect();
    [of_maps(&list, &[RowMajor], &[true]), of_maps(&channels_last(), &[ChannelsLast], &[true])].concat()
}

/// Windows of one column, of channels that are no vectors in 16 bits or not in f32 either; and such one apart of whole vectors of channels, whose gradient is the forward
/// pass turned round.
fn channels_last() -> [([usize; 4], Window, usize); 6] {
    let window = |size, stride, padding| Window::new(size).stride(stride).padding(padding);
    [
        ([2, 3, 11, 10], window([3, 1], [2, 1], [1, 0]), 1),
        ([1, 4, 12, 7], window([2, 1], [2, 1], [0, 0]), 1),
        ([2, 12, 9, 5], window([5, 1], [1, 1], [2, 0]).ceil_mode(true), 1),
        ([2, 8, 11, 13], window([1, 3], [1, 1], [0, 1]), 1),
        ([3, 16, 9, 10], window([4, 2], [1, 1], [2, 1]), 1),
        ([1, 24, 8, 9], window([1, 6], [1, 1], [0, 0]), 1),
    ]
}

/// As many as have blocks on all multiprocessors.
pub(super) fn tests() -> Vec<Trial> {
    let list = oblong_much().map(|(shape, window)| (shape, window, 1));
    let test = |(i, case): (usize, Case)| {
        on_real_gpu(&format!("gaussian_pool::spans_much::{i}"), move |gpu| {
            compare::<f32>(gpu, &case, 13)?;
            compare::<f16>(gpu, &case, 13)?;
            compare::<bf16>(gpu, &case, 13)
        })
    };
    of_maps(&list, &[RowMajor], &[true]).into_iter().enumerate().map(test).collect()
}
