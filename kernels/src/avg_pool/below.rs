//! Windows with the channels last that overlap along y, a few outputs one below the other a thread.

use cuda_std::prelude::*;

use super::Divisor;
use crate::elements::{Elements, Place, sums};
use crate::window::{Nhwc, Window};

/// Threads of a block.
pub const BELOW_BLOCK: u32 = 256;
/// Outputs of a thread.
pub const BELOW: u32 = 4;

/// As [`avg_pool_forward`](super::avg_pool_forward), of which a thread has [`BELOW`] outputs [one below the other](crate::elements): the rows that their
/// windows have in common are summed once, `AHEAD` columns of two of them at a time.
///
/// Bound by the time that the caches take to answer, and by instructions: of windows of 32 rows three apart 41 are summed for four outputs, not 128. On an
/// H200 such on 2×31×112×112 in bf16 take 39.8 µs, by warps 82.7 (docs/perf).
///
/// # Safety
/// The module's, but for the tiling; `elements` are the window's outputs, as many a thread, with the launch's grid.
#[kernel(block = BELOW_BLOCK, instances(T = [f32, f16, bf16], AHEAD = [4, 8]))]
pub unsafe fn avg_pool_forward_below<T: Storage, const AHEAD: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    elements: Elements,
) {
    let Some(place) = elements.place(BELOW_BLOCK, window.channels) else { return };
    let Place { plane, row, column, channel } = place;
    // SAFETY: the caller's; the outputs exist, and are this thread's.
    unsafe {
        let sums = sums::<T, { BELOW as usize }, 1, AHEAD>(x, &window, place, |_, _| 1.0);
        let y = y.offset(window.output_plane(plane) + (column * window.channels + channel) as usize);
        let columns = divisor.counted(&window, 1, column);
        unrolled!(R in [0 1 2 3] {
            let row = row + R as u32;
            if row < window.output[0] {
                let of = divisor.of(divisor.counted(&window, 0, row), columns);
                y.store(row as usize * window.output_line(), T::from_f32(sums[R][0] / of));
            }
        });
    }
}
