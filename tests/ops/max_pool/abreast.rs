//! Windows that overlap over row-major planes, several of which a warp goes down abreast.

use ferrolayer::ops::Window;
use ferrolayer::{Device, Layout, Real, bf16, f16};

use super::{Case, infinities, matches_cpu};
use crate::support::*;

fn case(shape: [usize; 4], size: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Case {
    Case::new(shape, Window::new(size).stride(stride).padding(padding))
}

fn one_apart(shape: [usize; 4], size: usize, padding: usize) -> Case {
    case(shape, [size; 2], [1; 2], [padding; 2])
}

/// Images of few columns, of which a warp has many planes, to such of whose rows a warp has a part; and, backward, windows that are not one apart.
fn abreast() -> Vec<Case> {
    vec![
        one_apart([3, 5, 7, 7], 3, 1),
        one_apart([1, 33, 4, 1], 3, 1),
        one_apart([1, 2, 9, 300], 3, 0),
        one_apart([2, 5, 20, 20], 5, 2),
        one_apart([1, 3, 11, 56], 5, 1),
        one_apart([1, 1, 8, 451], 5, 2),
        one_apart([2, 3, 14, 28], 7, 3),
        one_apart([1, 2, 9, 233], 7, 2),
        one_apart([2, 3, 13, 28], 9, 4),
        one_apart([1, 1, 10, 190], 9, 3),
        one_apart([2, 7, 20, 20], 13, 6),
        one_apart([1, 1, 14, 101], 13, 5),
        case([2, 3, 17, 30], [5, 5], [2, 2], [2, 2]),
        case([1, 4, 23, 31], [7, 4], [3, 1], [3, 2]),
        case([1, 2, 12, 260], [4, 6], [2, 3], [0, 3]),
        case([2, 3, 16, 33], [2, 15], [1, 4], [1, 7]),
        // Windows that no two are of, as far apart as two numbers whose product has more than 32 bits.
        case([2, 3, 16, 33], [3, 3], [1 << 16; 2], [0, 0]),
        Case::new([2, 3, 19, 22], Window::new([5, 5]).stride([3, 3]).padding([1, 1]).ceil_mode(true)),
    ]
}

/// As many as go that way on a real GPU.
fn abreast_much() -> [Case; 10] {
    [
        one_apart([16, 256, 7, 7], 3, 1),
        one_apart([16, 64, 55, 57], 3, 1),
        one_apart([8, 64, 56, 56], 5, 2),
        one_apart([2, 33, 60, 350], 5, 2),
        one_apart([8, 64, 47, 46], 7, 3),
        one_apart([8, 64, 28, 28], 9, 4),
        one_apart([4, 256, 20, 20], 13, 6),
        one_apart([2, 33, 60, 190], 13, 5),
        case([8, 64, 65, 66], [11, 11], [2, 2], [5, 5]),
        case([16, 62, 61, 63], [9, 10], [1, 2], [4, 5]),
    ]
}

fn match_cpu<T: Real>(gpu: &Device, cases: &[Case]) -> Outcome {
    for case in cases {
        matches_cpu::<T>(gpu, case, Layout::RowMajor)?;
        infinities::finds_the_first::<T>(gpu, case, Layout::RowMajor)?;
    }
    Ok(())
}

pub(super) fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_real_gpu("max_pool::abreast_much::f32", |gpu| match_cpu::<f32>(gpu, &abreast_much())),
        on_real_gpu("max_pool::abreast_much::f16", |gpu| match_cpu::<f16>(gpu, &abreast_much())),
        on_real_gpu("max_pool::abreast_much::bf16", |gpu| match_cpu::<bf16>(gpu, &abreast_much())),
    ];
    tests.extend(on_each_gpu("max_pool::abreast::f32", |gpu| match_cpu::<f32>(gpu, &abreast())));
    tests.extend(on_each_gpu("max_pool::abreast::f16", |gpu| match_cpu::<f16>(gpu, &abreast())));
    tests.extend(on_each_gpu("max_pool::abreast::bf16", |gpu| match_cpu::<bf16>(gpu, &abreast())));
    tests
}
