//! Forward.

use cuda_std::prelude::*;

use super::{
    BLOCK, Geometry, ROUNDS, SUMS, Threads, Tile, add_weighted, column_threads, divide, each, get_if, pitch,
    sum_along_y,
};

/// Columns that a thread sums along y at once.
const COLUMNS_PER_THREAD: u32 = 2;
/// The largest stride by which columns are regrouped.
const MAX_GROUPS: u32 = 8;
/// Columns in shared memory of one lane.
const COLUMNS: u32 = forward_columns(false, 1);
/// Places for them: each group's are rounded up.
const PLACES: u32 = COLUMNS + MAX_GROUPS;
/// Elements in shared memory.
const SHARED: u32 = PLACES * pitch(false);

// Lanes have fewer columns in the same proportion.
const _: () = assert!(forward_columns(true, 1) * pitch(true) <= SHARED);

/// Columns of the image that one block takes at a time.
pub const fn forward_columns(nhwc: bool, lanes: u32) -> u32 {
    COLUMNS_PER_THREAD * column_threads(nhwc, lanes)
}

/// How columns are laid out in shared memory.
///
/// Adjacent windows read columns that are a stride apart. Column `c` stands in group `c % groups` at `c / groups`, with as
/// many groups as the stride, so that these are adjacent and fall into different banks. With lanes there is one group:
/// neighbouring threads read neighbouring lanes.
#[derive(Clone, Copy)]
struct Layout {
    groups: u32,
    /// Places of a group.
    length: u32,
}

impl Layout {
    #[device_inline]
    fn new(nhwc: bool, stride: u32) -> Self {
        let groups = if stride <= MAX_GROUPS && !nhwc { stride } else { 1 };
        Self { groups, length: divide(COLUMNS + groups - 1, groups).0 }
    }

    /// The group and the place of a column.
    #[device_inline]
    fn find(self, column: u32) -> (u32, u32) {
        let (within, group) = divide(column, self.groups);
        (group, group * self.length + within)
    }

    /// Those of the next column.
    #[device_inline]
    fn next(self, (group, place): (u32, u32)) -> (u32, u32) {
        if group + 1 == self.groups { (0, place + 1 - group * self.length) } else { (group + 1, place + self.length) }
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. A block takes a tile of the output, of which a
/// grid of one dimension has one for each plane, or with `NHWC` for each group of channels of each image.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `kernels`, `weights_y` and `weights_x` the tables of
/// [`gaussian_pool_weights`](super::gaussian_pool_weights) without derivatives.
#[kernel(block = BLOCK, min_blocks = 6, instances(T = [f32, f16, bf16], NHWC = [false, true]))]
pub unsafe fn gaussian_pool_forward<T: Storage, const NHWC: bool>(
    x: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
) {
    let shared = shared_array![f32; SHARED as usize].handle();
    let [vertical, horizontal] = geometry.axes;
    let (threads, tile) = (Threads::<NHWC>::new(&geometry), Tile::of_block::<NHWC>(&geometry, 0));
    let layout = Layout::new(NHWC, horizontal.stride);
    let (set, step) = (tile.set::<NHWC>(&geometry), geometry.entry_step(NHWC));
    let pixels = tile.pixels::<NHWC>(&geometry, [vertical.image, horizontal.image], 0, 1);
    // SAFETY: the plane exists.
    let x = unsafe { x.offset(pixels.first) };

    // Along y: this thread's columns, and its rows of the tile with their windows.
    let (column, first_sum) = threads.source();
    let columns = COLUMNS_PER_THREAD * threads.columns();
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
        vectors[t] = vertical.case(row) * vertical.size * step;
    });

    // Columns of the image, counted with the padding, from the first that the tile's windows cover to past the last.
    let begin = tile.column * horizontal.stride;
    let last_column = (tile.column + geometry.tile_columns).min(horizontal.output) - 1;
    let end = last_column * horizontal.stride + horizontal.size;
    for kernel in 0..geometry.kernels {
        // SAFETY: the tables hold all cases of each Gaussian.
        let (weights_y, weights_x) = unsafe {
            (
                weights_y.offset(geometry.first_entry(NHWC, &vertical, set, kernel)),
                weights_x.offset(geometry.first_entry(NHWC, &horizontal, set, kernel)),
            )
        };
        let mut sums = [[0.0; SUMS]; ROUNDS];
        let mut part = begin;
        while part < end {
            let load = |row: u32, c: usize| {
                let padded = part + column + c as u32 * threads.columns();
                let (iy, ix) = (row.wrapping_sub(vertical.padding), padded.wrapping_sub(horizontal.padding));
                let inside = row < rows.1 && iy < vertical.image && padded < end && ix < horizontal.image;
                // SAFETY: loaded only where row and column are in the image.
                unsafe { get_if(x, inside, pixels.at(iy, ix)) }
            };
            let position = |row: u32| row.wrapping_sub(first_row * vertical.stride);
            let next_window = vertical.stride.wrapping_neg();
            // SAFETY: each of `vectors` is a case of the axis, and positions used are below the size.
            let weight = |vector: u32, position: u32| unsafe { [weights_y.load((vector + position * step) as usize)] };
            let along_y = sum_along_y::<{ COLUMNS_PER_THREAD as usize }, 1>(
                rows,
                vertical.size,
                load,
                (position, next_window),
                |_, t| vectors[t],
                weight,
            );
            for (c, sums) in along_y[0].iter().enumerate() {
                let place = layout.find(column + c as u32 * threads.columns()).1;
                // SAFETY: the places are those of as many columns as there is memory for, and each thread has columns and rows of its own.
                unsafe { threads.put_sums(shared, place, first_sum, sums) };
            }
            thread::sync_threads();

            each!(round in 0 1: if let Some((ox, band)) = threads.item(&geometry, round, part)
                && tile.column + ox < horizontal.output
            {
                // The window's positions among these columns.
                let window = begin + ox * horizontal.stride;
                let from = part.saturating_sub(window);
                let to = horizontal.size.min((part + columns).saturating_sub(window));
                let vector = horizontal.case(tile.column + ox) * horizontal.size;
                let mut at = layout.find(window + from - part);
                let mut position = from;
                while position < to {
                    // SAFETY: the table has the case; the columns of this part have been written, before the barrier.
                    let (weight, values) = unsafe {
                        (weights_x.load(((vector + position) * step) as usize), threads.get_sums(shared, at.1, band))
                    };
                    add_weighted(&mut sums[round], weight, &values);
                    at = layout.next(at);
                    position += 1;
                }
            });
            thread::sync_threads();
            part += columns;
        }

        let tile = Tile::of_block::<NHWC>(&geometry, kernel);
        let pixels = tile.pixels::<NHWC>(&geometry, [vertical.output, horizontal.output], kernel, geometry.kernels);
        // SAFETY: the plane exists for each Gaussian.
        let y = unsafe { y.offset(pixels.first) };
        each!(round in 0 1: if let Some((ox, band)) = threads.item(&geometry, round, kernel) {
            let (row, column) = (tile.row + band, tile.column + ox);
            each!(t in 0 1 2 3 4 5 6 7: {
                let row = row + t as u32;
                let inside = row < vertical.output && column < horizontal.output && tile.present;
                // SAFETY: stored only where row and column are in the output; one thread has each.
                unsafe { y.store_if(inside, pixels.at(row, column), T::from_f32(sums[round][t])) };
            });
        });
    }
}
