//! Launches of the kernels in which a warp goes down a plane by itself.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::lanes::{
    GaussianPoolBackwardLanes, GaussianPoolBackwardMapsLanes, GaussianPoolBackwardParametersLanes,
    GaussianPoolForwardLanes, LANES_BLOCK, LanesPlan,
};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::{MAX_COUNT, sum_parameters, tiles_of_planes};
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::{DType, Real, Result};

/// Lanes that have columns, of a hundred, at least: with fewer, blocks that go down columns are faster; for `dx` alone of one Gaussian a
/// channel, and for the others.
const BUSY: [u32; 2] = [40, 60];

/// The plan of the forward pass, if the order in memory is that of planes, most lanes have work, and instructions are what
/// bounds the pass; or planes are few.
pub(super) fn forward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<LanesPlan> {
    let launch = || LanesPlan::forward(geometry, plan.variances() as u32, dtype.size() as u32);
    let wanted = |launch: &LanesPlan| dtype != DType::F32 || geometry.kernels > 1 || launch.lanes.parts > 1;
    row_major(plan, launch, BUSY[1]).filter(wanted)
}

/// The plan of the backward pass, if the order in memory is that of planes and most lanes have work.
pub(super) fn backward(plan: &Plan, geometry: &Geometry, dtype: DType, parameters: bool) -> Option<LanesPlan> {
    let launch = || LanesPlan::backward(geometry, plan.variances() as u32, dtype.size() as u32, parameters);
    row_major(plan, launch, BUSY[usize::from(parameters || geometry.kernels > 1)])
}

/// Whether there is a plan of the backward pass for the input's gradient by which most lanes have columns, which are stored as vectors.
pub(super) fn most_busy(plan: &Plan, geometry: &Geometry, dtype: DType) -> bool {
    backward(plan, geometry, dtype, false).is_some_and(|launch| launch.whole && launch.busy >= BUSY[1])
}

fn row_major(plan: &Plan, launch: impl FnOnce() -> Option<LanesPlan>, busy: u32) -> Option<LanesPlan> {
    if plan.layout != RowMajor {
        return None;
    }
    launch().filter(|launch| launch.busy >= busy && launch.blocks as usize <= MAX_COUNT)
}

/// The shape of a launch.
fn dims(launch: LanesPlan) -> LaunchDims {
    LaunchDims::new(launch.blocks, LANES_BLOCK).with_shared(launch.shared_bytes)
}

const WHY: &str = "by warps that go down planes for themselves, for windows of a size compiled in";

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_lanes(self, gpu: &Gpu, geometry: Geometry, launch: LanesPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, lanes, dims) = (plan.op, launch.lanes, dims(launch));
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($($of:literal),+) => {{
                    let launch = GaussianPoolForwardLanes::<S, $($of),+> { x, mean, var, y, geometry, lanes };
                    // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters
                    // theirs; the grid and the shared memory are the plan's, of the window's size and the Gaussians of a
                    // channel.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            match (geometry.axes[0].size, geometry.kernels) {
                (3, _) => run!(3, 4, 1),
                (_, 1) => run!(11, 6, 1),
                _ => run!(11, 6, 3),
            }
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_lanes(self, gpu: &Gpu, geometry: Geometry, launch: LanesPlan) -> Result<()> {
        let plan = &self.plan;
        let why = super::because(plan, WHY);
        let (op, lanes, dims) = (plan.op, launch.lanes, dims(launch));
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        // Sums of each unit of each plane.
        let geometry = Geometry { tiles: [lanes.tiles, lanes.parts], ..geometry };
        let parts = if parameters { tiles_of_planes(&geometry) * SUMS_PER_GAUSSIAN as usize } else { 0 };
        let mut workspace = gpu.workspace(parts)?;
        let mut sums = workspace.as_slice_mut();
        for_storage!(T as S, op, "x", gpu, {
            let dy = self.dy.gpu::<S>(op, "dy")?;
            let (dx, dx_beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            let x = self.x.gpu::<S>(op, "x")?;
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($launch:expr) => {
                    // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that `geometry` was made of, and the
                    // parameters theirs; `sums` has four elements for each unit; the grid and the shared memory are the
                    // plan's, of the window's size and the Gaussians of a channel.
                    unsafe { gpu.launch(dims, $launch) }
                };
            }
            macro_rules! of_dx {
                ($size:literal, $whole:literal, $dx:ident) => {{
                    let dx = $dx;
                    run!(GaussianPoolBackwardLanes::<S, $size, $whole> { dy, mean, var, dx, dx_beta, geometry, lanes })
                }};
            }
            macro_rules! of_parameters {
                ($size:literal, $taps:literal, $dx:ident) => {{
                    let (dx, sums) = ($dx, &mut sums);
                    run!(GaussianPoolBackwardParametersLanes::<S, $size, $taps> {
                        x,
                        dy,
                        mean,
                        var,
                        dx,
                        dx_beta,
                        sums,
                        geometry,
                        lanes
                    })
                }};
            }
            match (geometry.axes[0].size, launch.whole, dx) {
                (3, _, dx) if parameters => of_parameters!(3, 4, dx),
                (_, _, dx) if parameters => of_parameters!(11, 6, dx),
                (_, _, None) => Ok(()),
                (_, _, Some(dx)) if geometry.kernels > 1 => {
                    run!(GaussianPoolBackwardMapsLanes::<S, 11, 3> { dy, mean, var, dx, dx_beta, geometry, lanes })
                }
                (3, true, Some(dx)) => of_dx!(3, true, dx),
                (3, false, Some(dx)) => of_dx!(3, false, dx),
                (_, true, Some(dx)) => of_dx!(11, true, dx),
                (_, false, Some(dx)) => of_dx!(11, false, dx),
            }
        })?;
        drop(why);
        if parameters { sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry) } else { Ok(()) }
    }
}
