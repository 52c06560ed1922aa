//! Backward: the input's gradient, and with it the sums that the parameters' gradients are made of.

use cuda_std::prelude::*;

use super::{
    BLOCK, Geometry, ROUNDS, SUMS, Threads, Tile, add_weighted, column_threads, dot, each, get_if, pitch, sum_along_y,
};
use crate::elementwise::put;

/// Elements in shared memory of one kind of sums along y.
pub(super) const BACKWARD_SHARED: u32 = backward_columns(false, 1) * pitch(false);

// Lanes have fewer columns in the same proportion.
const _: () = assert!(backward_columns(true, 1) * pitch(true) <= BACKWARD_SHARED);

/// Columns of `dy` that one block takes at a time.
pub const fn backward_columns(nhwc: bool, lanes: u32) -> u32 {
    column_threads(nhwc, lanes)
}

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`. A block takes a tile of the
/// input, of which a grid of one dimension has one for each plane, or with `NHWC` for each group of channels of each image.
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` as many of the output for each of `kernels`, `weights_y` and `weights_x` the
/// tables of [`gaussian_pool_weights`](super::gaussian_pool_weights) without derivatives.
#[kernel(block = BLOCK, min_blocks = 6, instances(T = [f32, f16, bf16], NHWC = [false, true]))]
pub unsafe fn gaussian_pool_backward<T: Storage, const NHWC: bool>(
    dy: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
) {
    let shared = shared_array![f32; BACKWARD_SHARED as usize].handle();
    // SAFETY: the indices are those of entries, of one element.
    let weights = |table: Global<f32>, i: usize| unsafe { [table.load(i)] };
    let (tables, dx) = ([weights_y, weights_x], Some(dx));
    // SAFETY: passed on.
    unsafe { tile::<T, NHWC, 1>(dy, tables, 1, weights, None, dx, dx_beta, &geometry, shared, |_, _, _| {}) };
}

/// One tile of the backward pass, with `W` tables of weights in entries of `size` elements, of which `weights` loads one:
/// the weights, and for `W = 3` their derivatives by mean and variance. Then `x` is there, and `done` is called for each
/// Gaussian, by all threads, with the tile, its number among those of the plane and the thread's part of the sums of
/// `x * dw * dy`, by `mu_y`, `mu_x`, `var_y` and `var_x`.
///
/// # Safety
/// As [`gaussian_pool_backward`]; `shared` holds [`BACKWARD_SHARED`] elements for each table.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "what two kernels take, and how they differ")]
pub(super) unsafe fn tile<T: Storage, const NHWC: bool, const W: usize>(
    dy: Global<T>,
    tables: [Global<f32>; 2],
    size: usize,
    weights: impl Fn(Global<f32>, usize) -> [f32; W] + Copy,
    x: Option<Global<T>>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    geometry: &Geometry,
    shared: Shared<f32>,
    done: impl Fn(&Tile, u32, [f32; 4]),
) {
    let [vertical, horizontal] = geometry.axes;
    let (threads, tile) = (Threads::<NHWC>::new(geometry), Tile::of_block::<NHWC>(geometry, 0));
    let step = geometry.entry_step(NHWC);

    // Along y: this thread's column of dy, and its rows of the tile with the windows that cover them.
    let (column, first_sum) = threads.source();
    let first_row = tile.row + first_sum;
    let rows = if first_row < vertical.image {
        vertical.covering(first_row, (SUMS as u32).min(vertical.image - first_row))
    } else {
        (0, 0)
    };
    // The windows that cover any of the tile's columns.
    let columns = horizontal.covering(tile.column, geometry.tile_columns.min(horizontal.image - tile.column));

    let mut gradient = [[0.0; SUMS]; ROUNDS];
    for kernel in 0..geometry.kernels {
        let output = [vertical.output, horizontal.output];
        // Not kept over the loop: registers are few.
        let tile_again = Tile::of_block::<NHWC>(geometry, kernel);
        let set = tile_again.set::<NHWC>(geometry);
        let pixels_of_dy = tile_again.pixels::<NHWC>(geometry, output, kernel, geometry.kernels);
        // SAFETY: the tables hold all cases of each Gaussian; dy has a plane for each Gaussian of each plane.
        let (weights_y, weights_x, dy) = unsafe {
            (
                tables[0].offset(geometry.first_entry(NHWC, &vertical, set, kernel) * size),
                tables[1].offset(geometry.first_entry(NHWC, &horizontal, set, kernel) * size),
                dy.offset(pixels_of_dy.first),
            )
        };
        let mut moments = [0.0; 4];
        let mut part = columns.0;
        while part < columns.1 {
            let load = |row: u32, _: usize| {
                let inside = row < rows.1 && part + column < columns.1;
                // SAFETY: loaded only where row and column are in the output.
                unsafe { get_if(dy, inside, pixels_of_dy.at(row, part + column)) }
            };
            let position = |row: u32| (first_row + vertical.padding).wrapping_sub(row.wrapping_mul(vertical.stride));
            let along_y = sum_along_y::<1, W>(
                rows,
                vertical.size,
                load,
                (position, 1),
                // Rows past the end have a zero for dy; any vector does for them.
                |row, _| vertical.case(row.min(vertical.output - 1)) * vertical.size * step,
                |vector, position| weights(weights_y, (vector + position * step) as usize),
            );
            for (w, [sums]) in along_y.iter().enumerate() {
                // SAFETY: there are BACKWARD_SHARED elements for each table; each thread has a column and rows of its own.
                unsafe { threads.put_sums(shared.offset(w as u32 * BACKWARD_SHARED), column, first_sum, sums) };
            }
            thread::sync_threads();

            each!(round in 0 1: if let Some((ix, band)) = threads.item(geometry, round, part)
                && tile.column + ix < horizontal.image
            {
                let (from, to) = horizontal.covering(tile.column + ix, 1);
                let (from, to) = (from.max(part), to.min(part + threads.columns()));
                let padded = tile.column + ix + horizontal.padding;
                let mut pixels = [0.0; SUMS];
                if let Some(x) = x {
                    let tile = Tile::of_block::<NHWC>(geometry, part);
                    let pixels_of_x = tile.pixels::<NHWC>(geometry, [vertical.image, horizontal.image], 0, 1);
                    each!(t in 0 1 2 3 4 5 6 7: {
                        let row = tile.row + band + t as u32;
                        let at = pixels_of_x.first + pixels_of_x.at(row, tile.column + ix);
                        // A row that no window covers is no term: its NaN times the zeros summed for it would be one.
                        let counts = row < vertical.image && vertical.is_covered(row);
                        // SAFETY: loaded only where row and column are in the image.
                        pixels[t] = unsafe { get_if(x, counts, at) };
                    });
                }
                let mut window = from;
                while window < to {
                    let position = padded - window * horizontal.stride;
                    let vector = horizontal.case(window) * horizontal.size;
                    let weights = weights(weights_x, ((vector + position) * step) as usize);
                    // SAFETY: the windows of this part have been written for each table, before the barrier.
                    let values = |w: u32| unsafe {
                        threads.get_sums(shared.offset(w * BACKWARD_SHARED), window - part, band)
                    };
                    let by_weight = values(0);
                    add_weighted(&mut gradient[round], weights[0], &by_weight);
                    if W == 3 {
                        // x times the derivative of a weight by a parameter of either axis, times dy: the sum over these
                        // rows first, since the factor along x is the same for them.
                        let along_y = [dot(&pixels, &by_weight), dot(&pixels, &values(1)), dot(&pixels, &values(2))];
                        moments[0] = float::fma(weights[0], along_y[1], moments[0]);
                        moments[1] = float::fma(weights[1 % W], along_y[0], moments[1]);
                        moments[2] = float::fma(weights[0], along_y[2], moments[2]);
                        moments[3] = float::fma(weights[2 % W], along_y[0], moments[3]);
                    }
                    window += 1;
                }
            });
            thread::sync_threads();
            part += threads.columns();
        }
        done(&Tile::of_block::<NHWC>(geometry, kernel), kernel, moments);
    }

    let Some(dx) = dx else { return };
    let tile = Tile::of_block::<NHWC>(geometry, geometry.kernels);
    let pixels_of_x = tile.pixels::<NHWC>(geometry, [vertical.image, horizontal.image], 0, 1);
    each!(round in 0 1: if let Some((ix, band)) = threads.item(geometry, round, 0)
        && tile.column + ix < horizontal.image
    {
        each!(t in 0 1 2 3 4 5 6 7: {
            let row = tile.row + band + t as u32;
            if row < vertical.image && tile.present {
                let at = pixels_of_x.first + pixels_of_x.at(row, tile.column + ix);
                // SAFETY: row and column are in the image; one thread has each.
                unsafe { put(dx, at, gradient[round][t], dx_beta) };
            }
        });
    });
}
