//! Any windows with the channels last, by tiles of inputs that gradients are added up in.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use crate::elements::{Elements, Place};
use crate::packs::{channels, load, place, put};
use crate::vectors::{LANES, Lanes};
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
pub const TILES_BLOCK: u32 = 64;
/// Outputs whose gradients are loaded at once, while those that were loaded before are added up.
pub const BATCH: usize = 4;

/// How threads are laid over tiles of inputs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Tiles of a group of packs, of `rows` by `columns` inputs.
    elements: Elements,
    /// Packs of a group.
    lanes: u32,
    rows: u32,
    columns: u32,
    /// 2¹⁶ over the window's columns, rounded up: times a position, which is less than 2⁸, it is that over them in its upper half.
    by_width: u32,
    by_stride: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Tiles {}

impl Tiles {
    /// Of so many `rows` and `columns`, over groups of so many packs, of a window over packs; and the blocks of a group. `None` where there are too many to
    /// count.
    pub fn new(window: &Window<Nhwc>, lanes: u32, [rows, columns]: [u32; 2]) -> Option<(Self, u32)> {
        let of_group = Window { channels: lanes, ..*window };
        let tiles = [window.input[0], window.input[1].div_ceil(columns)];
        let (elements, blocks) = Elements::new(&of_group, tiles, rows, TILES_BLOCK)?;
        let (by_width, by_stride) = ((1_u32 << 16).div_ceil(window.size[1]), window.stride.map(Divider::new));
        Some((Self { elements, lanes, rows, columns, by_width, by_stride }, blocks))
    }
}

/// A thread's way over the outputs whose windows are over its tile, row by row.
#[derive(Clone, Copy)]
struct Outputs {
    row: u32,
    column: u32,
    first_column: u32,
    /// The last of each.
    last: [u32; 2],
}

impl Outputs {
    /// On by a batch.
    #[device_inline]
    fn next(self) -> Self {
        let (row, column) = (self.row, self.column + BATCH as u32);
        if column > self.last[1] {
            Self { row: row + 1, column: self.first_column, ..self }
        } else {
            Self { column, ..self }
        }
    }
}

/// What a batch of outputs gives: words of gradients, and of indices, which name no position where there is no output.
#[derive(Clone, Copy)]
struct Given {
    dy: [u32; BATCH],
    positions: [u32; BATCH],
}

/// As [`route_backward`](super::route_backward), by packs of 2 or 4 bytes of channels and tiles of inputs.
///
/// A thread has a pack of a tile: a strip of rows of a few columns. It goes over the outputs whose windows are over these, in their order, and adds each
/// gradient where its index says, to sums in shared memory that no other thread has; a row of inputs that no window to come is over is written, and its
/// sums are another's. So a gradient is added once, however many windows are over an input, and at a tile's edges a second time.
///
/// Bound by instructions, suspected, some thirty for each gradient: windows of 3×3 to 7×7 one apart on 64×64×112×112 0.60 to 0.45 of the copy rate in f32 on an
/// H200, 0.50 to 0.31 in 16 bits.
///
/// # Safety
/// As [`route_backward`](super::route_backward)'s, but for the tiling. The tensors are what `window` says, whose channels are packs of `BYTES` bytes, fewer
/// than 2³¹ in a plane; it has no dilation and fewer than 256 positions, and is no smaller than windows are apart. `tiles` are its [`Tiles`], with their
/// grid for each group of packs; shared memory has for each thread a sum for each channel of a pack of each column of a tile, as often as the window has rows.
#[kernel(
    block = TILES_BLOCK,
    min_blocks = 8,
    instances((T, BYTES) = [(f32, 4), (f16, 2), (f16, 4), (bf16, 2), (bf16, 4)])
)]
pub unsafe fn route_backward_tiles<T: Lanes, const BYTES: usize>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nhwc>,
    tiles: Tiles,
) {
    let Tiles { elements, lanes, rows, columns, by_width, by_stride } = tiles;
    let Some(Place { plane, row, column, channel }) = place(&window, elements, TILES_BLOCK, lanes) else { return };
    let each = channels::<T>(BYTES);
    let (pixel, column) = (window.channels, column * columns);
    let [height, width] = window.size;
    // The rows and columns of the tile.
    let rows = rows.min(window.input[0] - row);
    let columns_here = columns.min(window.input[1] - column);
    // SAFETY: the plane exists.
    let (dy, indices, dx) = unsafe {
        let [to, from] = [window.input_plane(plane), window.output_plane(plane)].map(|packs| packs * each as usize);
        (dy.offset(from), indices.offset(from), dx.offset(to))
    };
    // The first and the last output whose windows are over so many inputs from the first on.
    let over = |axis: usize, first: u32, count: u32| {
        let (size, by_stride) = (window.size[axis], by_stride[axis]);
        let padded = first + window.padding[axis];
        let begin = if padded < size { 0 } else { by_stride.divide(padded - size) + 1 };
        [begin, by_stride.divide(padded + count - 1).min(window.output[axis] - 1)]
    };
    let [[first_row, last_row], [first_column, last_column]] = [over(0, row, rows), over(1, column, columns_here)];
    let mut here = Outputs { row: first_row, column: first_column, first_column, last: [last_row, last_column] };
    let line = window.output[1] * pixel;
    let load = |outputs: Outputs| {
        let mut given = Given { dy: [0; BATCH], positions: [0; BATCH] };
        let first = outputs.row * line + outputs.column * pixel + channel;
        unrolled!(K in [0 1 2 3] {
            let is = (outputs.row <= last_row) & (outputs.column + K as u32 <= last_column);
            let at = (first + K as u32 * pixel) as usize;
            // SAFETY: the output exists where it is loaded.
            unsafe {
                given.dy[K] = load::<T, BYTES>(dy, is, at)[0];
                given.positions[K] = if each == 1 {
                    u32::from(indices.load_if(is, at, u8::MAX))
                } else {
                    u32::from(indices.cast::<u16>().load_if(is, at, u16::MAX))
                };
            }
        });
        given
    };
    // This thread's sums of a tile's row, of which there are as many as the window has; they come round.
    // SAFETY: each thread has such.
    let sums = unsafe { dynamic_shared::<f32>().offset(thread::thread_idx_x()) };
    let of_column = each * TILES_BLOCK;
    let of_line = columns * of_column;
    let all = height * of_line;
    let round = |at: u32| at.min(at.wrapping_sub(all));
    let sum =
        |line: u32, column: u32, lane: u32| column.wrapping_mul(of_column).wrapping_add(line + lane * TILES_BLOCK);
    let mut top = (first_row * window.stride[0]).wrapping_sub(window.padding[0]);
    let first_left = (first_column * window.stride[1]).wrapping_sub(window.padding[1]).wrapping_sub(column);
    let mut left = first_left;
    // Sums of the first row of the windows of the outputs, and of the next row of inputs that is to be written.
    let (mut top_line, mut line_to_write, mut to_write) = (0, row.wrapping_sub(top) * of_line, row);
    for line in 0..height {
        for column in 0..columns_here {
            unrolled!(E in [0 1] { if E < each as usize {
                // SAFETY: this thread's.
                unsafe { sums.store(sum(line * of_line, column, E as u32), 0.0) };
            } });
        }
    }
    let mut coming = load(here);
    loop {
        let is_last = here.row > last_row;
        if here.column == first_column {
            // Rows above the windows to come have all that they get.
            let end = if is_last || (top as i32) > (row + rows) as i32 { row + rows } else { top };
            while (to_write as i32) < end as i32 {
                for column_ in 0..columns_here {
                    let mut numbers = [0.0; LANES];
                    unrolled!(E in [0 1] { if E < each as usize {
                        let at = sum(line_to_write, column_, E as u32);
                        // SAFETY: this thread's.
                        unsafe {
                            numbers[E] = sums.load(at);
                            sums.store(at, 0.0);
                        }
                    } });
                    let to = (to_write * window.input[1] + column + column_) * pixel + channel;
                    // SAFETY: the input exists, and is this thread's.
                    unsafe { put::<T, BYTES>(dx, to as usize, numbers, beta) };
                }
                to_write += 1;
                line_to_write = round(line_to_write + of_line);
            }
        }
        if is_last {
            return;
        }
        let (given, next) = (coming, here.next());
        coming = load(next);
        // Of the windows' rows, the first that is one of the tile's, and how many are from there on.
        let first = if (top as i32) < row as i32 { row.wrapping_sub(top) } else { 0 };
        let count = (row + rows).wrapping_sub(top).min(height).wrapping_sub(first);
        unrolled!(K in [0 1 2 3] {
            let numbers = T::numbers([given.dy[K], 0, 0, 0]);
            unrolled!(E in [0 1] { if E < each as usize {
                let position = (given.positions[K] >> (8 * E as u32)) & 0xff;
                let i = (position * by_width) >> 16;
                let column = left.wrapping_add(K as u32 * window.stride[1]).wrapping_add(position);
                let column = column.wrapping_add(i.wrapping_mul(width.wrapping_neg()));
                let is = (i.wrapping_sub(first) < count) & (column < columns_here);
                let at = sum(round(top_line + i * of_line), column, E as u32);
                // SAFETY: this thread's, where it is one.
                unsafe {
                    let before = sums.load_if(is, at, 0.0);
                    sums.store_if(is, at, before + numbers[E]);
                }
            } });
        });
        left = left.wrapping_add(BATCH as u32 * window.stride[1]);
        if next.row != here.row {
            left = first_left;
            top = top.wrapping_add(window.stride[0]);
            top_line = round(top_line + window.stride[0] * of_line);
        }
        here = next;
    }
}
