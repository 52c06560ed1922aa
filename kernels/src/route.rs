//! The backward pass of pooling that picks one position of each window: `dx` at a position is the sum of `dy` over the
//! outputs that came from it.
//!
//! Launch: one thread for one place in a few rows of a plane of inputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. It gathers: each input visits the windows that cover it, in the
//! order of the outputs, and takes `dy` where the index names it. No atomics, no zeros written beforehand, and no
//! difference between windows that overlap and windows that leave gaps. Sums are `f32`, rounded once.
//!
//! Bound by memory: reads `dy` and one or two bytes for each output, writes each input; windows that overlap meet in the
//! caches.

use cuda_std::prelude::*;

use crate::elementwise::{get, put};
use crate::window::{Covering, FEWER_BLOCKS, Nchw, Nhwc, Order, Pixel, Position, THREADS, Tiling, Window};

/// `dx = sum of dy over the outputs whose index names the input + beta * dx`. An index past the window's last position
/// names none.
///
/// # Safety
/// `dx` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `dy` and `indices` as many of
/// `window.output`; `tiling` is over the inputs, and the launch has its grid and block; `covering` is the window's, which
/// keeps its promises.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], P = [u8, u16])
)]
pub unsafe fn route_backward<T: Storage, L: Order, P: Position>(
    dy: Global<T>,
    indices: Global<P>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<L>,
    covering: Covering,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling, and so do the outputs that cover them.
    unsafe {
        let first = window.output_plane(plane);
        let (dy, indices) = (dy.offset(first), indices.offset(first));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            let across = covering.outputs(&window, 1, column);
            for row in tiling.rows() {
                let mut sum = 0.0;
                for output_row in covering.outputs(&window, 0, row) {
                    // The window's row that this input is in, if dilation does not step over it.
                    let offset = row + window.padding[0] - output_row * window.stride[0];
                    let i = covering.dilation[0].divide(offset);
                    if i * window.dilation[0] != offset {
                        continue;
                    }
                    let line = output_row as usize * window.output_line();
                    for output_column in across.clone() {
                        let offset = column + window.padding[1] - output_column * window.stride[1];
                        let output = line + (output_column * window.pixel() + channel) as usize;
                        // The index names this input if it lies in the window's row `i`, the right distance on.
                        let j = indices.load(output).widen().wrapping_sub(i * window.size[1]);
                        let share = get(dy, output);
                        let named = (j < window.size[1]) & (j.wrapping_mul(window.dilation[1]) == offset);
                        sum = if named { sum + share } else { sum };
                    }
                }
                let input = window.input_plane(plane) + row as usize * window.input_line() + place as usize;
                put(dx, input, sum, beta);
            }
        }
    }
}
