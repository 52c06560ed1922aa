//! Windows of any size with the channels last, by [vectors](crate::vectors).

use cuda_std::prelude::*;

use crate::vectors::{self, LANES, Lanes, Numbers, Over, Vectors, lanes};
use crate::window::{FEWER_BLOCKS, Nhwc, Position, Window};

/// As [`route_backward`](super::route_backward), by [vectors](crate::vectors), `ROWS` inputs a thread.
///
/// # Safety
/// As [`route_backward`](super::route_backward)'s, but for the tiling; the window has no dilation; memory begins at multiples of 16 bytes;
/// `vectors` are of the window's inputs, with the launch's grid and block; windows overlap, or `ROWS` is [`AHEAD`](vectors::AHEAD).
#[kernel(
    max_threads = vectors::FEWER_THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], P = [u8, u16], ROWS = [1, 4])
)]
pub unsafe fn route_backward_vectors<T: Lanes, P: Position, const ROWS: usize>(
    dy: Global<T>,
    indices: Global<P>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let dy = dy.cast::<u32>();
        // Indices where there are none are of no position.
        let none = Vec4::splat(P::narrow(u32::MAX));
        let load = |inside, vector: usize| {
            let at = vector.wrapping_mul(lanes::<T>());
            let more = (lanes::<T>() == 8) & inside;
            (
                dy.load4_if(inside, vector.wrapping_mul(4), Vec4::splat(0)),
                [indices.load4_if(inside, at, none), indices.load4_if(more, at.wrapping_add(4), none)],
            )
        };
        let add = |mut sum: Numbers, (dy, indices): (Vec4<u32>, [Vec4<P>; 2]), Over { position: [i, j], .. }: Over| {
            let (dy, position) = (T::numbers(dy.to_array()), i.wrapping_mul(window.size[1]).wrapping_add(j));
            let [[a, b, c, d], [e, f, g, h]] = indices.map(|four| four.map(P::widen).to_array());
            let indices: [u32; LANES] = [a, b, c, d, e, f, g, h];
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < lanes::<T>() {
                    sum[K] = if indices[K] == position { sum[K] + dy[K] } else { sum[K] };
                }
            });
            sum
        };
        vectors::gather::<T, _, ROWS>(dx, beta, &window, &vectors, load, add);
    }
}
