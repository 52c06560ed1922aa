//! Forward.

use cuda_std::prelude::*;

use super::Divisor;
use crate::band::any::{Lines, for_each_below};
use crate::band::groups::{across, down, reached};
use crate::band::slide::{slide, stage};
use crate::band::{self, Bands, Staged, inputs_of, pairs};
use crate::chunks::{self, Chunks};
use crate::elementwise::get;
use crate::patch::{self, Patches};
use crate::pieces::{self, Pieces, Planes, columns, halves};
use crate::vectors::Lanes;
use crate::warps::{self, Warps};
use crate::wholes::{self, Wholes};
use crate::window::{FEWER_BLOCKS, MIN_BLOCKS, Nchw, Nhwc, Order, Pixel, THREADS, Tiling, Window};

/// # Safety
/// The module's; `sum` gives that of the output's window, whose inputs' plane and channel begin at what it gets.
#[device_inline]
unsafe fn forward<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    divisor: Divisor,
    tiling: Tiling,
    sum: impl Fn(Global<T>, u32, u32) -> f32,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            let columns = divisor.counted(&window, 1, column);
            for row in tiling.rows() {
                let sum = sum(x.offset(channel as usize), row, column);
                let average = sum / divisor.of(divisor.counted(&window, 0, row), columns);
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(average));
            }
        }
    }
}

/// The sum of any window, over the plane and channel that begin at `x`.
///
/// # Safety
/// The module's; the output exists.
#[device_inline]
unsafe fn any_window<T: Storage, L: Order>(window: Window<L>, x: Global<T>, row: u32, column: u32) -> f32 {
    let rows = window.inside(0, row);
    let columns = window.inside(1, column);
    let mut sum = 0.0;
    for y in rows {
        let line = y as usize * window.input_line();
        for x_ in columns.clone() {
            // SAFETY: inside the image.
            sum += unsafe { get(x, line + (x_ * window.pixel()) as usize) };
        }
    }
    sum
}

/// Averages of any windows.
///
/// # Safety
/// The module's.
#[kernel(max_threads = THREADS, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16], L = [Nchw, Nhwc]))]
pub unsafe fn avg_pool_forward<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<L>,
    divisor: Divisor,
    tiling: Tiling,
) {
    // SAFETY: the caller's.
    unsafe { forward(x, y, window, divisor, tiling, |x, row, column| any_window(window, x, row, column)) }
}

/// As [`avg_pool_forward`], by [patches](crate::patch), for windows of `SIZE` by `SIZE` positions, two apart, padded by `PADDING`.
///
/// # Safety
/// The module's, but for the tiling; the window is such, memory begins at multiples of 16 bytes,
/// and `patches` are of the window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_forward_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    patches: Patches,
) {
    let finish = |output, row, column, rows: [[f32; 4]; SIZE]| {
        let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
        let mut mean = [0.0; 4];
        unrolled!(K in [0 1 2 3] { mean[K] = sum_of(rows.map(|lanes| lanes[K])) / of; });
        // SAFETY: the output exists, and its channels begin at a multiple of four.
        unsafe { y.store4(output, Vec4::from(mean.map(T::from_f32))) };
    };
    // SAFETY: the caller's.
    unsafe { patch::each::<T, f32, SIZE, PADDING>(x, &window, &patches, 0.0, sum_of, finish) };
}

/// As [`avg_pool_forward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and `bands` are of the
/// window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 1), (3, 2)])
)]
pub unsafe fn avg_pool_forward_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [f32; SIZE]| {
        let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
        // SAFETY: the output exists.
        unsafe { y.store(output, T::from_f32(sum_of(rows) / of)) };
    };
    // SAFETY: the caller's.
    unsafe { slide::<T, f32, SIZE, STRIDE>(&stage(x, &window, &bands), &window, &bands, 0.0, sum_of, finish) };
}

/// As [`avg_pool_forward_band`], [two columns a thread](crate::band::pairs), for windows two apart, padded by `PADDING`.
///
/// # Safety
/// As [`avg_pool_forward_band`]'s; the padding is such; `y` begins at a multiple of 16 bytes, and `bands` are of pairs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_forward_pairs<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [[f32; 2]; SIZE]| {
        let counted = divisor.counted(&window, 0, row);
        let of = |which: usize| {
            let of = divisor.of(counted, divisor.counted(&window, 1, column + which as u32));
            T::from_f32(sum_of(rows.map(|pair| pair[which])) / of)
        };
        // SAFETY: the first output exists, at this column.
        unsafe { pairs::store(y, &window, output, column, [of(0), of(1)]) };
    };
    // SAFETY: the caller's.
    unsafe { pairs::slide::<T, f32, SIZE, PADDING>(&stage(x, &window, &bands), &window, &bands, 0.0, sum_of, finish) };
}

/// The sum of a row of a window, or of its rows.
#[device_inline]
pub(super) fn sum_of<const SIZE: usize>(values: [f32; SIZE]) -> f32 {
    let mut sum = values[0];
    unrolled!(J in [1 2] { if J < SIZE { sum += values[J]; } });
    sum
}

/// As [`avg_pool_forward`], by [bands](crate::band), for windows of any size: the sums of the windows' columns, [going
/// down](crate::band::groups), and of these the sums. Windows are `STRIDE` apart and of `GROUPS` whole groups both ways, or any if
/// these are 0.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes; `bands` are of the window's
/// columns, with the launch's grid, block and shared memory, which has an `f32` for each; `outputs` are of its outputs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (STRIDE, GROUPS) = [(0, 0), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3)])
)]
pub unsafe fn avg_pool_forward_columns<T: Storage, const STRIDE: usize, const GROUPS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    bands: Bands,
    outputs: Lines,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    let (width, lines) = (reached(&window), span.rows[1] - span.rows[0]);
    // SAFETY: the launch's shared memory is for these rows and for the columns of all outputs; the outputs exist.
    unsafe {
        let x = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let sums = x.behind::<f32>();
        band::wait(x);
        bands.for_each_column(&part, |column| {
            // Of columns outside the image another is looked at, and nothing kept.
            let from = column.wrapping_sub(window.padding[1]);
            let inside = from < window.input[1];
            let first = x.place(part.plane, 0, if inside { from } else { 0 });
            let bound = x.rows[1];
            let load = |row: u32, sure: bool| {
                let place = row.wrapping_mul(window.input[1]).wrapping_add(first);
                if sure { x.load(place) } else { x.load_if(row < bound, place, T::from_f32(0.0)) }.to_f32()
            };
            let put = |row: u32, sum: f32| {
                let at = (part.plane * lines + row - span.rows[0]) * width + column;
                sums.store(at, if inside { sum } else { 0.0 });
            };
            down::<f32, STRIDE, GROUPS>(&window, part.rows, bound, 0.0, load, |above, below| above + below, put);
        });
        thread::sync_threads();
        let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        let of_column = |column: u32| (column * window.stride[1], divisor.counted(&window, 1, column));
        for_each_below(&outputs, span.depth * lines, of_column, |(left, counted), column, line| {
            let at = line * width + left;
            let mut sum = 0.0;
            across::<STRIDE, GROUPS>(&window, |j| sum += sums.load(at + j));
            let of = divisor.of(divisor.counted(&window, 0, outputs.row(&span, line)), counted);
            y.store(output + (line * window.output[1] + column) as usize, T::from_f32(sum / of));
        });
    }
}

/// As [`avg_pool_forward`], by [pieces](crate::pieces), for windows of `SIZE` by `SIZE` positions that share little: a thread has one, or half of
/// one of 8×8.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes, and `pieces` are of it, with the launch's
/// grid.
#[kernel(
    block = pieces::BLOCK,
    min_blocks = pieces::blocks(SIZE),
    instances(T = [f32, f16, bf16], SIZE = [2, 3, 4, 5, 6, 7, 8])
)]
pub unsafe fn avg_pool_forward_apart<T: Storage, const SIZE: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    pieces: Pieces,
) {
    let planes = Planes::of(&window);
    let piece = pieces.piece::<SIZE, false>(&planes, thread::block_idx_x(), 1, 0);
    // SAFETY: the caller's.
    let values = unsafe { Pieces::load::<T, SIZE, false>(x, &planes, piece, T::from_f32(0.0), pieces.by_vectors()) };
    let mut sum = 0.0;
    unrolled!(I in [0 1 2 3 4 5 6 7] {
        if (I as u32) < SIZE {
            // Even and odd columns, so that no sum waits for all before.
            let mut sums = [0.0; 2];
            unrolled!(J in [0 1 2 3 4 5 6] {
                if (J as u32) < columns(SIZE, false) { sums[J % 2] += values[I][J].to_f32(); }
            });
            sum += sums[0] + sums[1];
        }
    });
    let halves = halves(SIZE);
    if halves == 2 {
        // The other half is the next thread's; both belong to one warp.
        sum += warp::shuffle_xor(sum, 1);
    }
    let (row, column) = (piece.row, piece.number / halves);
    let of = divisor.of(divisor.counted(&window, 0, row), divisor.counted(&window, 1, column));
    let output = window.output_plane(piece.plane) + row as usize * window.output_line() + column as usize;
    // SAFETY: stored only where the output exists; the first of its threads has it.
    unsafe { y.store_if(piece.there & piece.number.is_multiple_of(halves), output, T::from_f32(sum / of)) };
}

/// As [`avg_pool_forward`], [a warp an output, or several](crate::warps).
///
/// # Safety
/// The module's, but for the tiling; `warps` are over the window's outputs, with the launch's grid, block and shared memory.
#[kernel(max_threads = warps::THREADS, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_forward_warp<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    warps: Warps,
) {
    let output = warps.output(&window);
    let mut sum = 0.0;
    // SAFETY: the output exists; all threads come to where they wait.
    unsafe {
        let x = x.offset(window.input_plane(output.plane));
        warps::for_each(x, &window, &warps, &output, 0.0, |value, _, _| sum += value);
        let add =
            |[own, _]: [u32; 2], [other, _]: [u32; 2]| [(f32::from_bits(own) + f32::from_bits(other)).to_bits(), 0];
        let [sum, _] = warps.joined([f32::to_bits(sum), 0], add);
        let of = divisor.of(divisor.counted(&window, 0, output.row), divisor.counted(&window, 1, output.column));
        y.store_if(output.first, output.number, T::from_f32(f32::from_bits(sum) / of));
    }
}

/// As [`avg_pool_forward`], of [whole small planes](crate::wholes).
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and the launch is that of `wholes`.
#[kernel(block = wholes::BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_forward_wholes<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    wholes: Wholes,
) {
    let mut sum = 0.0;
    // SAFETY: the caller's; the plane exists, and has one output.
    unsafe {
        let plane = wholes::for_each(x, &window, wholes, |value, _| sum += value);
        let sum = wholes.joined(sum, |sum: f32, step| sum + warp::shuffle_xor(sum, step));
        if let Some(plane) = plane {
            let of = divisor.of(divisor.counted(&window, 0, 0), divisor.counted(&window, 1, 0));
            y.store(plane, T::from_f32(sum / of));
        }
    }
}

/// As [`avg_pool_forward`], by [chunks](crate::chunks).
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `chunks` are the window's, with the launch's grid.
#[kernel(block = chunks::BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn avg_pool_forward_chunks<T: Lanes>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    chunks: Chunks,
) {
    let mut sum = 0.0;
    // SAFETY: the caller's; the output exists.
    unsafe {
        let output = chunks::for_each(x, &window, &chunks, 0.0, |value, _| sum += value);
        let sum = chunks.joined(sum, |sum: f32, step| sum + warp::shuffle_xor(sum, step));
        let of = divisor.of(divisor.counted(&window, 0, output.row), divisor.counted(&window, 1, output.column));
        y.store_if(output.first, output.number, T::from_f32(sum / of));
    }
}
