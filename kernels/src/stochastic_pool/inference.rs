//! What is expected of a draw.

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory, for_each_staged};
use super::four::{NEAR, reciprocal};
use crate::band::any::Lines;
use crate::band::meshes::{Left, Meshes};
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

/// As [`stochastic_pool_inference`], by [meshes](crate::band::meshes), for windows three apart and of `GROUPS` meshes both ways: the sum
/// of the squares by the sum.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `meshes` are the window's, with the launch's grid, block and shared
/// memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], GROUPS = [1, 2, 3])
)]
pub unsafe fn stochastic_pool_inference_meshes<T: Storage, const GROUPS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    meshes: Meshes,
) {
    let laid = meshes.laid::<3, GROUPS>();
    let add = |[sum, squares]: [f32; 2], [more, more_squares]: [f32; 2]| [sum + more, squares + more_squares];
    // SAFETY: the caller's; outputs exist.
    unsafe {
        let of = |value: f32, _, _| {
            let weight = float::maximum(value, 0.0);
            [weight, weight * weight]
        };
        laid.leave(x, &window, 0.0, of, add, |[sum, squares]| Left::new(sum.to_bits(), squares.to_bits()));
        thread::sync_threads();
        let along = |meshes: [Left; GROUPS]| {
            let mut all = [meshes[0].x, meshes[0].y].map(f32::from_bits);
            unrolled!(J in [1 2] { if J < GROUPS { all = add(all, [meshes[J].x, meshes[J].y].map(f32::from_bits)); } });
            all
        };
        laid.take(&window, along, add, |output, [sum, squares]| {
            // Of sums near 1 the squares' sum is neither too large nor too small.
            let near = (1.0 / NEAR..=NEAR).contains(&sum);
            let mut mean = squares * reciprocal(if near { sum } else { 1.0 });
            if !near & (sum != 0.0) {
                let x = x.offset(window.input_plane(laid.span.first_plane + output.plane));
                let source = InMemory { x, window, channel: 0 };
                mean = Elements { window, source, row: output.row, column: output.column }.mean();
            }
            y.store(output.number, T::from_f32(mean));
        });
    }
}
