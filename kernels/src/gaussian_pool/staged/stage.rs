//! Rows on their way through a block's shared memory.

use cuda_std::arch::sm_80::{cp_async_commit, cp_async16_zero_fill};
use cuda_std::prelude::*;

use super::{LINE, PIECE, Pool};
use crate::gaussian_pool::divide;

/// What a block copies, step by step, and how it lies in a slot of the ring: row by row, column by column.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Rows and columns of an image, and elements of a pixel.
    pub height: u32,
    pub width: u32,
    pub pixel: u32,
    /// The image, its row and its column that are copied first, which wrap where they are before it, and the first element.
    pub image: u32,
    pub top: u32,
    pub left: u32,
    pub element: u32,
    /// Rows of a step, columns of a row in a slot, those of them that are wanted, and lines of 128 bytes of a pixel.
    pub rows: u32,
    pub columns: u32,
    pub wanted: u32,
    pub lines: u32,
    /// Whether pieces of a line are swapped, see [`Pool::SWAPPED`].
    pub swapped: bool,
}

/// What a thread copies of each step: a piece of some columns of one row.
pub(super) struct Copies<T> {
    from_buffer: Global<T>,
    /// Where its first column is, in the row that is next; from one of its columns to the next, and from one step to the next.
    from: usize,
    between: u32,
    step: usize,
    /// That row, which wraps where it is before the image.
    row: u32,
    /// A bit for each column: whether it is in the image, and wanted.
    there: u32,
    /// Where the first goes in a slot.
    to: u32,
    /// Its column; past all for a thread that is one too many.
    column: u32,
    /// Columns from one of its columns to the next.
    apart: u32,
    source: Source,
}

impl<T: Pool> Copies<T> {
    /// Elements of a line, and of a piece.
    const LINE: u32 = LINE / size_of::<T>() as u32;
    const PIECE: u32 = PIECE / size_of::<T>() as u32;

    /// By so many threads. Sizes of a slot are constants.
    #[device_inline]
    pub(super) fn new(from_buffer: Global<T>, source: Source, threads: u32) -> Self {
        let pieces = LINE / PIECE * source.lines;
        let apart = threads / (pieces * source.rows);
        let (rest, piece) = divide(thread::thread_idx_x(), pieces);
        let (column, below) = divide(rest, source.rows);
        let row = source.top.wrapping_add(below);
        let element = source.element + piece * Self::PIECE;
        let wanted = if element < source.pixel { source.wanted } else { 0 };
        let mut there = 0;
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
            let column = column + I as u32 * apart;
            let inside = (column < wanted) & (source.left.wrapping_add(column) < source.width);
            there |= u32::from(inside) << I;
        });
        let line = source.width as usize * source.pixel as usize;
        let from = (source.image as usize * source.height as usize)
            .wrapping_add_signed(row.cast_signed() as isize)
            .wrapping_mul(line)
            .wrapping_add_signed(source.left.wrapping_add(column).cast_signed() as isize * source.pixel as isize)
            .wrapping_add(element as usize);
        let swapped = if source.swapped { piece ^ (column % 8) } else { piece };
        Self {
            from_buffer,
            from,
            between: apart * source.pixel,
            step: source.rows as usize * line,
            row,
            there,
            to: (below * source.columns + column) * source.lines * Self::LINE + swapped * Self::PIECE,
            column: if column < apart { column } else { source.columns },
            apart,
            source,
        }
    }

    /// Begins to copy the next step's rows into a slot, and closes the group.
    ///
    /// # Safety
    /// Nobody reads there; the images are what [`new`](Self::new) was told.
    #[device_inline]
    pub(super) unsafe fn next(&mut self, slot: Shared<T>) {
        let there = if self.row < self.source.height { self.there } else { 0 };
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
            let (beside, columns) = (I as u32 * self.apart, self.source.columns);
            if beside < columns && self.column + beside < columns {
                let valid = (there >> I & 1) * Self::PIECE;
                let (from, to) = (I as u32 * self.between, self.to + beside * self.source.lines * Self::LINE);
                // SAFETY: what is valid is in an image, at a multiple of 16 bytes, as pixels are; the place is the caller's.
                unsafe {
                    cp_async16_zero_fill(slot, to, self.from_buffer, self.from.wrapping_add(from as usize), valid);
                }
            }
        });
        cp_async_commit();
        self.from = self.from.wrapping_add(self.step);
        self.row = self.row.wrapping_add(self.source.rows);
    }
}
