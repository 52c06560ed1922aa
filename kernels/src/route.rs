//! The backward pass of pooling that picks one position of each window: `dx` at a position is the sum of `dy` over the
//! outputs that came from it.
//!
//! Launch: one thread for one place in a few rows of a plane of inputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. It gathers: each input visits the windows that cover it, in the
//! order of the outputs, and takes `dy` where the index names it. No atomics, no zeros written beforehand, and no
//! difference between windows that overlap and windows that leave gaps. Sums are `f32`, rounded once.
//! [`route_backward_patch`] is the same by [patches](crate::patch), for windows that are common.
//!
//! Bound by memory: reads `dy` and one or two bytes for each output, writes each input; windows that overlap meet in the
//! caches.

use cuda_std::prelude::*;

use crate::elementwise::{get, put};
use crate::patch::{Patches, Shares, gather, lanes};
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

/// As [`route_backward`], for windows of a known geometry.
///
/// # Safety
/// As [`route_backward`]'s; `Fixed<SIZE, STRIDE, PADDING>` fits the window, `dx` begins at a multiple of 16 bytes, `dy` and
/// `indices` where four elements may be loaded at once, and `patches` are the window's, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], (SIZE, STRIDE, PADDING) = [(2, 2, 0), (3, 2, 0), (3, 2, 1)])
)]
pub unsafe fn route_backward_patch<T: Storage, L: Order, const SIZE: u32, const STRIDE: u32, const PADDING: u32>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<L>,
    patches: Patches<L>,
) {
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        if L::CHANNELS_LAST {
            let shares = |inside, output, _, _| given::<T, 4>(dy, indices, inside, output);
            gather::<T, L, 4, SIZE, STRIDE, PADDING>(dx, beta, &window, &patches, shares, named);
        } else {
            let shares = |inside, output, _, _| given::<T, 1>(dy, indices, inside, output);
            gather::<T, L, 1, SIZE, STRIDE, PADDING>(dx, beta, &window, &patches, shares, named);
        }
    }
}

/// What outputs give, and to which positions of their windows; where there are none, none.
///
/// # Safety
/// As [`lanes`]'.
#[inline(always)]
unsafe fn given<T: Storage, const LANES: usize>(
    dy: Global<T>,
    indices: Global<u8>,
    inside: bool,
    output: usize,
) -> Shares<LANES> {
    // SAFETY: the caller's.
    unsafe {
        let share = lanes::<T, LANES>(dy, inside, output, T::from_f32(0.0)).map(T::to_f32);
        Shares { share, position: lanes::<u8, LANES>(indices, inside, output, u8::MAX).map(u32::from) }
    }
}

/// An input's sum after an output whose index is `index`.
#[inline(always)]
fn named(sum: f32, share: f32, index: u32, position: u32) -> f32 {
    if index == position { sum + share } else { sum }
}
