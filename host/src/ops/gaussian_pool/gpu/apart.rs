//! The launch of the kernel for windows that do not overlap, of planes that follow each other.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::apart::{APART_BLOCK, Apart, GaussianPoolForwardApart, Plan as ApartPlan};

use super::super::Forward;
use super::super::plan::Plan;
use super::with_weights;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// The plan of the kernel, if it can.
pub(super) fn plan(plan: &Plan, geometry: &Geometry) -> Option<ApartPlan> {
    if plan.layout == RowMajor { Apart::plan(geometry, plan.variances() as u32) } else { None }
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn apart(self, gpu: &Gpu, geometry: Geometry, launch: ApartPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, "by columns of windows, which do not overlap");
        let (op, apart) = (plan.op, launch.apart);
        let dims = LaunchDims::new(launch.blocks, APART_BLOCK).with_shared(launch.shared_bytes);
        let entry = (geometry.sets > 1).then_some(1);
        with_weights(gpu, plan, [self.mean, self.var], geometry, entry, 0, |[weights_y, weights_x], _| {
            for_storage!(T as S, op, "x", gpu, {
                let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                let launch = GaussianPoolForwardApart::<S> { x, mean, var, weights_y, weights_x, y, geometry, apart };
                // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters theirs; the
                // tables are there where sets differ; the grid and the shared memory are the plan's.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}
