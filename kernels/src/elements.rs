//! Windows by elements: a thread takes an element of a plane, or a few one below the other, straight from memory, in either order of memory.
//!
//! No input is kept for a neighbour but in the caches; elements one below the other share the rows that their windows have in common, which are
//! summed along x once. For windows that share little along a row, and for channels that are no whole vectors.

use cuda_std::prelude::*;

use crate::band::any::steps_inside;
use crate::window::{Divider, Nhwc, Window};

/// Elements of each of two rows that are loaded before the first of them is used, in most kernels; and at most.
pub(crate) const AHEAD: usize = 4;
const MOST_AHEAD: usize = 8;

/// How threads are laid over the elements of planes: images, of which row-major ones have a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    threads: u32,
    /// Rows of a thread, one below the other.
    rows: u32,
    /// Threads of a plane, and of so many rows of it.
    of_plane: u32,
    of_line: u32,
    by_plane: Divider,
    by_line: Divider,
    by_channels: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Elements {}

/// What a thread has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub plane: u32,
    /// The first of its rows.
    pub row: u32,
    pub column: u32,
    pub channel: u32,
}

impl Elements {
    /// Over the window's planes of this height and width in pixels, none of which is zero, and the blocks of so many threads; `None` where there
    /// are too many to count.
    pub fn new(window: &Window<Nhwc>, [height, width]: [u32; 2], rows: u32, block: u32) -> Option<(Self, u32)> {
        let of_line = width.checked_mul(window.channels)?;
        let of_plane = of_line.checked_mul(height.div_ceil(rows))?;
        let threads = of_plane.checked_mul(window.planes).filter(|&threads| threads < 1 << 30)?;
        let [by_plane, by_line, by_channels] = [of_plane, of_line, window.channels].map(Divider::new);
        let elements = Self { threads, rows, of_plane, of_line, by_plane, by_line, by_channels };
        Some((elements, threads.div_ceil(block)))
    }

    /// This thread's place, if it has one, in a launch of blocks of so many.
    #[device_inline]
    pub(crate) fn place(&self, block: u32, channels: u32) -> Option<Place> {
        self.nth(thread::block_idx_x() * block + thread::thread_idx_x(), channels)
    }

    /// The channel that the first thread of the block has, of so many, in a launch of blocks of so many.
    #[device_inline]
    pub(crate) fn first_channel(&self, block: u32, channels: u32) -> u32 {
        let number = thread::block_idx_x() * block;
        number - self.by_channels.divide(number) * channels
    }

    /// The place of that number, if there is one.
    #[device_inline]
    pub(crate) fn nth(&self, number: u32, channels: u32) -> Option<Place> {
        if number >= self.threads {
            return None;
        }
        let plane = self.by_plane.divide(number);
        let number = number - plane * self.of_plane;
        let line = self.by_line.divide(number);
        let number = number - line * self.of_line;
        let column = self.by_channels.divide(number);
        Some(Place { plane, row: line * self.rows, column, channel: number - column * channels })
    }
}

/// The sums of two rows from `begin` to before `end`, as far as these are there, `AHEAD` elements of each at a time, weighted for each of `MAPS` maps.
#[device_inline]
pub(crate) fn along_two<T: Storage, const MAPS: usize, const AHEAD: usize>(
    [begin, end]: [u32; 2],
    there: [bool; 2],
    load: impl Fn(usize, bool, u32) -> T,
    weight: impl Fn(usize, u32) -> f32,
) -> [[f32; MAPS]; 2] {
    let mut sums = [[0.0; MAPS]; 2];
    let mut j = begin;
    while j < end {
        let mut values = [[T::from_f32(0.0); MOST_AHEAD]; 2];
        unrolled!(I in [0 1] {
            unrolled!(K in [0 1 2 3 4 5 6 7] { if K < AHEAD {
                let j = j + K as u32;
                values[I][K] = load(I, there[I] & (j < end), j);
            } });
        });
        unrolled!(K in [0 1 2 3 4 5 6 7] { if K < AHEAD {
            // What is past the last, of zeros, has its weight.
            let j = if j + (K as u32) < end { j + K as u32 } else { end - 1 };
            unrolled!(M in [0 1 2] {
                if M < MAPS {
                    let weight = weight(M, j);
                    unrolled!(I in [0 1] { sums[I][M] = float::fma(weight, values[I][K].to_f32(), sums[I][M]); });
                }
            });
        } });
        j += AHEAD as u32;
    }
    sums
}

/// The weighted sums of a thread's outputs, `ROWS` one below the other, of each of `MAPS` maps: the function gives a map's weights along y and, after
/// those, along x. `AHEAD` elements of each of two rows are on their way at a time.
///
/// # Safety
/// `x` holds the window's inputs; the place is that of outputs.
#[device_inline]
pub(crate) unsafe fn sums<T: Storage, const ROWS: usize, const MAPS: usize, const AHEAD: usize>(
    x: Global<T>,
    window: &Window<Nhwc>,
    Place { plane, row, column, channel }: Place,
    weight: impl Fn(usize, u32) -> f32,
) -> [[f32; MAPS]; ROWS] {
    let mut sums = [[0.0; MAPS]; ROWS];
    let (pixel, line) = (window.channels as usize, window.input_line());
    let (size, stride, padding) = (window.size[0], window.stride[0], window.padding[0]);
    let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
    // Of the rows that the outputs' windows have together, from the first window's first on, those inside of the image.
    let begin = row * stride;
    let below = (window.output[0] - row).min(ROWS as u32) - 1;
    let first = padding.saturating_sub(begin);
    let end = (below * stride + size).min(window.input[0] + padding - begin);
    // SAFETY: the plane and the channel exist.
    let x = unsafe { x.offset(window.input_plane(plane) + channel as usize) };
    let mut i = first;
    while i < end {
        let load = |below: usize, there: bool, j: u32| {
            let row = (begin + i + below as u32).wrapping_sub(padding) as usize;
            // SAFETY: inside of the image where it is loaded.
            unsafe { x.load_if(there, row * line + left.wrapping_add(j) as usize * pixel, T::from_f32(0.0)) }
        };
        let there = [true, i + 1 < end];
        let weight_x = |map, j| weight(map, size + j);
        let along = along_two::<T, MAPS, AHEAD>(steps_inside(window, 1, column), there, load, weight_x);
        unrolled!(I in [0 1] {
            unrolled!(R in [0 1 2 3] {
                if R < ROWS {
                    let position = (i + I as u32).wrapping_sub(R as u32 * stride);
                    if there[I] & (position < size) {
                        unrolled!(M in [0 1 2] {
                            if M < MAPS {
                                sums[R][M] = float::fma(weight(M, position), along[I][M], sums[R][M]);
                            }
                        });
                    }
                }
            });
        });
        i += 2;
    }
    sums
}
