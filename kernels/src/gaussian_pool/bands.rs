//! Gaussian pooling of row-major images of any width, of 2×2 and 3×3 windows two pixels apart whose weights are the same everywhere
//! in all planes or in all of a channel: by [bands](crate::band) of rows in shared memory.
//!
//! A thread has the products of the weights along y and x in registers; those along each axis the block's threads compute while its rows are on
//! their way ([`Sets`]). Of several Gaussians a map the rows are read once.
//!
//! Bound by memory; in 16 bits by instructions.

use cuda_std::prelude::*;

use super::sets::Sets;
use crate::band::cells::{self, Given, inputs_of_cells, outputs_of_cells};
use crate::band::slide::slide;
use crate::band::{self, Bands, Part, Span, Staged, Tile, inputs_of, least, pairs};
use crate::window::{Nchw, Window};

/// How far windows are apart.
const STRIDE: usize = 2;

/// `y` = `x` pooled by one Gaussian, of such windows of `SIZE` by `SIZE` positions, however padded.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, which is such, `y` of each of a plane's Gaussians; `mean` and `var` are those of `sets`;
/// `bands` are of the window's outputs, with the launch's grid and block, and shared memory for the [weights](Sets::bytes) and the launch's.
#[kernel(max_threads = band::THREADS, min_blocks = band::FEWER_BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn gaussian_pool_forward_bands<T: Storage, const SIZE: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    // SAFETY: the caller's; all threads come here, and the launch's shared memory is for these rows.
    unsafe {
        let rows = inputs_of(&window, &span);
        let (staged, weights) = sets.stage::<_, SIZE>([mean, var], &span, false, |room| {
            Staged::copy(room.cast(), x, &span, rows, window.input)
        });
        // Of threads past the last plane any.
        let plane = least(bands.part(&span).plane, span.depth - 1);
        let mut kernel = 0;
        while kernel < sets.kernels() {
            let weights = weights.load(plane, kernel).products();
            // Outputs of one Gaussian a plane lie before those of several.
            let y = y.offset(window.output_plane((span.first_plane + plane) * (sets.kernels() - 1) + kernel));
            let finish = |output: usize, _: u32, _: u32, rows: [[f32; SIZE]; SIZE]| {
                let mut sum = 0.0;
                unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
                    if I < SIZE && J < SIZE { sum = float::fma(weights[I][J], rows[I][J], sum); }
                }); });
                y.store(output, T::from_f32(sum));
            };
            slide::<T, [f32; SIZE], SIZE, STRIDE>(&staged, &window, &bands, 0.0, |values| values, finish);
            kernel += 1;
        }
    }
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, of such windows of `SIZE` by `SIZE` positions padded by `PADDING`.
///
/// # Safety
/// As [`gaussian_pool_forward_bands`]'s, of `dy` and `dx`, with one Gaussian a plane; `bands` are of the window's cells.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn gaussian_pool_backward_bands<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: the caller's; all threads come here, and the launch's shared memory is for these rows.
    unsafe {
        let (dy, weights) = stage::<T, SIZE, PADDING>(dy, [mean, var], sets, &window, &span, &part);
        let tile = Tile::new(dy.behind(), &span, inputs_of_cells(&window, &span), window.input);
        let given = |inside, plane, row, column| given(&dy, inside, plane, row, column);
        cells::gather::<SIZE, PADDING>(&tile, &window, &bands, &part, given, add::<SIZE>(&weights));
        tile.write_out(dx, beta);
    }
}

/// As [`gaussian_pool_backward_bands`], [two cells a thread](crate::band::pairs).
///
/// # Safety
/// As [`gaussian_pool_backward_bands`]'s; `bands` are of pairs of cells.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn gaussian_pool_backward_pairs<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: as above.
    unsafe {
        let (dy, weights) = stage::<T, SIZE, PADDING>(dy, [mean, var], sets, &window, &span, &part);
        let given = |inside, plane, row, column| given(&dy, inside, plane, row, column);
        let places = (&span, &part);
        pairs::gather::<T, SIZE, PADDING>((dx, beta), &window, &bands, places, given, add::<SIZE>(&weights));
    }
}

/// The rows of outputs that give to the block's cells, once they are there, and the weights.
///
/// # Safety
/// As [`gaussian_pool_backward_bands`]'s; all threads come here, and the launch's shared memory is for these rows.
#[device_inline]
unsafe fn stage<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    parameters: [Global<f32>; 2],
    sets: Sets,
    window: &Window<Nchw>,
    span: &Span,
    part: &Part,
) -> (Staged<T>, [[f32; 3]; 3]) {
    let rows = outputs_of_cells::<SIZE, PADDING>(window, span);
    // SAFETY: the caller's.
    unsafe {
        let copy = |room: Shared<f32>| Staged::copy(room.cast(), dy, span, rows, window.output);
        if SIZE == 2 {
            let (dy, weights) = sets.stage::<_, 2>(parameters, span, false, copy);
            (dy, weights.load(part.plane, 0).products())
        } else {
            let (dy, weights) = sets.stage::<_, 3>(parameters, span, false, copy);
            (dy, weights.load(part.plane, 0).products())
        }
    }
}

/// What the output at this row and column of a band's plane gives, if it is `inside`; else nothing.
///
/// # Safety
/// The band has it where it is inside.
#[device_inline]
unsafe fn given<T: Storage>(dy: &Staged<T>, inside: bool, plane: u32, row: u32, column: u32) -> Given {
    // SAFETY: the caller's.
    let share = unsafe { dy.load_if(inside, dy.place(plane, row, column), T::from_f32(0.0)) }.to_f32();
    Given { share, position: 0 }
}

/// Adds what an output gives to the sum of an input of its window.
#[device_inline]
fn add<const SIZE: u32>(weights: &[[f32; 3]; 3]) -> impl Fn(f32, Given, u32) -> f32 {
    move |sum, given, position| {
        float::fma(weights[(position / SIZE) as usize][(position % SIZE) as usize], given.share, sum)
    }
}
