//! Gaussian pooling of row-major images of any width, of 2×2 and 3×3 windows two pixels apart whose weights are the same everywhere
//! and which all planes share: by [bands](crate::band) of rows in shared memory.
//!
//! A thread has the products of the weights along y and x in registers; those along each axis the block's first threads
//! compute while its rows are on their way.
//!
//! Bound by memory; in 16 bits by instructions.

use cuda_std::prelude::*;

use super::patches::{Weights, weights};
use super::weights::Shape;
use crate::band::cells::{self, Given, inputs_of_cells, outputs_of_cells};
use crate::band::slide::slide;
use crate::band::{self, Bands, Span, Staged, Tile, inputs_of, pairs};
use crate::window::{Nchw, Window};

/// How far windows are apart.
const STRIDE: usize = 2;

/// `y` = `x` pooled by one Gaussian, of such windows of `SIZE` by `SIZE` positions, however padded.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, which is such; `mean` holds two and `var` `variances` elements; `bands` are of the
/// window's outputs, with the launch's grid, block and shared memory.
#[kernel(max_threads = band::THREADS, min_blocks = band::FEWER_BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn gaussian_pool_forward_bands<T: Storage, const SIZE: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    // SAFETY: the caller's; all threads come here, and the launch's shared memory is for these rows.
    unsafe {
        let shape = Shape::own([mean, var], variances);
        let staged = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let weights = weights(SIZE as u32, |_| shape);
        band::wait(staged);
        let finish = |output: usize, _: u32, _: u32, rows: [[f32; SIZE]; SIZE]| {
            let mut sum = 0.0;
            unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
                if I < SIZE && J < SIZE { sum = float::fma(weights[I][J], rows[I][J], sum); }
            }); });
            y.store(output, T::from_f32(sum));
        };
        slide::<T, [f32; SIZE], SIZE, STRIDE>(&staged, &window, &bands, 0.0, |values| values, finish);
    }
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, of such windows of `SIZE` by `SIZE` positions padded by `PADDING`.
///
/// # Safety
/// As [`gaussian_pool_forward_bands`]'s, of `dy` and `dx`; `bands` are of the window's cells.
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
    variances: u32,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: the caller's; all threads come here, and the launch's shared memory is for these rows.
    unsafe {
        let (dy, weights) = stage::<T, SIZE, PADDING>(dy, [mean, var], variances, &window, &span);
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
    variances: u32,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: as above.
    unsafe {
        let (dy, weights) = stage::<T, SIZE, PADDING>(dy, [mean, var], variances, &window, &span);
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
    variances: u32,
    window: &Window<Nchw>,
    span: &Span,
) -> (Staged<T>, Weights) {
    let rows = outputs_of_cells::<SIZE, PADDING>(window, span);
    // SAFETY: the caller's.
    unsafe {
        let shape = Shape::own(parameters, variances);
        let dy = Staged::copy(dynamic_shared::<T>(), dy, span, rows, window.output);
        let weights = weights(SIZE, |_| shape);
        band::wait(dy);
        (dy, weights)
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
fn add<const SIZE: u32>(weights: &Weights) -> impl Fn(f32, Given, u32) -> f32 {
    move |sum, given, position| {
        float::fma(weights[(position / SIZE) as usize][(position % SIZE) as usize], given.share, sum)
    }
}
