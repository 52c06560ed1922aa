//! Launches of the backward kernels for larger windows three apart, of planes that follow each other.

use cuda_std::launch::LaunchDims;
use kernels::band::spread::Spread;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::meshes::{GaussianPoolBackwardMeshes, SIZES, STRIDE, before};
use kernels::window::{Nchw, Window};

use super::super::Backward;
use super::super::plan::Plan;
use super::patches::of_planes;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::ops::window::band_dims;
use crate::{DType, Real, Result};

/// A launch's window, its meshes, and their shape.
pub(super) struct MeshesPlan {
    window: Window<Nchw>,
    spread: Spread,
    dims: LaunchDims,
}

/// The plan of the backward pass for the input's gradient alone, if there is a kernel.
pub(super) fn backward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<MeshesPlan> {
    let [y, x] = &geometry.axes;
    let stride = STRIDE as u32;
    let known = (y.stride, x.stride, y.size) == (stride, stride, x.size) && SIZES.contains(&y.size);
    let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
    if plan.layout != RowMajor || plan.planes() == 0 || !(known && one) {
        return None;
    }
    let window = window(geometry);
    let (spread, launch) = Spread::new(&window, before(y.size), dtype.size())?;
    Some(MeshesPlan { window, spread, dims: band_dims(launch) })
}

/// The window as kernels of planes that follow each other take it.
pub(super) fn window(geometry: &Geometry) -> Window<Nchw> {
    of_planes(geometry, [geometry.planes, 1])
}

const WHY: &str = "by meshes of 3x3 inputs, for windows of a size compiled in and weights that all channels share";

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_meshes(self, gpu: &Gpu, geometry: Geometry, launch: MeshesPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let MeshesPlan { window, spread, dims } = launch;
        let Some(out) = self.dx else { return Ok(()) };
        let beta = out.beta as f32;
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($($of:literal),+) => {{
                    type Kernel<'a, S> = GaussianPoolBackwardMeshes<'a, S, $($of),+>;
                    let launch = Kernel::<S> { dy, mean, var, dx, beta, variances, geometry, window, spread };
                    // SAFETY: `dy` and `dx` have the shapes and the layout that `geometry` and `window` were made of, and the
                    // parameters theirs; the meshes are the window's, of this size, and the launch theirs. Memory begins at
                    // multiples of 16 bytes.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            match window.size[0] {
                5 => run!(5, 1, 2),
                7 => run!(7, 2, 3),
                9 => run!(9, 2, 3),
                _ => run!(11, 3, 4),
            }
        })
    }
}
