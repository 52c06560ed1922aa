//! Windows that are summed by rows, which those below each other share: the same draws on all devices.

use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::match_cpu;
use crate::max_pool::Case;
use crate::support::*;

pub fn tests() -> Vec<Trial> {
    vec![
        on_real_gpu("stochastic_pool::many_sums_of_rows::f32", |gpu| match_cpu::<f32>(gpu, &many())),
        on_real_gpu("stochastic_pool::many_sums_of_rows::f16", |gpu| match_cpu::<f16>(gpu, &many())),
        on_real_gpu("stochastic_pool::many_sums_of_rows::bf16", |gpu| match_cpu::<bf16>(gpu, &many())),
    ]
}

fn square(shape: [usize; 4], size: usize, stride: usize, padding: usize) -> Case {
    Case { shape, window: Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]) }
}

/// Windows of more than nine positions: of each size and stride that is compiled in, and of others; rows of images shorter and longer than a tile's, small
/// planes of which a block has several, windows high, long, and further apart than they are long.
pub(super) fn chosen() -> Vec<Case> {
    let square = |shape, size, stride| square(shape, size, stride, size / 2);
    let mut cases: Vec<_> = [4, 5, 6, 7, 8, 9, 11]
        .into_iter()
        .flat_map(|size| [1, 2, 3].map(|stride| square([2, 3, 15, 17], size, stride)))
        .collect();
    cases.extend([
        square([23, 5, 7, 7], 5, 1),
        square([70, 3, 3, 4], 4, 1),
        square([1, 2, 9, 301], 5, 1),
        square([1, 1, 8, 530], 7, 2),
        square([1, 2, 40, 33], 9, 4),
        square([1, 2, 33, 35], 10, 5),
        square([1, 3, 21, 22], 15, 2),
        Case { shape: [1, 2, 60, 9], window: Window::new([40, 2]).stride([7, 1]).padding([20, 1]) },
        Case { shape: [1, 2, 9, 90], window: Window::new([1, 70]).stride([1, 3]).padding([0, 35]) },
        Case { shape: [1, 3, 31, 37], window: Window::new([4, 4]).stride([9, 11]).padding([2, 2]) },
        Case { shape: [1, 3, 31, 37], window: Window::new([3, 5]).stride([6, 10]).padding([1, 2]).ceil_mode(true) },
        Case { shape: [2, 2, 6, 5], window: Window::new([5, 2]).stride([1, 2]).padding([2, 1]) },
    ]);
    cases
}

/// As many as fill a GPU.
fn many() -> Vec<Case> {
    vec![
        square([16, 64, 56, 56], 5, 1, 2),
        square([16, 64, 55, 57], 7, 2, 3),
        square([8, 64, 111, 113], 9, 3, 4),
        square([64, 256, 7, 7], 5, 1, 2),
        square([1, 3, 701, 1003], 11, 3, 5),
        square([1, 7, 300, 640], 15, 5, 7),
        square([8, 64, 60, 60], 4, 4, 0),
    ]
}
