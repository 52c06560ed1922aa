//! Launches of the kernel by packs of channels, which are last, down strips of two columns of outputs.

use kernels::falling::blocks;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::falling_packs::GaussianPoolForwardFallingPacks;
use kernels::gaussian_pool::packs_apiece::shared_bytes;
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::elements::elements;
use super::patches::window;
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{Falling, is_much, turned};
use crate::{DType, Real, Result, bf16, f16};

/// A launch, and whether each channel has a Gaussian of its own.
pub(super) struct FallingPacksPlan {
    falling: Falling,
    apiece: bool,
}

/// The plan of the pass forward, if channels are last and the weights the same everywhere, of windows that there are kernels for and of so much that
/// these take less time.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<FallingPacksPlan> {
    launch(gpu, of(plan, geometry)?, geometry.sets > 1, dtype)
}

/// The same of the input's gradient alone, which is written and not added to, of windows one apart.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<FallingPacksPlan> {
    let window = of(plan, geometry).filter(|window| window.stride == [1; 2])?;
    launch(gpu, turned(window), geometry.sets > 1, dtype)
}

fn of(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = &geometry.axes;
    let fits = plan.layout == ChannelsLast && geometry.planes > 0 && geometry.kernels == 1;
    let window = (fits && (y.cases, x.cases) == (1, 1)).then(|| window(geometry))?;
    let [[height, width], [down, right]] = [window.size, window.stride];
    ((height, down) == (width, right) && matches!((height, down), (3 | 5 | 7, 1) | (5 | 7, 2))).then_some(window)
}

fn launch(gpu: &Gpu, window: Window<Nhwc>, apiece: bool, dtype: DType) -> Option<FallingPacksPlan> {
    let ([size, _], [stride, _], element) = (window.size, window.stride, dtype.size() as u32);
    if !is_much(gpu, elements(&window, window.output), enough((size, stride), apiece, dtype)) {
        return None;
    }
    let blocks = |bytes| blocks(bytes as usize, element as usize, size as usize, stride as usize, apiece);
    let mut falling = Falling::new(gpu, window, element, most_bytes(size, apiece, dtype), blocks)?;
    // Of 3×3 windows such packs have other kernels.
    if size == 3 && (falling.bytes == 2 && !apiece || falling.bytes == 4 && dtype == DType::F32) {
        return None;
    }
    if apiece {
        falling.dims = falling.dims.with_shared(shared_bytes(size, falling.lanes, falling.bytes / element));
    }
    Some(FallingPacksPlan { falling, apiece })
}

/// Outputs from which on these kernels take less time than others, measured on an H200 (docs/perf/log.md).
fn enough(window: (u32, u32), apiece: bool, dtype: DType) -> u64 {
    match (window, apiece, dtype) {
        ((3, _), true, DType::F32) => 3 << 21,
        ((3, _), false, DType::F32) => 1 << 24,
        ((3, _), true, _) => 3 << 20,
        ((3, _), false, _) => 1 << 22,
        ((5, 1), _, DType::F32) => 1 << 20,
        ((5, 1), ..) => 1 << 21,
        ((5, _), true, DType::F32) => 3 << 18,
        ((5, _), false, DType::F32) => 1 << 23,
        ((5, _), true, _) => 3 << 19,
        ((5, _), false, _) => 1 << 21,
        ((_, 1), ..) => 1 << 20,
        (_, true, DType::F32) => 3 << 17,
        (_, true, _) | (_, false, DType::F32) => 3 << 18,
        _ => 3 << 19,
    }
}

/// Bytes of a pack, at most: sums and weights stay in registers.
fn most_bytes(size: u32, apiece: bool, dtype: DType) -> u32 {
    match (size, dtype) {
        (7, DType::F32) if !apiece => 8,
        (7, _) => 4,
        (5, DType::F32) => 8,
        (5, _) if apiece => 4,
        _ => 8,
    }
}

/// Launches the kernel of a plan, of values of `$t`, with fields that a block gives of `$s`, the kernel's type; of a type that there is none of
/// it is an error, as in [`for_storage`](crate::device::for_storage).
macro_rules! launch_kernel {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $s:ident, $fields:expr) => {
        launch_kernel!(
            @ $t, ($op, $argument, $gpu), $plan, $s, $fields;
            (F32 f32): 4 [(5 1 false) (5 2 false) (7 1 false) (7 2 false) (5 1 true) (5 2 true) (7 1 true) (7 2 true)]
                       8 [(3 1 false) (5 1 false) (5 2 false) (7 1 false) (7 2 false) (3 1 true) (5 1 true) (5 2 true)];
            (F16 f16): 2 [(5 1 false) (5 2 false) (7 1 false) (7 2 false) (3 1 true) (5 1 true) (5 2 true) (7 1 true) (7 2 true)]
                       4 [(3 1 false) (5 1 false) (5 2 false) (7 1 false) (7 2 false) (3 1 true) (5 1 true) (5 2 true) (7 1 true) (7 2 true)]
                       8 [(3 1 false) (5 1 false) (5 2 false) (3 1 true)];
            (Bf16 bf16): 2 [(5 1 false) (5 2 false) (7 1 false) (7 2 false) (3 1 true) (5 1 true) (5 2 true) (7 1 true) (7 2 true)]
                         4 [(3 1 false) (5 1 false) (5 2 false) (7 1 false) (7 2 false) (3 1 true) (5 1 true) (5 2 true) (7 1 true) (7 2 true)]
                         8 [(3 1 false) (5 1 false) (5 2 false) (3 1 true)];
        )
    };
    (@ $t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $s:ident, $fields:expr;
     $(($dtype:ident $storage:ty): $($bytes:literal [$(($size:literal $stride:literal $apiece:literal))*])*;)*) => {{
        let FallingPacksPlan { falling: Falling { window, bytes, elements, lanes, rows, dims }, apiece } = $plan;
        match (<$t>::DTYPE, (bytes, window.size[0], window.stride[0], apiece)) {
            $($($((DType::$dtype, ($bytes, $size, $stride, $apiece)) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                let (x, mean, var, y, turned, variances) = $fields;
                type Kernel<'a> = GaussianPoolForwardFallingPacks<'a, $s, $bytes, $size, $stride, $apiece>;
                let launch = Kernel { x, mean, var, y, turned, variances, window, elements, lanes, rows };
                // SAFETY: the tensors have the shapes and the layout that `window` was made of, turned round backward, whose channels are
                // packs of so many bytes and whose windows are of that size and so far apart, and the parameters theirs; the elements are a
                // group's pairs of columns in strips of `rows`, and the launch theirs for each group, with room for channels' own weights.
                unsafe { $gpu.launch(dims, launch) }
            })*)*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    }};
}

const WHY: &str = "by packs of channels down strips of two columns, of a size compiled in";

impl<T: Real> Forward<'_, T> {
    pub(super) fn falling_packs(self, gpu: &Gpu, launch: FallingPacksPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
        launch_kernel!(T, (op, "x", gpu), launch, S, {
            (self.x.gpu::<S>(op, "x")?, mean, var, self.y.gpu_mut::<S>(op, "y")?, 0, variances)
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn falling_packs(self, gpu: &Gpu, launch: FallingPacksPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
        launch_kernel!(T, (op, "dx", gpu), launch, S, {
            (self.dy.gpu::<S>(op, "dy")?, mean, var, out.tensor.gpu_mut::<S>(op, "dx")?, 1, variances)
        })
    }
}
