//! The launch of the kernel for the input's gradient of global pooling.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::global::{GLOBAL_BLOCK, GaussianPoolBackwardGlobal, Globals};

use super::super::Backward;
use super::super::plan::Plan;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::{DType, Real, Result};

/// The plan of the kernel, if planes follow each other and each has one window: how threads are laid, and the blocks.
pub(super) fn plan(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<(Globals, u32)> {
    if plan.layout == RowMajor { Globals::new(geometry, dtype.size()) } else { None }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn global(self, gpu: &Gpu, geometry: Geometry, (globals, blocks): (Globals, u32)) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, "16 bytes a thread: each plane has one window");
        let (op, dx_beta) = (plan.op, out.beta as f32);
        super::with_weights(gpu, plan, [self.mean, self.var], geometry, Some(1), 0, |tables, _| {
            let [Some(weights_y), Some(weights_x)] = tables else { return Ok(()) };
            for_storage!(T as S, op, "dx", gpu, {
                let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
                let launch =
                    GaussianPoolBackwardGlobal::<S> { dy, weights_y, weights_x, dx, dx_beta, geometry, globals };
                // SAFETY: `dy` and `dx` have the shapes and the layout that `geometry` was made of, the tables were just written
                // for it, and the grid is that of `globals`. Memory begins at multiples of 16 bytes.
                unsafe { gpu.launch(LaunchDims::new(blocks, GLOBAL_BLOCK), launch) }
            })
        })
    }
}
