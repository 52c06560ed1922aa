//! Channels with Gaussians of their own, which are last, by packs.

use ferrolayer::Layout::ChannelsLast;
use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, compare, elements::of_maps};
use crate::support::*;

/// Packs of each number of bytes, a pixel's in one group and in several, the last of which has fewer; heights that are no multiple of a thread's rows; windows one and two apart, rows and columns that no window covers, and windows that reach outside.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([2, 8, 9, 10], window(3, 1, 1), 1),
        ([3, 6, 19, 11], window(3, 1, 0), 1),
        ([5, 5, 13, 14], window(3, 1, 1), 1),
        ([2, 12, 14, 15], window(3, 2, 1), 1),
        ([3, 6, 11, 12], window(3, 2, 0), 1),
        ([4, 3, 12, 13], window(3, 2, 1), 1),
        ([2, 8, 11, 9], window(5, 1, 2), 1),
        ([2, 6, 12, 11], window(5, 2, 2), 1),
        ([3, 3, 13, 12], window(5, 1, 1), 1),
        ([3, 5, 14, 16], window(5, 2, 1), 1),
        ([2, 8, 12, 11], window(7, 1, 3), 1),
        ([2, 6, 15, 14], window(7, 2, 3), 1),
        ([2, 3, 13, 15], window(7, 2, 2), 1),
        ([2, 3, 11, 12], window(7, 1, 0), 1),
        ([1, 516, 6, 5], window(3, 1, 1), 1),
        ([1, 520, 5, 7], window(3, 2, 1), 1),
        ([1, 259, 5, 4], window(3, 1, 1), 1),
        ([1, 300, 5, 6], window(5, 1, 2), 1),
        ([1, 131, 7, 6], window(5, 2, 2), 1),
        ([1, 270, 5, 4], window(7, 1, 3), 1),
        ([1, 64, 7, 7], window(7, 2, 3).ceil_mode(true), 1),
        // One output a thread.
        ([1, 2, 9, 7], window(3, 1, 1), 1),
        ([1, 3, 9, 8], window(3, 2, 1), 1),
    ];
    of_maps(&list, &[ChannelsLast], &[false])
}

/// As many outputs and cells as have several a thread on a real GPU, of outputs some and as many as they may.
pub(super) fn tests() -> Vec<Trial> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([8, 32, 63, 64], window(3, 2, 1), 1),
        ([4, 32, 64, 63], window(5, 2, 2), 1),
        ([2, 62, 45, 44], window(3, 1, 0), 1),
        ([8, 64, 47, 46], window(3, 1, 1), 1),
    ];
    let test = |(i, case): (usize, Case)| {
        on_real_gpu(&format!("gaussian_pool::packs_apiece::several::{i}"), move |gpu| {
            compare::<f32>(gpu, &case, 13)?;
            compare::<f16>(gpu, &case, 13)?;
            compare::<bf16>(gpu, &case, 13)
        })
    };
    of_maps(&list, &[ChannelsLast], &[false]).into_iter().enumerate().map(test).collect()
}
