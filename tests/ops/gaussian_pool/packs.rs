//! Windows of the sizes that go by packs of channels.

use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::{bf16, f16};

use super::{Case, LAYOUTS, cases as all_of, compare, elements};
use crate::support::*;

/// Windows of 7×7, one apart by one row a thread and by several, and those of 5×5 and 7×7 that are two apart, whose last rows and columns
/// of the image have fewer windows over them, or none.
pub(super) fn sevens() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let each = [
        ([3, 6, 37, 38], window(7, 1).padding([3, 3])),
        ([5, 6, 17, 19], window(7, 1)),
        ([5, 6, 21, 23], window(7, 2).padding([3, 3])),
        ([9, 3, 20, 22], window(7, 2)),
        ([8, 6, 14, 16], window(5, 2)),
    ];
    each.into_iter().filter(elements::followed).flat_map(|case| all_of(&[case])).collect()
}

/// Channels that in 16 bits are halves of vectors, and in f32 whole ones.
pub(super) fn halves() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let each = [
        ([6, 12, 9, 11], window(3, 1).padding([1, 1])),
        ([5, 4, 13, 15], window(5, 1).padding([2, 2])),
        ([5, 12, 13, 15], window(5, 2).padding([2, 2])),
        ([6, 4, 13, 13], window(7, 2).padding([3, 3])),
        ([9, 4, 16, 20], window(3, 3)),
    ];
    each.into_iter().flat_map(|case| all_of(&[case])).collect()
}

/// One Gaussian of such windows in both layouts.
pub(super) fn of_one(list: &[([usize; 4], Window)]) -> Vec<Case> {
    let case = |(i, &(x, window)): (usize, &([usize; 4], Window)), layout| Case {
        x,
        layout,
        window,
        normalize: Normalize::Window,
        kernels: 1,
        shared: true,
        per_axis: i % 2 == 0,
    };
    list.iter().enumerate().flat_map(|of| LAYOUTS.map(|layout| case(of, layout))).collect()
}

/// Each number of bytes of a pack and of rows of a thread, of heights that are no multiple of these; windows one and two apart and further,
/// not alike both ways; rows and columns that no window covers.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let [a, b] = [[2, 6, 7, 8], [1, 4, 7, 9]];
    of_one(&[
        ([2, 8, 9, 10], window(3, 1, 1)),
        ([5, 8, 13, 14], window(3, 1, 0)),
        (a, window(3, 1, 0)),
        ([3, 8, 19, 21], window(3, 2, 1)),
        ([6, 16, 15, 17], window(3, 2, 1)),
        ([4, 8, 17, 19], window(5, 2, 2)),
        ([4, 5, 17, 19], window(5, 2, 1)),
        ([3, 8, 17, 18], window(7, 2, 3)),
        ([2, 4, 20, 23], window(7, 1, 3)),
        ([2, 4, 14, 15], window(7, 1, 3)),
        ([3, 6, 9, 10], window(7, 1, 2)),
        ([2, 8, 12, 13], window(5, 1, 2)),
        ([3, 4, 11, 13], window(2, 1, 1)),
        ([5, 4, 11, 13], window(2, 1, 0)),
        ([2, 6, 13, 14], window(5, 3, 2)),
        ([2, 4, 15, 16], window(7, 4, 3)),
        ([2, 8, 13, 14], window(3, 3, 0)),
        ([2, 8, 13, 15], window(3, 1, 1).stride([1, 2])),
        ([2, 8, 14, 15], window(5, 2, 2).stride([2, 1])),
        ([2, 3, 17, 15], window(7, 2, 3).stride([2, 3])),
        (b, window(5, 2, 2)),
        ([2, 6, 11, 13], window(2, 1, 1).stride([1, 2])),
    ])
}

/// Images that have several rows a thread on a real GPU.
fn several_rows() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    of_one(&[
        ([64, 3, 40, 41], window(3, 1, 0)),
        ([64, 20, 33, 32], window(3, 1, 1)),
        ([64, 6, 30, 31], window(5, 1, 2)),
        ([64, 20, 33, 32], window(5, 1, 2)),
        ([64, 6, 24, 25], window(7, 1, 3)),
        ([64, 12, 24, 25], window(7, 1, 0)),
        ([64, 20, 35, 34], window(2, 1, 1)),
        ([64, 40, 34, 35], window(3, 2, 1)),
        ([64, 40, 34, 35], window(5, 2, 2)),
        ([128, 10, 34, 35], window(7, 2, 3)),
        ([128, 10, 35, 34], window(5, 2, 1)),
        ([128, 5, 34, 35], window(5, 2, 0)),
        ([128, 5, 34, 37], window(3, 2, 0)),
        ([128, 96, 33, 35], window(3, 2, 1)),
    ])
}

pub(super) fn tests() -> Vec<Trial> {
    let test = |(i, case): (usize, Case)| {
        on_real_gpu(&format!("gaussian_pool::packs::several_rows::{i}"), move |gpu| {
            compare::<f32>(gpu, &case, 11)?;
            compare::<f16>(gpu, &case, 11)?;
            compare::<bf16>(gpu, &case, 11)
        })
    };
    several_rows().into_iter().enumerate().map(test).collect()
}
