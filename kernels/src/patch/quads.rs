//! Row-major images of 16 bits whose rows are a multiple of eight elements: four windows of each of two rows a thread, two windows [at
//! once](cuda_std::arch::sm_80::pairs), straight from memory.
//!
//! A row of four windows is 16 bytes and the element beside them; rows that threads share are in the cache. There is no shared
//! memory and no barrier, and threads beside each other have outputs beside each other, from one row to the next and one plane
//! to the next, so that none is idle and what is under way at a time lies together.

use cuda_std::prelude::*;

use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Windows of a thread in a row.
pub const EACH: u32 = 4;
/// Rows of windows of a thread.
const DOWN: u32 = 2;
/// Rows of inputs of a thread, at most.
const ROWS: usize = 5;

/// How threads are laid over outputs, by fours.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quads {
    count: u32,
    width: u32,
    height: u32,
    by_width: Divider,
    by_height: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Quads {}

/// Four outputs: their number among fours, their plane, their row and the first one's column.
#[derive(Clone, Copy)]
pub(crate) struct Four {
    pub number: usize,
    pub plane: u32,
    pub row: u32,
    pub column: u32,
}

impl Quads {
    /// Over the window's outputs, and the blocks of the launch. None where windows are not two apart or are
    /// dilated, rows no multiple of eight elements or outputs not half as many, or there are too many.
    pub fn new(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let ([_, input], [height, output]) = (window.input, window.output);
        let fits = input.is_multiple_of(2 * EACH) && output * 2 == input;
        fits.then(|| Self::over(window, [height.div_ceil(DOWN), output / EACH]))?
    }

    /// Over the inputs, by two rows of eight, of windows of 3×3 positions, as [`new`](Self::new): padded by 1, or without padding.
    /// Without, a row has an output less than half as many as inputs, so that its outputs begin anywhere: all are to be a multiple of
    /// four.
    pub fn of_inputs(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let ([height, width], [rows, columns]) = (window.input, window.output);
        let outputs = u64::from(window.planes) * u64::from(rows) * u64::from(columns);
        let fits = match window.padding {
            [0, 0] => (columns + 1) * 2 == width && outputs.is_multiple_of(4) && outputs < 1 << 31,
            [1, 1] => columns * 2 == width,
            _ => false,
        };
        let fits = fits && window.size == [3; 2] && width.is_multiple_of(2 * EACH);
        fits.then(|| Self::over(window, [height.div_ceil(2), width / (2 * EACH)]))?
    }

    /// None where windows are not two apart or are dilated, or there are too many.
    fn over(window: &Window<Nchw>, [height, width]: [u32; 2]) -> Option<(Self, u32)> {
        if window.stride != [2; 2] || window.dilation != [1; 2] {
            return None;
        }
        let count = u64::from(window.planes) * u64::from(height) * u64::from(width);
        let count = u32::try_from(count).ok().filter(|&count| count < 1 << 31)?;
        let [by_width, by_height] = [width, height].map(Divider::new);
        Some((Self { count, width, height, by_width, by_height }, count.div_ceil(BLOCK)))
    }

    /// This thread's plane, its row and its place in that; none for threads past the last.
    #[device_inline]
    fn place(&self) -> Option<[u32; 3]> {
        let number = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
        if number >= self.count {
            return None;
        }
        let line = self.by_width.divide(number);
        let plane = self.by_height.divide(line);
        Some([plane, line - plane * self.height, number - line * self.width])
    }
}

/// `finish(four, rows)` for this thread's outputs, of windows of `SIZE` by `SIZE` positions, two apart and padded by `PADDING`:
/// `rows[i]` is what `of_row` makes of row `i` of the four windows' inputs, which it gets as the first two windows' and the
/// other two's pairs at each column, with the pair `outside` for what is not in the image.
///
/// # Safety
/// `x` holds the window's inputs, of 16 bits, and begins at a multiple of 16 bytes; the window is such; `quads` are of it.
#[device_inline]
pub(crate) unsafe fn each<R: Copy, const SIZE: usize, const PADDING: u32>(
    x: Global<u16>,
    window: &Window<Nchw>,
    quads: &Quads,
    outside: u32,
    of_row: impl Fn([[u32; SIZE]; 2]) -> R,
    finish: impl Fn(Four, [R; SIZE]),
) {
    let Some([plane, row, quad]) = quads.place() else { return };
    let row = row * DOWN;
    // What is before the image wraps round to far after it.
    let top = (row * 2).wrapping_sub(PADDING);
    let left = quad * (2 * EACH);
    let before = PADDING > 0;
    let beside = if before { left.wrapping_sub(1) } else { left + 2 * EACH };
    // One comparison says of row and column whether the element beside is there: the row is below its column's height.
    let height_beside = if beside < window.input[1] { window.input[0] } else { 0 };
    let rows = plane as isize * window.input[0] as isize + top.cast_signed() as isize;
    let begin = rows * window.input[1] as isize + left as isize;
    // All loads first.
    let mut loaded = [([outside; 4], outside); ROWS];
    unrolled!(I in [0 1 2 3 4] {
        if I < SIZE + 2 {
            let row = top.wrapping_add(I as u32);
            let at = (begin + I as isize * window.input[1] as isize).cast_unsigned();
            // SAFETY: of the image where they are loaded, and rows are a multiple of eight.
            unsafe {
                let words = x.cast::<u32>();
                loaded[I].0 = words.load4_if(row < window.input[0], at / 2, Vec4::splat(outside)).to_array();
                if SIZE > 2 {
                    let at = if before { at.wrapping_sub(1) } else { at.wrapping_add(2 * EACH as usize) };
                    loaded[I].1 = u32::from(x.load_if(row < height_beside, at, outside as u16));
                }
            }
        }
    });
    let row_of = |i: usize| {
        let ([a, b, c, d], beside) = loaded[i];
        let (lower, upper) = (integer::bytes::<0x5410>, integer::bytes::<0x7632>);
        let (even, odd) = ([lower(a, b), lower(c, d)], [upper(a, b), upper(c, d)]);
        let columns = if before {
            [[integer::bytes::<0x7610>(beside, a), upper(b, c)], even, odd]
        } else {
            [even, odd, [lower(b, c), lower(d, beside)]]
        };
        let mut inputs = [[outside; SIZE]; 2];
        unrolled!(J in [0 1 2] {
            if J < SIZE { [inputs[0][J], inputs[1][J]] = columns[J]; }
        });
        of_row(inputs)
    };
    let of = [row_of(0), row_of(1), row_of(2), row_of(3), row_of(4)];
    let rows_from = |first: usize| {
        let mut rows = [of[0]; SIZE];
        unrolled!(I in [0 1 2] { if I < SIZE { rows[I] = of[first + I]; } });
        rows
    };
    let number = (plane as usize * window.output[0] as usize + row as usize) * quads.width as usize + quad as usize;
    let column = quad * EACH;
    finish(Four { number, plane, row, column }, rows_from(0));
    if row + 1 < window.output[0] {
        finish(Four { number: number + quads.width as usize, plane, row: row + 1, column }, rows_from(2));
    }
}

/// Outputs that give to a thread's inputs: the number of the first of a row's four whose window begins among these, its row and its column.
#[derive(Clone, Copy)]
pub(crate) struct Giving {
    pub output: usize,
    pub row: u32,
    pub column: u32,
}

/// The inputs of this thread, two rows of eight, of windows of 3×3 positions padded by `PADDING`: `load(inside, beside, from)` of the
/// outputs of two rows that give to them, which are there if `inside`, as the output beside the four is if `beside`: after them with
/// padding, else before them. `dx` is what `give` makes of these, by pairs.
///
/// # Safety
/// `dx` holds the window's inputs, of 16 bits, and begins at a multiple of 16 bytes; `quads` are of the window's inputs.
#[device_inline]
pub(crate) unsafe fn gather<R, const PADDING: u32>(
    dx: GlobalMut<u32>,
    window: &Window<Nchw>,
    quads: &Quads,
    load: impl Fn(bool, bool, Giving) -> R,
    give: impl Fn([R; 2]) -> [[u32; 4]; 2],
) {
    let Some([plane, cell, quad]) = quads.place() else { return };
    let [height, width] = window.output;
    let column = quad * EACH;
    let beside = if PADDING > 0 { column + EACH < width } else { column > 0 };
    let of_row = |row: u32| {
        let output = (plane as usize * height as usize + row as usize) * width as usize + column as usize;
        let inside = row < height;
        load(inside, inside & beside, Giving { output, row, column })
    };
    // What is before the image wraps round to far after it.
    let first = cell.wrapping_add(PADDING).wrapping_sub(1);
    let rows = give([of_row(first), of_row(first.wrapping_add(1))]);
    let line = plane as usize * window.input[0] as usize + 2 * cell as usize;
    let octet = line * quads.width as usize + quad as usize;
    // SAFETY: the cell's first row is there, and rows are a multiple of eight.
    unsafe {
        dx.store4(octet * 4, Vec4::from(rows[0]));
        let below = octet + quads.width as usize;
        dx.store4_if(2 * cell + 1 < window.input[0], below * 4, Vec4::from(rows[1]));
    }
}
