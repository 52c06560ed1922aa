//! What is expected of a draw: `sum a_i² / sum a_i`.
//!
//! Both sums are those of parts of the window, in any order: by the passes that averages take too. Where the sum is so small, so large
//! or so infinite that this is no quotient of two floats, a thread goes over the window's elements again.

use cuda_std::prelude::*;

use super::elements::{Elements, InBand, InMemory};
use super::sums::{Sums, SumsOfLanes};
use crate::band::any::{Lines, for_each_below};
use crate::band::groups::{across, down, reached};
use crate::band::meshes::{Left, Meshes};
use crate::band::slide::{slide, stage};
use crate::band::{self, Bands, Staged, inputs_of};
use crate::chunks::{self, Chunks};
use crate::vectors::{self, Lanes, Place, Vectors, Words, lanes};
use crate::warps::{self, Warps};
use crate::wholes::{self, Wholes};
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
                let mean =
                    Elements { window, source: InMemory { x, window, channel }, row, column, by_rows: false }.mean();
                let output = window.output_plane(plane) + row as usize * window.output_line() + place as usize;
                y.store(output, T::from_f32(mean));
            }
        }
    }
}

/// Blocks that a multiprocessor has room for, at least: what goes down by groups takes more registers than what adds up one by one,
/// which waits for its loads instead.
const fn blocks(stride: usize) -> u32 {
    if stride == 0 { band::MIN_BLOCKS } else { FEWER_BLOCKS }
}

/// As [`stochastic_pool_inference`], by [bands](crate::band), for windows of any size: the sums of the windows' columns, [going
/// down](crate::band::groups), and of these the sums. Windows are `STRIDE` apart and of `GROUPS` whole groups both ways, or any if
/// these are 0.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes; `bands` are of the window's
/// columns, with the launch's grid, block and shared memory, which has two words for each; `outputs` are of its outputs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = blocks(STRIDE),
    instances(T = [f32, f16, bf16], (STRIDE, GROUPS) = [(0, 0), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3)])
)]
pub unsafe fn stochastic_pool_inference_any<T: Storage, const STRIDE: usize, const GROUPS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    bands: Bands,
    outputs: Lines,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    let (width, lines) = (reached(&window), span.rows[1] - span.rows[0]);
    // SAFETY: the launch's shared memory is for these rows and for the columns of all outputs; the outputs exist.
    unsafe {
        let rows = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let left = rows.behind::<f32>();
        band::wait(rows);
        bands.for_each_column(&part, |column| {
            // Of columns outside the image another is looked at, and nothing kept.
            let from = column.wrapping_sub(window.padding[1]);
            let inside = from < window.input[1];
            let first = rows.place(part.plane, 0, if inside { from } else { 0 });
            let bound = rows.rows[1];
            let load = |row: u32, sure: bool| {
                let place = row.wrapping_mul(window.input[1]).wrapping_add(first);
                let x = if sure { rows.load(place) } else { rows.load_if(row < bound, place, T::from_f32(0.0)) };
                Sums::of(x.to_f32())
            };
            let put = |row: u32, sums: Sums| {
                let at = (part.plane * lines + row - span.rows[0]) * width + column;
                let Sums { sum, squares } = if inside { sums } else { Sums::NONE };
                left.store2(at * 2, Vec2::new(sum, squares));
            };
            down::<Sums, STRIDE, GROUPS>(&window, part.rows, bound, Sums::NONE, load, Sums::with, put);
        });
        thread::sync_threads();
        let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
        let of_column = |column: u32| column * window.stride[1];
        for_each_below(&outputs, span.depth * lines, of_column, |begin, column, line| {
            let at = line * width + begin;
            let mut all = Sums::NONE;
            across::<STRIDE, GROUPS>(&window, |j| {
                let Vec2 { x: sum, y: squares } = left.load2((at + j) * 2);
                all = all.with(Sums { sum, squares });
            });
            let source = InBand { rows, plane: outputs.plane(&span, line) };
            let mean = all.mean_of(&Elements { window, source, row: outputs.row(&span, line), column, by_rows: false });
            y.store(output + (line * window.output[1] + column) as usize, T::from_f32(mean));
        });
    }
}

/// As [`stochastic_pool_inference`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and `bands` are of the
/// window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(3, 1), (3, 2)])
)]
pub unsafe fn stochastic_pool_inference_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    bands: Bands,
) {
    // SAFETY: the caller's; the output exists.
    unsafe {
        let rows = stage(x, &window, &bands);
        let plane = bands.part(&bands.block.span()).plane;
        let of_row = |values: [f32; SIZE]| Sums::of_all(values.map(Sums::of));
        let finish = |output: usize, row: u32, column: u32, sums: [Sums; SIZE]| {
            let elements = Elements { window, source: InBand { rows, plane }, row, column, by_rows: false };
            y.store(output, T::from_f32(Sums::of_all(sums).mean_of(&elements)));
        };
        slide::<T, Sums, SIZE, STRIDE>(&rows, &window, &bands, 0.0, of_row, finish);
    }
}

/// As [`stochastic_pool_inference`], by [vectors](crate::vectors).
///
/// # Safety
/// The module's, but for the tiling; memory begins at multiples of 16 bytes; `vectors` are of the window's outputs, with the launch's
/// grid, block and shared memory, which has two words for each channel that a thread sums.
#[kernel(max_threads = vectors::THREADS, min_blocks = vectors::MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_inference_vectors<T: Lanes>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    let found = |_: &Place| SumsOfLanes::NONE;
    let add = |sums: SumsOfLanes, words: Words, _| sums.and::<T>(words);
    // SAFETY: the caller's; the outputs exist.
    unsafe {
        let Some((sums, place, output)) = vectors::of_windows(x, &window, &vectors, dynamic_shared(), 0, found, add)
        else {
            return;
        };
        let (means, mut again) = sums.means();
        y.cast().store4(output * 4, Vec4::from(T::words(means)));
        while again != 0 {
            let lane = again.trailing_zeros();
            let channel = place.group * lanes::<T>() as u32 + lane;
            let x = x.offset(window.input_plane(place.plane));
            let source = InMemory { x, window, channel };
            let mean = Elements { window, source, row: place.row, column: place.column, by_rows: false }.mean();
            y.store(output * lanes::<T>() + lane as usize, T::from_f32(mean));
            again &= again - 1;
        }
    }
}

/// As [`stochastic_pool_inference`], by [meshes](crate::band::meshes), for windows three apart and of `GROUPS` meshes both ways.
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
    // SAFETY: the caller's; outputs exist.
    unsafe {
        let left = |Sums { sum, squares }: Sums| Left::new(sum.to_bits(), squares.to_bits());
        laid.leave(x, &window, 0.0, |value, _, _| Sums::of(value), Sums::with, left);
        thread::sync_threads();
        let along = |meshes: [Left; GROUPS]| {
            Sums::of_all(meshes.map(|mesh| Sums { sum: f32::from_bits(mesh.x), squares: f32::from_bits(mesh.y) }))
        };
        laid.take(&window, along, Sums::with, |output, sums| {
            let x = x.offset(window.input_plane(laid.span.first_plane + output.plane));
            let source = InMemory { x, window, channel: 0 };
            let mean =
                sums.mean_of(&Elements { window, source, row: output.row, column: output.column, by_rows: false });
            y.store(output.number, T::from_f32(mean));
        });
    }
}

/// As [`stochastic_pool_inference`], [a warp an output, or several](crate::warps).
///
/// # Safety
/// The module's, but for the tiling; `warps` are over the window's outputs, with the launch's grid, block and shared memory.
#[kernel(max_threads = warps::THREADS, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_inference_warp<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    warps: Warps,
) {
    let output = warps.output(&window);
    let mut sums = Sums::NONE;
    // SAFETY: the output exists; all threads come to where they wait.
    unsafe {
        let x = x.offset(window.input_plane(output.plane));
        warps::for_each(x, &window, &warps, &output, 0.0, |value, _, _| sums = sums.and(value));
        let words = |Sums { sum, squares }: Sums| [sum.to_bits(), squares.to_bits()];
        let of = |words: [u32; 2]| {
            let [sum, squares] = words.map(f32::from_bits);
            Sums { sum, squares }
        };
        let sums = of(warps.joined(words(sums), |own, other| words(of(own).with(of(other)))));
        if output.first {
            let source = InMemory { x, window, channel: output.channel };
            let mean =
                sums.mean_of(&Elements { window, source, row: output.row, column: output.column, by_rows: false });
            y.store(output.number, T::from_f32(mean));
        }
    }
}

/// As [`stochastic_pool_inference`], of [whole small planes](crate::wholes).
///
/// # Safety
/// The module's, but for the tiling; the window is such; `x` begins at a multiple of 16 bytes, and the launch is that of `wholes`.
#[kernel(block = wholes::BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_inference_wholes<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    wholes: Wholes,
) {
    let mut sums = Sums::NONE;
    // SAFETY: the caller's; the plane exists, and has one output.
    unsafe {
        let plane = wholes::for_each(x, &window, wholes, |value, _| sums = sums.and(value));
        let sums = wholes.joined(sums, Sums::with_lane);
        if let Some(plane) = plane {
            let source = InMemory { x: x.offset(window.input_plane(plane as u32)), window, channel: 0 };
            let mean = sums.mean_of(&Elements { window, source, row: 0, column: 0, by_rows: false });
            y.store(plane, T::from_f32(mean));
        }
    }
}

/// As [`stochastic_pool_inference`], by [chunks](crate::chunks).
///
/// # Safety
/// The module's, but for the tiling; `x` begins at a multiple of 16 bytes; `chunks` are the window's, with the launch's grid.
#[kernel(block = chunks::BLOCK, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_inference_chunks<T: Lanes>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    chunks: Chunks,
) {
    let mut sums = Sums::NONE;
    // SAFETY: the caller's; the output exists.
    unsafe {
        let output = chunks::for_each(x, &window, &chunks, 0.0, |value, _| sums = sums.and(value));
        let sums = chunks.joined(sums, Sums::with_lane);
        if output.first {
            let source = InMemory { x: x.offset(window.input_plane(output.plane)), window, channel: 0 };
            let mean =
                sums.mean_of(&Elements { window, source, row: output.row, column: output.column, by_rows: false });
            y.store(output.number, T::from_f32(mean));
        }
    }
}
