//! Row-major windows that are not square, dilated along y or not.

use ferrolayer::{Device, Layout, Real, bf16, f16};

use super::{Case, infinities, matches_cpu};
use crate::oblong::{oblong, oblong_much};
use crate::support::*;

fn spans() -> Vec<Case> {
    let each = oblong().into_iter().enumerate();
    each.map(|(i, (shape, window))| {
        // Windows of several rows of few enough, every other time.
        let dilation = if i % 2 == 0 && 2 * window.size[0] <= shape[2] { 2 } else { 1 };
        Case::new(shape, window.dilation([dilation, 1]))
    })
    .collect()
}

fn match_cpu<T: Real>(gpu: &Device, cases: &[Case]) -> Outcome {
    for case in cases {
        matches_cpu::<T>(gpu, case, Layout::RowMajor)?;
        infinities::finds_the_first::<T>(gpu, case, Layout::RowMajor)?;
    }
    Ok(())
}

fn much() -> Vec<Case> {
    oblong_much().into_iter().map(|(shape, window)| Case::new(shape, window)).collect()
}

pub(super) fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_real_gpu("max_pool::spans_much::f32", |gpu| match_cpu::<f32>(gpu, &much())),
        on_real_gpu("max_pool::spans_much::bf16", |gpu| match_cpu::<bf16>(gpu, &much())),
    ];
    tests.extend(on_each_gpu("max_pool::spans::f32", |gpu| match_cpu::<f32>(gpu, &spans())));
    tests.extend(on_each_gpu("max_pool::spans::f16", |gpu| match_cpu::<f16>(gpu, &spans())));
    tests.extend(on_each_gpu("max_pool::spans::bf16", |gpu| match_cpu::<bf16>(gpu, &spans())));
    tests
}
