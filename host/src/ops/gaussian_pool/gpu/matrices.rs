//! Launches of the kernels that pool by matrix products.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::matrices::{
    GaussianPoolBackwardMatrices, GaussianPoolForwardMatrices, MATRICES_BLOCK, MatricesPlan,
};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::lanes;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_half};
use crate::{DType, Real, Result};

/// Positions of a window along its longer axis, at least: of smaller ones others are faster.
const LEAST_SIZE: u32 = 5;
/// Columns that there are, of a hundred that strips have room for, at least, so that others are slower: forward of windows that others are
/// compiled for, and of those that none is; backward of one Gaussian a channel, and of several.
const BUSY: [[u32; 2]; 2] = [[50, 35], [50, 55]];
/// The same of one Gaussian whose windows other kernels go down columns with, and columns of the image up to which these are slower.
const BUSY_IF_NARROW: u32 = 75;
const NARROW: u32 = 64;
/// Blocks that a multiprocessor has at a time, of one Gaussian a channel and of several.
const OF_MULTIPROCESSOR: [u32; 2] = [4, 3];

/// The plan of the forward pass, if planes of 16 bits follow each other and nothing else takes less.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<MatricesPlan> {
    if !is_wanted(plan, geometry, dtype) || lanes::forward(plan, geometry, dtype).is_some() {
        return None;
    }
    let launch = MatricesPlan::forward(geometry, plan.variances() as u32, blocks(gpu, geometry))?;
    let least = BUSY[0][usize::from(!is_one_of(geometry, &[7]))];
    is_best(gpu, geometry, &launch, &[5], least).then_some(launch)
}

/// The plan of the input's gradient alone, which is written and not added to what is there; likewise.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<MatricesPlan> {
    // Of several Gaussians a map warps that go down planes are slower.
    let several = geometry.kernels > 1;
    if !is_wanted(plan, geometry, dtype) || (!several && lanes::most_busy(plan, geometry, dtype)) {
        return None;
    }
    let launch = MatricesPlan::backward(geometry, plan.variances() as u32, blocks(gpu, geometry))?;
    is_best(gpu, geometry, &launch, &[5, 7], BUSY[1][usize::from(several)]).then_some(launch)
}

fn is_wanted(plan: &Plan, geometry: &Geometry, dtype: DType) -> bool {
    let [y, x] = &geometry.axes;
    plan.layout == RowMajor && matches!(dtype, DType::F16 | DType::Bf16) && y.size.max(x.size) >= LEAST_SIZE
}

/// Whether windows are of one Gaussian, and of one of these sizes.
fn is_one_of(geometry: &Geometry, sizes: &[u32]) -> bool {
    let [y, x] = &geometry.axes;
    geometry.kernels == 1 && y.size == x.size && sizes.contains(&y.size)
}

/// Whether the GPU has the shared memory, and strips have so many columns, of windows that others go `down` columns with more.
fn is_best(gpu: &Gpu, geometry: &Geometry, launch: &MatricesPlan, down: &[u32], least: u32) -> bool {
    if launch.shared_bytes > gpu.max_shared() {
        return false;
    }
    if is_one_of(geometry, down) {
        launch.busy >= BUSY_IF_NARROW && geometry.axes[1].image <= NARROW
    } else {
        // The emulated grid, for which nothing is faster, takes small ones too.
        launch.busy >= least || gpu.is_emulated()
    }
}

/// Blocks, at most: as many as there are at a time.
fn blocks(gpu: &Gpu, geometry: &Geometry) -> u32 {
    gpu.at_once(OF_MULTIPROCESSOR[usize::from(geometry.kernels > 1)])
}

/// The shape of a launch.
fn dims(launch: MatricesPlan) -> LaunchDims {
    LaunchDims::new(launch.blocks, MATRICES_BLOCK).with_shared(launch.shared_bytes)
}

const WHY: &str = "by matrix products on tensor cores, of weights in two 16-bit parts";

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_matrices(self, gpu: &Gpu, geometry: Geometry, launch: MatricesPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, matrices, dims) = (plan.op, launch.matrices, dims(launch));
        for_half!(T as S, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            // SAFETY: the images have the shapes and the layout that `geometry` was made of, and the parameters theirs; the grid and the
            // shared memory are the plan's, of as many Gaussians.
            unsafe {
                match geometry.kernels {
                    1 => {
                        gpu.launch(dims, GaussianPoolForwardMatrices::<S, 1> { x, mean, var, y, geometry, matrices })?
                    }
                    _ => {
                        gpu.launch(dims, GaussianPoolForwardMatrices::<S, 3> { x, mean, var, y, geometry, matrices })?
                    }
                }
            }
        });
        Ok(())
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_matrices(self, gpu: &Gpu, geometry: Geometry, launch: MatricesPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, matrices, dims) = (plan.op, launch.matrices, dims(launch));
        let Some(out) = self.dx else { return Ok(()) };
        for_half!(T as S, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($kernels:literal, $even:literal) => {{
                    type Kernel<'a> = GaussianPoolBackwardMatrices<'a, S, $kernels, { 8 * $kernels }, $even>;
                    // SAFETY: the images have the shapes and the layout that `geometry` was made of, and the parameters theirs; the
                    // grid and the shared memory are the plan's, of as many Gaussians and of rows of such windows.
                    unsafe { gpu.launch(dims, Kernel { dy, mean, var, dx, geometry, matrices }) }
                }};
            }
            match (geometry.kernels, launch.even) {
                (1, false) => run!(1, false)?,
                (1, true) => run!(1, true)?,
                (_, false) => run!(3, false)?,
                (_, true) => run!(3, true)?,
            }
        });
        Ok(())
    }
}
