//! Launches of the kernel by packs of channels, which are last, down strips of two columns of outputs, of windows one apart.

use kernels::max_pool::{MaxPoolForwardFalling, falling_blocks};
use kernels::window::{Nhwc, Window};

use super::super::Forward;
use super::one_byte;
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{Falling, Kernels, elements, is_much};
use crate::{DType, Real, Result, bf16, f16};

/// Outputs from which on this kernel takes less time than others, measured on an H200 (docs/perf/log.md).
const ENOUGH: u64 = 1 << 16;
/// Positions of a strip that two bytes can count.
const MOST_POSITIONS: u64 = 1 << 16;

/// The launch of a window, if there is a kernel, and it is of so much that this takes less time.
pub(super) fn launch(gpu: &Gpu, window: Window<Nhwc>, dtype: DType) -> Option<Falling> {
    let ([size, width], element) = (window.size, dtype.size() as u32);
    let fits =
        size == width && [3, 5, 7, 9, 13].contains(&size) && (window.stride, window.dilation) == ([1; 2], [1; 2]);
    if !fits || !is_much(gpu, elements(&window, window.output), ENOUGH) {
        return None;
    }
    let most = if size == 13 { 4 } else { 8 };
    let falling = Falling::new(gpu, window, element, most, |bytes| falling_blocks(bytes as usize, size as usize))?;
    let positions = u64::from(size) * (u64::from(falling.rows) + u64::from(size));
    (falling.bytes >= 4 && positions < MOST_POSITIONS).then_some(falling)
}

/// Launches the kernel of a plan, of values of `$t`, with a block that gives `x`, `y` and indices of `$s`, the kernel's type; of a type that there is none of
/// it is an error, as in [`for_storage`](crate::device::for_storage).
macro_rules! launch_kernel {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $s:ident, $tensors:expr) => {
        launch_kernel!(
            @ $t, ($op, $argument, $gpu), $plan, $s, $tensors;
            (F32 f32): 4 [3 5 7 9 13] 8 [3 5 7 9];
            (F16 f16): 4 [3 5 7 9 13] 8 [3 5 7 9];
            (Bf16 bf16): 4 [3 5 7 9 13] 8 [3 5 7 9];
        )
    };
    (@ $t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $s:ident, $tensors:expr;
     $(($dtype:ident $storage:ty): $($bytes:literal [$($size:literal)*])*;)*) => {{
        let Falling { window, bytes, elements, lanes, rows, dims } = $plan;
        match (<$t>::DTYPE, (bytes, window.size[0])) {
            $($($((DType::$dtype, ($bytes, $size)) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                let (x, y, indices) = $tensors;
                let launch = MaxPoolForwardFalling::<$s, $bytes, $size> { x, y, indices, window, elements, lanes, rows };
                // SAFETY: the tensors have the shapes and the layout that `window` was made of, whose channels are packs of so many bytes and whose
                // windows are of that size and one apart; the elements are a group's pairs of columns in strips of `rows`, whose positions are few
                // enough, and the launch theirs for each group.
                unsafe { $gpu.launch(dims, launch) }
            })*)*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    }};
}

impl<T: Real> Forward<'_, T> {
    /// Indices, if any, are of one byte.
    pub(super) fn falling(self, gpu: &Gpu, op: &'static str, window: &Window<Nhwc>, plan: Falling) -> Result<()> {
        let _why = Kernels::Falling.because(window);
        launch_kernel!(T, (op, "x", gpu), plan, S, {
            (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?, one_byte(self.indices, op)?)
        })
    }
}
