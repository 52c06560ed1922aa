//! The launch of the kernel for few large windows.

use cuda_std::launch::LaunchDims;
use kernels::band::BandLaunch;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::large::GaussianPoolForwardWarp;
use kernels::warps::Warps;
use kernels::window::{Divider, Nhwc, Window};

use super::super::Forward;
use super::super::plan::Plan;
use super::MAX_GRID_Y;
use super::patches::of_planes;
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Outputs that are few, at most.
const FEW: u64 = 1 << 15;
/// Windows over an input, at most: of more, sums along each axis are less work than a product for each position.
const MOST_OVER: u32 = 16;
/// Positions of a window, at least: row-major, and with the channels last, where smaller ones go by vectors.
const LEAST: u32 = 256;
const LEAST_OF_CHANNELS: u32 = 1025;
/// Blocks that are few, at most, of those that go down the planes of some channels that are last: with more these take less time.
const FEW_BLOCKS: u32 = 192;
/// Positions from which on windows that do not overlap go so too, where there are [`FEWEST`] outputs at most.
const HUGE: u32 = 1 << 14;
const FEWEST: u64 = 128;

/// A launch's window and its warps.
pub(super) struct WarpPlan {
    window: Window<Nhwc>,
    warps: Warps,
    dims: LaunchDims,
}

/// The plan of the pass, if windows are large and few.
pub(super) fn plan(plan: &Plan, geometry: &Geometry) -> Option<WarpPlan> {
    let Geometry { planes, channels, kernels, axes: [y, x], .. } = *geometry;
    if planes == 0 || kernels > MAX_GRID_Y {
        return None;
    }
    let (of, least) = match plan.layout {
        RowMajor => ([planes, 1], LEAST),
        ChannelsLast => ([planes / channels, channels], LEAST_OF_CHANNELS),
    };
    let over = y.size.div_ceil(y.stride).saturating_mul(x.size.div_ceil(x.stride));
    let positions = y.size.saturating_mul(x.size);
    let of_columns = [geometry.groups, geometry.tiles[0], geometry.tiles[1]];
    let of_columns = of_columns.into_iter().fold(planes / channels, u32::saturating_mul);
    let others = plan.layout == ChannelsLast && of_columns > FEW_BLOCKS;
    if others || outputs(geometry) >= FEW || positions < least || over > MOST_OVER {
        return None;
    }
    let window = of_planes(geometry, of);
    let (warps, BandLaunch { grid: [blocks, groups, _], block, shared }) = Warps::new(&window, true)?;
    let dims = LaunchDims::new([blocks, groups, kernels], block).with_shared(shared);
    Some(WarpPlan { window, warps, dims })
}

/// The same, of windows so few and large that nothing else has enough threads.
pub(super) fn of_huge(of: &Plan, geometry: &Geometry) -> Option<WarpPlan> {
    let [y, x] = &geometry.axes;
    let huge = y.size.saturating_mul(x.size) >= HUGE && outputs(geometry) <= FEWEST;
    if huge { plan(of, geometry) } else { None }
}

/// Outputs of all planes, of one Gaussian.
fn outputs(geometry: &Geometry) -> u64 {
    let [y, x] = &geometry.axes;
    u64::from(y.output) * u64::from(x.output) * u64::from(geometry.planes)
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_warps(
        self,
        gpu: &Gpu,
        geometry: Geometry,
        WarpPlan { window, warps, dims }: WarpPlan,
    ) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, "a warp an output, or several: windows are large, and outputs few");
        let (op, by_channels) = (plan.op, Divider::new(geometry.channels));
        super::with_weights(gpu, plan, [self.mean, self.var], geometry, Some(1), 0, |tables, _| {
            let [Some(weights_y), Some(weights_x)] = tables else { return Ok(()) };
            for_storage!(T as S, op, "x", gpu, {
                let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
                super::for_layout!(plan.layout, NHWC, {
                    type Kernel<'a, S, const NHWC: bool> = GaussianPoolForwardWarp<'a, S, NHWC>;
                    let launch = Kernel::<S, NHWC> { x, weights_y, weights_x, y, by_channels, geometry, window, warps };
                    // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, the tables were
                    // just written for it, and the launch is that of `warps`, once for each Gaussian of a map.
                    unsafe { gpu.launch(dims, launch) }
                })
            })
        })
    }
}
