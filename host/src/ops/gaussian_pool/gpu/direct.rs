//! The launch of the kernel for small windows of a known size, of planes that follow each other.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::direct::{Direct, GaussianPoolForwardDirect, Plan as DirectPlan};
use kernels::pieces::BLOCK;

use super::super::Forward;
use super::super::plan::Plan;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Pixels of a plane up to which windows that overlap go this way: where planes are larger, less is read when they go down
/// columns.
const SMALL_PLANE: u32 = 24 * 24;
/// Elements of all planes up to which they do where planes are larger, too: there latency is what counts.
const LITTLE: u64 = 1 << 20;

/// The plan of the kernel, if it can and no other is faster.
pub(super) fn plan(plan: &Plan, geometry: &Geometry) -> Option<DirectPlan> {
    if plan.layout != RowMajor {
        return None;
    }
    let [vertical, horizontal] = &geometry.axes;
    let pixels = u64::from(vertical.image) * u64::from(horizontal.image);
    let overlap = vertical.stride < vertical.size;
    let little = pixels <= u64::from(SMALL_PLANE) || pixels * u64::from(geometry.planes) <= LITTLE;
    if overlap && !little { None } else { Direct::plan(geometry, plan.variances() as u32) }
}

/// Runs a block with `$size` and `$stride` as the parameters of these names of the kernel.
macro_rules! for_size {
    ($axis:expr, $size:ident, $stride:ident, $body:expr) => {
        for_size!(
            @ ($axis.size, $axis.stride), $size, $stride, $body;
            (2, _): (2, 2); (3, 3): (3, 3); (4, _): (4, 4); (8, _): (8, 8); (_, _): (3, 2);
        )
    };
    (@ $case:expr, $size:ident, $stride:ident, $body:expr; $(($s:pat, $t:pat): ($a:literal, $b:literal);)*) => {
        match $case {
            $(($s, $t) => {
                const $size: u32 = $a;
                const $stride: u32 = $b;
                $body
            })*
        }
    };
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn direct(self, gpu: &Gpu, geometry: Geometry, launch: DirectPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, "by whole windows of a size compiled in, a thread each or a few");
        let (op, direct) = (plan.op, launch.direct);
        let dims = LaunchDims::new(launch.blocks, BLOCK).with_shared(launch.shared_bytes);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_size!(geometry.axes[0], SIZE, STRIDE, {
                let launch = GaussianPoolForwardDirect::<S, SIZE, STRIDE> { x, mean, var, y, geometry, direct };
                // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters theirs;
                // the grid and the shared memory are the plan's, of the window's size.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}
