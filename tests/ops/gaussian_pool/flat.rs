//! Rows of pixels as flat runs of elements: 16 bits, with the channels last, which are no multiple of four.

use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, compare, packs};
use crate::support::*;

/// Rows that begin at even elements and at odd ones, of whole fours and of a part more; fewer rows than a thread has and more; padded by each
/// number of pixels, so that a row's first fours reach into what lies before it, and its last ones past the tensor.
fn cases() -> Vec<Case> {
    let window = |padding| Window::new([3; 2]).stride([1; 2]).padding([padding; 2]);
    let list = [
        ([2, 1, 9, 10], window(1)),
        ([2, 31, 6, 5], window(1)),
        ([4, 7, 13, 8], window(0)),
        ([2, 3, 6, 21], window(1)),
        ([1, 2, 5, 4], window(1)),
        ([3, 6, 7, 9], window(0)),
        ([2, 5, 3, 3], window(0)),
        ([2, 9, 4, 1], window(1)),
        // An odd number of elements, which others take.
        ([1, 7, 9, 11], window(1)),
    ];
    packs::of_one(&list).into_iter().filter(|case| case.layout == ferrolayer::Layout::ChannelsLast).collect()
}

pub(super) fn tests() -> Vec<Trial> {
    let tests = |(i, case): (usize, Case)| {
        let name = |of: &str| format!("gaussian_pool::flat::{i}::{of}");
        let mut tests = on_each_gpu(&name("f16"), move |gpu| compare::<f16>(gpu, &case, 12));
        tests.extend(on_each_gpu(&name("bf16"), move |gpu| compare::<bf16>(gpu, &case, 12)));
        tests
    };
    cases().into_iter().enumerate().flat_map(tests).collect()
}
