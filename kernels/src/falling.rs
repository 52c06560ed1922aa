//! Windows of a known size with the channels last, by [packs](crate::packs) of these down strips of outputs: a thread has a pack of two neighbouring columns.
//!
//! Each row of inputs is loaded a few rows before its turn, summed along x once, and added to all windows that are open there, whose sums are in
//! registers: what outputs below each other share is neither loaded nor summed twice, and of what columns beside each other share a thread's two
//! load a half. What is further ahead is fetched into the L2 cache, which takes no register.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use crate::elements::Place;
use crate::packs::{PackWeights, add_each, load, put};
use crate::vectors::{LANES, Lanes, Numbers};
use crate::window::{Nhwc, Window};

/// Columns of outputs of a thread.
pub const COLUMNS: u32 = 2;
/// Positions of a window along an axis, at most.
const MOST: usize = 7;
/// Columns of inputs that a thread's windows cover, at most.
const MOST_WIDE: usize = wide(MOST, 2);
/// Rows on their way, at most.
const MOST_AHEAD: usize = 3;
/// Rows after those on their way that are fetched into the L2 cache.
const FAR: u32 = 3;

/// Columns of inputs that a thread's windows cover.
const fn wide(size: usize, stride: usize) -> usize {
    size + (COLUMNS as usize - 1) * stride
}

/// Windows over a row, at most.
const fn open(size: usize, stride: usize) -> usize {
    size.div_ceil(stride)
}

/// Rows on their way: less takes fewer registers, and a row of larger windows more time.
const fn ahead(size: usize) -> usize {
    if size == 3 { 3 } else { 2 }
}

/// Whether what is further ahead is fetched, of windows two apart for four columns, where that takes less time.
const fn is_fetched(bytes: usize, element: usize, size: usize, stride: usize) -> bool {
    stride == 1 || bytes <= 4 && bytes / element * size <= 10
}

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers for its sums, its weights, of each channel's own or of all, and what is
/// on its way.
pub const fn blocks(bytes: usize, element: usize, size: usize, stride: usize, apiece: bool) -> u32 {
    let several = bytes > element;
    match (size, stride) {
        (3, _) if bytes > 4 && element < 4 && apiece => 4,
        (3, _) => 5,
        (5, 1) if bytes <= 4 => 5,
        (5, _) if bytes <= 4 && !(several && apiece) => 5,
        _ => 4,
    }
}

/// `y` = what `finish` makes of the windows' sums by the weights along x and y, down the strip of `rows` outputs from this thread's `place` on, if it has
/// one. `weights` are asked for once, by all threads of the block, after their first loads are on their way.
///
/// # Safety
/// `x` and `y` are what `window` says, whose channels are packs of `BYTES` bytes, fewer than 2³¹ in a plane of `x`, and whose windows are `SIZE` by
/// `SIZE` and `STRIDE` apart both ways; the place is the first of a pair of columns of outputs, counted in pairs, and of the strip's rows.
#[device_inline]
pub(crate) unsafe fn fall<T: Lanes, const BYTES: usize, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nhwc>,
    (place, rows): (Option<Place>, u32),
    weights: impl FnOnce() -> PackWeights,
    finish: impl Fn(Numbers) -> Numbers,
) {
    let (wide, ahead) = (wide(SIZE, STRIDE), ahead(SIZE));
    let (pixel, line) = (window.channels, window.input_line() as u32);
    let there = place.is_some();
    let Place { plane, row, column, channel } = place.unwrap_or_default();
    let column = column * COLUMNS;
    let [top, left] =
        [(0, row), (1, column)].map(|(axis, output)| (output * STRIDE as u32).wrapping_sub(window.padding[axis]));
    let rows = rows.min(window.output[0] - row);
    // Past the last row of the strip's windows that is inside of the image.
    let bottom = top.wrapping_add((rows - 1) * STRIDE as u32 + SIZE as u32).min(window.input[0]);
    // One comparison says of row and column whether a pack is there: the row is below its column's height.
    let mut height = [0; MOST_WIDE];
    unrolled!(J in [0 1 2 3 4 5 6 7 8] {
        if J < wide && there & (left.wrapping_add(J as u32) < window.input[1]) { height[J] = bottom; }
    });
    // SAFETY: the plane exists.
    let x = unsafe { x.offset(window.input_plane(plane) * (BYTES / size_of::<T>())) };
    // Of the plane's packs, that of the next row that is inside of the image and of the first column, from before the row on where padding is. It goes on
    // row by row, and not by a product for each: else the compiler keeps an address for each row and column of the loop below.
    let mut at = (if (top as i32) < 0 { 0 } else { top })
        .wrapping_mul(line)
        .wrapping_add(left.wrapping_mul(pixel))
        .wrapping_add(channel);
    let mut next = top;
    let mut load_row = || {
        let place = |column: usize| at.wrapping_add(column as u32 * pixel);
        let mut packs = [[0; 4]; MOST_WIDE];
        unrolled!(J in [0 1 2 3 4 5 6 7 8] { if J < wide {
            // SAFETY: inside of the image where it is loaded.
            packs[J] = unsafe { load::<T, BYTES>(x, next < height[J], place(J) as usize) };
        } });
        let inside = next < bottom;
        if is_fetched(BYTES, size_of::<T>(), SIZE, STRIDE) {
            // The columns of the thread's own: neighbours fetch the others. `at` says nothing of rows after one above the image.
            let far = if inside { next.wrapping_add(FAR) } else { u32::MAX };
            unrolled!(C in [0 1 2 3] { if C < COLUMNS as usize * STRIDE {
                let column = (SIZE / 2 + C) % MOST_WIDE;
                let at = place(column).wrapping_add(FAR * line) as usize * (BYTES / size_of::<T>());
                // SAFETY: likewise.
                unsafe { x.prefetch_if(far < height[column], at) };
            } });
        }
        at = if inside { at.wrapping_add(line) } else { at };
        next = next.wrapping_add(1);
        packs
    };
    let mut coming = [[[0; 4]; MOST_WIDE]; MOST_AHEAD];
    unrolled!(I in [0 1 2] { if I < ahead { coming[I] = load_row(); } });
    let [by_y, by_x] = weights();
    if !there {
        return;
    }
    let both = column + 1 < window.output[1];
    // Of the outputs, the one whose window the next is that ends, and its number in the strip: at first such as are above it.
    let before = (SIZE - 1) / STRIDE;
    let mut ended = 0_u32.wrapping_sub(before as u32);
    let mut to = (window.output_plane(plane) + column as usize * pixel as usize + channel as usize)
        .wrapping_add(row as usize * window.output_line())
        .wrapping_sub(before * window.output_line());
    // Of the windows that are open, as they come round.
    let mut sums = [[[0.0; LANES]; COLUMNS as usize]; MOST];
    let period = open(SIZE, STRIDE) * STRIDE;
    while (ended as i32) < rows as i32 {
        unrolled!(I in [0 1 2 3 4 5 6 7] { if I < period {
            let packs = coming[0];
            unrolled!(A in [0 1] { if A + 1 < ahead { coming[A] = coming[A + 1]; } });
            coming[ahead - 1] = load_row();
            let mut along = [[0.0; LANES]; COLUMNS as usize];
            unrolled!(J in [0 1 2 3 4 5 6 7 8] { if J < wide {
                let numbers = T::numbers(packs[J]);
                unrolled!(C in [0 1] { if J >= C * STRIDE && J < C * STRIDE + SIZE {
                    along[C] = add_each::<T, BYTES>(along[C], by_x[J.wrapping_sub(C * STRIDE)], numbers);
                } });
            } });
            unrolled!(W in [0 1 2 3 4 5 6] { if W < open(SIZE, STRIDE) {
                let position = (I + period).wrapping_sub(W * STRIDE) % period;
                if position < SIZE {
                    unrolled!(C in [0 1] {
                        let sum = if position == 0 { [0.0; LANES] } else { sums[W][C] };
                        sums[W][C] = add_each::<T, BYTES>(sum, by_y[position % MOST], along[C]);
                    });
                }
                if position + 1 == SIZE {
                    if ended < rows {
                        // SAFETY: the output exists, and is this thread's.
                        unsafe { put::<T, BYTES>(y, to, finish(sums[W][0]), 0.0) };
                        if both {
                            // SAFETY: likewise.
                            unsafe { put::<T, BYTES>(y, to + pixel as usize, finish(sums[W][1]), 0.0) };
                        }
                    }
                    ended = ended.wrapping_add(1);
                    to = to.wrapping_add(window.output_line());
                }
            } });
        } });
    }
}
