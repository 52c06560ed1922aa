//! Backward where a channel has few elements: its gradient and its slope's by the same threads, in one launch.
//!
//! A launch of few elements takes as long as a launch does, whatever it moves: a second one, for the sum, is as long again.

use cuda_std::prelude::*;

use super::{BLOCK, part, slope};
use crate::elementwise::put;
use crate::reduce::block_sum;
use crate::window::Divider;

/// Elements that a thread loads before it uses the first.
const AT_ONCE: u32 = 4;

/// Channels of a block of which each has so many warps.
pub const fn channels_of_block(warps: u32) -> u32 {
    BLOCK / warp::WARP_SIZE / warps
}

/// `dx` and `dalpha`, `WARPS` warps a channel, of which a block has [`channels_of_block`].
///
/// # Safety
/// The module's; a channel has fewer than 2³¹ elements, and `by_inner` divides by `inner`; `WARPS` is 1, or all of a block's.
#[kernel(
    block = BLOCK,
    instances((T, A) = [(f32, f32), (f16, f16), (f16, f32), (bf16, bf16), (bf16, f32)], WARPS = [1, 8])
)]
pub unsafe fn prelu_backward_channels<T: Storage, A: Storage, const WARPS: u32>(
    x: Global<T>,
    alpha: Global<A>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    dalpha: GlobalMut<A>,
    beta: f32,
    outer: u32,
    channels: u32,
    inner: u32,
    by_inner: Divider,
) {
    let threads = WARPS * warp::WARP_SIZE;
    let (group, first) = (thread::thread_idx_x() / threads, thread::thread_idx_x() % threads);
    let channel = thread::block_idx_x() * channels_of_block(WARPS) + group;
    let here = channel < channels;
    let mut sum = 0.0;
    // SAFETY: the channel exists if it is `here`, and has so many elements in each of the planes.
    unsafe {
        let slope_of_channel = alpha.load_if(here, channel as usize, A::from_f32(0.0)).to_f32();
        let count = if here { outer * inner } else { 0 };
        let mut i = first;
        while i < count {
            let mut loaded = [[T::from_f32(0.0); 2]; AT_ONCE as usize];
            let mut places = [0; AT_ONCE as usize];
            unrolled!(K in [0 1 2 3] {
                let i = i + K as u32 * threads;
                let plane = by_inner.divide(i);
                let element = i - plane * inner;
                places[K] = (plane as usize * channels as usize + channel as usize) * inner as usize + element as usize;
                loaded[K] = [x, dy].map(|from| from.load_if(i < count, places[K], loaded[K][0]));
            });
            unrolled!(K in [0 1 2 3] {
                let [x, dy] = loaded[K].map(T::to_f32);
                // Zeros, where there is nothing, add nothing.
                sum += part(x, dy);
                if let Some(dx) = dx
                    && i + K as u32 * threads < count
                {
                    put(dx, places[K], slope(x, slope_of_channel) * dy, dx_beta);
                }
            });
            i += AT_ONCE * threads;
        }
        let sum = if WARPS == 1 { warp::reduce_sum(sum) } else { block_sum(sum) };
        if here && first == 0 {
            put(dalpha, channel as usize, sum, beta);
        }
    }
}
