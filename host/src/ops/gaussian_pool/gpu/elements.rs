//! The launches of the kernels that take an element a thread, or a few outputs one below the other.

use std::ops::Range;

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::elements::{
    ELEMENTS_BLOCK, GaussianPoolBackwardElements, GaussianPoolForwardElements, MOST_ROWS, Maps, shared_bytes,
};
use kernels::window::{Covering, Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::patches::{of_planes, window};
use super::vectors;
use super::{few, packs};
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::ops::window::{is_oblong, turned};
use crate::{DType, Real, Result};

/// A launch's window and its threads.
pub(super) struct ElementsPlan {
    window: Window<Nhwc>,
    /// Whether the pass is backward by the window turned round.
    turned: bool,
    /// Rows of a thread.
    rows: u32,
    elements: Elements,
    maps: Maps,
    dims: LaunchDims,
}

impl ElementsPlan {
    fn new(plan: &Plan, window: Window<Nhwc>, turned: bool, size: [u32; 2], rows: u32) -> Option<Self> {
        let gaussians = plan.kernels as u32;
        let (threads, blocks) = Elements::new(&window, size, rows, ELEMENTS_BLOCK)?;
        let shared = shared_bytes(window.size, gaussians);
        if elements(&window, window.output).saturating_mul(u64::from(gaussians)) >= 1 << 30
            || shared > SHARED_WITHOUT_ASKING
        {
            return None;
        }
        let maps = Maps::new(&window, gaussians, plan.layout == ChannelsLast);
        let dims = LaunchDims::new(blocks, ELEMENTS_BLOCK).with_shared(shared);
        Some(Self { window, turned, rows, elements: threads, maps, dims })
    }
}

/// Outputs that are enough threads, at least, and elements of a gradient.
pub(super) const LEAST_OUTPUTS: u64 = 1 << 9;
/// See [`LEAST_OUTPUTS`].
pub(super) const LEAST_INPUTS: u64 = 1 << 12;
/// Products of which several rows a thread take less time, at least.
const ENOUGH: u64 = 1 << 22;

/// Elements of a gradient by several Gaussians of which others, which make a table of weights first, take longer, at most.
const LITTLE: u64 = 1 << 18;
/// Products by all of several Gaussians, likewise.
const LITTLE_OF_SEVERAL: u64 = 1 << 20;

/// Columns of a short row, at most, and positions of a window that is gone through for each output of such, or of windows that share at most half a
/// window with the next.
const SHORT: u32 = 64;
const MOST_POSITIONS: u32 = 1 << 10;

/// What the other kernels make of an image's channels.
enum Channels {
    /// Row-major: planes of one channel.
    One,
    /// No multiple of what any takes at once.
    Odd,
    /// Halves of vectors: for few kernels.
    Halves,
    /// Whole vectors.
    Vectors,
}

/// What of a window and its channels the times depend on.
struct Kind {
    channels: Channels,
    size: [u32; 2],
    /// The longer way from window to window.
    stride: u32,
    /// Whether windows, or the ways between them, are not the same both ways.
    oblong: bool,
    /// Whether rows are short, so that tiles are mostly empty.
    is_small: bool,
}

impl Kind {
    fn new(plan: &Plan, window: &Window<Nhwc>, dtype: DType) -> Self {
        let channels = match plan.layout {
            RowMajor => Channels::One,
            ChannelsLast if few::odd(window.channels) => Channels::Odd,
            ChannelsLast if !window.channels.is_multiple_of(16 / dtype.size() as u32) => Channels::Halves,
            ChannelsLast => Channels::Vectors,
        };
        Self {
            channels,
            size: window.size,
            stride: window.stride[0].max(window.stride[1]),
            oblong: is_oblong(&window.in_order()),
            is_small: window.input[1] <= SHORT,
        }
    }

    /// Products, a window's positions for each output, of which these kernels take less time forward than the others. Measured on an H100.
    fn forward(&self) -> Range<u64> {
        let positions = self.size[0].saturating_mul(self.size[1]);
        let overlap = self.stride < self.size[0].min(self.size[1]);
        let half = self.size.iter().all(|&size| size <= 2 * self.stride);
        match (&self.channels, self.stride) {
            (Channels::One, 2) if overlap && positions <= 16 => 0..1 << 20,
            (Channels::One, 3) if overlap && positions <= 64 => 0..1 << 22,
            // Of those less far apart along y, of which there are no others.
            (Channels::One, 4..) if overlap && positions <= MOST_POSITIONS && (self.is_small || half) => 0..u64::MAX,
            _ => 0..0,
        }
    }

    /// The same of the input's gradient alone: windows over an element, for each of them. Measured on an H100, of odd numbers and halves on an
    /// H200 too (docs/perf/log.md).
    fn backward(&self) -> Range<u64> {
        let small = self.size[0].saturating_mul(self.size[1]) <= 64;
        let overlap = self.stride < self.size[0].min(self.size[1]);
        match (&self.channels, self.size, self.stride) {
            (Channels::Vectors, _, _) if self.oblong => 0..0,
            (Channels::Odd | Channels::Halves, _, 2..) if self.oblong => 0..1 << 21,
            (Channels::One, _, 2..) if overlap => 0..1 << 20,
            (Channels::One | Channels::Odd, [2, 2] | [3, 3], _) | (Channels::Halves, [2, 2], _) => 0..0,
            (Channels::One, _, 2..) => 0..1 << 18,
            (Channels::Halves, [3, 3], _) => 0..1 << 18,
            (Channels::Odd | Channels::Halves, _, 1) => 0..1 << 29,
            (Channels::Odd | Channels::Halves, _, 2) => 0..1 << if small { 23 } else { 22 },
            (Channels::Odd | Channels::Halves, _, _) => 0..1 << if small { 21 } else { 19 },
            (Channels::Vectors, _, 1) => 0..1 << 29,
            _ => 0..0,
        }
    }
}

/// Rows of a thread, of so many rows of outputs.
fn rows_of_thread(window: &Window<Nhwc>, products: u64, rows: u32) -> u32 {
    let one_apart = window.stride == [1, 1];
    if products >= ENOUGH && one_apart && rows > 1 { MOST_ROWS } else { 1 }
}

/// The plan of the pass forward, if all channels share a Gaussian whose weights are the same everywhere and no other kernel takes less time.
pub(super) fn forward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<ElementsPlan> {
    if geometry.kernels > 1 {
        return forward_of_several(plan, geometry, dtype);
    }
    let window = of_one(plan, geometry).filter(|window| !packs::of_size(window))?;
    let (kind, outputs) = (Kind::new(plan, &window, dtype), elements(&window, window.output));
    let products = window.size.into_iter().fold(outputs, |product, size| product.saturating_mul(u64::from(size)));
    if outputs < LEAST_OUTPUTS || !kind.forward().contains(&products) {
        return None;
    }
    ElementsPlan::new(plan, window, false, window.output, rows_of_thread(&window, products, window.output[0]))
}

/// The plan of the pass forward by several Gaussians, which all channels share, likewise.
fn forward_of_several(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<ElementsPlan> {
    let window = of_shared(plan, geometry)?;
    let (outputs, positions) = (elements(&window, window.output), window.size[0].saturating_mul(window.size[1]));
    let products = outputs.saturating_mul(u64::from(positions)).saturating_mul(u64::from(geometry.kernels));
    let stride = window.stride[0].min(window.stride[1]);
    let vectors =
        window.channels.is_multiple_of(16 / dtype.size() as u32) && vectors::are_worth(geometry.kernels, &window);
    let far = !vectors && stride >= 3 && (window.size, window.stride) != ([3; 2], [3; 2]);
    let wanted = plan.layout == ChannelsLast && (far || products <= LITTLE_OF_SEVERAL && stride > 1);
    if wanted { ElementsPlan::new(plan, window, false, window.output, 1) } else { None }
}

/// The same of the input's gradient alone.
pub(super) fn backward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<ElementsPlan> {
    if geometry.kernels > 1 {
        let window = of_shared(plan, geometry)?;
        let little = elements(&window, window.input) <= LITTLE && window.stride[0].min(window.stride[1]) > 1;
        return if little { ElementsPlan::new(plan, window, false, window.input, 1) } else { None };
    }
    let window = of_one(plan, geometry).filter(|window| !packs::is_backward(window))?;
    let (kind, inputs) = (Kind::new(plan, &window, dtype), elements(&window, window.input));
    let over = [0, 1].map(|axis| u64::from(window.size[axis].min(window.input[axis]).div_ceil(window.stride[axis])));
    let products = inputs.saturating_mul(over[0] * over[1]);
    if inputs < LEAST_INPUTS || !kind.backward().contains(&products) {
        return None;
    }
    if window.stride == [1, 1] {
        let turned = turned(window);
        let rows = rows_of_thread(&turned, products, window.input[0]);
        return ElementsPlan::new(plan, turned, true, turned.output, rows);
    }
    ElementsPlan::new(plan, window, false, window.input, 1)
}

/// Elements of planes of this height and width.
pub(super) fn elements(window: &Window<Nhwc>, [height, width]: [u32; 2]) -> u64 {
    let planes = u64::from(window.planes) * u64::from(window.channels);
    (u64::from(height) * u64::from(width)).saturating_mul(planes)
}

/// The window, of planes that have one Gaussian.
pub(super) fn of_one(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    of_shared(plan, geometry).filter(|_| geometry.kernels == 1)
}

/// The window, of planes that share their Gaussians.
fn of_shared(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = &geometry.axes;
    let one = (geometry.sets, y.cases, x.cases) == (1, 1, 1);
    let window = match plan.layout {
        RowMajor => of_planes(geometry, [geometry.planes, 1]),
        ChannelsLast => window(geometry),
    };
    let shared = y.size.saturating_add(x.size) <= 2048;
    (geometry.planes > 0 && one && shared).then_some(window)
}

/// Launches the forward kernel of so many rows a thread with these fields.
macro_rules! launch_outputs {
    ($gpu:expr, $dims:expr, $s:ty, $kind:expr, $x:expr, $mean:expr, $var:expr, $y:expr, $beta:expr, $turned:expr, $($field:ident),*) => {{
        macro_rules! run {
            ($r:literal, $m:literal) => {{
                let (x, mean, var, y, beta, turned) = ($x, $mean, $var, $y, $beta, $turned);
                type Kernel<'a, S> = GaussianPoolForwardElements<'a, S, $r, $m>;
                let launch = Kernel::<$s> { x, mean, var, y, beta, turned, $($field),* };
                // SAFETY: the tensors have the shapes and the layout that `window` and `geometry` were made of, turned round backward, and
                // the parameters theirs; the elements are the window's outputs, as many a thread as the kernel takes, and the launch
                // theirs, with shared memory for the weights.
                unsafe { $gpu.launch($dims, launch) }
            }};
        }
        match $kind {
            (1, gaussians) if gaussians % 3 == 0 => run!(1, 3),
            (1, gaussians) if gaussians % 2 == 0 => run!(1, 2),
            (1, _) => run!(1, 1),
            _ => run!(4, 1),
        }
    }};
}

const WHY: &str = "an element a thread, or a few one below the other, with weights that all channels share";

impl<T: Real> Forward<'_, T> {
    pub(super) fn elements(self, gpu: &Gpu, geometry: Geometry, launch: ElementsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let ElementsPlan { window, rows, elements, maps, dims, .. } = launch;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let kind = (rows, geometry.kernels);
            launch_outputs!(gpu, dims, S, kind, x, mean, var, y, 0.0, 0, variances, geometry, window, elements, maps)
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn elements(self, gpu: &Gpu, geometry: Geometry, launch: ElementsPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        let ElementsPlan { window, turned, rows, elements, maps, dims } = launch;
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            if turned {
                return launch_outputs!(
                    gpu,
                    dims,
                    S,
                    (rows, 1),
                    dy,
                    mean,
                    var,
                    dx,
                    beta,
                    1,
                    variances,
                    geometry,
                    window,
                    elements,
                    maps
                );
            }
            let covering = Covering::new(&window);
            type Kernel<'a, S> = GaussianPoolBackwardElements<'a, S>;
            let launch = Kernel::<S> { dy, mean, var, dx, beta, variances, geometry, window, covering, elements, maps };
            // SAFETY: as `launch_outputs`'s, of `dy` and `dx`; the elements are the window's inputs, one a thread.
            unsafe { gpu.launch(dims, launch) }
        })
    }
}
