//! Launches of the kernels by spans of row-major windows.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::spans::{GaussianPoolBackwardSpans, GaussianPoolForwardSpans, shared_bytes};
use kernels::spans::{self, Spans};
use kernels::window::{Covering, Nchw, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::elements::of_one;
use crate::Layout::RowMajor;
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::ops::window::{BY_SPANS, MOST_ROWS_OF_SPANS, for_spans, is_oblong};
use crate::{DType, Real, Result};

/// Blocks that keep a GPU busy, some for each multiprocessor's room; and spans of a thread, at most.
const ENOUGH: u32 = 2048;
const MOST_TURNS: u32 = 4;

/// A launch's window and its threads.
pub(super) struct SpansPlan {
    window: Window<Nchw>,
    spans: Spans,
    dims: LaunchDims,
}

/// The plan of the pass forward, if images are row-major and all channels share a Gaussian whose weights are the same everywhere, of windows that no other
/// kernel takes less time for.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<SpansPlan> {
    let window = of(plan, geometry, dtype)?;
    // Of 16 bits, rows that are whole vectors go as matrix products.
    if window.stride == [2; 2] && dtype.size() == 2 && window.input[1].is_multiple_of(8) {
        return None;
    }
    SpansPlan::new(gpu, window, Spans::of_outputs(&window, dtype.size())?)
}

/// The same of the input's gradient alone.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<SpansPlan> {
    let window = of(plan, geometry, dtype).filter(|window| window.stride != [2; 2])?;
    SpansPlan::new(gpu, window, Spans::of_inputs(&window, dtype.size())?)
}

/// The window over row-major planes: of windows of one column those of images with the channels last, too, whose rows of pixels are such planes' rows, where
/// channels are no whole vectors.
fn of(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<Window<Nchw>> {
    let window = of_one(plan, geometry).map(|window| window.in_order::<Nchw>()).filter(is_oblong)?;
    if window.size[0] > MOST_ROWS_OF_SPANS {
        return None;
    }
    if plan.layout == RowMajor {
        return Some(window);
    }
    let is_column = [window.size[1], window.stride[1], window.padding[1]] == [1, 1, 0];
    let vectors = window.channels.is_multiple_of(16 / dtype.size() as u32);
    let [input, output] = [window.input, window.output];
    let width = input[1].checked_mul(window.channels).filter(|_| is_column && !vectors)?;
    Some(Window { channels: 1, input: [input[0], width], output: [output[0], width], ..window })
}

impl SpansPlan {
    fn new(gpu: &Gpu, window: Window<Nchw>, (spans, blocks): (Spans, u32)) -> Option<Self> {
        let shared = shared_bytes(window.size);
        let each = if gpu.is_emulated() { 2 } else { (blocks / ENOUGH).clamp(1, MOST_TURNS) };
        let dims = LaunchDims::new(blocks.div_ceil(each), spans::BLOCK).with_shared(shared);
        (shared <= SHARED_WITHOUT_ASKING).then_some(Self { window, spans, dims })
    }
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_spans(self, gpu: &Gpu, geometry: Geometry, launch: SpansPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, BY_SPANS);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let SpansPlan { window, spans, dims } = launch;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_spans!(window, more => COLUMNS, STRIDE, PADDING, {
                type Kernel<'a, S> = GaussianPoolForwardSpans<'a, S, COLUMNS, STRIDE, PADDING>;
                let launch = Kernel::<S> { x, mean, var, y, variances, geometry, window, spans };
                // SAFETY: `x` and `y` have the shapes that `window` was made of, which has such columns, and the parameters theirs; the
                // spans are the window's outputs', and the launch theirs, with room for the weights.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_spans(self, gpu: &Gpu, geometry: Geometry, launch: SpansPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, BY_SPANS);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        let SpansPlan { window, spans, dims } = launch;
        let covering = Covering::new(&window);
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_spans!(window, more => COLUMNS, STRIDE, PADDING, {
                type Kernel<'a, S> = GaussianPoolBackwardSpans<'a, S, COLUMNS, STRIDE, PADDING>;
                let launch = Kernel::<S> { dy, mean, var, dx, beta, variances, geometry, window, covering, spans };
                // SAFETY: as above, of `dy` and `dx`; the spans are the window's inputs'.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}
