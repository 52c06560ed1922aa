//! Windows that kernels take with the channels last alone.

use ferrolayer::ops::Window;
use ferrolayer::{bf16, f16};

use super::{Case, match_cpu};
use crate::support::*;

fn case(shape: [usize; 4], size: usize, padding: usize) -> Case {
    Case { shape, window: Window::new([size; 2]).stride([1, 1]).padding([padding; 2]) }
}

/// As many outputs as go one below the other on a real GPU.
fn below() -> [Case; 2] {
    [case([8, 31, 24, 25], 3, 1), case([12, 7, 40, 41], 20, 10)]
}

/// As many outputs as go down strips on the emulated grid.
fn falling() -> Vec<Case> {
    down_strips().into_iter().map(|(shape, window)| Case { shape, window }).collect()
}

/// The same on a real GPU.
fn falling_much() -> [Case; 9] {
    [
        case([8, 64, 47, 46], 3, 1),
        case([16, 62, 35, 36], 3, 0),
        case([16, 63, 34, 33], 3, 1),
        case([8, 64, 47, 46], 5, 2),
        case([16, 62, 38, 37], 5, 0),
        case([16, 31, 50, 51], 5, 1),
        case([8, 64, 47, 46], 7, 3),
        case([16, 62, 36, 35], 7, 2),
        case([16, 31, 53, 54], 7, 0),
    ]
}

pub(super) fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_real_gpu("avg_pool::below", |gpu| {
            match_cpu::<f32>(gpu, &below())?;
            match_cpu::<bf16>(gpu, &below())
        }),
        on_real_gpu("avg_pool::falling_much::f32", |gpu| match_cpu::<f32>(gpu, &falling_much())),
        on_real_gpu("avg_pool::falling_much::f16", |gpu| match_cpu::<f16>(gpu, &falling_much())),
        on_real_gpu("avg_pool::falling_much::bf16", |gpu| match_cpu::<bf16>(gpu, &falling_much())),
    ];
    tests.extend(on_each_gpu("avg_pool::falling::f32", |gpu| match_cpu::<f32>(gpu, &falling())));
    tests.extend(on_each_gpu("avg_pool::falling::f16", |gpu| match_cpu::<f16>(gpu, &falling())));
    tests.extend(on_each_gpu("avg_pool::falling::bf16", |gpu| match_cpu::<bf16>(gpu, &falling())));
    tests
}
