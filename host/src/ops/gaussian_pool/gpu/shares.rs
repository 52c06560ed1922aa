//! Launches of the kernel by runs of elements, backward of row-major images.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::shares::GaussianPoolBackwardShares;
use kernels::gaussian_pool::{Axis, Geometry};
use kernels::shares::Shares;
use kernels::window::{Nchw, Window};

use super::super::Backward;
use super::super::plan::Plan;
use super::patches::of_planes;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::ops::window::shares;
use crate::{Real, Result};

/// A launch's window, how its blocks take runs, and how many windows are over an element along an axis, at most.
pub(super) struct SharesPlan {
    window: Window<Nchw>,
    over: u32,
    shares: Shares,
    dims: LaunchDims,
}

/// How far windows are apart that overlap and of which no other kernel takes less time on large planes, at least; and pixels of small ones, at most.
const FAR: u32 = 4;
const SMALL: u64 = 1 << 10;
const FOUR: u32 = 4;

/// Whether windows are apart that are no wider than that, but for those of which bands of rows store four elements at once.
pub(super) fn are_apart(geometry: &Geometry) -> bool {
    let by_fours = |axis: &Axis| (axis.size, axis.stride, axis.padding % FOUR) == (FOUR, FOUR, 0);
    let stored = geometry.axes[1].image.is_multiple_of(FOUR) && pixels(geometry) > SMALL;
    geometry.axes.iter().all(|axis| axis.size <= axis.stride && axis.stride > 2)
        && !(stored && geometry.axes.iter().all(by_fours))
}

/// Whether windows are far apart, or planes small and few windows over an element.
pub(super) fn are_few(geometry: &Geometry) -> bool {
    let far = geometry.axes.iter().all(|axis| axis.stride >= FAR);
    let few = geometry.axes.iter().all(|axis| axis.stride >= 2 && axis.size <= 2 * axis.stride);
    far || pixels(geometry) <= SMALL && few
}

fn pixels(geometry: &Geometry) -> u64 {
    geometry.axes.iter().map(|axis| u64::from(axis.image)).product()
}

/// The plan of the input's gradient alone, if all planes share a Gaussian whose weights are the same everywhere and there is a kernel.
pub(super) fn plan(gpu: &Gpu, plan: &Plan, geometry: &Geometry) -> Option<SharesPlan> {
    let [y, x] = &geometry.axes;
    let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
    if plan.layout != RowMajor || geometry.planes == 0 || !one {
        return None;
    }
    let window = of_planes(geometry, [geometry.planes, 1]);
    let (over, shares, dims) = shares(gpu, &window, y.size.checked_add(x.size)?)?;
    Some(SharesPlan { window, over, shares, dims })
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_shares(self, gpu: &Gpu, geometry: Geometry, launch: SharesPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(
            plan,
            "by runs of elements, with weights that all planes share, of windows that are far apart",
        );
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        let SharesPlan { window, over, shares, dims } = launch;
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($over:literal) => {{
                    type Kernel<'a, S> = GaussianPoolBackwardShares<'a, S, $over>;
                    let launch = Kernel::<S> { dy, mean, var, dx, beta, variances, geometry, window, shares };
                    // SAFETY: `dy` and `dx` have the shapes and the layout that `window` and `geometry` were made of, of which so many windows
                    // are over an element, and the parameters theirs; the runs are the window's, with room for its weights, and the launch theirs.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            match over {
                1 => run!(1),
                2 => run!(2),
                _ => run!(3),
            }
        })
    }
}
