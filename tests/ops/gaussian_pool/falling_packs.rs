//! Windows one and two apart with the channels last, by packs down strips of two columns.

use ferrolayer::Layout::ChannelsLast;
use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, compare, elements::of_maps};
use crate::support::*;

/// As many outputs as go this way on the emulated grid: packs of each number of bytes, a pixel's in one group and in several; odd numbers of columns and of
/// rows, rows and columns that no window covers, and windows that reach outside; one strip and several.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([3, 12, 19, 21], window(3, 1, 1), 1),
        ([5, 6, 23, 18], window(3, 1, 0), 1),
        ([4, 5, 26, 23], window(3, 1, 1), 1),
        ([2, 12, 23, 19], window(5, 1, 2), 1),
        ([4, 6, 21, 20], window(5, 1, 0), 1),
        ([7, 3, 19, 22], window(5, 1, 1), 1),
        ([3, 12, 38, 37], window(5, 2, 2), 1),
        ([6, 6, 39, 36], window(5, 2, 0), 1),
        ([9, 3, 41, 38], window(5, 2, 1), 1),
        ([2, 12, 20, 23], window(7, 1, 3), 1),
        ([4, 6, 25, 22], window(7, 1, 2), 1),
        ([7, 3, 24, 25], window(7, 1, 0), 1),
        ([3, 12, 41, 36], window(7, 2, 3), 1),
        ([6, 6, 38, 41], window(7, 2, 1), 1),
        ([9, 3, 42, 43], window(7, 2, 2).ceil_mode(true), 1),
        ([1, 264, 9, 7], window(3, 1, 1), 1),
        ([1, 266, 8, 9], window(5, 1, 2), 1),
        ([1, 135, 12, 9], window(7, 1, 3), 1),
        ([1, 264, 12, 13], window(7, 2, 3), 1),
        ([1, 35, 2, 150], window(3, 1, 1), 1),
        ([1, 36, 150, 1], window(3, 1, 1), 1),
    ];
    of_maps(&list, &[ChannelsLast], &[false, true])
}

/// As many as go this way on a real GPU, in f32 but for few, and in one of the types of 16 bits and the other.
pub(super) fn tests() -> Vec<Trial> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([32, 64, 57, 58], window(3, 1, 1), 1),
        ([48, 62, 41, 42], window(3, 1, 0), 1),
        ([40, 63, 36, 37], window(3, 1, 1), 1),
        ([24, 64, 38, 37], window(5, 1, 2), 1),
        ([26, 62, 40, 38], window(5, 1, 1), 1),
        ([32, 31, 48, 47], window(5, 1, 2), 1),
        ([32, 64, 65, 64], window(5, 2, 2), 1),
        ([34, 62, 67, 65], window(5, 2, 0), 1),
        ([64, 31, 68, 67], window(5, 2, 1), 1),
        ([12, 64, 38, 37], window(7, 1, 3), 1),
        ([16, 62, 40, 41], window(7, 1, 0), 1),
        ([16, 31, 47, 48], window(7, 1, 3), 1),
        ([36, 64, 65, 64], window(7, 2, 3), 1),
        ([25, 62, 68, 66], window(7, 2, 2), 1),
        ([48, 31, 65, 66], window(7, 2, 3), 1),
    ];
    let test = |(i, case): (usize, Case)| {
        on_real_gpu(&format!("gaussian_pool::falling_packs::{i}"), move |gpu| {
            compare::<f32>(gpu, &case, 13)?;
            if (i / 2 + i).is_multiple_of(2) { compare::<f16>(gpu, &case, 13) } else { compare::<bf16>(gpu, &case, 13) }
        })
    };
    let mut tests: Vec<_> = of_maps(&list, &[ChannelsLast], &[false, true]).into_iter().enumerate().map(test).collect();
    for (name, x, size) in [("3x3", [64, 64, 65, 64], 3), ("5x5", [32, 64, 130, 128], 5)] {
        let of = [(x, window(size, size / 2, size / 2), 1)];
        for case in of_maps(&of, &[ChannelsLast], &[true]) {
            tests.push(on_real_gpu(&format!("gaussian_pool::falling_packs::much_{name}"), move |gpu| {
                compare::<f32>(gpu, &case, 13)
            }));
        }
    }
    tests
}
