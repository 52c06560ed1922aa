//! Launches of the kernel that goes through a window's few positions, however high and wide it is, by packs of channels.

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::taps::{GaussianPoolTaps, MOST_SIZE, TAPS_BLOCK, TAPS_ROWS, Taps, taps_blocks};
use kernels::packs::groups;
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::MAX_GRID_Y;
use super::elements::elements as packs;
use super::patches::{of_planes, window};
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{is_much, of_packs};
use crate::{DType, Real, Result, bf16, f16};

/// A launch's window, whose channels are packs, and its threads.
pub(super) struct TapsPlan {
    window: Window<Nhwc>,
    /// Bytes of a pack.
    bytes: u32,
    /// Of a group of packs.
    elements: Elements,
    taps: Taps,
    /// Rows of a thread.
    rows: u32,
    dims: LaunchDims,
}

/// Bytes of a pack, at most.
const MOST_BYTES: u32 = 8;
/// Packs from which on threads have several rows: with fewer, all of one row are under way at once anyhow.
const MANY: u64 = 1 << 18;
/// Bytes of a block's shared memory, at most: so many that all blocks that work at a time have theirs.
const MOST_SHARED: u32 = 40 << 10;

/// Elements of a row-major gradient of channels that have Gaussians of their own, by windows that do not overlap, of which others, which make a table of weights
/// first, take longer, at most.
const LITTLE: u64 = 1 << 18;

/// The plan of the pass forward, of windows of which no other kernel takes less time.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<TapsPlan> {
    let y = &geometry.axes[0];
    // Others sum a row that several windows share once.
    let shared_rows = dtype == DType::F32 && y.size >= 3 && y.stride == 1;
    let wanted = is_oblong(geometry) && if geometry.sets > 1 { !shared_rows } else { is_wide(geometry, dtype) };
    (wanted && plan.layout == ChannelsLast).then(|| launch(gpu, plan, geometry, dtype, false))?
}

/// The same of the input's gradient, which then is made by itself even where the parameters' are asked for.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<TapsPlan> {
    let [y, x] = &geometry.axes;
    let wanted = match plan.layout {
        ChannelsLast => is_oblong(geometry) && (geometry.sets > 1 || is_wide(geometry, dtype)),
        RowMajor => {
            let apart = y.size.min(x.size) > 2 && y.stride >= y.size && x.stride >= x.size;
            let inputs = (plan.planes() as u64).saturating_mul(u64::from(y.image) * u64::from(x.image));
            apart && geometry.sets > 1 && inputs <= LITTLE
        }
    };
    wanted.then(|| launch(gpu, plan, geometry, dtype, true))?
}

/// Whether windows, or the ways between them, are not the same both ways.
fn is_oblong(geometry: &Geometry) -> bool {
    let [y, x] = &geometry.axes;
    (y.size, y.stride, y.padding) != (x.size, x.stride, x.padding)
}

/// Whether windows are much wider than they are high, over channels that are no whole vectors: along y others share more.
fn is_wide(geometry: &Geometry, dtype: DType) -> bool {
    let [y, x] = &geometry.axes;
    2 * y.size <= x.size && !geometry.channels.is_multiple_of(16 / dtype.size() as u32)
}

/// The plan of either pass, where planes have one Gaussian each whose weights are the same everywhere and there is room for those of all taps.
fn launch(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType, backward: bool) -> Option<TapsPlan> {
    let [y, x] = &geometry.axes;
    if geometry.planes == 0 || geometry.kernels > 1 || (y.cases, x.cases) != (1, 1) || y.size.max(x.size) > MOST_SIZE {
        return None;
    }
    let row_major = plan.layout == RowMajor;
    let of_pixels = if row_major { of_planes(geometry, [geometry.planes, 1]) } else { window(geometry) };
    let element = dtype.size() as u32;
    // Of two bytes or eight in 16 bits.
    let most = if of_pixels.channels.is_multiple_of(MOST_BYTES / element) { MOST_BYTES } else { element };
    let (window, bytes) = of_packs(of_pixels, element, most)?;
    let [groups, lanes] = groups(window.channels);
    let count = if row_major { geometry.sets } else { lanes * (bytes / element) };
    let shared = Taps::shared_bytes(window.size, count).filter(|&shared| shared <= MOST_SHARED)?;
    let few =
        |[height, width]: [u32; 2]| u64::from(height) * u64::from(width) * u64::from(of_pixels.channels) < 1 << 31;
    if groups > MAX_GRID_Y || ![window.input, window.output].into_iter().all(few) {
        return None;
    }
    let of_group = Window { channels: lanes, ..window };
    let size = if backward { window.input } else { window.output };
    let rows = if is_much(gpu, packs(&window, size), MANY) { TAPS_ROWS } else { 1 };
    let (elements, turns) = Elements::new(&of_group, size, rows, TAPS_BLOCK)?;
    let taps = Taps::new(&window, [turns, lanes], [count, geometry.sets], [backward, row_major]);
    let blocks = turns.min(gpu.at_once(taps_blocks(bytes as usize, rows as usize)).div_ceil(groups));
    let dims = LaunchDims::new([blocks, groups, 1], TAPS_BLOCK).with_shared(shared);
    Some(TapsPlan { window, bytes, rows, elements, taps, dims })
}

/// Runs a block with `$s` and `$bytes` as the kernel's parameters; of a type that there is none of it is an error.
macro_rules! for_packs {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $of:expr, $s:ident, $bytes:ident, $body:block) => {
        for_packs!(@ $t, ($op, $argument, $gpu), $of, $s, $bytes, $body; (F32 f32): 4 8; (F16 f16): 2 8; (Bf16 bf16): 2 8;)
    };
    (@ $t:ty, ($op:expr, $argument:expr, $gpu:expr), $of:expr, $s:ident, $bytes:ident, $body:block;
     $(($dtype:ident $storage:ty): $($b:literal)*;)*) => {
        match (<$t>::DTYPE, $of) {
            $($((DType::$dtype, $b) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                const $bytes: usize = $b;
                $body
            })*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    };
}

/// Launches the kernel of these parameters, of `(from, mean, var, to, beta, variances)`.
macro_rules! launch_taps {
    ($gpu:expr, ($s:ty, $bytes:ident), $launch:expr, $fields:expr) => {{
        macro_rules! run {
            ($rows:expr) => {{
                let (from, mean, var, to, beta, variances) = $fields;
                let TapsPlan { window, elements, taps, dims, .. } = $launch;
                type Kernel<'a> = GaussianPoolTaps<'a, $s, $bytes, { $rows as usize }>;
                let kernel = Kernel { from, mean, var, to, beta, variances, window, elements, taps };
                // SAFETY: the tensors have the shapes and the layout that `window` was made of, whose channels are packs of so many bytes, and the
                // parameters theirs; the elements are a group's outputs, or backward its inputs, in as many turns as the taps say, and the
                // launch has a row of blocks for each group, with room for the weights.
                unsafe { $gpu.launch(dims, kernel) }
            }};
        }
        if $launch.rows == 1 { run!(1) } else { run!(TAPS_ROWS) }
    }};
}

const WHY: &str = "by the taps of a small window of any shape, a pack of channels a thread at a time";

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_taps(self, gpu: &Gpu, launch: TapsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, 0.0);
        for_packs!(T, (op, "x", gpu), launch.bytes, S, BYTES, {
            let (from, to) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            launch_taps!(gpu, (S, BYTES), launch, (from, mean, var, to, beta, variances))
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_taps(self, gpu: &Gpu, launch: TapsPlan) -> Result<()> {
        let plan = &self.plan;
        let Some(out) = self.dx else { return Ok(()) };
        let _why = super::because(plan, WHY);
        let (op, variances, beta) = (plan.op, plan.variances() as u32, out.beta as f32);
        for_packs!(T, (op, "dx", gpu), launch.bytes, S, BYTES, {
            let (from, to) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            launch_taps!(gpu, (S, BYTES), launch, (from, mean, var, to, beta, variances))
        })
    }
}
