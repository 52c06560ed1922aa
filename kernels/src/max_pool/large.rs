//! Forward over windows of any size in row-major images.

use cuda_std::prelude::*;

use super::{Maximum, any_window, store};
use crate::band::any::{Lines, for_each_below, steps_inside};
use crate::band::groups::{across, down, reached};
use crate::band::{self, Bands, Staged, inputs_of};
use crate::chunks::{self, Chunks};
use crate::vectors::Lanes;
use crate::warps::{self, Warps};
use crate::wholes::{self, Wholes};
use crate::window::{Divider, Nchw, Nhwc, Position, Window};

/// As [`max_pool_forward`](super::max_pool_forward), by [bands](crate::band), for windows of any size without dilation: the
/// maxima of the windows' columns, [going down](crate::band::groups), and of these the maxima. Windows are `STRIDE` apart and of
/// `GROUPS` whole groups both ways, or any if these are 0.
///
/// Values are compared apart from where they are, by which NaN stays, but not where it came from, nor which of two zeros it was:
/// these are looked up again.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes; `bands` are of the window's
/// columns, with the launch's grid, block and shared memory, which has an `f32` and a `u32` for each; `outputs` are of its
/// outputs; `by_size` is by its number of columns.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(
        T = [f32, f16, bf16],
        // Groups of so few are of no more positions than a byte can name.
        (P, STRIDE, GROUPS) = [(u8, 0, 0), (u16, 0, 0), (u8, 2, 2), (u8, 2, 3), (u8, 3, 2), (u8, 3, 3), (u8, 4, 2), (u8, 4, 3)]
    )
)]
pub unsafe fn max_pool_forward_columns<T: Storage, P: Position, const STRIDE: usize, const GROUPS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    bands: Bands,
    outputs: Lines,
    by_size: Divider,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    let (width, lines) = (reached(&window), span.rows[1] - span.rows[0]);
    // SAFETY: the launch's shared memory is for these rows and for the columns of all outputs; the outputs exist.
    unsafe {
        let staged = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let values = staged.behind::<f32>();
        let places = values.offset((span.depth * lines * width + 3) & !3).cast::<u32>();
        band::wait(staged);
        let outside = T::from_f32(f32::NEG_INFINITY);
        bands.for_each_column(&part, |column| {
            // Of columns outside the image another is looked at, and nothing kept.
            let from = column.wrapping_sub(window.padding[1]);
            let inside = from < window.input[1];
            let first = staged.place(part.plane, 0, if inside { from } else { 0 });
            let bound = staged.rows[1];
            let load = |row: u32, sure: bool| {
                let place = row.wrapping_mul(window.input[1]).wrapping_add(first);
                let value = if sure { staged.load(place) } else { staged.load_if(row < bound, place, outside) };
                Maximum { value: value.to_f32(), position: row }
            };
            let put = |row: u32, maximum: Maximum| {
                let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
                // Where all is minus infinity, the first row in the image, and none above it.
                let first = 0_u32.wrapping_sub(top).cast_signed();
                let i = maximum.position.wrapping_sub(top).cast_signed();
                let i = if i > first { i } else { first };
                let i = if i > 0 { i.cast_unsigned() } else { 0 };
                let at = (part.plane * lines + row - span.rows[0]) * width + column;
                values.store(at, if inside { maximum.value } else { f32::NEG_INFINITY });
                // What is outside is after all that is inside.
                places.store(at, if inside { i * window.size[1] + column } else { u32::MAX });
            };
            // That of nothing is of a row before all.
            let nothing = Maximum::of_nothing(0);
            down::<Maximum, STRIDE, GROUPS>(&window, part.rows, bound, nothing, load, Maximum::or_number, put);
        });
        thread::sync_threads();
        let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        for_each_below(
            &outputs,
            span.depth * lines,
            |column| column * window.stride[1],
            |left, column, line| {
                let at = line * width + left;
                let mut value = f32::NEG_INFINITY;
                across::<STRIDE, GROUPS>(&window, |j| value = float::maximum(value, values.load(at + j)));
                // The first in row-major order of those as great.
                let mut place = u32::MAX;
                across::<STRIDE, GROUPS>(&window, |j| {
                    let here = places.load(at + j);
                    place = if (values.load(at + j) == value) & (here < place) { here } else { place };
                });
                let mut position = place.wrapping_sub(left);
                if value == 0.0 {
                    // Which of the zeros it is.
                    let i = by_size.divide(position);
                    let top = (outputs.row(&span, line) * window.stride[0]).wrapping_sub(window.padding[0]);
                    let from = (left + position - i * window.size[1]).wrapping_sub(window.padding[1]);
                    let place = staged.place(outputs.plane(&span, line), top.wrapping_add(i), from);
                    value = staged.load(place).to_f32();
                } else if value.is_nan() {
                    let plane = span.first_plane + outputs.plane(&span, line);
                    let x = x.offset(window.input_plane(plane));
                    Maximum { value, position } = any_window(window, x, outputs.row(&span, line), column);
                }
                let output = output + (line * window.output[1] + column) as usize;
                store(y, indices, output, Maximum { value, position });
            },
        );
    }
}

/// As [`max_pool_forward`](super::max_pool_forward), [a warp an output, or several](crate::warps).
///
/// # Safety
/// The module's, but for the tiling; `warps` are over the window's outputs, with the launch's grid, block and shared memory.
#[kernel(max_threads = warps::THREADS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_warp<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nhwc>,
    warps: Warps,
) {
    let output = warps.output(&window);
    let [[i, _], [j, _]] = [steps_inside(&window, 0, output.row), steps_inside(&window, 1, output.column)];
    let mut best = Maximum::of_nothing(i * window.size[1] + j);
    // SAFETY: the output exists; all threads come to where they wait.
    unsafe {
        let x = x.offset(window.input_plane(output.plane));
        warps::for_each(x, &window, &warps, &output, f32::NEG_INFINITY, |value, i, j| {
            best = best.or_earlier(Maximum { value, position: i * window.size[1] + j });
        });
        let words = |Maximum { value, position }: Maximum| [value.to_bits(), position];
        let maximum = |[value, position]: [u32; 2]| Maximum { value: f32::from_bits(value), position };
        let best = maximum(warps.joined(words(best), |own, other| words(maximum(own).or_earlier(maximum(other)))));
        y.store_if(output.first, output.number, T::from_f32(best.value));
        if let Some(indices) = indices {
            indices.store_if(output.first, output.number, P::narrow(best.position));
        }
    }
}

/// As [`max_pool_forward`](super::max_pool_forward), of [whole small planes](crate::wholes).
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and the launch is that of `wholes`.
#[kernel(block = wholes::BLOCK, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_wholes<T: Storage, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    wholes: Wholes,
) {
    let mut best = Maximum::of_nothing(wholes.first());
    // SAFETY: the caller's; the plane exists, and has one output.
    unsafe {
        let plane = wholes::for_each(x, &window, wholes, |value, position| best = best.or(value, position));
        let best = wholes.joined(best, |best: Maximum, step| {
            let (value, position) = (warp::shuffle_xor(best.value, step), warp::shuffle_xor(best.position, step));
            best.or_earlier(Maximum { value, position })
        });
        if let Some(plane) = plane {
            store(y, indices, plane, best);
        }
    }
}

/// As [`max_pool_forward`](super::max_pool_forward), by [chunks](crate::chunks).
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `chunks` are the window's, with the launch's grid.
#[kernel(block = chunks::BLOCK, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn max_pool_forward_chunks<T: Lanes, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nchw>,
    chunks: Chunks,
) {
    let mut best = Maximum::of_nothing(chunks.first::<T>());
    // SAFETY: the caller's; the output exists.
    unsafe {
        let output = chunks::for_each(x, &window, &chunks, f32::NEG_INFINITY, |value, position| {
            best = best.or(value, position);
        });
        let best = chunks.joined(best, |best: Maximum, step| {
            let (value, position) = (warp::shuffle_xor(best.value, step), warp::shuffle_xor(best.position, step));
            best.or_earlier(Maximum { value, position })
        });
        if output.first {
            store(y, indices, output.number, best);
        }
    }
}
