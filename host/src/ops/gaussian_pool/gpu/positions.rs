//! Launches of the kernel that sums products of images with the gradients of windows for each position, with the channels last.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::positions::{
    GaussianPoolPositions, MOST_BLOCKS, POSITIONS_BLOCK, POSITIONS_SHARED_BYTES, SIZES,
};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};
use kernels::vectors::Plan as VectorsOf;
use kernels::window::{Nhwc, Window};

use super::super::Backward;
use super::patches::window;
use super::sum_parameters;
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// A launch's window and its vectors.
pub(super) struct PositionsPlan {
    window: Window<Nhwc>,
    of: VectorsOf,
}

const WHY: &str =
    "the parameters' gradients of a sum for each position, of a size compiled in; dx, where it is asked for, by itself";

impl<T: Real> Backward<'_, T> {
    /// The plan of the gradients of the parameters, if they are asked for, the channels are last and whole vectors, and windows are small.
    pub(super) fn plan_positions(&self, geometry: &Geometry) -> Option<PositionsPlan> {
        let plan = &self.plan;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let [y, x] = &geometry.axes;
        let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
        let known = y.size == x.size && SIZES.contains(&y.size);
        if !(parameters && one && known) || plan.layout != ChannelsLast || plan.planes() == 0 {
            return None;
        }
        let window = window(geometry);
        Some(PositionsPlan { window, of: VectorsOf::outputs(&window, T::DTYPE.size())? })
    }

    pub(super) fn by_positions(self, gpu: &Gpu, geometry: Geometry, launch: PositionsPlan) -> Result<()> {
        let Self { plan, x, mean, var, dy, dmean, dvar, .. } = self.without_dx(gpu)?;
        let why = super::because(&plan, WHY);
        let (op, variances, PositionsPlan { window, of }) = (plan.op, plan.variances() as u32, launch);
        let (vectors, blocks) = (of.vectors, of.blocks.min(MOST_BLOCKS));
        let dims = LaunchDims::new(blocks, POSITIONS_BLOCK).with_shared(POSITIONS_SHARED_BYTES);
        let mut workspace = gpu.workspace((blocks * SUMS_PER_GAUSSIAN) as usize)?;
        let mut of_blocks = workspace.as_slice_mut();
        for_storage!(T as S, op, "x", gpu, {
            let (x, dy) = (x.gpu::<S>(op, "x")?, dy.gpu::<S>(op, "dy")?);
            let (mean, var) = (mean.gpu::<f32>(op, "mean")?, var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($size:literal) => {{
                    let sums = &mut of_blocks;
                    type Kernel<'a, S> = GaussianPoolPositions<'a, S, $size>;
                    let launch = Kernel::<S> { x, dy, mean, var, sums, variances, geometry, window, vectors };
                    // SAFETY: `x` and `dy` have the shapes and the layout that `geometry` and `window` were made of, whose windows are of
                    // that size, and the parameters theirs; there are four sums for each block; the vectors are of the outputs.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            match window.size[0] {
                2 => run!(2),
                _ => run!(3),
            }
        })?;
        drop(why);
        // All blocks' sums are those of one Gaussian.
        let geometry = Geometry { planes: blocks, tiles: [1, 1], ..geometry };
        sum_parameters(gpu, &plan, dmean, dvar, &of_blocks, geometry)
    }
}
