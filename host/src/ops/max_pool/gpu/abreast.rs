//! Launches of the kernel by warps that go down the rows of several row-major planes abreast, of windows one apart.

use cuda_std::launch::LaunchDims;
use kernels::abreast::Abreast;
use kernels::max_pool::{MOST_POSITIONS, MaxPoolForwardAbreast, abreast_blocks, abreast_run, abreast_shared};
use kernels::window::{Nchw, Window};

use super::super::Forward;
use super::one_byte;
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{Kernels, Lying, Row, elements, is_much};
use crate::{DType, Real, Result, bf16, f16};

/// Outputs from which on this kernel takes less time than others, measured on an H200 (docs/perf/log.md).
const ENOUGH: u64 = 1 << 16;
/// The same of rows of fewer than [`NARROW`] columns, of which a warp has so many planes that warps are few.
const ENOUGH_NARROW: u64 = 1 << 20;
const NARROW: u32 = 16;

/// The launch of a window, if there is a kernel, and it is of so much that this takes less time.
pub(super) fn launch(gpu: &Gpu, window: &Window<Nchw>, dtype: DType) -> Option<(Abreast, LaunchDims)> {
    let [size, width] = window.size;
    let fits = size == width && [5, 7, 9, 13].contains(&size) && (window.stride, window.dilation) == ([1; 2], [1; 2]);
    let enough = if window.output[1] < NARROW { ENOUGH_NARROW } else { ENOUGH };
    if !fits || !is_much(gpu, elements(window, window.output), enough) {
        return None;
    }
    let run = abreast_run(size as usize) as u32;
    let of_part = |columns: u32| [columns, (columns + size - 1).min(window.input[1])];
    let row = Row { columns: window.output[1], of_part };
    let lying = Lying::new(window, window.output[0], &row, run, run)?;
    let words = if dtype == DType::F32 { abreast_shared::<f32> } else { abreast_shared::<f16> };
    let shared = words(&lying.abreast, size as usize) * size_of::<u32>() as u32;
    let (abreast, dims) = lying.launch(gpu, window, abreast_blocks(dtype.size(), size as usize), size - 1, shared)?;
    let positions = u64::from(size) * (u64::from(abreast.part[0]) + u64::from(size));
    (positions < MOST_POSITIONS.into()).then_some((abreast, dims))
}

/// Launches the kernel of a plan, of values of `$t`, with a block that gives `x`, `y` and indices of `$s`, the kernel's type; of a type that there is none of
/// it is an error, as in [`for_storage`](crate::device::for_storage).
macro_rules! launch_kernel {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $window:ident, $plan:ident, $s:ident, $tensors:expr) => {
        launch_kernel!(
            @ $t, ($op, $argument, $gpu), $window, $plan, $s, $tensors;
            (F32 f32): 5 7, 7 7, 9 7, 13 5;
            (F16 f16): 5 7, 7 7, 9 7, 13 5;
            (Bf16 bf16): 5 7, 7 7, 9 7, 13 5;
        )
    };
    (@ $t:ty, ($op:expr, $argument:expr, $gpu:expr), $window:ident, $plan:ident, $s:ident, $tensors:expr;
     $(($dtype:ident $storage:ty): $($size:literal $run:literal),*;)*) => {{
        let (abreast, dims) = $plan;
        match (<$t>::DTYPE, $window.size[0]) {
            $($((DType::$dtype, $size) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                let (x, y, indices) = $tensors;
                let forward = MaxPoolForwardAbreast::<$s, $size, $run> { x, y, indices, window: $window, abreast };
                // SAFETY: the tensors have the shapes that `window` was made of, which is row-major and whose windows are of that size and one apart; the parts
                // are its outputs', by runs and rows that lanes have room for, whose positions are few enough, and the launch theirs.
                unsafe { $gpu.launch(dims, forward) }
            })*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    }};
}

impl<T: Real> Forward<'_, T> {
    /// Indices, if any, are of one byte.
    pub(super) fn abreast(
        self,
        gpu: &Gpu,
        op: &'static str,
        window: Window<Nchw>,
        plan: (Abreast, LaunchDims),
    ) -> Result<()> {
        let _why = Kernels::Abreast.because(&window);
        launch_kernel!(T, (op, "x", gpu), window, plan, S, {
            (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?, one_byte(self.indices, op)?)
        })
    }
}
