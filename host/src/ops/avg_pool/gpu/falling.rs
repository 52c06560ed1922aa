//! Launches of the kernel by packs of channels, which are last, down strips of two columns of outputs, of windows one apart.

use kernels::avg_pool::AvgPoolForwardFalling;
use kernels::falling::blocks;
use kernels::window::{Nhwc, Window};

use super::super::{Backward, Forward};
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{Falling, Kernels, elements, is_much};
use crate::{DType, Real, Result, bf16, f16};

/// Outputs from which on these kernels take less time than others, measured on an H200 (docs/perf/log.md).
const ENOUGH_OF_THREES: u64 = 1 << 20;
/// See [`ENOUGH_OF_THREES`]: of larger windows.
const ENOUGH: u64 = 3 << 17;

/// The launch of a window, or of a window turned round, if all have the same divisor, there is a kernel, and it is of so much that this takes less time.
pub(super) fn launch(gpu: &Gpu, divisor: f32, window: Window<Nhwc>, dtype: DType) -> Option<Falling> {
    let ([size, width], element) = (window.size, dtype.size() as u32);
    let fits = size == width && [3, 5, 7].contains(&size) && window.stride == [1; 2] && divisor != 0.0;
    if !fits || !is_much(gpu, elements(&window, window.output), if size == 3 { ENOUGH_OF_THREES } else { ENOUGH }) {
        return None;
    }
    let most = if size == 7 && dtype != DType::F32 { 4 } else { 8 };
    Falling::new(gpu, window, element, most, |bytes| blocks(bytes as usize, element as usize, size as usize, 1, false))
}

/// Launches the kernel of a plan, of values of `$t`, with a block that gives `x` and `y` of `$s`, the kernel's type; of a type that there is none of it is
/// an error, as in [`for_storage`](crate::device::for_storage).
macro_rules! launch_kernel {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $divisor:expr, $spread:expr, $s:ident, $tensors:expr) => {
        launch_kernel!(
            @ $t, ($op, $argument, $gpu), $plan, $divisor, $spread, $s, $tensors;
            (F32 f32): 4 [3 5 7] 8 [3 5 7];
            (F16 f16): 2 [3 5 7] 4 [3 5 7] 8 [3 5];
            (Bf16 bf16): 2 [3 5 7] 4 [3 5 7] 8 [3 5];
        )
    };
    (@ $t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $divisor:expr, $spread:expr, $s:ident, $tensors:expr;
     $(($dtype:ident $storage:ty): $($bytes:literal [$($size:literal)*])*;)*) => {{
        let Falling { window, bytes, elements, lanes, rows, dims } = $plan;
        match (<$t>::DTYPE, (bytes, window.size[0])) {
            $($($((DType::$dtype, ($bytes, $size)) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                let ((x, y), divisor, spread) = ($tensors, $divisor, $spread);
                type Kernel<'a> = AvgPoolForwardFalling<'a, $s, $bytes, $size>;
                let launch = Kernel { x, y, window, divisor, spread, elements, lanes, rows };
                // SAFETY: the tensors have the shapes and the layout that `window` was made of, turned round backward, whose channels are
                // packs of so many bytes and whose windows are of that size and one apart; the elements are a group's pairs of columns in
                // strips of `rows`, and the launch theirs for each group; the divisor is that of all windows.
                unsafe { $gpu.launch(dims, launch) }
            })*)*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    }};
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn falling(
        self,
        gpu: &Gpu,
        op: &'static str,
        window: &Window<Nhwc>,
        divisor: f32,
        plan: Falling,
    ) -> Result<()> {
        let _why = Kernels::Falling.because(window);
        launch_kernel!(T, (op, "x", gpu), plan, divisor, 0, S, {
            (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?)
        })
    }
}

impl<T: Real> Backward<'_, T> {
    /// Where the gradient is written and not added to.
    pub(super) fn falling(
        self,
        gpu: &Gpu,
        op: &'static str,
        window: &Window<Nhwc>,
        divisor: f32,
        plan: Falling,
    ) -> Result<()> {
        let _why = Kernels::Falling.because(window);
        launch_kernel!(T, (op, "dy", gpu), plan, divisor, 1, S, {
            (self.dy.gpu::<S>(op, "dy")?, self.dx.tensor.gpu_mut::<S>(op, "dx")?)
        })
    }
}
