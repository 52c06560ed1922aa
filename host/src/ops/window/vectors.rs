//! Launches of two kinds that pooling ops share: by meshes of a row-major window, and by vectors of channels.

use cuda_std::launch::LaunchDims;
use kernels::band::BandLaunch;
use kernels::vectors::{Plan, Vectors};
use kernels::window::{Nhwc, Order, Window};

use super::{Kernels, channels_last};

/// Runs a block, which returns, with the number of meshes of a row-major window three apart as a constant and what a launch by these
/// takes, if there are kernels for such.
macro_rules! for_meshes {
    ($window:expr, $bytes:expr, [$($number:literal)*] => $groups:ident, $found:pat, $body:block) => {$(
        if $window.stride == [3, 3]
            && let Some($found) = kernels::band::meshes::Meshes::new(&$window, $number, $bytes)
        {
            const $groups: usize = $number;
            $body
        }
    )*};
}
pub(crate) use for_meshes;

/// Runs a block, which returns, with the rows of a thread of a backward pass by vectors as a constant, and the vectors and the launch's
/// dimensions, if there are such.
macro_rules! for_vectors {
    ($window:expr, $bytes:expr => $rows:ident, $vectors:ident, $dims:ident, $body:block) => {
        if let Some(plan) = kernels::vectors::Plan::backward(&$window, $bytes) {
            let $vectors = plan.vectors;
            let $dims = cuda_std::launch::LaunchDims::new(plan.blocks, plan.threads);
            if kernels::vectors::overlap(&$window) {
                const $rows: usize = 1;
                $body
            } else {
                const $rows: usize = kernels::vectors::AHEAD;
                $body
            }
        }
    };
}
pub(crate) use for_vectors;

/// Threads of a launch by vectors, at least, that warps do not take the place of.
const ENOUGH_THREADS: u64 = 1 << 15;

/// A forward launch by vectors, of threads that find so many words for each channel: the vectors, the dimensions, and its name. None
/// where it has few threads and the launch by `warps`, if there is one, more than twice as many.
pub(crate) fn forward_vectors<L: Order>(
    window: &Window<L>,
    words: u32,
    bytes: usize,
    warps: Option<&BandLaunch>,
) -> Option<(Window<Nhwc>, Vectors, LaunchDims, Kernels)> {
    let window = channels_last(window)?;
    let plan = Plan::forward(&window, bytes)?;
    let dims = LaunchDims::new(plan.blocks, plan.threads).with_shared(plan.shared_bytes(words, bytes));
    let threads = dims.blocks() * u64::from(dims.threads());
    let of_warps = warps.map_or(0, |launch| launch.grid.into_iter().chain(launch.block).map(u64::from).product());
    if threads < ENOUGH_THREADS && 2 * threads < of_warps {
        return None;
    }
    Some((window, plan.vectors, dims, if plan.slices > 1 { Kernels::Slices } else { Kernels::Vectors }))
}
