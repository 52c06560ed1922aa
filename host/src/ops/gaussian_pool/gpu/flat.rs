//! Launches of the kernel by rows as flat runs of elements, with the channels last.

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::flat::{FLAT_BLOCK, FLAT_EACH, FLAT_ROWS, GaussianPoolForwardFlat};
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::elements;
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, HALF, for_half};
use crate::ops::window::turned;
use crate::{DType, Error, Real, Result};

/// A launch's window and its threads.
pub(super) struct FlatPlan {
    window: Window<Nhwc>,
    elements: Elements,
    dims: LaunchDims,
}

/// Outputs from which on these take less time than packs of one element.
const MUCH: u64 = 1 << 19;

/// The plan of the pass forward, if channels are last, of 16 bits and an odd number, and all share a Gaussian whose weights are the same everywhere.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<FlatPlan> {
    launch(gpu, of(plan, geometry, dtype)?)
}

/// The same of the input's gradient alone.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<FlatPlan> {
    launch(gpu, turned(of(plan, geometry, dtype)?))
}

fn of(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<Window<Nhwc>> {
    let window =
        elements::of_one(plan, geometry).filter(|_| plan.layout == ChannelsLast && dtype.size() == 2 && HALF)?;
    let fits = window.size == [3; 2] && window.stride == [1; 2] && !window.channels.is_multiple_of(2);
    fits.then_some(window)
}

fn launch(gpu: &Gpu, window: Window<Nhwc>) -> Option<FlatPlan> {
    let [inputs, outputs] = [window.input, window.output].map(|size| elements::elements(&window, size));
    let much = outputs >= MUCH || gpu.is_emulated();
    if !much || inputs.max(outputs) >= 1 << 31 || !inputs.is_multiple_of(2) || !outputs.is_multiple_of(2) {
        return None;
    }
    let [rows, columns] = window.output;
    let fours = columns.checked_mul(window.channels)?.div_ceil(FLAT_EACH);
    let of_fours = Window { channels: 1, ..window };
    let (elements, blocks) = Elements::new(&of_fours, [rows, fours], FLAT_ROWS, FLAT_BLOCK)?;
    Some(FlatPlan { window, elements, dims: LaunchDims::new(blocks, FLAT_BLOCK) })
}

const WHY: &str =
    "by rows as flat runs of elements, of channels that are no whole packs, which all share their weights";

impl<T: Real> Forward<'_, T> {
    pub(super) fn flat(self, gpu: &Gpu, launch: FlatPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances, FlatPlan { window, elements, dims }) = (plan.op, plan.variances() as u32, launch);
        let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
        let (beta, turned) = (0.0, 0);
        for_half!(T as S, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let kernel = GaussianPoolForwardFlat::<S> { x, mean, var, y, beta, turned, variances, window, elements };
            // SAFETY: `x` and `y` have the shapes and the layout that `window` was made of, whose windows are 3×3 and one apart, and an even
            // number of elements, and the parameters theirs; the elements are fours of its outputs, as many rows a thread
            // as the kernel takes, and the launch theirs.
            return unsafe { gpu.launch(dims, kernel) };
        });
        Err(Error::DType { op, argument: "x", got: T::DTYPE, device: gpu.to_string(), expected: "f16 or bf16" })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn flat(self, gpu: &Gpu, launch: FlatPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances, FlatPlan { window, elements, dims }) = (plan.op, plan.variances() as u32, launch);
        let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
        let (beta, turned) = (out.beta as f32, 1);
        for_half!(T as S, {
            let (x, y) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let kernel = GaussianPoolForwardFlat::<S> { x, mean, var, y, beta, turned, variances, window, elements };
            // SAFETY: as above, of `dy` and `dx` and the window turned round.
            return unsafe { gpu.launch(dims, kernel) };
        });
        Err(Error::DType { op, argument: "dx", got: T::DTYPE, device: gpu.to_string(), expected: "f16 or bf16" })
    }
}
