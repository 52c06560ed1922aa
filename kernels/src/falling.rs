//! Windows of a known size with the channels last, by [packs](crate::packs) of these down strips of outputs: a thread has a pack of two neighbouring columns.
//!
//! Each row of inputs is loaded a few rows before its turn, brought together along x once, and handed on to all windows that are open there, in registers:
//! what outputs below each other share is neither loaded nor brought together twice, and of what columns beside each other share a thread's two
//! load a half. What is further ahead is fetched into the L2 cache, which takes no register.
//!
//! Here windows are summed; [`max_pool`](crate::max_pool) finds their greatest, and Gaussian pooling its parameters' gradients.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use crate::elements::Place;
use crate::packs::{PackWeights, add_each, load_or, put};
use crate::vectors::{LANES, Lanes, Numbers, Words};
use crate::window::{Nhwc, Window};

/// Columns of outputs of a thread.
pub const COLUMNS: u32 = 2;
/// Positions of a window that is summed along an axis, at most.
const MOST: usize = 7;
/// Columns of inputs that a thread's windows cover, at most.
pub(crate) const MOST_WIDE: usize = wide(MOST, 2);
/// Rows on their way, at most.
const MOST_AHEAD: usize = 3;
/// Rows after those on their way that are fetched into the L2 cache.
const FAR: u32 = 3;

/// Columns of inputs that a thread's windows cover.
pub(crate) const fn wide(size: usize, stride: usize) -> usize {
    size + (COLUMNS as usize - 1) * stride
}

/// Windows over a row, at most.
pub(crate) const fn open(size: usize, stride: usize) -> usize {
    size.div_ceil(stride)
}

/// Rows on their way: less takes fewer registers, and a row of larger windows more time.
pub(crate) const fn ahead(size: usize) -> usize {
    match size {
        0..=3 => 3,
        4..=7 => 2,
        _ => 1,
    }
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

/// The rows of inputs that a thread's windows cover, one after the other; `WIDE` is as many columns of them as [`wide`] says, or more.
pub(crate) struct Rows<T, const BYTES: usize, const SIZE: usize, const STRIDE: usize, const WIDE: usize> {
    x: Global<T>,
    /// Packs of a pixel, and of a row.
    pixel: u32,
    line: u32,
    /// The row below the last that is inside of each column: one comparison says of row and column whether a pack is there.
    height: [u32; WIDE],
    /// The same of windows of many columns, which have no registers for that: the first column in the image, and how many there are from it on.
    first: u32,
    columns: u32,
    /// Past the last row of the strip's windows that is inside of the image.
    bottom: u32,
    next: u32,
    /// Of the plane's packs, that of the next row that is inside of the image and of the first column, from before the row on where padding is. It goes on
    /// row by row, and not by a product for each: else the compiler keeps an address for each row and column of the loop.
    at: u32,
    /// What a word is outside of the image.
    outside: u32,
}

impl<T: Lanes, const BYTES: usize, const SIZE: usize, const STRIDE: usize, const WIDE: usize>
    Rows<T, BYTES, SIZE, STRIDE, WIDE>
{
    /// Of the strip of `rows` outputs from this thread's place on, if it has one.
    ///
    /// # Safety
    /// [`fall`]'s.
    #[device_inline]
    pub unsafe fn new(x: Global<T>, window: &Window<Nhwc>, (place, rows): (Option<Place>, u32), outside: u32) -> Self {
        let (pixel, line) = (window.channels, window.input_line() as u32);
        let there = place.is_some();
        let Place { plane, row, column, channel } = place.unwrap_or_default();
        let [top, left] =
            [(0, row), (1, column)].map(|(axis, output)| (output * STRIDE as u32).wrapping_sub(window.padding[axis]));
        let bottom = top.wrapping_add((rows - 1) * STRIDE as u32 + SIZE as u32).min(window.input[0]);
        let mut height = [0; WIDE];
        unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] {
            if J < wide(SIZE, STRIDE) && there & (left.wrapping_add(J as u32) < window.input[1]) {
                height[J % WIDE] = bottom;
            }
        });
        let first = left.wrapping_neg();
        let columns = if there { window.input[1] } else { 0 };
        // SAFETY: the plane exists.
        let x = unsafe { x.offset(window.input_plane(plane) * (BYTES / size_of::<T>())) };
        let at = (if (top as i32) < 0 { 0 } else { top })
            .wrapping_mul(line)
            .wrapping_add(left.wrapping_mul(pixel))
            .wrapping_add(channel);
        Self { x, pixel, line, height, first, columns, bottom, next: top, at, outside }
    }

    /// Whether the pack of a row and of a column is in the image.
    #[device_inline]
    fn is_inside(&self, row: u32, column: usize) -> bool {
        if WIDE <= MOST_WIDE {
            row < self.height[column % WIDE]
        } else {
            (column as u32).wrapping_sub(self.first) < if row < self.bottom { self.columns } else { 0 }
        }
    }

    #[device_inline]
    fn place(&self, column: usize) -> u32 {
        self.at.wrapping_add(column as u32 * self.pixel)
    }

    /// Loads the next row.
    ///
    /// # Safety
    /// [`fall`]'s.
    #[device_inline]
    pub unsafe fn load(&mut self) -> [Words; WIDE] {
        let mut packs = [[0; 4]; WIDE];
        unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] { if J < wide(SIZE, STRIDE) {
            // SAFETY: inside of the image where it is loaded.
            packs[J % WIDE] = unsafe {
                load_or::<T, BYTES>(self.x, self.is_inside(self.next, J), self.place(J) as usize, self.outside)
            };
        } });
        let inside = self.next < self.bottom;
        if is_fetched(BYTES, size_of::<T>(), SIZE, STRIDE) {
            // The columns of the thread's own: neighbours fetch the others. `at` says nothing of rows after one above the image.
            let far = if inside { self.next.wrapping_add(FAR) } else { u32::MAX };
            unrolled!(C in [0 1 2 3] { if C < COLUMNS as usize * STRIDE {
                let column = (SIZE / 2 + C) % WIDE;
                let at = self.place(column).wrapping_add(FAR * self.line) as usize * (BYTES / size_of::<T>());
                // SAFETY: likewise.
                unsafe { self.x.prefetch_if(self.is_inside(far, column), at) };
            } });
        }
        self.at = if inside { self.at.wrapping_add(self.line) } else { self.at };
        self.next = self.next.wrapping_add(1);
        packs
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
    let there = place.is_some();
    let Place { plane, row, column, channel } = place.unwrap_or_default();
    let column = column * COLUMNS;
    let place = place.map(|place| Place { column, ..place });
    let (rows, pixel) = (rows.min(window.output[0] - row), window.channels);
    // SAFETY: the caller's.
    let mut inputs = unsafe { Rows::<T, BYTES, SIZE, STRIDE, MOST_WIDE>::new(x, window, (place, rows), 0) };
    let mut coming = [[[0; 4]; MOST_WIDE]; MOST_AHEAD];
    // SAFETY: likewise.
    unrolled!(I in [0 1 2] { if I < ahead { coming[I] = unsafe { inputs.load() }; } });
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
            // SAFETY: likewise.
            coming[ahead - 1] = unsafe { inputs.load() };
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
