//! Small windows of a known size over row-major planes that follow each other: a thread has whole windows in registers.
//!
//! A *piece* is what a thread loads of a window's rows: all of its columns, those of two windows of 2×2 beside each other, or half of one of 8×8.
//! A piece of four columns whose rows begin at multiples of four elements is loaded by vectors. Neighbouring threads have neighbouring
//! pieces. All that a thread loads is under way before any of it is used, there is no shared memory, and nothing waits for another thread:
//! what windows that share little want.

use cuda_std::prelude::*;

use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Rows of a window, at most.
pub const ROWS: usize = 8;
/// Columns of a piece, at most.
pub(crate) const COLUMNS: usize = 7;

/// The elements of a piece.
pub(crate) type Elements<T> = [[T; COLUMNS]; ROWS];

/// Columns of a piece of a window of so many, or of a pair of them.
pub(crate) const fn columns(size: u32, pairs: bool) -> u32 {
    match size {
        2 if pairs => 4,
        8 => 4,
        _ => size,
    }
}

/// Pieces of a window of so many columns.
pub(crate) const fn halves(size: u32) -> u32 {
    size / columns(size, false)
}

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
pub(crate) const fn blocks(size: u32) -> u32 {
    if size >= 7 { 3 } else { 4 }
}

/// The planes that windows are laid over; pairs are `[vertical, horizontal]`, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    /// How many there are.
    pub count: u32,
    /// Height and width of the input.
    pub input: [u32; 2],
    /// Height and width of the output.
    pub output: [u32; 2],
    /// Steps between windows.
    pub stride: [u32; 2],
    /// Padding before the first row and column.
    pub padding: [u32; 2],
}

impl Planes {
    /// Those of a window.
    #[device_inline]
    pub(crate) fn of(window: &Window<Nchw>) -> Self {
        let Window { planes: count, input, output, stride, padding, .. } = *window;
        Self { count, input, output, stride, padding }
    }
}

/// How threads take windows apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Pieces of all planes.
    total: u32,
    /// Whether each row of a piece begins at a multiple of four elements and is in the image whole or not at all.
    vectors: u32,
    /// By the pieces of a row of windows.
    by_pieces: Divider,
    /// By the rows of windows of a plane.
    by_rows: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Pieces {}

/// A piece of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// Whether it is one: the last threads have none.
    pub there: bool,
    pub plane: u32,
    /// Its row of windows.
    pub row: u32,
    /// Its number in that.
    pub number: u32,
}

impl Pieces {
    /// Of square windows of so many columns, or of pairs of 2×2 two apart. None where there are too many to count.
    pub fn new(size: u32, pairs: bool, planes: &Planes) -> Option<Self> {
        let of_row = match size {
            2 if pairs => planes.output[1].div_ceil(2),
            8 => planes.output[1].checked_mul(2)?,
            _ => planes.output[1],
        };
        let limit = i32::MAX as u32 - BLOCK * 8;
        let lines = planes.count.checked_mul(planes.output[0])?;
        let total = lines.checked_mul(of_row).filter(|&total| total <= limit)?;
        let fours = columns(size, pairs) == 4 && (pairs || planes.stride[1].is_multiple_of(4));
        Some(Self {
            total,
            vectors: u32::from(fours && planes.input[1].is_multiple_of(4) && planes.padding[1] == 0),
            by_pieces: Divider::new(of_row),
            by_rows: Divider::new(planes.output[0]),
        })
    }

    /// Pieces of a plane, of such planes.
    pub(crate) fn of_plane(&self, planes: &Planes) -> u32 {
        self.total / planes.count
    }

    /// The plane of a piece.
    #[device_inline]
    pub(crate) fn plane(&self, number: u32) -> u32 {
        self.by_rows.divide(self.by_pieces.divide(number))
    }

    /// Blocks of a launch whose threads take so many.
    pub fn blocks(&self, each: u32) -> u32 {
        self.total.div_ceil(BLOCK * each)
    }

    /// As [`new`](Self::new), of square windows of 2 to [`ROWS`] columns, any steps apart and without dilation; and the blocks of the launch, whose
    /// threads take one.
    pub fn apart(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let size = window.size[1];
        if !(2..=ROWS as u32).contains(&size) || window.size != [size; 2] || window.dilation != [1; 2] {
            return None;
        }
        let pieces = Self::new(size, false, &Planes::of(window))?;
        Some((pieces, pieces.blocks(1)))
    }

    /// Whether pieces are loaded by vectors.
    #[device_inline]
    pub(crate) fn by_vectors(&self) -> bool {
        self.vectors != 0
    }

    /// This thread's piece of a number below `each`, which it takes of them, of those of block `block`.
    #[device_inline]
    pub(crate) fn piece<const SIZE: u32, const PAIRS: bool>(
        &self,
        planes: &Planes,
        block: u32,
        each: usize,
        number: usize,
    ) -> Piece {
        let first = block * BLOCK * each as u32 + thread::thread_idx_x();
        let task = first + number as u32 * BLOCK;
        let line = self.by_pieces.divide(task);
        let plane = self.by_rows.divide(line);
        Piece {
            there: task < self.total,
            plane,
            row: line - plane * planes.output[0],
            number: task - line * pieces_of_row::<SIZE, PAIRS>(planes.output[1]),
        }
    }

    /// The piece's elements, `outside` for those that are not in the image.
    ///
    /// # Safety
    /// `x` holds the planes and begins at a multiple of 16 bytes; this is of their windows' size; `by_vectors` is
    /// [`by_vectors`](Self::by_vectors).
    #[device_inline]
    pub(crate) unsafe fn load<T: Storage, const SIZE: u32, const PAIRS: bool>(
        x: Global<T>,
        planes: &Planes,
        piece: Piece,
        outside: T,
        by_vectors: bool,
    ) -> Elements<T> {
        let [height, width] = planes.input;
        let column = match halves(SIZE) {
            _ if PAIRS => piece.number * 4,
            2 => piece.number / 2 * planes.stride[1] + piece.number % 2 * 4,
            _ => piece.number * planes.stride[1],
        };
        let row = (piece.row * planes.stride[0]).wrapping_sub(planes.padding[0]);
        let column = column.wrapping_sub(planes.padding[1]);
        let at = (piece.plane as usize * height as usize)
            .wrapping_add_signed(row.cast_signed() as isize)
            .wrapping_mul(width as usize)
            .wrapping_add_signed(column.cast_signed() as isize);
        // SAFETY: zero bits are zeros.
        let mut loaded: Elements<T> = unsafe { core::mem::zeroed() };
        if columns(SIZE, PAIRS) == 4 && by_vectors {
            unrolled!(I in [0 1 2 3 4 5 6 7] {
                if (I as u32) < SIZE {
                    let inside = piece.there & (row.wrapping_add(I as u32) < height) & (column < width);
                    let at = at.wrapping_add(I * width as usize);
                    // SAFETY: loaded only where row and columns are in the image, at a multiple of four elements.
                    let row = unsafe { x.load4_if(inside, at, Vec4::splat(outside)) }.to_array();
                    unrolled!(J in [0 1 2 3] { loaded[I][J] = row[J]; });
                }
            });
        } else {
            unrolled!(I in [0 1 2 3 4 5 6 7] {
                if (I as u32) < SIZE {
                    let inside = piece.there & (row.wrapping_add(I as u32) < height);
                    unrolled!(J in [0 1 2 3 4 5 6] {
                        if (J as u32) < columns(SIZE, PAIRS) {
                            let inside = inside & (column.wrapping_add(J as u32) < width);
                            let at = at.wrapping_add(I * width as usize + J);
                            // SAFETY: loaded only where row and column are in the image.
                            loaded[I][J] = unsafe { x.load_if(inside, at, outside) };
                        }
                    });
                }
            });
        }
        loaded
    }
}

/// Pieces of a row of so many windows.
#[device_inline]
const fn pieces_of_row<const SIZE: u32, const PAIRS: bool>(output: u32) -> u32 {
    match SIZE {
        2 if PAIRS => output.div_ceil(2),
        8 => 2 * output,
        _ => output,
    }
}
