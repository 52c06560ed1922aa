//! Launches of the kernel by packs of channels, which are last and of which each has a Gaussian of its own.

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::packs::{CELLS, FEWER_OUTPUTS, cells};
use kernels::gaussian_pool::packs_apiece::{
    GaussianPoolBackwardPacksApiece, GaussianPoolForwardPacksApiece, outputs, shared_bytes,
};
use kernels::packs::{PACKS_BLOCK, groups};
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::MAX_GRID_Y;
use super::elements::elements;
use super::packs::{for_kernel, is_much};
use super::patches::window;
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{of_packs, turned};
use crate::{DType, Real, Result, bf16, f16};

/// Runs a block with `$s`, `$bytes` and `$size` as the kernel's parameters.
macro_rules! for_outputs {
    ($t:ty, $where:tt, $of:expr, $s:ident, $bytes:ident, $size:ident, $body:block) => {
        for_kernel!(
            $t, $where, $of, $s, $bytes, $size, $body;
            (F32 f32): 4 [3 5 7] 8 [3 5];
            (F16 f16): 2 [3 5 7] 4 [3 5 7] 8 [3];
            (Bf16 bf16): 2 [3 5 7] 4 [3 5 7] 8 [3];
        )
    };
}

/// The same of the backward kernel.
macro_rules! for_cells {
    ($t:ty, $where:tt, $of:expr, $s:ident, $bytes:ident, $size:ident, $body:block) => {
        for_kernel!(
            $t, $where, $of, $s, $bytes, $size, $body;
            (F32 f32): 4 [3 5] 8 [3 5];
            (F16 f16): 2 [3 5] 4 [3 5] 8 [3];
            (Bf16 bf16): 2 [3 5] 4 [3 5] 8 [3];
        )
    };
}

/// A launch's window, whose channels are packs, and its threads.
pub(super) struct PacksApiecePlan {
    window: Window<Nhwc>,
    /// Bytes of a pack.
    bytes: u32,
    /// Outputs of a thread, or, backward of windows two apart, cells.
    rows: u32,
    of_cells: bool,
    /// Of a group of packs, of which there are so many.
    elements: Elements,
    lanes: u32,
    dims: LaunchDims,
}

/// Packs of which several cells a thread take less time, at least.
const ENOUGH: u64 = 1 << 16;
/// Packs of outputs of 3×3 windows from which on a thread has several, and as many as it may: with fewer all are under way at once anyhow.
const FEW: u64 = 1 << 15;
const FEWER: u64 = 1 << 18;
/// Outputs from which on a thread a channel, which keeps less in registers, takes less time, of windows that it has: of 5×5 in f32 and 7×7 in 16 bits, and
/// of 7×7 in f32.
const MUCH: u64 = 1 << 23;
const MUCH_OF_SEVENS: u64 = 1 << 21;

/// The plan of the pass forward, if channels are last and each has a Gaussian whose weights are the same everywhere, of windows that there are kernels for.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<PacksApiecePlan> {
    of_outputs(gpu, of(plan, geometry)?, dtype)
}

/// The same of the input's gradient alone, of windows one apart, and of 3×3 and 5×5 windows two apart.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<PacksApiecePlan> {
    let window = of(plan, geometry)?;
    match (window.stride[0], window.size[0]) {
        (1, _) => of_outputs(gpu, turned(window), dtype),
        (_, 3 | 5) => of_cells(gpu, window, dtype),
        _ => None,
    }
}

fn of(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = &geometry.axes;
    let fits = plan.layout == ChannelsLast && geometry.planes > 0 && geometry.sets > 1 && geometry.kernels == 1;
    let window = (fits && (y.cases, x.cases) == (1, 1)).then(|| window(geometry))?;
    let [[height, width], [down, right]] = [window.size, window.stride];
    ((height, down) == (width, right) && [3, 5, 7].contains(&height) && down <= 2).then_some(window)
}

fn of_outputs(gpu: &Gpu, window: Window<Nhwc>, dtype: DType) -> Option<PacksApiecePlan> {
    let much = match (window.size[0], window.stride[0], dtype) {
        (5, _, DType::F32) => MUCH,
        (7, 2, DType::F32) => MUCH_OF_SEVENS,
        (7, 2, _) => MUCH,
        _ => u64::MAX,
    };
    if elements(&window, window.output) >= much {
        return None;
    }
    let (of_packs, bytes) = of_packs(window, dtype.size() as u32, most_bytes(&window, dtype))?;
    let packs = elements(&of_packs, window.output);
    let rows = match (window.size[0], window.stride[0]) {
        (3, _) if !is_much(gpu, packs, FEW) => 1,
        (3, 1) if !is_much(gpu, packs, FEWER) => FEWER_OUTPUTS,
        (size, stride) => outputs(size, stride, bytes),
    };
    launch(of_packs, (bytes, dtype), window.output, (rows, false))
}

/// Bytes of a pack, at most: what is loaded, and weights, stay in registers.
fn most_bytes(window: &Window<Nhwc>, dtype: DType) -> u32 {
    match (window.size[0], dtype) {
        (3, _) | (5, DType::F32) => 8,
        _ => 4,
    }
}

fn of_cells(gpu: &Gpu, window: Window<Nhwc>, dtype: DType) -> Option<PacksApiecePlan> {
    let (window, bytes) = of_packs(window, dtype.size() as u32, most_bytes(&window, dtype))?;
    let rows = if is_much(gpu, elements(&window, cells(&window)), ENOUGH) { CELLS } else { 1 };
    launch(window, (bytes, dtype), cells(&window), (rows, true))
}

/// Over packs of so many bytes, planes of this height and width by so many rows a thread.
fn launch(
    window: Window<Nhwc>,
    (bytes, dtype): (u32, DType),
    size: [u32; 2],
    (rows, of_cells): (u32, bool),
) -> Option<PacksApiecePlan> {
    let [groups, lanes] = groups(window.channels);
    if groups > MAX_GRID_Y {
        return None;
    }
    let of_group = Window { channels: lanes, ..window };
    let (elements, blocks) = Elements::new(&of_group, size, rows, PACKS_BLOCK)?;
    let shared = shared_bytes(window.size[0], lanes, bytes / dtype.size() as u32);
    let dims = LaunchDims::new([blocks, groups, 1], PACKS_BLOCK).with_shared(shared);
    Some(PacksApiecePlan { window, bytes, rows, of_cells, elements, lanes, dims })
}

/// The outputs of a thread where there is much.
const fn most(size: usize, stride: usize, bytes: usize) -> usize {
    outputs(size as u32, stride as u32, bytes as u32) as usize
}

/// So many of 3×3 windows. Others have as many as where there is much.
const fn of_threes(rows: usize, size: usize, stride: usize, bytes: usize) -> usize {
    if size == 3 { rows } else { most(size, stride, bytes) }
}

/// Launches the kernel of these parameters, of `(x, mean, var, y, beta, turned, variances)`.
macro_rules! launch_outputs {
    ($gpu:expr, ($s:ty, $bytes:ident, $size:ident), $launch:ident, $fields:expr) => {{
        macro_rules! run {
            ($stride:literal, $r:expr) => {{
                let (x, mean, var, y, beta, turned, variances) = $fields;
                let PacksApiecePlan { window, elements, lanes, dims, .. } = $launch;
                type Kernel<'a> = GaussianPoolForwardPacksApiece<'a, $s, $bytes, $size, $stride, { $r }>;
                let launch = Kernel { x, mean, var, y, beta, turned, variances, window, elements, lanes };
                // SAFETY: the tensors have the shapes and the layout that `window` was made of, turned round backward, whose channels are
                // packs of so many bytes and whose windows are of that size, and so far apart along y if a thread has several rows, and the
                // parameters theirs; the elements are a group's outputs, as many a thread as the kernel takes, and the launch
                // theirs for each group, with room for the weights.
                unsafe { $gpu.launch(dims, launch) }
            }};
        }
        match ($launch.rows, $launch.window.stride[0]) {
            (1, _) => run!(1, of_threes(1, $size, 1, $bytes)),
            (FEWER_OUTPUTS, 1) => run!(1, of_threes(FEWER_OUTPUTS as usize, $size, 1, $bytes)),
            (_, 1) => run!(1, most($size, 1, $bytes)),
            _ => run!(2, most($size, 2, $bytes)),
        }
    }};
}

const WHY: &str = "by packs of channels, of which each has its weights, of a size compiled in";

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_packs_apiece(self, gpu: &Gpu, launch: PacksApiecePlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        for_outputs!(T, (op, "x", gpu), (launch.bytes, launch.window.size[0]), S, BYTES, SIZE, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            launch_outputs!(gpu, (S, BYTES, SIZE), launch, (x, mean, var, y, 0.0, 0, variances))
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_packs_apiece(self, gpu: &Gpu, launch: PacksApiecePlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        if launch.of_cells {
            return for_cells!(T, (op, "dx", gpu), (launch.bytes, launch.window.size[0]), S, BYTES, SIZE, {
                let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                let PacksApiecePlan { window, rows, elements, lanes, dims, .. } = launch;
                macro_rules! run {
                    ($rows:expr) => {{
                        type Kernel<'a> = GaussianPoolBackwardPacksApiece<'a, S, BYTES, SIZE, { $rows }>;
                        let launch = Kernel { dy, mean, var, dx, beta, variances, window, elements, lanes };
                        // SAFETY: as above, of `dy` and `dx`; windows are two apart both ways, and the elements the cells of their
                        // inputs, as many a thread as the kernel takes.
                        unsafe { gpu.launch(dims, launch) }
                    }};
                }
                if rows == 1 { run!(1) } else { run!(CELLS as usize) }
            });
        }
        for_outputs!(T, (op, "dx", gpu), (launch.bytes, launch.window.size[0]), S, BYTES, SIZE, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            launch_outputs!(gpu, (S, BYTES, SIZE), launch, (dy, mean, var, dx, beta, 1, variances))
        })
    }
}
