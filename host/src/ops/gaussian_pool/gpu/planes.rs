//! The launch of the kernel in which a lane goes down a column of meshes, for gradients with those of the parameters, of planes that
//! follow each other and windows three apart.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::planes::{Columns, GaussianPoolBackwardParametersPlanes, PLANES_BLOCK, SIZES, STRIDE};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};
use kernels::window::{Nchw, Window};

use super::super::Backward;
use super::{MAX_COUNT, meshes, sum_parameters};
use crate::Layout::RowMajor;
use crate::device::Gpu;
use crate::{DType, Real, Result};

/// A launch's window, its columns, and their shape.
pub(super) struct ColumnsPlan {
    window: Window<Nchw>,
    columns: Columns,
    dims: LaunchDims,
    blocks: u32,
}

const WHY: &str =
    "by lanes that go down columns of meshes, for windows of a size compiled in and weights that all channels share";

impl<T: Real> Backward<'_, T> {
    /// The plan, if the gradients of the parameters are asked for, that of the input is to be written and not added to what is there, and
    /// there is a kernel.
    pub(super) fn plan_columns(&self, geometry: &Geometry) -> Option<ColumnsPlan> {
        let plan = &self.plan;
        let [y, x] = geometry.axes;
        let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let adds = self.dx.as_ref().is_some_and(|out| out.beta != 0.0);
        let alike = (y.size, y.stride) == (x.size, x.stride);
        let known = alike && y.stride == STRIDE as u32 && SIZES.contains(&y.size);
        let can = plan.layout == RowMajor && T::DTYPE == DType::F32 && plan.planes() > 0;
        if !(can && known && one && parameters) || adds {
            return None;
        }
        let window = meshes::window(geometry);
        let (columns, [across, parts]) = Columns::new(&window, plan.variances() as u32)?;
        let blocks =
            across.checked_mul(parts).filter(|&blocks| blocks as usize <= MAX_COUNT / SUMS_PER_GAUSSIAN as usize)?;
        let dims = LaunchDims::new([across, parts, 1], PLANES_BLOCK);
        Some(ColumnsPlan { window, columns, dims, blocks })
    }

    pub(super) fn by_columns_of_meshes(self, gpu: &Gpu, geometry: Geometry, launch: ColumnsPlan) -> Result<()> {
        let plan = &self.plan;
        let why = super::because(plan, WHY);
        let (op, ColumnsPlan { window, columns, dims, blocks }) = (plan.op, launch);
        let mut workspace = gpu.workspace((blocks * SUMS_PER_GAUSSIAN) as usize)?;
        let mut sums = workspace.as_slice_mut();
        let (x, dy) = (self.x.gpu::<f32>(op, "x")?, self.dy.gpu::<f32>(op, "dy")?);
        let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
        let dx = match self.dx {
            Some(out) => Some(out.tensor.gpu_mut::<f32>(op, "dx")? as &mut dyn DeviceMemory<f32>),
            None => None,
        };
        macro_rules! run {
            ($($of:literal),+) => {{
                type Kernel<'a> = GaussianPoolBackwardParametersPlanes<'a, $($of),+>;
                let sums = &mut sums;
                let launch = Kernel { x, dy, mean, var, dx, sums, geometry, window, columns };
                // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that `geometry` and `window` were made of, and the
                // parameters theirs; `sums` has four elements for each block; the columns are the window's, of this size, and the
                // grid theirs.
                unsafe { gpu.launch(dims, launch) }
            }};
        }
        match window.size[0] {
            5 => run!(5, 2, 3),
            7 => run!(7, 3, 4),
            9 => run!(9, 3, 4),
            _ => run!(11, 4, 5),
        }?;
        drop(why);
        let geometry = Geometry { planes: blocks, tiles: [1, 1], ..geometry };
        sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry)
    }
}
