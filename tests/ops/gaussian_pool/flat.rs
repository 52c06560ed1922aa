//! Rows of pixels as flat runs of elements: 16 bits, with the channels last, of odd numbers.

use ferrolayer::Layout::ChannelsLast;
use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, compare, packs};
use crate::support::*;

fn of(list: &[([usize; 4], usize)]) -> Vec<Case> {
    let window = |padding| Window::new([3; 2]).stride([1; 2]).padding([padding; 2]);
    let list: Vec<_> = list.iter().map(|&(x, padding)| (x, window(padding))).collect();
    packs::of_one(&list).into_iter().filter(|case| case.layout == ChannelsLast).collect()
}

/// Rows that begin at even elements and at odd ones, of whole fours and of a part more; fewer rows than a thread has and more; padded by each
/// number of pixels, so that a row's first fours reach into what lies before it, and its last ones past the tensor. For the emulated grid, where
/// any number of outputs is much.
fn cases() -> Vec<Case> {
    of(&[
        ([2, 1, 9, 10], 1),
        ([2, 31, 6, 5], 1),
        ([4, 7, 13, 8], 0),
        ([2, 3, 6, 21], 1),
        ([1, 3, 5, 4], 1),
        ([4, 9, 7, 9], 0),
        ([2, 5, 3, 3], 0),
        ([2, 9, 4, 1], 1),
        // An odd number of elements, which others take.
        ([1, 7, 9, 11], 1),
    ])
}

/// As many outputs as go this way on a real GPU.
fn many() -> Vec<Case> {
    of(&[([16, 31, 32, 33], 1), ([34, 33, 18, 20], 0), ([64, 3, 41, 37], 1)])
}

pub(super) fn tests() -> Vec<Trial> {
    let name = |i: usize, of: &str| format!("gaussian_pool::flat::{i}::{of}");
    let emulated = |(i, case): (usize, Case)| {
        [
            on_emulated_gpu(&name(i, "f16"), move |gpu| compare::<f16>(gpu, &case, 12)),
            on_emulated_gpu(&name(i, "bf16"), move |gpu| compare::<bf16>(gpu, &case, 12)),
        ]
    };
    let real = |(i, case): (usize, Case)| {
        [
            on_real_gpu(&name(i, "f16"), move |gpu| compare::<f16>(gpu, &case, 12)),
            on_real_gpu(&name(i, "bf16"), move |gpu| compare::<bf16>(gpu, &case, 12)),
        ]
    };
    let real = many().into_iter().enumerate().flat_map(real);
    cases().into_iter().enumerate().flat_map(emulated).chain(real).collect()
}
