//! Row-major windows that are not square.

use ferrolayer::{Device, Layout, Real, bf16, f16};

use super::{Case, matches_cpu};
use crate::oblong::{oblong, oblong_much};
use crate::support::*;

fn match_cpu<T: Real>(gpu: &Device, cases: impl IntoIterator<Item = ([usize; 4], ferrolayer::ops::Window)>) -> Outcome {
    cases.into_iter().try_for_each(|(shape, window)| matches_cpu::<T>(gpu, &Case { shape, window }, Layout::RowMajor))
}

pub(super) fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_real_gpu("avg_pool::spans_much::f32", |gpu| match_cpu::<f32>(gpu, oblong_much())),
        on_real_gpu("avg_pool::spans_much::bf16", |gpu| match_cpu::<bf16>(gpu, oblong_much())),
    ];
    tests.extend(on_each_gpu("avg_pool::spans::f32", |gpu| match_cpu::<f32>(gpu, oblong())));
    tests.extend(on_each_gpu("avg_pool::spans::f16", |gpu| match_cpu::<f16>(gpu, oblong())));
    tests.extend(on_each_gpu("avg_pool::spans::bf16", |gpu| match_cpu::<bf16>(gpu, oblong())));
    tests
}
