//! The launch of the kernel that takes an output a thread.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::elements::{ELEMENTS_BLOCK, Elements, GaussianPoolForwardElements};
use kernels::gaussian_pool::vectors::{MOST_POSITIONS, Weights};
use kernels::window::{Nchw, Window};

use super::super::Forward;
use super::super::plan::Plan;
use super::patches::of_planes;
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Products that are few, at most: they take no longer than a launch.
const FEW: u64 = 1 << 23;
/// Outputs that are enough threads, at least, and those that each read what its neighbours do too, at most.
const LEAST: u64 = 1 << 12;
const MOST: u64 = 1 << 19;
/// How far windows are apart, at least: what those share that are nearer is worth to be staged.
const LEAST_APART: u32 = 3;
/// Elements of planes that are too small for blocks that go down them, at most, and products of such.
const SMALL: u32 = 1 << 12;
const FEW_OF_SMALL: u64 = 1 << 25;

/// A launch's window, its weights and its threads.
pub(super) struct ElementsPlan {
    window: Window<Nchw>,
    weights: Weights,
    elements: Elements,
    dims: LaunchDims,
}

/// The plan of the pass, if it is row-major and little, and all channels share a Gaussian whose weights are the same everywhere.
pub(super) fn plan(plan: &Plan, geometry: &Geometry) -> Option<ElementsPlan> {
    let [y, x] = &geometry.axes;
    let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
    let positions = y.size.saturating_mul(x.size);
    if plan.layout != RowMajor || geometry.planes == 0 || !one || positions > MOST_POSITIONS {
        return None;
    }
    let outputs = (u64::from(y.output) * u64::from(x.output)).saturating_mul(u64::from(geometry.planes));
    let most = if y.image.saturating_mul(x.image) <= SMALL { FEW_OF_SMALL } else { FEW };
    if !(LEAST..=MOST).contains(&outputs)
        || y.stride.min(x.stride) < LEAST_APART
        || outputs.saturating_mul(u64::from(positions)) > most
    {
        return None;
    }
    let window = of_planes(geometry, [geometry.planes, 1]);
    let weights = Weights::new(plan.variances() as u32, x.size);
    let (elements, blocks) = Elements::new(&window)?;
    let dims = LaunchDims::new(blocks, ELEMENTS_BLOCK).with_shared(Weights::shared_bytes(window.size));
    Some(ElementsPlan { window, weights, elements, dims })
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn elements(self, gpu: &Gpu, geometry: Geometry, launch: ElementsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, "an output a thread, with weights that all channels share: little");
        let (op, ElementsPlan { window, weights, elements, dims }) = (plan.op, launch);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let launch = GaussianPoolForwardElements::<S> { x, mean, var, y, weights, geometry, window, elements };
            // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, and the parameters theirs; the
            // elements are the window's, and the launch theirs, with shared memory for the weights.
            unsafe { gpu.launch(dims, launch) }
        })
    }
}
