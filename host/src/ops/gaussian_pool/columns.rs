//! The launches of the kernels that go down columns.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::strips::walk::{
    GaussianPoolBackwardParametersWalk, GaussianPoolBackwardWalk, GaussianPoolForwardWalk, WalkPlan,
};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};

use super::gpu::{MAX_COUNT, sum_parameters, tiles_of_planes, window};
use super::plan::Plan;
use super::{Backward, Forward};
use crate::Layout::RowMajor;
use crate::device::explain::{self, Because};
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Runs a block with `$taps` and `$stride` as the parameters of these names of the kernels that walk down columns.
macro_rules! for_taps {
    ($plan:expr, $axes:expr, $taps:ident, $stride:ident, $body:expr) => {
        for_taps!(@ ($plan.taps, $axes[0].stride), $taps, $stride, $body; (2, 2): (2, 2), (6, 2): (6, 2), (_, _): (4, 3))
    };
    (@ $class:expr, $taps:ident, $stride:ident, $body:expr; $(($t:pat, $s:pat): ($a:literal, $b:literal)),*) => {
        match $class {
            $(($t, $s) => {
                const $taps: u32 = $a;
                const $stride: u32 = $b;
                $body
            })*
        }
    };
}

/// The plan down columns, if the order in memory is that of planes and the grid has as many blocks.
pub(super) fn launch(plan: &Plan, launch: Option<WalkPlan>) -> Option<WalkPlan> {
    let can = plan.layout == RowMajor && plan.planes() > 0;
    launch.filter(|launch| can && launch.blocks <= MAX_COUNT as u64)
}

/// The shape of a launch down columns.
fn dims(launch: WalkPlan) -> LaunchDims {
    LaunchDims::new(launch.blocks as u32, launch.threads).with_shared(launch.shared_bytes)
}

/// Why they were chosen.
fn because(geometry: &Geometry, launch: &WalkPlan) -> Because {
    explain::because(|| {
        let (planes, parts) = (launch.walk.planes, launch.walk.parts);
        format!(
            "{}: down columns, planes of a block {planes}, parts of a plane {parts}: kernels with {} taps are compiled in",
            window(geometry),
            launch.taps
        )
    })
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_columns(self, gpu: &Gpu, geometry: Geometry, launch: WalkPlan) -> Result<()> {
        let op = self.plan.op;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let (dims, walk) = (dims(launch), launch.walk);
            let _why = because(&geometry, &launch);
            for_taps!(launch, geometry.axes, TAPS, STRIDE, {
                let launch = GaussianPoolForwardWalk::<S, TAPS, STRIDE> { x, mean, var, y, geometry, walk };
                // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters theirs;
                // the grid and the shared memory are the plan's.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_columns(self, gpu: &Gpu, geometry: Geometry, launch: WalkPlan) -> Result<()> {
        let plan = &self.plan;
        let op = plan.op;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let (dims, walk) = (dims(launch), launch.walk);
        let why = because(&geometry, &launch);
        // Sums of each part of each plane.
        let geometry = Geometry { tiles: [walk.tiles, walk.parts], ..geometry };
        let parts = if parameters { tiles_of_planes(&geometry) * SUMS_PER_GAUSSIAN as usize } else { 0 };
        let mut workspace = gpu.workspace(parts)?;
        let mut sums = workspace.as_slice_mut();
        for_storage!(T as S, op, "x", gpu, {
            let dy = self.dy.gpu::<S>(op, "dy")?;
            let (mut dx, dx_beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            let x = self.x.gpu::<S>(op, "x")?;
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            if !parameters {
                let Some(dx) = dx.take() else { return Ok(()) };
                return for_taps!(@ (launch.taps, 2), TAPS, STRIDE, {
                    let launch =
                        GaussianPoolBackwardWalk::<S, TAPS, STRIDE> { dy, mean, var, dx, dx_beta, geometry, walk };
                    // SAFETY: `dy` and `dx` have the shapes and the layout that `geometry` was made of, and the parameters
                    // theirs; the grid and the shared memory are the plan's.
                    unsafe { gpu.launch(dims, launch) }
                }; (2, _): (2, 2), (_, _): (6, 2));
            }
            for_taps!(launch, geometry.axes, TAPS, STRIDE, {
                let sums = &mut sums;
                let launch = GaussianPoolBackwardParametersWalk::<S, TAPS, STRIDE> {
                    x,
                    dy,
                    mean,
                    var,
                    dx,
                    dx_beta,
                    sums,
                    geometry,
                    walk,
                };
                // SAFETY: as above, for `x` too; `sums` has four elements for each part of each tile of each plane.
                unsafe { gpu.launch(dims, launch) }
            })
        })?;
        drop(why);
        if parameters { sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry) } else { Ok(()) }
    }
}
