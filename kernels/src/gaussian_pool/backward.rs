//! Backward: the input's gradient, and with it the sums that the parameters' gradients are made of.

use cuda_std::prelude::*;

use super::{
    BLOCK, Geometry, PITCH, ROUNDS, SUMS, TILE_ROWS, Tile, add_weighted, dot, each, get_if, get_sums, put_sums,
    sum_along_y,
};
use crate::elementwise::put;

/// Columns of `dy` that one block takes at a time.
pub const BACKWARD_COLUMNS: u32 = 64;
/// Elements in shared memory of one kind of sums along y.
pub(super) const BACKWARD_SHARED: u32 = BACKWARD_COLUMNS * PITCH;

const _: () = assert!(BLOCK / BACKWARD_COLUMNS * SUMS as u32 == TILE_ROWS);

/// `dx = sum over Gaussians and windows that cover the pixel of weight * dy + beta * dx`. A block takes a tile of the
/// input, of which a grid of one dimension has `planes * tiles`.
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` as many of the output for each of `kernels`, `weights_y` and `weights_x` the
/// tables of [`gaussian_pool_weights`](super::gaussian_pool_weights) without derivatives.
#[kernel(block = BLOCK, min_blocks = 6, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_backward<T: Storage>(
    dy: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
) {
    let shared = shared_array![f32; BACKWARD_SHARED as usize].handle();
    // SAFETY: the indices are those of entries of one element.
    let weights = |table: Global<f32>, i: usize| unsafe { [table.load(i)] };
    // SAFETY: passed on.
    unsafe {
        tile::<T, 1>(dy, [weights_y, weights_x], 1, weights, None, Some(dx), dx_beta, &geometry, shared, |_, _| {});
    }
}

/// One tile of the backward pass, with `W` tables of weights in an entry of `entry` elements, which `weights` loads: the
/// weights, and for `W = 3` their derivatives by mean and variance. Then `x` is there, and `done` is called for each
/// Gaussian, by all threads, with its number among those of the plane and the thread's part of the sums of `x * dw * dy`, by `mu_y`, `mu_x`, `var_y` and `var_x`.
///
/// # Safety
/// As [`gaussian_pool_backward`]; `shared` holds [`BACKWARD_SHARED`] elements for each table.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "what two kernels take, and how they differ")]
pub(super) unsafe fn tile<T: Storage, const W: usize>(
    dy: Global<T>,
    tables: [Global<f32>; 2],
    entry: u32,
    weights: impl Fn(Global<f32>, usize) -> [f32; W] + Copy,
    x: Option<Global<T>>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    geometry: &Geometry,
    shared: Shared<f32>,
    done: impl Fn(u32, [f32; 4]),
) {
    let [vertical, horizontal] = geometry.axes;
    let tile = Tile::of_block(geometry);
    let first_gaussian = geometry.first_gaussian(tile.plane);
    let (image, output) = (vertical.image * horizontal.image, vertical.output * horizontal.output);
    let plane = tile.plane as usize * image as usize;

    // Along y: this thread's column of dy, and its rows of the tile with the windows that cover them.
    let column = thread::thread_idx_x() % BACKWARD_COLUMNS;
    let first_sum = thread::thread_idx_x() / BACKWARD_COLUMNS * SUMS as u32;
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
        let gaussian = (first_gaussian + kernel) as usize;
        // SAFETY: the tables hold all cases of each Gaussian; dy has a plane for each Gaussian of each plane.
        let (weights_y, weights_x, dy) = unsafe {
            (
                tables[0].offset(gaussian * (vertical.cases * vertical.size * entry) as usize),
                tables[1].offset(gaussian * (horizontal.cases * horizontal.size * entry) as usize),
                dy.offset((tile.plane as usize * geometry.kernels as usize + kernel as usize) * output as usize),
            )
        };
        let mut moments = [0.0; 4];
        let mut part = columns.0;
        while part < columns.1 {
            let load = |row: u32, _: usize| {
                let inside = row < rows.1 && part + column < columns.1;
                // SAFETY: loaded only where row and column are in the output.
                unsafe { get_if(dy, inside, row.wrapping_mul(horizontal.output).wrapping_add(part + column) as usize) }
            };
            let position = |row: u32| (first_row + vertical.padding).wrapping_sub(row.wrapping_mul(vertical.stride));
            let along_y = sum_along_y::<1, W>(
                rows,
                vertical.size,
                load,
                (position, 1),
                // Rows past the end have a zero for dy; any vector does for them.
                |row, _| vertical.case(row.min(vertical.output - 1)) * vertical.size,
                |i| weights(weights_y, (i * entry) as usize),
            );
            for (w, [sums]) in along_y.iter().enumerate() {
                // SAFETY: there are BACKWARD_SHARED elements for each table; each thread has a column and rows of its own.
                unsafe { put_sums(shared.offset(w as u32 * BACKWARD_SHARED), column, first_sum, sums) };
            }
            thread::sync_threads();

            each!(round in 0 1: if let Some((ix, band)) = geometry.item(round, part)
                && tile.column + ix < horizontal.image
            {
                let (from, to) = horizontal.covering(tile.column + ix, 1);
                let (from, to) = (from.max(part), to.min(part + BACKWARD_COLUMNS));
                let padded = tile.column + ix + horizontal.padding;
                let mut pixels = [0.0; SUMS];
                if let Some(x) = x {
                    each!(t in 0 1 2 3 4 5 6 7: {
                        let row = tile.row + band + t as u32;
                        let at = plane + row.wrapping_mul(horizontal.image).wrapping_add(tile.column + ix) as usize;
                        // SAFETY: loaded only where row and column are in the image.
                        pixels[t] = unsafe { get_if(x, row < vertical.image, at) };
                    });
                }
                let mut window = from;
                while window < to {
                    let position = padded - window * horizontal.stride;
                    let vector = horizontal.case(window) * horizontal.size;
                    let weights = weights(weights_x, ((vector + position) * entry) as usize);
                    // SAFETY: the windows of this part have been written for each table, before the barrier.
                    let values = |w: u32| unsafe {
                        get_sums(shared.offset(w * BACKWARD_SHARED), window - part, band)
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
            part += BACKWARD_COLUMNS;
        }
        done(kernel, moments);
    }

    let Some(dx) = dx else { return };
    each!(round in 0 1: if let Some((ix, band)) = geometry.item(round, 0)
        && tile.column + ix < horizontal.image
    {
        each!(t in 0 1 2 3 4 5 6 7: {
            let row = tile.row + band + t as u32;
            if row < vertical.image {
                let at = plane + (row * horizontal.image + tile.column + ix) as usize;
                // SAFETY: row and column are in the image; one thread has each.
                unsafe { put(dx, at, gradient[round][t], dx_beta) };
            }
        });
    });
}
