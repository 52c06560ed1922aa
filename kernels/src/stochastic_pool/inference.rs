//! What is expected of a draw.

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory, for_each_staged};
use crate::band::any::Lines;
use crate::band::{self, Block};
use crate::window::{FEWER_BLOCKS, Nchw, Nhwc, Order, Pixel, THREADS, Tiling, Window};

/// `y = sum p_i a_i`.
///
/// # Safety
/// The module's.
#[kernel(max_threads = THREADS, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16], L = [Nchw, Nhwc]))]
pub unsafe fn stochastic_pool_inference<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            for row in tiling.rows() {
                let mean = Elements { window, source: InMemory { x, window, channel }, row, column }.mean();
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(mean));
            }
        }
    }
}

/// As [`stochastic_pool_inference`], by [bands](crate::band), for windows of any size.
///
/// # Safety
/// As [`stochastic_pool_forward_any`](super::stochastic_pool_forward_any)'s.
#[kernel(max_threads = band::THREADS, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_inference_any<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    block: Block,
    outputs: Lines,
) {
    // SAFETY: the caller's; the outputs exist.
    unsafe {
        for_each_staged(x, &window, &block, &outputs, |output, elements, _| {
            y.store(output, T::from_f32(elements.mean()))
        });
    }
}
