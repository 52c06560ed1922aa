//! The launches of the kernels that take an element a thread, or a few outputs one below the other.

use std::ops::Range;

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::elements::{
    ELEMENTS_BLOCK, Elements, GaussianPoolBackwardElements, GaussianPoolForwardElements, KNOWN_BACKWARD, KNOWN_SIZES,
    MOST_ROWS,
};
use kernels::window::{Covering, Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::few;
use super::patches::{of_planes, window};
use super::vectors::turned;
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, for_storage};
use crate::{DType, Real, Result};

/// Runs a block with `$size` and `$rows` as the kernels' parameters of these names.
macro_rules! for_size_and_rows {
    ($size_and_rows:expr, $size:ident, $rows:ident, $body:expr) => {
        for_size_and_rows!(
            @ $size_and_rows, $size, $rows, $body;
            (2, 1): (2, 1); (2, _): (2, 4); (3, 1): (3, 1); (3, _): (3, 4); (5, 1): (5, 1); (5, _): (5, 4); (7, 1): (7, 1);
            (7, _): (7, 4); (_, 1): (0, 1); (_, _): (0, 4);
        )
    };
    (@ $case:expr, $size:ident, $rows:ident, $body:expr; $(($s:pat, $r:pat): ($a:literal, $b:literal);)*) => {
        match $case {
            $(($s, $r) => {
                const $size: usize = $a;
                const $rows: usize = $b;
                $body
            })*
        }
    };
}

/// The same with the backward kernel's `$size`.
macro_rules! for_size {
    ($value:expr, $size:ident, $body:expr) => {
        for_size!(@ $value, $size, $body; (5): 5; (7): 7; (_): 0;)
    };
    (@ $value:expr, $size:ident, $body:expr; $(($s:pat): $a:literal;)*) => {
        match $value {
            $($s => {
                const $size: usize = $a;
                $body
            })*
        }
    };
}

/// A launch's window and its threads.
pub(super) struct ElementsPlan {
    window: Window<Nhwc>,
    /// Whether the pass is backward by the window turned round.
    turned: bool,
    /// Positions along each axis of windows that go by the kernel of their size, or none, and rows of a thread.
    size_and_rows: (u32, u32),
    elements: Elements,
    dims: LaunchDims,
}

impl ElementsPlan {
    fn new(window: Window<Nhwc>, turned: bool, size: [u32; 2], size_and_rows: (u32, u32)) -> Option<Self> {
        let (elements, blocks) = Elements::new(&window, size, size_and_rows.1)?;
        let dims = LaunchDims::new(blocks, ELEMENTS_BLOCK).with_shared(Elements::shared_bytes(window.size));
        Some(Self { window, turned, size_and_rows, elements, dims })
    }
}

/// Outputs that are enough threads, at least, and elements of a gradient.
const LEAST_OUTPUTS: u64 = 1 << 9;
const LEAST_INPUTS: u64 = 1 << 12;
/// Columns of an image of which the other kernels' tiles are mostly empty, at most, and of one that neighbouring threads read in one
/// piece, at least.
const NARROW: u32 = 16;
const WIDE: u32 = 64;

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
    /// Positions along each axis, if there is a kernel of that size.
    known: Option<u32>,
    size: [u32; 2],
    /// The longer way from window to window.
    stride: u32,
    /// Columns of the image.
    width: u32,
}

impl Kind {
    fn new(plan: &Plan, window: &Window<Nhwc>, dtype: DType) -> Self {
        let channels = match plan.layout {
            RowMajor => Channels::One,
            ChannelsLast if few::odd(window.channels) => Channels::Odd,
            ChannelsLast if !window.channels.is_multiple_of(16 / dtype.size() as u32) => Channels::Halves,
            ChannelsLast => Channels::Vectors,
        };
        let [height, width] = window.size;
        let known = (height == width && KNOWN_SIZES.contains(&width)).then_some(width);
        let [stride, width] = [window.stride[0].max(window.stride[1]), window.input[1]];
        Self { channels, known, size: window.size, stride, width }
    }

    /// Products, a window's positions for each output, of which these kernels take less time forward than the others. Measured on an H100,
    /// of odd numbers and halves on an H200 too, of 7×7 and of vectors two apart there alone (docs/perf/log.md).
    fn forward(&self) -> Range<u64> {
        let positions = self.size[0].saturating_mul(self.size[1]);
        let overlap = self.stride < self.size[0].min(self.size[1]);
        match (&self.channels, self.known, self.stride) {
            (Channels::One, Some(2 | 3 | 5), 1) => 0..1 << 26,
            (Channels::One, Some(5), _) => 0..1 << 24,
            (Channels::One, Some(7), 1) => 0..1 << if self.width >= WIDE { 24 } else { 19 },
            (Channels::One, Some(7), 2) => 0..1 << if self.width >= WIDE { 23 } else { 19 },
            // Those that leave columns out.
            (Channels::One, Some(size @ (2 | 3)), stride) if stride > size => 0..1 << 23,
            (Channels::One, Some(2 | 3), _) => 0..0,
            (Channels::One, None, 2) if overlap && positions <= 16 => 0..1 << 20,
            (Channels::One, None | Some(7), 3) if overlap && positions <= 64 => 0..1 << 22,
            (Channels::One, None | Some(7), 4..) if overlap && positions <= 144 => 0..1 << 24,
            // Of those that do not overlap, sizes that no kernel has.
            (Channels::One, None | Some(7), 5..) if !overlap && positions <= 100 && self.size != [8; 2] => {
                1 << 21..1 << 24
            }
            (Channels::Odd | Channels::Halves, Some(5), 1) => 0..1 << 28,
            (Channels::Odd | Channels::Halves, Some(5), 2) => 0..1 << 26,
            (Channels::Odd | Channels::Halves, Some(5), _) => 0..1 << 24,
            (Channels::Odd | Channels::Halves, Some(7), 1) => 0..1 << 28,
            (Channels::Odd | Channels::Halves, Some(7), 2) => 0..1 << 24,
            (Channels::Odd, Some(2 | 3), 1) => 1 << 19..1 << 26,
            (Channels::Odd, Some(3), 2) => 1 << 19..1 << 22,
            (Channels::Halves, Some(3), 1) => 0..1 << 26,
            (Channels::Halves, Some(3), _) => 0..1 << 20,
            (Channels::Vectors, Some(3), 1) => 0..1 << 22,
            (Channels::Vectors, Some(5), 1) => 0..1 << 24,
            (Channels::Vectors, Some(5), 2) => 0..1 << 22,
            (Channels::Vectors, Some(7), 1) => 0..1 << 27,
            (Channels::Vectors, Some(7), 2) => 0..1 << 23,
            (Channels::Vectors, Some(3 | 5), _) => 0..1 << 20,
            _ => 0..0,
        }
    }

    /// The same of the input's gradient alone: windows over an element, for each of them.
    fn backward(&self) -> Range<u64> {
        let small = self.size[0].saturating_mul(self.size[1]) <= 64;
        let overlap = self.stride < self.size[0].min(self.size[1]);
        match (&self.channels, self.known, self.stride) {
            (Channels::One, Some(2 | 3 | 5), 1) => 0..1 << 26,
            (Channels::One, Some(7), 1) => 0..1 << 24,
            (Channels::One, _, 2..) if overlap => 0..1 << 20,
            (Channels::One, None | Some(5 | 7), 2..) => 0..1 << 18,
            (Channels::Odd, Some(2 | 3), 1) => 1 << 19..1 << 26,
            (Channels::Odd, Some(2 | 3), _) => 0..0,
            (Channels::Halves, Some(3), 1) => 0..1 << 26,
            (Channels::Halves, Some(2), _) | (Channels::Halves, Some(3), 2) => 0..0,
            (Channels::Halves, Some(3), _) => 0..1 << 18,
            (Channels::Odd | Channels::Halves, _, 1) => 0..1 << 29,
            (Channels::Odd | Channels::Halves, Some(_), 2) if self.width <= NARROW => 0..3 << 22,
            (Channels::Odd | Channels::Halves, Some(7), 2) => 0..1 << 23,
            (Channels::Odd | Channels::Halves, Some(_), 2) => 0..5 << 20,
            (Channels::Odd | Channels::Halves, None, 2) => 0..1 << if small { 23 } else { 22 },
            (Channels::Odd | Channels::Halves, _, _) => 0..1 << if small { 21 } else { 19 },
            (Channels::Vectors, None | Some(7), 1) => 0..1 << 29,
            (Channels::Vectors, Some(3), 1) => 0..1 << 21,
            (Channels::Vectors, Some(5), 1) => 0..1 << 23,
            (Channels::Vectors, Some(5 | 7), 2) => 0..1 << 19,
            _ => 0..0,
        }
    }

    /// The forward kernel's parameters for so many rows of outputs.
    fn size_and_rows(&self, products: u64, rows: u32) -> (u32, u32) {
        // From so many products on several rows a thread take less time.
        let enough = match self.known {
            Some(7) => 1 << 20,
            Some(_) => 1 << 18,
            None => 1 << 22,
        };
        let several = products >= enough && self.stride == 1 && rows > 1;
        (self.known.unwrap_or(0), if several { MOST_ROWS } else { 1 })
    }
}

/// The plan of the pass forward, if all channels share a Gaussian whose weights are the same everywhere and no other kernel takes less time.
pub(super) fn forward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<ElementsPlan> {
    let window = of_one(plan, geometry)?;
    let (kind, outputs) = (Kind::new(plan, &window, dtype), elements(&window, window.output));
    let products = window.size.into_iter().fold(outputs, |product, size| product.saturating_mul(u64::from(size)));
    if outputs < LEAST_OUTPUTS || !kind.forward().contains(&products) {
        return None;
    }
    ElementsPlan::new(window, false, window.output, kind.size_and_rows(products, window.output[0]))
}

/// The same of the input's gradient alone.
pub(super) fn backward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<ElementsPlan> {
    let window = of_one(plan, geometry)?;
    let (kind, inputs) = (Kind::new(plan, &window, dtype), elements(&window, window.input));
    let over = [0, 1].map(|axis| u64::from(window.size[axis].min(window.input[axis]).div_ceil(window.stride[axis])));
    let products = inputs.saturating_mul(over[0] * over[1]);
    if inputs < LEAST_INPUTS || !kind.backward().contains(&products) {
        return None;
    }
    if window.stride == [1, 1] {
        let turned = turned(window);
        return ElementsPlan::new(turned, true, turned.output, kind.size_and_rows(products, window.input[0]));
    }
    let known = kind.known.filter(|size| window.stride == [2; 2] && KNOWN_BACKWARD.contains(size));
    ElementsPlan::new(window, false, window.input, (known.unwrap_or(0), 1))
}

/// Elements of planes of this height and width.
fn elements(window: &Window<Nhwc>, [height, width]: [u32; 2]) -> u64 {
    let planes = u64::from(window.planes) * u64::from(window.channels);
    (u64::from(height) * u64::from(width)).saturating_mul(planes)
}

/// The window, of planes that have one Gaussian.
fn of_one(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = &geometry.axes;
    let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
    let window = match plan.layout {
        RowMajor => of_planes(geometry, [geometry.planes, 1]),
        ChannelsLast => window(geometry),
    };
    let shared = y.size.saturating_add(x.size) <= 2048;
    (geometry.planes > 0 && one && shared).then_some(window)
}

const WHY: &str = "an element a thread, or a few one below the other, with weights that all channels share";

impl<T: Real> Forward<'_, T> {
    pub(super) fn elements(self, gpu: &Gpu, geometry: Geometry, launch: ElementsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let ElementsPlan { window, size_and_rows, elements, dims, .. } = launch;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let (beta, turned) = (0.0, 0);
            for_size_and_rows!(size_and_rows, SIZE, ROWS, {
                type Kernel<'a, S> = GaussianPoolForwardElements<'a, S, SIZE, ROWS>;
                let launch = Kernel::<S> { x, mean, var, y, beta, turned, variances, geometry, window, elements };
                // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, and the parameters theirs; the
                // elements are the window's outputs, as many a thread as the kernel takes, and the launch theirs, with shared memory for the
                // weights.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn elements(self, gpu: &Gpu, geometry: Geometry, launch: ElementsPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        let ElementsPlan { window, turned, size_and_rows, elements, dims } = launch;
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            if !turned {
                let covering = Covering::new(&window);
                return for_size!(size_and_rows.0, SIZE, {
                    type Kernel<'a, S> = GaussianPoolBackwardElements<'a, S, SIZE>;
                    let launch =
                        Kernel::<S> { dy, mean, var, dx, beta, variances, geometry, window, covering, elements };
                    // SAFETY: as above, of `dy` and `dx`; the elements are the window's inputs, one a thread.
                    unsafe { gpu.launch(dims, launch) }
                });
            }
            let (x, y, turned) = (dy, dx, 1);
            for_size_and_rows!(size_and_rows, SIZE, ROWS, {
                type Kernel<'a, S> = GaussianPoolForwardElements<'a, S, SIZE, ROWS>;
                let launch = Kernel::<S> { x, mean, var, y, beta, turned, variances, geometry, window, elements };
                // SAFETY: as above; the window is that whose pooling of `dy` is the pass.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}
