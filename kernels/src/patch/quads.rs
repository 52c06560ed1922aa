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

/// Four outputs: their plane, their row and the first one's column.
#[derive(Clone, Copy)]
pub(crate) struct Four {
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

    /// Over the inputs, by two rows of eight for each of `cells`, of windows of 3×3 positions, as [`new`](Self::new): padded by 1, or
    /// without padding. Without, a row has an output less than half as many as inputs, so that its outputs begin anywhere: all are to be a
    /// multiple of four.
    pub fn of_inputs(window: &Window<Nchw>, cells: u32) -> Option<(Self, u32)> {
        let ([_, width], [rows, columns]) = (window.input, window.output);
        let outputs = u64::from(window.planes) * u64::from(rows) * u64::from(columns);
        let fits = match window.padding {
            [0, 0] => (columns + 1) * 2 == width && outputs.is_multiple_of(4) && outputs < 1 << 31,
            [1, 1] => columns * 2 == width,
            _ => false,
        };
        (fits && window.size == [3; 2]).then(|| Self::over_inputs(window, cells))?
    }

    /// As [`of_inputs`](Self::of_inputs), of windows of 2×2 positions without padding.
    pub fn of_inputs_apart(window: &Window<Nchw>, cells: u32) -> Option<(Self, u32)> {
        let fits = window.size == [2; 2] && window.padding == [0; 2] && window.output[1] * 2 == window.input[1];
        fits.then(|| Self::over_inputs(window, cells))?
    }

    fn over_inputs(window: &Window<Nchw>, cells: u32) -> Option<(Self, u32)> {
        let [height, width] = window.input;
        let fits = width.is_multiple_of(2 * EACH);
        fits.then(|| Self::over(window, [height.div_ceil(2 * cells), width / (2 * EACH)]))?
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

    /// Where this thread is.
    #[device_inline]
    pub(crate) fn here(&self) -> Here {
        let number = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
        let there = number < self.count;
        let number = if there { number } else { self.count - 1 };
        let line = self.by_width.divide(number);
        let plane = self.by_height.divide(line);
        Here { there, plane, row: line - plane * self.height, quad: number - line * self.width }
    }

    /// The number of a four among all of them: of a plane of so many rows.
    #[device_inline]
    pub(crate) fn number(&self, height: u32, four: &Four) -> usize {
        let line = four.plane as usize * height as usize + four.row as usize;
        line * self.width as usize + (four.column / EACH) as usize
    }
}

/// Where a thread is: its plane, its rows' number and its place in these. Threads past the last, which are not there, load what another does.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    pub there: bool,
    pub plane: u32,
    pub row: u32,
    pub quad: u32,
}

/// `finish(with, four, rows)` for this thread's outputs, of windows of `SIZE` by `SIZE` positions, two apart and padded by `PADDING`:
/// `rows[i]` is what `of_row(with, eight, beside)` makes of row `i` of the four windows' inputs: of eight of them by pairs, and one beside
/// these, before them with padding and else after them, with the pair `outside` for what is not in the image. `with` is what `before` gives:
/// all threads of the block call that, once, and the loads are on their way then.
///
/// # Safety
/// `x` holds the window's inputs, of 16 bits, and begins at a multiple of 16 bytes; the window is such, and rows are a multiple of eight;
/// outputs are where the thread is.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "functions, each of one step")]
pub(crate) unsafe fn each<W, R: Copy, const SIZE: usize, const PADDING: u32>(
    x: Global<u16>,
    window: &Window<Nchw>,
    Here { there, plane, row, quad }: Here,
    outside: u32,
    before: impl FnOnce() -> W,
    of_row: impl Fn(&W, [u32; 4], u32) -> R,
    finish: impl Fn(&W, Four, [R; SIZE]),
) {
    let row = row * DOWN;
    // What is before the image wraps round to far after it.
    let top = (row * 2).wrapping_sub(PADDING);
    let eights = window.input[1] / (2 * EACH);
    let beside = if PADDING > 0 { quad > 0 } else { quad + 1 < eights };
    // One comparison says of row and column whether the element beside is there: the row is below its column's height.
    let height_beside = if beside { window.input[0] } else { 0 };
    let rows = plane as isize * window.input[0] as isize + top.cast_signed() as isize;
    let begin = rows * eights as isize + quad as isize;
    // All loads first.
    let mut loaded = [([outside; 4], outside); ROWS];
    unrolled!(I in [0 1 2 3 4] {
        if I < SIZE + 2 {
            let row = top.wrapping_add(I as u32);
            let eight = (begin + I as isize * eights as isize).cast_unsigned();
            // SAFETY: of the image where they are loaded, and rows are a multiple of eight.
            unsafe {
                let words = x.cast::<u32>();
                let outsides = Vec4::splat(outside);
                loaded[I].0 = words.load4_if(row < window.input[0], eight.wrapping_mul(4), outsides).to_array();
                if SIZE > 2 {
                    let first = eight.wrapping_mul(8);
                    let at = if PADDING > 0 { first.wrapping_sub(1) } else { first.wrapping_add(8) };
                    loaded[I].1 = u32::from(x.load_if(row < height_beside, at, outside as u16));
                }
            }
        }
    });
    let with = before();
    if !there {
        return;
    }
    let of = |i: usize| of_row(&with, loaded[i].0, loaded[i].1);
    let of = [of(0), of(1), of(2), of(3), of(4)];
    let rows_from = |first: usize| {
        let mut rows = [of[0]; SIZE];
        unrolled!(I in [0 1 2] { if I < SIZE { rows[I] = of[first + I]; } });
        rows
    };
    let four = Four { plane, row, column: quad * EACH };
    finish(&with, four, rows_from(0));
    if row + 1 < window.output[0] {
        finish(&with, Four { row: row + 1, ..four }, rows_from(2));
    }
}

/// Of a row of inputs, as [`each`] gives it, those of the first two windows and of the other two, by pairs at each column.
#[device_inline]
pub(crate) fn columns<const SIZE: usize, const PADDING: u32>([a, b, c, d]: [u32; 4], beside: u32) -> [[u32; SIZE]; 2] {
    let (lower, upper) = (integer::bytes::<0x5410>, integer::bytes::<0x7632>);
    let (even, odd) = ([lower(a, b), lower(c, d)], [upper(a, b), upper(c, d)]);
    let columns = if PADDING > 0 {
        [[integer::bytes::<0x7610>(beside, a), upper(b, c)], even, odd]
    } else {
        [even, odd, [lower(b, c), lower(d, beside)]]
    };
    let mut inputs = [[0; SIZE]; 2];
    unrolled!(J in [0 1 2] {
        if J < SIZE { [inputs[0][J], inputs[1][J]] = columns[J]; }
    });
    inputs
}

/// Outputs that give to a thread's inputs: the number of the first of a row's four whose window begins among these, its row and its column.
#[derive(Clone, Copy)]
pub(crate) struct Giving {
    pub output: usize,
    pub row: u32,
    pub column: u32,
}

/// The inputs of this thread, two rows of eight for each of one or two `CELLS`, of windows of 3×3 positions padded by `PADDING`:
/// `load(inside, beside, from)` of the outputs of a row that give to them, which are there if `inside`, as the output beside the four is if
/// `beside`: after them with padding, else before them. `dx` is what `give` makes of those of two rows, by pairs, with what `before` gives: all
/// threads of the block call that, once, and the loads are on their way then.
///
/// # Safety
/// `dx` holds the window's inputs, of 16 bits, and begins at a multiple of 16 bytes; `quads` are of the window's inputs by so many cells.
#[device_inline]
pub(crate) unsafe fn gather<W, R: Copy, const PADDING: u32, const CELLS: usize>(
    dx: GlobalMut<u32>,
    window: &Window<Nchw>,
    quads: &Quads,
    load: impl Fn(bool, bool, Giving) -> R,
    before: impl FnOnce() -> W,
    give: impl Fn(&W, [R; 2]) -> [[u32; 4]; 2],
) {
    let Here { there, plane, row, quad } = quads.here();
    let (cell, column) = (row * CELLS as u32, quad * EACH);
    let [height, width] = window.output;
    let beside = if PADDING > 0 { column + EACH < width } else { column > 0 };
    let of_row = |row: u32| {
        let output = (plane as usize * height as usize + row as usize) * width as usize + column as usize;
        let inside = row < height;
        load(inside, inside & beside, Giving { output, row, column })
    };
    // What is before the image wraps round to far after it.
    let first = cell.wrapping_add(PADDING).wrapping_sub(1);
    let [above, here] = [of_row(first), of_row(first.wrapping_add(1))];
    let below = if CELLS > 1 { of_row(first.wrapping_add(2)) } else { here };
    let loaded = [above, here, below];
    let with = before();
    if !there {
        return;
    }
    let line = plane as usize * window.input[0] as usize + 2 * cell as usize;
    let octet = line * quads.width as usize + quad as usize;
    unrolled!(C in [0 1] {
        if C < CELLS {
            let rows = give(&with, [loaded[C], loaded[C + 1]]);
            unrolled!(R in [0 1] {
                let (down, octet) = (2 * C + R, octet + (2 * C + R) * quads.width as usize);
                // SAFETY: the row is there, and rows are a multiple of eight.
                unsafe { dx.store4_if(2 * cell + (down as u32) < window.input[0], octet * 4, Vec4::from(rows[R])) };
            });
        }
    });
}

/// Of a row of outputs that begins anywhere, the one before this and this one, the next two, and the fourth one in the lower half: by the
/// words that have them. Of another row or past the last are those that are not there.
///
/// # Safety
/// `from` begins at a multiple of four bytes and holds `count` outputs, an even number below 2³¹; this one is among them if it is `inside`.
#[device_inline]
pub(crate) unsafe fn from_before(from: Global<u32>, inside: bool, count: u32, output: usize) -> [u32; 3] {
    let before = (output as u32).wrapping_sub(1);
    // The word of the element before the first is past the last, for it wraps round.
    let first = (before.cast_signed() >> 1).cast_unsigned();
    let word = |k: u32| {
        let at = first.wrapping_add(k);
        // SAFETY: a word that exists.
        unsafe { from.load_if(inside & (at < count / 2), at as usize, 0) }
    };
    let [a, b, c] = [word(0), word(1), word(2)];
    let shifted = |a: u32, b: u32| integer::shifted(a, b, before % 2 * 16);
    [shifted(a, b), shifted(b, c), shifted(c, 0)]
}
