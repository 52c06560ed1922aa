//! Launches of the kernel by warps that go down the rows of several row-major planes abreast.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::abreast::{ABREAST_BLOCK, Abreast};
use kernels::route::{ABREAST_LOADS, AbreastDividers, RouteBackwardAbreast, abreast_shared};
use kernels::window::{Nchw, Window};

use super::super::Backward;
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::ops::window::{Kernels, Lying, Row, elements, is_much};
use crate::{Real, Result};

/// Inputs from which on this kernel takes less time than others, measured on an H200 (docs/perf/log.md), where so many windows as below are over each.
const ENOUGH: u64 = 1 << 17;
/// Windows over an input, at least, of such as are one apart, and of others, which are two apart at most.
const OVER_EACH: u32 = 40;
const OVER_EACH_OF_TWO: u32 = 20;
/// The same of windows one apart where of a warp's lanes, in hundredths, so many are busy, and rows have more columns than so many.
const OVER_EACH_OF_BUSY: u32 = 25;
const BUSY: u32 = 90;
const NARROW: u32 = 24;

/// Runs that are tried, from the shortest on.
const RUNS: u32 = 8;
/// What a row of a warp's planes takes, and each column of a run, in instructions about.
const OF_ROW: u64 = 200;
const OF_COLUMN: u64 = 12;
/// Shared memory of a multiprocessor, and what a block takes of it besides its own.
const SHARED: u32 = 227 << 10;
const OF_BLOCK: u32 = 1 << 10;
/// Blocks of a multiprocessor, at most.
const MOST_BLOCKS: u32 = 20;

/// The launch of windows that overlap, if the kernel takes such, and there is so much that this takes less time.
pub(super) fn launch(gpu: &Gpu, window: &Window<Nchw>) -> Option<(Abreast, LaunchDims)> {
    let ([height, width], [down, right]) = (window.size, window.stride);
    let positions = height.checked_mul(width).filter(|&positions| positions < 256)?;
    if height < down || width < right || window.dilation != [1; 2] {
        return None;
    }
    let over_each = positions / (down * right);
    // On the emulated grid any that overlap.
    let least = if gpu.is_emulated() { 2 } else { OVER_EACH_OF_TWO };
    if over_each < least || !is_much(gpu, elements(window, window.input), ENOUGH) {
        return None;
    }
    let of_part = |columns: u32| [((columns + width - 2) / right + 1).min(window.output[1]), columns];
    let row = Row { columns: window.input[1], of_part };
    let shortest = width.div_ceil(right);
    // Of an odd number of columns, whose lanes use different banks.
    let lying = (shortest | 1..=shortest + RUNS)
        .step_by(2)
        .filter_map(|run| Lying::new(window, window.input[0], &row, run, ABREAST_LOADS as u32))
        .min_by_key(|lying| lying.warps(window.planes) * (OF_ROW + OF_COLUMN * u64::from(lying.abreast.run)))?;
    let Abreast { planes, run, part, .. } = lying.abreast;
    let are_busy = 100 * planes * of_part(part[1])[0] >= BUSY * run * ABREAST_BLOCK;
    let pays = match window.stride {
        _ if gpu.is_emulated() => true,
        [1, 1] => over_each >= OVER_EACH || over_each >= OVER_EACH_OF_BUSY && are_busy && window.input[1] > NARROW,
        [1 | 2, 1 | 2] => true,
        _ => false,
    };
    if !pays {
        return None;
    }
    let shared = abreast_shared(&lying.abreast, height, right) * size_of::<f32>() as u32;
    let blocks = (SHARED / (shared + OF_BLOCK)).min(MOST_BLOCKS);
    (shared <= SHARED_WITHOUT_ASKING).then(|| lying.launch(gpu, window, blocks, height + down, shared))?
}

impl<T: Real> Backward<'_, T> {
    /// Of indices of one byte.
    pub(super) fn abreast(
        self,
        gpu: &Gpu,
        indices: &dyn DeviceMemory<u8>,
        window: Window<Nchw>,
        (abreast, dims): (Abreast, LaunchDims),
    ) -> Result<()> {
        let (op, beta) = (self.op, self.dx.beta as f32);
        let _why = Kernels::Abreast.because(&window);
        for_storage!(T as S, op, "dy", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, self.dx.tensor.gpu_mut::<S>(op, "dx")?);
            let by = AbreastDividers::new(&window);
            let route = RouteBackwardAbreast::<S> { dy, indices, dx, beta, window, abreast, by };
            // SAFETY: `route::backward` checked that `dx` has the shape of the window's input, `dy` and `indices` that of its output, and that all have its
            // layout; the window is such, the parts are of its inputs, by runs and rows that lanes have room for, and the launch theirs.
            unsafe { gpu.launch(dims, route) }
        })
    }
}
