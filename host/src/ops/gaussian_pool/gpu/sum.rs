//! The second stage of the sums that are the gradients of mean and variance.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::{GaussianPoolSumParameters, Geometry, SUM_BLOCK};

use super::super::plan::Plan;
use crate::device::Gpu;
use crate::{Compute, Out, Result};

/// Queues the sum of the parts that blocks have left, of `geometry`'s planes and tiles.
pub(in crate::ops::gaussian_pool) fn sum_parameters<C: Compute>(
    gpu: &Gpu,
    plan: &Plan,
    dmean: Option<Out<'_, C>>,
    dvar: Option<Out<'_, C>>,
    sums: &dyn DeviceMemory<f32>,
    geometry: Geometry,
) -> Result<()> {
    let (dmean, dmean_beta) = match dmean {
        Some(out) => {
            (Some(out.tensor.gpu_mut::<f32>(plan.op, "dmean")? as &mut dyn DeviceMemory<f32>), out.beta as f32)
        }
        None => (None, 0.0),
    };
    let (dvar, dvar_beta) = match dvar {
        Some(out) => (Some(out.tensor.gpu_mut::<f32>(plan.op, "dvar")? as &mut dyn DeviceMemory<f32>), out.beta as f32),
        None => (None, 0.0),
    };
    let variances = plan.variances() as u32;
    let dims = LaunchDims::new(plan.gaussians() as u32, SUM_BLOCK);
    let launch = GaussianPoolSumParameters { sums, dmean, dmean_beta, dvar, dvar_beta, variances, geometry };
    // SAFETY: the pass wrote four sums for each Gaussian of each tile of each plane, which `geometry` counts; the outputs
    // have the parameters' shapes; the grid has a block for each Gaussian.
    unsafe { gpu.launch(dims, launch) }
}
