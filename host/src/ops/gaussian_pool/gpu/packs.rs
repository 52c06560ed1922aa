//! Launches of the kernels by packs of channels, which are last, or of row-major images' one.

use std::ops::Range;

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::packs::{
    CELLS, FEWER_OUTPUTS, GaussianPoolBackwardPacks, GaussianPoolForwardPacks, GaussianPoolForwardPacksTwoApart,
    OUTPUTS, OUTPUTS_TWO_APART, SIZES, cells,
};
use kernels::packs::PACKS_BLOCK;
use kernels::vectors::overlap;
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::elements::{self, LEAST_INPUTS, LEAST_OUTPUTS};
use super::few;
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{of_packs, turned};
use crate::{DType, Real, Result, bf16, f16};

/// Runs a block with `$s`, `$bytes` and `$size` as the kernels' parameters, of a pass of these values of `$t`; of a type that there is none of it
/// is an error, as in [`for_storage`](crate::device::for_storage).
macro_rules! for_kernel {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $of:expr, $s:ident, $bytes:ident, $size:ident, $body:block;
     $(($dtype:ident $storage:ty): $($b:literal [$($z:literal)*])*;)*) => {
        match (<$t>::DTYPE, $of) {
            $($($((DType::$dtype, ($b, $z)) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                const $bytes: usize = $b;
                const $size: usize = $z;
                $body
            })*)*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    };
}

pub(super) use for_kernel;

/// The same of the forward kernels.
macro_rules! for_outputs {
    ($t:ty, $where:tt, $of:expr, $s:ident, $bytes:ident, $size:ident, $body:block) => {
        for_kernel!(
            $t, $where, $of, $s, $bytes, $size, $body;
            (F32 f32): 4 [2 3 5 7] 8 [2 3 5];
            (F16 f16): 2 [2 3 5 7] 4 [2 3 5 7] 8 [2 3 5];
            (Bf16 bf16): 2 [2 3 5 7] 4 [2 3 5 7] 8 [2 3 5];
        )
    };
}

/// The same of those for windows two apart.
macro_rules! for_outputs_two_apart {
    ($t:ty, $where:tt, $of:expr, $s:ident, $bytes:ident, $size:ident, $body:block) => {
        for_kernel!(
            $t, $where, $of, $s, $bytes, $size, $body;
            (F32 f32): 4 [3 5 7] 8 [3 5];
            (F16 f16): 2 [3 5 7] 4 [3 5 7] 8 [3 5];
            (Bf16 bf16): 2 [3 5 7] 4 [3 5 7] 8 [3 5];
        )
    };
}

/// The same of the backward kernel.
macro_rules! for_cells {
    ($t:ty, $where:tt, $of:expr, $s:ident, $bytes:ident, $size:ident, $body:block) => {
        for_kernel!(
            $t, $where, $of, $s, $bytes, $size, $body;
            (F32 f32): 4 [3 5 7] 16 [3 5];
            (F16 f16): 2 [3 5 7] 4 [3 5 7] 16 [3 5];
            (Bf16 bf16): 2 [3 5 7] 4 [3 5 7] 16 [3 5];
        )
    };
}

/// A launch's window, whose channels are packs, and its threads.
pub(super) struct PacksPlan {
    window: Window<Nhwc>,
    /// Whether the pass is backward by the window turned round.
    turned: bool,
    /// Bytes of a pack.
    bytes: u32,
    /// Outputs or cells of a thread.
    rows: u32,
    elements: Elements,
    dims: LaunchDims,
}

/// Bytes of a pack, at most, backward of windows two apart.
const MOST_OF_CELLS: u32 = 16;
/// Inputs of an image that goes by patches where there are kernels, from which on these take no more time.
const MUCH_BY_PATCHES: u64 = 1 << 25;
/// Columns of a row-major image that neighbouring threads read in one piece, at least.
const WIDE: u32 = 64;
/// By how much less is enough on the emulated grid, so that small images have several rows a thread.
const EMULATED: u64 = 1 << 8;

/// Whether there is a forward kernel for windows of this size.
pub(super) fn of_size(window: &Window<Nhwc>) -> bool {
    SIZES.contains(&window.size[0]) && window.size[0] == window.size[1]
}

/// Whether there is a backward kernel.
pub(super) fn is_backward(window: &Window<Nhwc>) -> bool {
    let cells = window.stride == [2; 2] && window.size[0] > 2;
    of_size(window) && (window.stride == [1; 2] || cells)
}

/// The plan of the pass forward, if all channels share a Gaussian whose weights are the same everywhere and no other kernel takes less time.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<PacksPlan> {
    let window = elements::of_one(plan, geometry).filter(of_size)?;
    let (outputs, [size, _]) = (elements::elements(&window, window.output), window.size);
    let wanted = match plan.layout {
        RowMajor => {
            let products = outputs.saturating_mul(u64::from(size * size));
            outputs >= LEAST_OUTPUTS && of_rows(&window).contains(&products)
        }
        ChannelsLast => {
            // Those that do not overlap for which there are others.
            let apart = !overlap(&window) && (size == 2 || size == 3 && few::odd(window.channels));
            !apart && !by_patches(&window, dtype)
        }
    };
    if wanted { of_outputs(gpu, window, false, dtype) } else { None }
}

/// The same of the input's gradient alone.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<PacksPlan> {
    let window = elements::of_one(plan, geometry).filter(is_backward)?;
    let (inputs, [size, _], two_apart) =
        (elements::elements(&window, window.input), window.size, window.stride[0] == 2);
    let wanted = match plan.layout {
        RowMajor => {
            let over = size.div_ceil(window.stride[0]);
            let products = inputs.saturating_mul(u64::from(over * over));
            let most = if two_apart {
                1 << 20
            } else if size == 7 {
                1 << 24
            } else {
                1 << 26
            };
            inputs >= LEAST_INPUTS && products < most
        }
        ChannelsLast => !by_patches(&window, dtype),
    };
    match wanted {
        false => None,
        true if two_apart => of_cells(gpu, window, dtype),
        true => of_outputs(gpu, turned(window), true, dtype),
    }
}

/// Products of row-major images, a window's positions for each output, of which these kernels take less time forward than those for such
/// images. Measured on an H100, of 7×7 on an H200.
fn of_rows(window: &Window<Nhwc>) -> Range<u64> {
    let (size, stride) = (window.size[0], window.stride[0].max(window.stride[1]));
    let seven = |much: u32| 0..1 << if window.input[1] >= WIDE { much } else { 19 };
    match (size, stride) {
        (2 | 3 | 5, 1) => 0..1 << 26,
        (7, 1) => seven(24),
        (7, 2) => seven(23),
        (7, 3) => 0..1 << 22,
        (5 | 7, 4..) => 0..u64::MAX,
        (5 | 7, _) => 0..1 << 24,
        // Those that leave columns out.
        (2 | 3, _) if stride > size => 0..1 << 23,
        _ => 0..0,
    }
}

/// Whether channels are whole vectors, of so much that patches take no more time.
fn by_patches(window: &Window<Nhwc>, dtype: DType) -> bool {
    let vectors = window.channels.is_multiple_of(MOST_OF_CELLS / dtype.size() as u32);
    let padding = window.padding[0] == window.padding[1] && window.padding[0] <= 1;
    let much = elements::elements(window, window.input) >= MUCH_BY_PATCHES;
    vectors && (window.size, window.stride) == ([3, 3], [2, 2]) && padding && much
}

/// By outputs; more rows a thread from where on they take less time, measured on an H200 (docs/perf/log.md).
fn of_outputs(gpu: &Gpu, window: Window<Nhwc>, turned: bool, dtype: DType) -> Option<PacksPlan> {
    // What is loaded stays in registers.
    let (window, bytes) = of_packs(window, dtype.size() as u32, if window.size[0] == 7 { 4 } else { 8 })?;
    let packs = elements::elements(&window, window.output);
    let two_apart = |enough: u64| if is_much(gpu, packs, enough) { OUTPUTS_TWO_APART } else { 1 };
    let rows = match (window.size[0], window.stride[0]) {
        (2 | 3, 1) if is_much(gpu, packs, 1 << 18) => OUTPUTS,
        (3, 1) if is_much(gpu, packs, 1 << 15) => FEWER_OUTPUTS,
        (_, 1) if is_much(gpu, packs, 1 << 16) => FEWER_OUTPUTS,
        (3, 2) => two_apart(1 << 17),
        (5 | 7, 2) => two_apart(1 << 15),
        _ => 1,
    };
    PacksPlan::new(window, turned, bytes, window.output, rows)
}

/// By cells; likewise.
fn of_cells(gpu: &Gpu, window: Window<Nhwc>, dtype: DType) -> Option<PacksPlan> {
    let whole = window.channels.is_multiple_of(MOST_OF_CELLS / dtype.size() as u32) && window.size[0] < 7;
    let (window, bytes) = of_packs(window, dtype.size() as u32, if whole { MOST_OF_CELLS } else { 4 })?;
    let packs = elements::elements(&window, cells(&window));
    let enough = match (bytes, window.size[0]) {
        (MOST_OF_CELLS, 3) => 3 << 17,
        (MOST_OF_CELLS, _) => 1 << 16,
        _ => 1 << 17,
    };
    let rows = if is_much(gpu, packs, enough) { CELLS } else { 1 };
    PacksPlan::new(window, false, bytes, cells(&window), rows)
}

/// Whether so many are enough.
pub(super) fn is_much(gpu: &Gpu, packs: u64, enough: u64) -> bool {
    packs >= if gpu.is_emulated() { enough / EMULATED } else { enough }
}

impl PacksPlan {
    fn new(window: Window<Nhwc>, turned: bool, bytes: u32, size: [u32; 2], rows: u32) -> Option<Self> {
        let (elements, blocks) = Elements::new(&window, size, rows, PACKS_BLOCK)?;
        let dims = LaunchDims::new(blocks, PACKS_BLOCK);
        Some(Self { window, turned, bytes, rows, elements, dims })
    }
}

/// Launches the forward kernel of so many rows a thread with these fields.
macro_rules! launch_outputs {
    ($gpu:expr, $dims:expr, $s:ty, $bytes:ident, $size:ident, $rows:expr, $x:expr, $parameters:expr, $y:expr, $beta:expr, $turned:expr,
     $($field:ident),*) => {{
        macro_rules! run {
            ($r:expr) => {{
                let (x, [mean, var], y, beta, turned) = ($x, $parameters, $y, $beta, $turned);
                type Kernel<'a> = GaussianPoolForwardPacks<'a, $s, $bytes, $size, { $r }>;
                let launch = Kernel { x, mean, var, y, beta, turned, $($field),* };
                // SAFETY: the tensors have the shapes and the layout that `window` was made of, turned round backward, whose channels are
                // packs of so many bytes and whose windows are of that size, one apart along y if a thread has several rows, and the
                // parameters theirs; the elements are the window's outputs, as many a thread as the kernel takes, and the launch theirs.
                unsafe { $gpu.launch($dims, launch) }
            }};
        }
        match $rows {
            1 => run!(1),
            FEWER_OUTPUTS => run!(FEWER_OUTPUTS as usize),
            // Of small windows alone.
            _ => run!(if $size <= 3 { OUTPUTS as usize } else { 1 }),
        }
    }};
}

const WHY: &str = "by packs of channels, which all share their weights, of a size compiled in";

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_packs(self, gpu: &Gpu, launch: PacksPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let PacksPlan { window, bytes, rows, elements, dims, .. } = launch;
        let of = (bytes, window.size[0]);
        if rows > 1 && window.stride[0] == 2 {
            return for_outputs_two_apart!(T, (op, "x", gpu), of, S, BYTES, SIZE, {
                let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                type Kernel<'a> = GaussianPoolForwardPacksTwoApart<'a, S, BYTES, SIZE>;
                let launch = Kernel { x, mean, var, y, variances, window, elements };
                // SAFETY: `x` and `y` have the shapes and the layout that `window` was made of, whose channels are packs of so many bytes and
                // whose windows are of that size and two apart, and the parameters theirs; the elements are the window's outputs, as many
                // a thread as the kernel takes, and the launch theirs.
                unsafe { gpu.launch(dims, launch) }
            });
        }
        for_outputs!(T, (op, "x", gpu), of, S, BYTES, SIZE, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let parameters = [self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?];
            launch_outputs!(gpu, dims, S, BYTES, SIZE, rows, x, parameters, y, 0.0, 0, variances, window, elements)
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_packs(self, gpu: &Gpu, launch: PacksPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        let PacksPlan { window, turned, bytes, rows, elements, dims } = launch;
        let of = (bytes, window.size[0]);
        if turned {
            return for_outputs!(T, (op, "dx", gpu), of, S, BYTES, SIZE, {
                let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
                let parameters = [self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?];
                launch_outputs!(
                    gpu, dims, S, BYTES, SIZE, rows, dy, parameters, dx, beta, 1, variances, window, elements
                )
            });
        }
        for_cells!(T, (op, "dx", gpu), of, S, BYTES, SIZE, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($rows:expr) => {{
                    type Kernel<'a> = GaussianPoolBackwardPacks<'a, S, BYTES, SIZE, { $rows }>;
                    let launch = Kernel { dy, mean, var, dx, beta, variances, window, elements };
                    // SAFETY: as above, of `dy` and `dx`; windows are two apart both ways, and the elements the cells of their inputs, as many
                    // a thread as the kernel takes.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            if rows == 1 { run!(1) } else { run!(CELLS as usize) }
        })
    }
}
