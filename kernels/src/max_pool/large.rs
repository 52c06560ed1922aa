//! Forward over windows of any size in row-major images.

use cuda_std::prelude::*;

use super::Maximum;
use crate::band::any::{Item, Lines, for_each_item, steps_inside};
use crate::band::{self, Block, Staged, inputs_of};
use crate::warps::{self, Warps};
use crate::window::{Nchw, Position, Window};

/// As [`max_pool_forward`], by [bands](crate::band), for windows of any size without dilation: the maxima of the windows'
/// columns, and of these the maxima.
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `block` is of the window's outputs, with the
/// launch's grid, block and shared memory, which has an `f32` and a `P` for each column; `columns` are of its outputs'
/// height and inputs' width, `outputs` of its outputs.
#[kernel(max_threads = band::THREADS, min_blocks = band::MIN_BLOCKS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_any<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    block: Block,
    columns: Lines,
    outputs: Lines,
) {
    let span = block.span();
    // SAFETY: the launch's shared memory is for these rows and for the columns of all outputs; the outputs exist.
    unsafe {
        let x = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let values = x.behind::<f32>();
        let positions = values.offset(columns.padded(&span, span.rows)).cast::<P>();
        band::wait(x);
        for_each_item(&span, &columns, span.rows, |Item { number, plane, row, column }| {
            let [first, end] = steps_inside(&window, 0, row);
            let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
            let mut place = x.place(plane, top.wrapping_add(first), column);
            let mut maximum = Maximum::of_nothing(first);
            let mut i = first;
            while i < end {
                maximum = maximum.or(x.load(place).to_f32(), i);
                place += window.input[1];
                i += 1;
            }
            values.store(number, maximum.value);
            positions.store(number, P::narrow(maximum.position));
        });
        thread::sync_threads();
        let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        for_each_item(&span, &outputs, span.rows, |Item { number, plane, row, column }| {
            let [first, end] = steps_inside(&window, 1, column);
            let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
            let line = plane * (span.rows[1] - span.rows[0]) + row - span.rows[0];
            let mut at = (line * window.input[1]).wrapping_add(left).wrapping_add(first);
            let (mut best, mut row, mut column) = (values.load(at), positions.load(at).widen(), first);
            let mut j = first + 1;
            while j < end {
                at += 1;
                let (value, i) = (values.load(at), positions.load(at).widen());
                // The first in row-major order of the greatest, or of the NaNs.
                let same = (value == best) | (value.is_nan() & best.is_nan());
                let wins = Maximum { value: best, position: 0 }.or(value, 1).position == 1;
                let earlier = wins | (same & (i < row));
                best = if earlier { value } else { best };
                row = if earlier { i } else { row };
                column = if earlier { j } else { column };
                j += 1;
            }
            let output = output + number as usize;
            y.store(output, T::from_f32(best));
            if let Some(indices) = indices {
                indices.store(output, P::narrow(row * window.size[1] + column));
            }
        });
    }
}

/// As [`max_pool_forward`], [a warp an output](crate::warps).
///
/// # Safety
/// The module's, but for the tiling; `warps` are over the window's outputs, with the launch's grid.
#[kernel(block = warps::THREADS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_warp<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    warps: Warps,
) {
    let Some((output, row, column)) = warps.output(&window) else { return };
    let [[i, _], [j, _]] = [steps_inside(&window, 0, row), steps_inside(&window, 1, column)];
    let mut best = Maximum::of_nothing(i * window.size[1] + j);
    // SAFETY: the output exists.
    unsafe {
        let x = x.offset(window.input_plane(thread::block_idx_x()));
        warps::for_each(x, &window, &warps, [row, column], f32::NEG_INFINITY, |value, i, j| {
            best = best.or_earlier(Maximum { value, position: i * window.size[1] + j });
        });
        unrolled!(STEP in [16 8 4 2 1] {
            let value = warp::shuffle_xor(best.value, STEP as u32);
            best = best.or_earlier(Maximum { value, position: warp::shuffle_xor(best.position, STEP as u32) });
        });
        let first = warp::lane_id() == 0;
        y.store_if(first, output, T::from_f32(best.value));
        if let Some(indices) = indices {
            indices.store_if(first, output, P::narrow(best.position));
        }
    }
}
