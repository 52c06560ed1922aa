//! The launch of the kernel for small windows of a known size, of planes that follow each other.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::direct::{Direct, GaussianPoolForwardDirect, Plan as DirectPlan, blocks, is_of_pairs};
use kernels::gaussian_pool::{Axis, Geometry};
use kernels::pieces::BLOCK;

use super::super::Forward;
use super::super::plan::Plan;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Pixels of a plane up to which windows that share much go this way: where planes are larger, less is read when they go down
/// columns.
const SMALL_PLANE: u32 = 24 * 24;
/// How far windows are apart that go this way whatever they share, at least: others have no kernels for such.
const FAR: u32 = 4;
/// Elements of all planes up to which they do where planes are larger, too: there latency is what counts.
const LITTLE: u64 = 1 << 20;

/// The plan of the kernel, if it can and no other is faster.
pub(super) fn plan(plan: &Plan, geometry: &Geometry) -> Option<DirectPlan> {
    if plan.layout != RowMajor || plan.planes() == 0 {
        return None;
    }
    let [vertical, horizontal] = &geometry.axes;
    let pixels = u64::from(vertical.image) * u64::from(horizontal.image);
    let little = pixels <= u64::from(SMALL_PLANE) || pixels * u64::from(geometry.planes) <= LITTLE;
    let shares_little = geometry
        .axes
        .iter()
        .all(|&Axis { size, stride, .. }| size <= stride || stride >= 3 && size < 2 * stride || stride >= FAR);
    if shares_little || little { Direct::plan(geometry, plan.variances() as u32) } else { None }
}

/// Runs a block with `$size` and `$pairs` as the parameters of these names of the kernel.
macro_rules! for_size {
    ($geometry:expr, $size:ident, $pairs:ident, $body:expr) => {
        for_size!(
            @ ($geometry.axes[0].size, is_of_pairs(&$geometry)), $size, $pairs, $body;
            (2, true): (2, true); (2, false): (2, false); (3, _): (3, false); (4, _): (4, false); (5, _): (5, false);
            (6, _): (6, false); (7, _): (7, false); (_, _): (8, false);
        )
    };
    (@ $case:expr, $size:ident, $pairs:ident, $body:expr; $(($s:pat, $t:pat): ($a:literal, $b:literal);)*) => {
        match $case {
            $(($s, $t) => {
                const $size: u32 = $a;
                const $pairs: bool = $b;
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
        let blocks = launch.blocks.min(gpu.at_once(blocks(geometry.axes[0].size)));
        let dims = LaunchDims::new(blocks, BLOCK).with_shared(launch.shared_bytes);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($own:literal) => {
                    for_size!(geometry, SIZE, PAIRS, {
                        type Kernel<'a, S> = GaussianPoolForwardDirect<'a, S, SIZE, PAIRS, $own>;
                        let launch = Kernel::<S> { x, mean, var, y, geometry, direct };
                        // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters theirs;
                        // the grid and the shared memory are the plan's, of the window's size.
                        unsafe { gpu.launch(dims, launch) }
                    })
                };
            }
            if launch.own { run!(true) } else { run!(false) }
        })
    }
}
