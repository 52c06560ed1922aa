//! Windows that kernels take with the channels last alone.

use ferrolayer::ops::Window;
use ferrolayer::{Device, Layout, Real, bf16, f16};

use super::{Case, infinities, matches_cpu};
use crate::support::*;

fn case(shape: [usize; 4], size: usize, padding: usize) -> Case {
    Case::new(shape, Window::new([size; 2]).stride([1, 1]).padding([padding; 2]))
}

/// As many outputs as go down strips on the emulated grid: those of averages, and larger windows.
fn falling() -> Vec<Case> {
    let mut cases: Vec<_> = down_strips().into_iter().map(|(shape, window)| Case::new(shape, window)).collect();
    cases.extend([
        case([2, 12, 11, 10], 9, 4),
        case([4, 6, 17, 19], 9, 1),
        case([2, 12, 9, 11], 13, 6),
        case([2, 7, 23, 22], 13, 3),
    ]);
    cases
}

/// The same on a real GPU.
fn falling_much() -> [Case; 10] {
    [
        case([24, 64, 47, 46], 3, 1),
        case([32, 62, 35, 36], 3, 0),
        case([36, 63, 34, 33], 3, 1),
        case([8, 64, 47, 46], 5, 2),
        case([16, 62, 38, 37], 5, 0),
        case([8, 64, 47, 46], 7, 3),
        case([16, 62, 36, 35], 7, 2),
        case([8, 64, 47, 46], 9, 4),
        case([16, 62, 36, 35], 9, 3),
        case([16, 62, 36, 35], 13, 6),
    ]
}

/// As many inputs as go by tiles of sums on a real GPU, of windows that are not one apart.
fn tiles_much() -> [Case; 3] {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]).padding([size / 2; 2]);
    [
        Case::new([12, 64, 65, 66], window(5, 2)),
        Case::new([12, 63, 67, 64], window(5, 2).ceil_mode(true)),
        Case::new([80, 62, 41, 43], window(3, 2)),
    ]
}

fn match_cpu<T: Real>(gpu: &Device, cases: &[Case]) -> Outcome {
    for case in cases {
        matches_cpu::<T>(gpu, case, Layout::ChannelsLast)?;
        infinities::finds_the_first::<T>(gpu, case, Layout::ChannelsLast)?;
    }
    Ok(())
}

pub(super) fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_real_gpu("max_pool::falling_much::f32", |gpu| match_cpu::<f32>(gpu, &falling_much())),
        on_real_gpu("max_pool::falling_much::f16", |gpu| match_cpu::<f16>(gpu, &falling_much())),
        on_real_gpu("max_pool::falling_much::bf16", |gpu| match_cpu::<bf16>(gpu, &falling_much())),
    ];
    tests.push(on_real_gpu("max_pool::tiles_much::f32", |gpu| match_cpu::<f32>(gpu, &tiles_much())));
    tests.push(on_real_gpu("max_pool::tiles_much::f16", |gpu| match_cpu::<f16>(gpu, &tiles_much())));
    tests.push(on_real_gpu("max_pool::tiles_much::bf16", |gpu| match_cpu::<bf16>(gpu, &tiles_much())));
    tests.extend(on_each_gpu("max_pool::falling::f32", |gpu| match_cpu::<f32>(gpu, &falling())));
    tests.extend(on_each_gpu("max_pool::falling::f16", |gpu| match_cpu::<f16>(gpu, &falling())));
    tests.extend(on_each_gpu("max_pool::falling::bf16", |gpu| match_cpu::<bf16>(gpu, &falling())));
    tests
}
