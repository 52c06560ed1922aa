//! The launch of the kernel by elements where each channel has Gaussians of its own.

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::apiece::{APIECE_BLOCK, APIECE_BLOCKS, GaussianPoolForwardApiece, Turns};
use kernels::gaussian_pool::elements::Maps;
use kernels::window::{Nhwc, Window};

use super::super::Forward;
use super::super::plan::Plan;
use super::elements::elements;
use super::patches::{of_planes, window};
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::{Real, Result};

/// A launch's window, and how its threads take elements and weights.
pub(super) struct ApiecePlan {
    window: Window<Nhwc>,
    elements: Elements,
    maps: Maps,
    turns: Turns,
    dims: LaunchDims,
}

/// Products of all outputs and positions of which others, which make a table of weights first, take longer whatever the window, at most.
const LITTLE: u64 = 1 << 20;
/// Weights that each of many blocks computes while a table would be made, at most.
const FEW_WEIGHTS: u32 = 1 << 10;
/// How far windows are apart, at least, that share too little for others.
const FAR: u32 = 3;

/// The plan of the pass forward, if channels have Gaussians of their own whose weights are the same everywhere, and no other is faster. `others` may take a channel a
/// thread, of a size compiled in.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, others: bool) -> Option<ApiecePlan> {
    let window = of(plan, geometry)?;
    let positions = u64::from(window.size[0]) * u64::from(window.size[1]);
    let products = elements(&window, window.output).saturating_mul(positions * u64::from(geometry.kernels));
    let far = !others && plan.layout == ChannelsLast && window.stride[0].min(window.stride[1]) >= FAR;
    let little = products <= LITTLE && has_few_weights(geometry);
    if far || little { launch(gpu, plan, geometry, window, window.output) } else { None }
}

/// The window, where each channel has Gaussians of its own whose weights are the same everywhere.
fn of(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = &geometry.axes;
    let window = match plan.layout {
        RowMajor => of_planes(geometry, [geometry.planes, 1]),
        ChannelsLast => window(geometry),
    };
    (geometry.sets > 1 && geometry.planes > 0 && (y.cases, x.cases) == (1, 1)).then_some(window)
}

fn has_few_weights(geometry: &Geometry) -> bool {
    let [y, x] = &geometry.axes;
    let of_gaussian = y.size.saturating_add(x.size);
    of_gaussian.saturating_mul(geometry.sets).saturating_mul(geometry.kernels) <= FEW_WEIGHTS
}

fn launch(gpu: &Gpu, plan: &Plan, geometry: &Geometry, window: Window<Nhwc>, size: [u32; 2]) -> Option<ApiecePlan> {
    let gaussians = [geometry.sets, geometry.kernels];
    let shared = Turns::shared_bytes(window.size, gaussians).filter(|&shared| shared <= SHARED_WITHOUT_ASKING)?;
    if elements(&window, window.output).saturating_mul(u64::from(geometry.kernels)) >= 1 << 30 {
        return None;
    }
    let (elements, count) = Elements::new(&window, size, 1, APIECE_BLOCK)?;
    let channels_last = plan.layout == ChannelsLast;
    let maps = Maps::new(&window, geometry.kernels, channels_last);
    let turns = Turns::new(count, gaussians, channels_last);
    let dims = LaunchDims::new(count.min(gpu.at_once(APIECE_BLOCKS)), APIECE_BLOCK).with_shared(shared);
    Some(ApiecePlan { window, elements, maps, turns, dims })
}

const WHY: &str = "an element a thread at a time, with all channels' weights in shared memory";

impl<T: Real> Forward<'_, T> {
    pub(super) fn apiece(self, gpu: &Gpu, geometry: Geometry, launch: ApiecePlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let ApiecePlan { window, elements, maps, turns, dims } = launch;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            type Kernel<'a, S> = GaussianPoolForwardApiece<'a, S>;
            let launch = Kernel::<S> { x, mean, var, y, variances, geometry, window, elements, maps, turns };
            // SAFETY: the tensors have the shapes and the layout that `window`, `maps` and `geometry` were made of, and the parameters theirs; the
            // elements are the window's outputs, in as many turns, and shared memory has room for the weights.
            unsafe { gpu.launch(dims, launch) }
        })
    }
}
