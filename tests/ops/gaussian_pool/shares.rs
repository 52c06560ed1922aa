//! Windows that are far apart over row-major images: whole ones in registers forward, runs of elements backward.

use ferrolayer::ops::Window;
use ferrolayer::{Device, Layout, bf16, f16};

use super::{Case, compare, packs};
use crate::support::*;

/// Those of the other ops; every third with several Gaussians a map, too.
pub(super) fn cases() -> Vec<Case> {
    let several = |case: Case| Case { kernels: 3, per_axis: !case.per_axis, ..case };
    let few = packs::of_one(&far_apart()).into_iter().filter(is_row_major).step_by(3).map(several);
    packs::of_one(&far_apart()).into_iter().filter(is_row_major).chain(few).collect()
}

/// Blocks that take several runs of elements.
pub(super) fn several_runs(gpu: &Device) -> Outcome {
    packs::of_one(&far_apart_and_many())
        .into_iter()
        .filter(is_row_major)
        .try_for_each(|case| compare::<f32>(gpu, &case, 20))
}

/// The same of more elements than all blocks of a real GPU take at once, in each type.
pub(super) fn many_runs(gpu: &Device) -> Outcome {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let list = [([8, 64, 111, 113], window(3, 3)), ([8, 64, 56, 57], window(7, 4).padding([3, 3]))];
    packs::of_one(&list).into_iter().filter(is_row_major).try_for_each(|case| {
        compare::<f32>(gpu, &case, 20)?;
        compare::<f16>(gpu, &case, 20)?;
        compare::<bf16>(gpu, &case, 20)
    })
}

fn is_row_major(case: &Case) -> bool {
    case.layout == Layout::RowMajor
}
