//! The choice of a launch backward by runs of elements.

use cuda_std::launch::LaunchDims;
use kernels::shares::{BLOCK, Plan, Shares, blocks};
use kernels::window::{Nchw, Window};

use crate::device::Gpu;

/// Windows over an element along an axis, what the kernel takes and its launch, with room for so many elements before its tables, if it can.
pub(crate) fn shares(gpu: &Gpu, window: &Window<Nchw>, before: u32) -> Option<(u32, Shares, LaunchDims)> {
    let Plan { shares, over, blocks: runs, shared_bytes } = Shares::plan(window, before)?;
    let blocks = runs.min(gpu.at_once(blocks(over as usize)));
    Some((over, shares, LaunchDims::new(blocks, BLOCK).with_shared(shared_bytes)))
}

/// Runs a block, which returns, with the windows over an element along an axis as a constant and what a launch by runs takes, if there are kernels
/// for such.
macro_rules! for_shares {
    ($gpu:expr, $window:expr, $before:expr => $over:ident, ($shares:ident, $dims:ident), $body:block) => {
        if let Some((over, $shares, $dims)) = $crate::ops::window::shares($gpu, $window, $before) {
            $crate::ops::window::for_shares!(@ over, $over, $body; 1 2 3);
        }
    };
    (@ $of:expr, $over:ident, $body:block; $($a:literal)*) => {
        match $of {
            $($a => {
                const $over: usize = $a;
                $body
            })*
            _ => {}
        }
    };
}
pub(crate) use for_shares;
