//! Launches of the kernels whose blocks stage rows in shared memory, with the channels last.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::staged::{GaussianPoolBackwardStaged, GaussianPoolForwardStaged, StagedPlan};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::MAX_COUNT;
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, for_storage};
use crate::{DType, Real, Result, bf16, f16};

/// Channels and columns that there are, of a hundred that blocks have room for, at least: from there on no shape that was measured is
/// faster by windows that slide down, below most are.
const BUSY: u32 = 51;

/// The plan of a pass, `$pass` of [`StagedPlan`], of elements of a type.
macro_rules! of_type {
    ($dtype:expr, $pass:ident, $geometry:expr, $variances:expr) => {
        match $dtype {
            DType::F32 => StagedPlan::$pass::<f32>($geometry, $variances),
            DType::F16 => StagedPlan::$pass::<f16>($geometry, $variances),
            DType::Bf16 => StagedPlan::$pass::<bf16>($geometry, $variances),
            _ => None,
        }
    };
}

/// The plan of the forward pass, if the channels are last, most of what blocks have room for is there, and the GPU has as much
/// shared memory.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<StagedPlan> {
    wanted(gpu, plan, || of_type!(dtype, forward, geometry, plan.variances() as u32))
}

/// The plan of the backward pass for the input's gradient alone, which is written and not added to what is there; likewise.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<StagedPlan> {
    wanted(gpu, plan, || of_type!(dtype, backward, geometry, plan.variances() as u32))
}

fn wanted(gpu: &Gpu, plan: &Plan, launch: impl FnOnce() -> Option<StagedPlan>) -> Option<StagedPlan> {
    if plan.layout != ChannelsLast || plan.planes() == 0 {
        return None;
    }
    let has_room = |launch: &StagedPlan| launch.shared_bytes <= gpu.max_shared() && launch.blocks as usize <= MAX_COUNT;
    launch().filter(|launch| launch.busy >= BUSY && has_room(launch))
}

/// The shape of a launch.
fn dims(launch: StagedPlan) -> LaunchDims {
    LaunchDims::new(launch.blocks, launch.threads).with_shared(launch.shared_bytes)
}

const WHY: &str = "by blocks that go down images, rows staged in shared memory, of a size compiled in and weights that all channels share";

impl<T: Real> Forward<'_, T> {
    pub(super) fn staged(self, gpu: &Gpu, geometry: Geometry, launch: StagedPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, parts, dims) = (plan.op, launch.staged, dims(launch));
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters theirs; the
            // grid and the shared memory are the plan's, of as many Gaussians.
            unsafe {
                match launch.kernels {
                    1 => gpu.launch(dims, GaussianPoolForwardStaged::<S, 1> { x, mean, var, y, geometry, parts }),
                    _ => gpu.launch(dims, GaussianPoolForwardStaged::<S, 3> { x, mean, var, y, geometry, parts }),
                }
            }
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn staged(self, gpu: &Gpu, geometry: Geometry, launch: StagedPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, parts, dims) = (plan.op, launch.staged, dims(launch));
        let Some(out) = self.dx else { return Ok(()) };
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            // SAFETY: `dy` and `dx` have the shapes and the layout that `geometry` was made of, and the parameters theirs; the
            // grid and the shared memory are the plan's, of as many Gaussians.
            unsafe {
                match launch.kernels {
                    1 => gpu.launch(dims, GaussianPoolBackwardStaged::<S, 1> { dy, mean, var, dx, geometry, parts }),
                    _ => gpu.launch(dims, GaussianPoolBackwardStaged::<S, 3> { dy, mean, var, dx, geometry, parts }),
                }
            }
        })
    }
}
