//! Launches of the kernels by strips of windows.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::strips::{
    BACKWARD_BLOCK, FORWARD_BLOCK, GaussianPoolBackwardParametersStrips, GaussianPoolBackwardStrips,
    GaussianPoolForwardStrips, PARAMETERS_BLOCK, Plan as StripsPlan,
};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::{MAX_COUNT, sum_parameters, window};
use crate::Layout::RowMajor;
use crate::device::explain::{self, Because};
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Runs a block with `$stride` as the parameter of that name of the kernels by strips.
macro_rules! for_stride {
    ($axes:expr, $stride:ident, $body:expr) => {
        for_stride!(@ $axes[0].stride, $stride, $body; (1): 1, (2): 2, (_): 3)
    };
    (@ $step:expr, $stride:ident, $body:expr; $(($s:pat): $a:literal),*) => {
        match $step {
            $($s => {
                const $stride: u32 = $a;
                $body
            })*
        }
    };
}

/// Blocks that small planes are left to, at least: multiprocessors of an H200. With fewer the others wait for blocks that go through
/// many planes one after another.
const BLOCKS: u32 = 132;

/// As many on this GPU: on the emulated grid, for which more are not faster, blocks are to take several planes.
pub(super) fn least(gpu: &Gpu) -> u32 {
    if gpu.is_emulated() { 1 } else { BLOCKS }
}

/// The plan by strips, if the kernels can and the grid has as many blocks.
pub(super) fn plan(plan: &Plan, launch: Option<StripsPlan>) -> Option<StripsPlan> {
    let can = plan.layout == RowMajor && plan.planes() > 0;
    launch.filter(|launch| can && launch.blocks <= MAX_COUNT as u64)
}

/// Why strips were chosen.
fn why_strips(geometry: &Geometry) -> Because {
    explain::because(|| {
        let why = match (geometry.axes.iter().any(|axis| axis.cases > 1), geometry.kernels) {
            (true, _) => "windows that the padding cuts off have weights of their own",
            (false, 1) => "no kernel down columns has windows of this size",
            (false, _) => "no kernel down columns has windows of this size, or as many Gaussians a map with gradients",
        };
        format!("{}: by strips of windows: {why}", window(geometry))
    })
}

/// The shape of a launch by strips.
fn dims(launch: StripsPlan, threads: u32) -> LaunchDims {
    LaunchDims::new(launch.blocks as u32, threads).with_shared(launch.shared_bytes)
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_strips(self, gpu: &Gpu, geometry: Geometry, launch: StripsPlan) -> Result<()> {
        let op = self.plan.op;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let (dims, strips) = (dims(launch, FORWARD_BLOCK), launch.strips);
            let _why = why_strips(&geometry);
            for_stride!(geometry.axes, STRIDE, {
                let launch = GaussianPoolForwardStrips::<S, STRIDE> { x, mean, var, y, geometry, strips };
                // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters theirs;
                // the grid and the shared memory are the plan's.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_strips(self, gpu: &Gpu, geometry: Geometry, launch: StripsPlan) -> Result<()> {
        let plan = &self.plan;
        let op = plan.op;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let parts = if parameters { launch.blocks as usize * plan.kernels * SUMS_PER_GAUSSIAN as usize } else { 0 };
        let mut workspace = gpu.workspace(parts)?;
        let mut sums = workspace.as_slice_mut();
        let (dims, strips) = (dims(launch, if parameters { PARAMETERS_BLOCK } else { BACKWARD_BLOCK }), launch.strips);
        let why = why_strips(&geometry);
        for_storage!(T as S, op, "x", gpu, {
            let dy = self.dy.gpu::<S>(op, "dy")?;
            let (mut dx, dx_beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            let x = self.x.gpu::<S>(op, "x")?;
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_stride!(geometry.axes, STRIDE, {
                if parameters {
                    let sums = &mut sums;
                    let launch = GaussianPoolBackwardParametersStrips::<S, STRIDE> {
                        x,
                        dy,
                        mean,
                        var,
                        dx,
                        dx_beta,
                        sums,
                        geometry,
                        strips,
                    };
                    // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that `geometry` was made of, and the
                    // parameters theirs; `sums` has four elements for each Gaussian of each block; the grid and the shared
                    // memory are the plan's.
                    unsafe { gpu.launch(dims, launch) }
                } else {
                    let Some(dx) = dx.take() else { return Ok(()) };
                    let launch =
                        GaussianPoolBackwardStrips::<S, STRIDE> { dy, mean, var, dx, dx_beta, geometry, strips };
                    // SAFETY: as above.
                    unsafe { gpu.launch(dims, launch) }
                }
            })
        })?;
        drop(why);
        if !parameters {
            return Ok(());
        }
        // One set of parameters: all blocks' sums are its. A set for each channel: a block has one plane.
        let planes = launch.blocks as u32 / strips.tiles;
        let geometry = Geometry { planes, tiles: [strips.tiles, 1], ..geometry };
        sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry)
    }
}
