//! Sums over the threads of a block, in a fixed order.

use cuda_std::prelude::*;

/// Warps of the largest block there is.
const MAX_WARPS: usize = 32;

/// The sum of every thread's `value`; right in thread 0 only. One barrier; all threads of the block must come here, and
/// not again without a barrier in between.
///
/// The order is fixed: a butterfly within each warp, then the warps' sums by another.
///
/// # Safety
/// The block is one-dimensional and made of whole warps.
#[device_inline]
pub(crate) unsafe fn block_sum(value: f32) -> f32 {
    let sums = shared_array![f32; MAX_WARPS];
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
    let sum = warp::reduce_sum(value);
    if lane == 0 {
        // SAFETY: there are at most MAX_WARPS warps, and each writes its own element before the barrier.
        unsafe { sums.store(warp, sum) };
    }
    thread::sync_threads();
    let warps = thread::block_dim_x() / warp::WARP_SIZE;
    let present = lane < warps;
    // SAFETY: written above for each of the block's warps.
    let sum = unsafe { sums.load(if present { lane } else { 0 }) };
    warp::reduce_sum(if present { sum } else { 0.0 })
}
