//! Launches of the kernel that correlates images with the gradients of windows, with the channels last.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::correlate::{CorrelatePlan, GaussianPoolCorrelateLast};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};

use super::super::Backward;
use super::super::plan::Plan;
use super::{MAX_COUNT, sum_parameters};
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, for_half};
use crate::{DType, Real, Result, bf16, f16};

/// Channels and columns that there are, of a hundred that warps have room for, at least: with fewer, windows that slide down are
/// faster.
const BUSY: u32 = 60;
/// Blocks, at least: with fewer, one launch is faster than two.
const BLOCKS: u32 = 132;

const WHY: &str =
    "the parameters' gradients of a correlation of x with dy on tensor cores, of a size compiled in; dx by itself";

impl<T: Real> Backward<'_, T> {
    /// The plan of the gradients of the parameters, if they are asked for, the channels are last, most of what warps have room for is
    /// there, and so much that a GPU is busy.
    pub(super) fn plan_correlate(&self, gpu: &Gpu, geometry: &Geometry) -> Option<CorrelatePlan> {
        let plan: &Plan = &self.plan;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        if !(parameters && plan.layout == ChannelsLast) {
            return None;
        }
        let variances = plan.variances() as u32;
        let launch = match T::DTYPE {
            DType::F16 => CorrelatePlan::last::<f16>(geometry, variances),
            DType::Bf16 => CorrelatePlan::last::<bf16>(geometry, variances),
            _ => None,
        }?;
        // The emulated grid, for which nothing is faster, takes small ones too.
        let enough = launch.blocks >= BLOCKS || gpu.is_emulated();
        (launch.busy >= BUSY && enough && launch.blocks as usize <= MAX_COUNT).then_some(launch)
    }

    pub(super) fn correlate(self, gpu: &Gpu, geometry: Geometry, launch: CorrelatePlan) -> Result<()> {
        let Self { plan, x, mean, var, dy, dmean, dvar, .. } = self.without_dx(gpu)?;
        let why = super::because(&plan, WHY);
        let (op, parts) = (plan.op, launch.parts);
        let dims = LaunchDims::new(launch.blocks, launch.threads).with_shared(launch.shared_bytes);
        let mut workspace = gpu.workspace((launch.blocks * SUMS_PER_GAUSSIAN) as usize)?;
        let mut of_blocks = workspace.as_slice_mut();
        for_half!(T as S, {
            let (x, dy) = (x.gpu::<S>(op, "x")?, dy.gpu::<S>(op, "dy")?);
            let (mean, var) = (mean.gpu::<f32>(op, "mean")?, var.gpu::<f32>(op, "var")?);
            let sums = &mut of_blocks;
            let launch = GaussianPoolCorrelateLast::<S> { x, dy, mean, var, sums, geometry, parts };
            // SAFETY: `x` and `dy` have the shapes and the layout that `geometry` was made of, and the parameters theirs; there
            // are four sums for each block; the grid and the shared memory are the plan's.
            unsafe { gpu.launch(dims, launch)? };
        });
        drop(why);
        // All blocks' sums are those of one Gaussian.
        let geometry = Geometry { planes: launch.blocks, tiles: [1, 1], ..geometry };
        sum_parameters(gpu, &plan, dmean, dvar, &of_blocks, geometry)
    }
}
