//! Forward.

use cuda_std::prelude::*;

use super::{
    BLOCK, Geometry, PITCH, ROUNDS, SUMS, TILE_ROWS, Tile, add_weighted, divide, each, get_if, get_sums, put_sums,
    sum_along_y,
};

/// Columns of the image that one block takes at a time.
pub const FORWARD_COLUMNS: u32 = 128;
/// Columns that a thread sums along y at once.
const COLUMNS_PER_THREAD: usize = 2;
/// Threads that have different columns.
const COLUMN_THREADS: u32 = FORWARD_COLUMNS / COLUMNS_PER_THREAD as u32;
/// The largest stride by which columns are regrouped.
const MAX_GROUPS: u32 = 8;
/// Places for columns in shared memory: each group's are rounded up.
const PLACES: u32 = FORWARD_COLUMNS + MAX_GROUPS;

const _: () = assert!(BLOCK / COLUMN_THREADS * SUMS as u32 == TILE_ROWS);

/// How columns are laid out in shared memory.
///
/// Adjacent windows read columns that are a stride apart. Column `c` stands in group `c % groups` at `c / groups`, with as
/// many groups as the stride, so that these are adjacent and fall into different banks.
#[derive(Clone, Copy)]
struct Layout {
    groups: u32,
    /// Places of a group.
    length: u32,
}

impl Layout {
    #[inline(always)]
    fn new(stride: u32) -> Self {
        let groups = if stride <= MAX_GROUPS { stride } else { 1 };
        Self { groups, length: divide(FORWARD_COLUMNS + groups - 1, groups).0 }
    }

    /// The group and the place of a column.
    #[inline(always)]
    fn find(self, column: u32) -> (u32, u32) {
        let (within, group) = divide(column, self.groups);
        (group, group * self.length + within)
    }

    /// Those of the next column.
    #[inline(always)]
    fn next(self, (group, place): (u32, u32)) -> (u32, u32) {
        if group + 1 == self.groups { (0, place + 1 - group * self.length) } else { (group + 1, place + self.length) }
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. A block takes a tile of the output, of which a
/// grid of one dimension has `planes * tiles`.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `kernels`, `weights_y` and `weights_x` the tables of
/// [`gaussian_pool_weights`](super::gaussian_pool_weights) without derivatives.
#[kernel(block = BLOCK, min_blocks = 6, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward<T: Storage>(
    x: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
) {
    let shared = shared_array![f32; (PLACES * PITCH) as usize].handle();
    let [vertical, horizontal] = geometry.axes;
    let tile = Tile::of_block(&geometry);
    let layout = Layout::new(horizontal.stride);
    let first_gaussian = geometry.first_gaussian(tile.plane);
    let (image, output) = (vertical.image * horizontal.image, vertical.output * horizontal.output);
    // SAFETY: the plane exists.
    let x = unsafe { x.offset(tile.plane as usize * image as usize) };

    // Along y: this thread's columns, and its rows of the tile with their windows.
    let column = thread::thread_idx_x() % COLUMN_THREADS;
    let first_sum = thread::thread_idx_x() / COLUMN_THREADS * SUMS as u32;
    let first_row = tile.row + first_sum;
    let rows = if first_row < vertical.output {
        // Rows of the image from the first window's first on, counted with the padding.
        let last_row = (first_row + SUMS as u32).min(vertical.output) - 1;
        (first_row * vertical.stride, last_row * vertical.stride + vertical.size)
    } else {
        (0, 0)
    };
    // Where the vectors of these rows begin. Rows past the output are summed with another's weights and not stored.
    let mut vectors = [0; SUMS];
    each!(t in 0 1 2 3 4 5 6 7: {
        let row = (first_row + t as u32).min(vertical.output - 1);
        vectors[t] = vertical.case(row) * vertical.size;
    });

    // Columns of the image, counted with the padding, from the first that the tile's windows cover to past the last.
    let begin = tile.column * horizontal.stride;
    let last_column = (tile.column + geometry.tile_columns).min(horizontal.output) - 1;
    let end = last_column * horizontal.stride + horizontal.size;
    for kernel in 0..geometry.kernels {
        let gaussian = (first_gaussian + kernel) as usize;
        // SAFETY: the tables hold all cases of each Gaussian.
        let (weights_y, weights_x) = unsafe {
            (
                weights_y.offset(gaussian * (vertical.cases * vertical.size) as usize),
                weights_x.offset(gaussian * (horizontal.cases * horizontal.size) as usize),
            )
        };
        let mut sums = [[0.0; SUMS]; ROUNDS];
        let mut part = begin;
        while part < end {
            let load = |row: u32, c: usize| {
                let padded = part + column + c as u32 * COLUMN_THREADS;
                let (iy, ix) = (row.wrapping_sub(vertical.padding), padded.wrapping_sub(horizontal.padding));
                let inside = row < rows.1 && iy < vertical.image && padded < end && ix < horizontal.image;
                // SAFETY: loaded only where row and column are in the image.
                unsafe { get_if(x, inside, iy.wrapping_mul(horizontal.image).wrapping_add(ix) as usize) }
            };
            let position = |row: u32| row.wrapping_sub(first_row * vertical.stride);
            let next_window = vertical.stride.wrapping_neg();
            // SAFETY: each of `vectors` is a case of the axis, and positions used are below the size.
            let weight = |i: u32| unsafe { [weights_y.load(i as usize)] };
            let along_y = sum_along_y::<COLUMNS_PER_THREAD, 1>(
                rows,
                vertical.size,
                load,
                (position, next_window),
                |_, t| vectors[t],
                weight,
            );
            for (c, sums) in along_y[0].iter().enumerate() {
                let place = layout.find(column + c as u32 * COLUMN_THREADS).1;
                // SAFETY: places are below PLACES, and each thread has columns and rows of its own.
                unsafe { put_sums(shared, place, first_sum, sums) };
            }
            thread::sync_threads();

            each!(round in 0 1: if let Some((ox, band)) = geometry.item(round, part)
                && tile.column + ox < horizontal.output
            {
                // The window's positions among these columns.
                let window = begin + ox * horizontal.stride;
                let from = part.saturating_sub(window);
                let to = horizontal.size.min((part + FORWARD_COLUMNS).saturating_sub(window));
                let vector = horizontal.case(tile.column + ox) * horizontal.size;
                let mut at = layout.find(window + from - part);
                let mut position = from;
                while position < to {
                    // SAFETY: the table has the case; the columns of this part have been written, before the barrier.
                    let (weight, values) = unsafe {
                        (weights_x.load((vector + position) as usize), get_sums(shared, at.1, band))
                    };
                    add_weighted(&mut sums[round], weight, &values);
                    at = layout.next(at);
                    position += 1;
                }
            });
            thread::sync_threads();
            part += FORWARD_COLUMNS;
        }

        // SAFETY: the plane exists for each Gaussian.
        let y =
            unsafe { y.offset((tile.plane as usize * geometry.kernels as usize + kernel as usize) * output as usize) };
        each!(round in 0 1: if let Some((ox, band)) = geometry.item(round, kernel) {
            let (row, column) = (tile.row + band, tile.column + ox);
            each!(t in 0 1 2 3 4 5 6 7: {
                let inside = row + (t as u32) < vertical.output && column < horizontal.output;
                let at = (row + t as u32).wrapping_mul(horizontal.output).wrapping_add(column);
                // SAFETY: stored only where row and column are in the output; one thread has each.
                unsafe { y.store_if(inside, at as usize, T::from_f32(sums[round][t])) };
            });
        });
    }
}
