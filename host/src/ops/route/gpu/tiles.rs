//! Launches of the kernel by packs of channels, which are last, and tiles of inputs.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::packs::groups;
use kernels::route::{BATCH, RouteBackwardTiles, TILES_BLOCK, Tiles};
use kernels::window::{Nhwc, Window};

use super::super::Backward;
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{Kernels, elements, is_much, of_packs};
use crate::{DType, Real, Result, bf16, f16};

/// Waves of blocks of which strips are tried, at most.
const MOST_WAVES: u64 = 4;
/// Shared memory of a multiprocessor, and what a block takes of it besides its own.
const SHARED: u32 = 227 << 10;
const OF_BLOCK: u32 = 1 << 10;
/// Blocks of a multiprocessor, at least and at most: with fewer warps most of the time is spent waiting.
const FEWEST_BLOCKS: u32 = 6;
const MOST_BLOCKS: u32 = 16;
/// Blocks of a multiprocessor with which half of the time is spent waiting, by what took the least time on an H200.
const WAITING: u32 = 4;
/// Widths of tiles that are tried, at most.
const MOST_TRIED: usize = 24;
/// Inputs, each as often as windows are over it, from which on this kernel takes less time than others, measured on an H200 (docs/perf/log.md).
const ENOUGH: u64 = 9 << 21;

/// A launch's window, whose channels are packs, and its threads.
pub(super) struct TilesPlan {
    window: Window<Nhwc>,
    /// Bytes of a pack.
    bytes: u32,
    tiles: Tiles,
    dims: LaunchDims,
}

/// The launch of windows that overlap, if the kernel takes such, and there is so much that this takes less time.
pub(super) fn launch(gpu: &Gpu, window: Window<Nhwc>, dtype: DType) -> Option<TilesPlan> {
    let ([height, width], [down, right]) = (window.size, window.stride);
    let positions = height.checked_mul(width).filter(|&positions| positions < 256)?;
    let overlaps = height >= down && width >= right && positions >= 2 * down * right;
    if !overlaps || window.dilation != [1; 2] {
        return None;
    }
    let covered = elements(&window, window.input).saturating_mul(positions.into()) / u64::from(down * right);
    if !is_much(gpu, covered, ENOUGH) {
        return None;
    }
    let element = dtype.size() as u32;
    let (window, bytes) = of_packs(window, element, 4)?;
    let [groups, lanes] = groups(window.channels);
    let of_plane =
        |[height, width]: [u32; 2]| [height, width, window.channels].into_iter().map(u64::from).product::<u64>();
    if groups > u16::MAX.into() || of_plane(window.input) >= 1 << 31 || of_plane(window.output) >= 1 << 31 {
        return None;
    }
    // Shared memory for a column of a tile, which has a sum for each channel of a pack of each row of a window.
    let of_column = height * (bytes / element) * TILES_BLOCK * size_of::<f32>() as u32;
    let blocks_of = |columns: u32| (SHARED / (of_column * columns + OF_BLOCK)).min(MOST_BLOCKS);
    // Fewer columns of more tiles go over more outputs that are others' too, and leave room for more warps, which wait for each other less.
    let of_columns = u64::from(window.planes) * u64::from(lanes) * u64::from(groups);
    let (columns, rows, _) = (1..=window.input[1])
        .map(|across| (across, window.input[1].div_ceil(across)))
        .filter(|&(_, columns)| blocks_of(columns) >= FEWEST_BLOCKS)
        .take(MOST_TRIED)
        .map(|(across, columns)| {
            let blocks = blocks_of(columns);
            let of_strip = (of_columns * u64::from(across)).div_ceil(TILES_BLOCK.into());
            let (rows, gone_over) = strips(&window, of_strip, gpu.at_once(blocks).into());
            let batches = (columns + width + right - 2).div_ceil(right).div_ceil(BATCH as u32);
            (columns, rows, gone_over * u64::from(batches) * u64::from(blocks + WAITING))
        })
        .min_by_key(|&(.., cost)| cost)?;
    let shared = of_column * columns;
    let (tiles, blocks) = Tiles::new(&window, lanes, [rows, columns])?;
    let dims = LaunchDims::new([blocks, groups, 1], TILES_BLOCK).with_shared(shared);
    Some(TilesPlan { window, bytes, tiles, dims })
}

/// Rows of strips of which each has so many blocks, so many at once, and the rows that all waves of these go over: the fewest of so many strips as fill one wave
/// or a few, or of one.
fn strips(window: &Window<Nhwc>, of_strip: u64, at_once: u64) -> (u32, u64) {
    let [height, more] = [window.input[0], window.size[0] + window.stride[0]];
    let filling = (1..=MOST_WAVES).map(|waves| waves * at_once / of_strip).filter(|&strips| strips > 0);
    std::iter::once(1)
        .chain(filling)
        .map(|strips| height.div_ceil(strips.min(height.into()) as u32))
        .map(|rows| {
            let waves = (of_strip * u64::from(height.div_ceil(rows))).div_ceil(at_once);
            (rows, waves * u64::from(rows + more))
        })
        .min_by_key(|&(_, gone_over)| gone_over)
        .expect("one strip is tried")
}

/// Launches the kernel of a plan, of values of `$t`, with a block that gives `dy` and `dx` of `$s`, the kernel's type; of a type that there is none of it is
/// an error, as in [`for_storage`](crate::device::for_storage).
macro_rules! launch_kernel {
    ($t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $s:ident, $tensors:expr) => {
        launch_kernel!(@ $t, ($op, $argument, $gpu), $plan, $s, $tensors; (F32 f32): 4; (F16 f16): 2 4; (Bf16 bf16): 2 4;)
    };
    (@ $t:ty, ($op:expr, $argument:expr, $gpu:expr), $plan:ident, $s:ident, $tensors:expr;
     $(($dtype:ident $storage:ty): $($bytes:literal)*;)*) => {{
        let TilesPlan { window, bytes, tiles, dims } = $plan;
        match (<$t>::DTYPE, bytes) {
            $($((DType::$dtype, $bytes) if HALF || DType::$dtype == DType::F32 => {
                type $s = $storage;
                let (dy, indices, dx, beta) = $tensors;
                let launch = RouteBackwardTiles::<$s, $bytes> { dy, indices, dx, beta, window, tiles };
                // SAFETY: `route::backward` checked that `dx` has the shape of the window's input, `dy` and `indices` that of its output, and that all have
                // its layout; its channels are packs of so many bytes, and the window is such; the tiles are of its inputs, and the launch theirs
                // for each group, with room for their sums.
                unsafe { $gpu.launch(dims, launch) }
            })*)*
            (got, _) => Err(no_kernel($op, $argument, got, $gpu)),
        }
    }};
}

impl<T: Real> Backward<'_, T> {
    /// Of indices of one byte.
    pub(super) fn tiles(
        self,
        gpu: &Gpu,
        indices: &dyn DeviceMemory<u8>,
        window: &Window<Nhwc>,
        plan: TilesPlan,
    ) -> Result<()> {
        let (op, beta) = (self.op, self.dx.beta as f32);
        let _why = Kernels::Tiles.because(window);
        launch_kernel!(T, (op, "dy", gpu), plan, S, {
            (self.dy.gpu::<S>(op, "dy")?, indices, self.dx.tensor.gpu_mut::<S>(op, "dx")?, beta)
        })
    }
}
