//! Small windows two apart in row-major images, straight from memory: four outputs a thread.
//!
//! There is no shared memory and no barrier: rows that threads share are in the cache, threads beside each other have outputs
//! beside each other, and the random numbers, which need no memory, are made while the elements are on their way. Blocks are
//! small, and threads have 64 registers.
//!
//! Bound, in 32 bits, by memory; else by the random numbers: 16 wide products of 4 cycles each (docs/perf/log.md).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory};
use super::four::{Draws, Make, Means, Weights};
use super::weights::Weighed;
use crate::patch::quads::EACH;
use crate::window::{Divider, Nchw, Window, for_each_of};

/// Threads of a block.
pub const ROWS_BLOCK: u32 = 128;
/// Such blocks that a multiprocessor has room for, at least: 64 registers a thread. Older GPUs' code spills with as many.
const BLOCKS: u32 = if cfg!(target_feature = "sm_90") { 8 } else { 6 };

/// How threads are laid over outputs, four each.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fours {
    count: u32,
    size: [u32; 2],
    by: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Fours {}

impl Fours {
    /// Four of a row, and the blocks of the launch. None where windows are not two apart or are dilated, rows no
    /// multiple of eight elements or outputs not half as many, without padding each way, or there are too many
    /// outputs.
    pub fn of_a_row(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let ([height, width], [rows, columns]) = (window.input, window.output);
        let fits = width.is_multiple_of(2 * EACH) && columns * 2 == width;
        let whole = window.padding != [0; 2] || rows * 2 == height;
        (fits && whole).then(|| Self::new(window, [1, EACH]))?
    }

    /// Two by two, of images whose rows are a multiple of four elements. None where windows are not two apart and
    /// without padding and whole, or it is not possible otherwise.
    pub fn of_squares(window: &Window<Nchw>) -> Option<(Self, u32)> {
        (window.input[1].is_multiple_of(4) && whole(window)).then(|| Self::new(window, [2, 2]))?
    }

    /// Four of a column, of images of any width; as [`of_squares`](Self::of_squares).
    pub fn of_columns(window: &Window<Nchw>) -> Option<(Self, u32)> {
        whole(window).then(|| Self::new(window, [4, 1]))?
    }

    fn new(window: &Window<Nchw>, each: [u32; 2]) -> Option<(Self, u32)> {
        let [height, width] = window.output;
        if window.stride != [2; 2] || window.dilation != [1; 2] || height < each[0] {
            return None;
        }
        let size = [height.div_ceil(each[0]), width.div_ceil(each[1])];
        let product = |size: [u32; 2]| u64::from(window.planes).checked_mul(u64::from(size[0]) * u64::from(size[1]));
        // Indices of outputs have 32 bits.
        product(window.output).filter(|&outputs| outputs <= 1 << 32)?;
        let count = u32::try_from(product(size)?).ok().filter(|&count| count < 1 << 31)?;
        Some((Self { count, size, by: size.map(Divider::new) }, count.div_ceil(ROWS_BLOCK)))
    }

    /// This thread's number; none for threads past the last.
    #[device_inline]
    fn number(&self) -> Option<u32> {
        let number = thread::block_idx_x() * ROWS_BLOCK + thread::thread_idx_x();
        if number < self.count { Some(number) } else { None }
    }

    /// The plane, the row and the place in that, of a number.
    #[device_inline]
    fn place(&self, number: u32) -> [u32; 3] {
        let line = self.by[1].divide(number);
        let plane = self.by[0].divide(line);
        [plane, line - plane * self.size[0], number - line * self.size[1]]
    }
}

/// Whether every window has all its positions, without padding.
fn whole(window: &Window<Nchw>) -> bool {
    let ends = |axis: usize| (u64::from(window.output[axis]) - 1) * 2 + u64::from(window.size[axis]);
    window.padding == [0; 2] && (0..2).all(|axis| ends(axis) <= window.input[axis].into())
}

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), by fours of a row, for windows of `SIZE` by `SIZE`
/// positions, two apart and padded by `PADDING`.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes; `fours` are [of a
/// row](Fours::of_a_row), with as many blocks.
#[kernel(block = ROWS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 1)]))]
pub unsafe fn stochastic_pool_forward_fours<T: Weighed, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    fours: Fours,
) {
    // SAFETY: the caller's.
    unsafe { of_a_row::<T, SIZE, PADDING>(x, y, &window, &fours, Draws::new(indices, state)) };
}

/// As [`stochastic_pool_forward_fours`], by squares of two by two outputs, without padding.
///
/// # Safety
/// As [`stochastic_pool_forward_fours`]'s, but that `fours` are [squares](Fours::of_squares).
#[kernel(block = ROWS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn stochastic_pool_forward_squares<T: Weighed, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    fours: Fours,
) {
    // SAFETY: the caller's.
    unsafe { of_squares::<T, SIZE>(x, y, &window, &fours, Draws::new(indices, state)) };
}

/// As [`stochastic_pool_forward_squares`], by fours of a column.
///
/// # Safety
/// As [`stochastic_pool_forward_fours`]'s, but that `fours` are [of a column](Fours::of_columns).
#[kernel(block = ROWS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn stochastic_pool_forward_columns<T: Weighed, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    fours: Fours,
) {
    // SAFETY: the caller's.
    unsafe { of_columns::<T, SIZE>(x, y, &window, &fours, Draws::new(indices, state)) };
}

/// As [`stochastic_pool_inference`](super::stochastic_pool_inference), as [`stochastic_pool_forward_fours`].
///
/// # Safety
/// As [`stochastic_pool_forward_fours`]'s.
#[kernel(block = ROWS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 1)]))]
pub unsafe fn stochastic_pool_inference_fours<T: Weighed, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    fours: Fours,
) {
    // SAFETY: the caller's.
    unsafe { of_a_row::<T, SIZE, PADDING>(x, y, &window, &fours, Means) };
}

/// As [`stochastic_pool_inference`](super::stochastic_pool_inference), as [`stochastic_pool_forward_squares`].
///
/// # Safety
/// As [`stochastic_pool_forward_squares`]'s.
#[kernel(block = ROWS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn stochastic_pool_inference_squares<T: Weighed, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    fours: Fours,
) {
    // SAFETY: the caller's.
    unsafe { of_squares::<T, SIZE>(x, y, &window, &fours, Means) };
}

/// As [`stochastic_pool_inference`](super::stochastic_pool_inference), as [`stochastic_pool_forward_columns`].
///
/// # Safety
/// As [`stochastic_pool_forward_columns`]'s.
#[kernel(block = ROWS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn stochastic_pool_inference_columns<T: Weighed, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    fours: Fours,
) {
    // SAFETY: the caller's.
    unsafe { of_columns::<T, SIZE>(x, y, &window, &fours, Means) };
}

/// # Safety
/// As [`stochastic_pool_forward_fours`]'s.
#[device_inline]
unsafe fn of_a_row<T: Weighed, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nchw>,
    fours: &Fours,
    make: impl Make,
) {
    let Some(number) = fours.number() else { return };
    let eights = fours.size[1];
    // Without padding all planes have two rows of inputs to one of outputs: inputs are as far as outputs are.
    let (begin, top, four) = if PADDING == 0 {
        let four = number - fours.by[1].divide(number) * eights;
        ((2 * number - four) as isize, 0, four)
    } else {
        let [plane, row, four] = fours.place(number);
        // What is before the image wraps round to far after it.
        let top = (row * 2).wrapping_sub(PADDING);
        let rows = plane as isize * window.input[0] as isize + top.cast_signed() as isize;
        (rows * eights as isize + four as isize, top, four)
    };
    let height = window.input[0];
    // One comparison says of row and column whether the element before is there: the row is below its column's height.
    let height_before = if four > 0 { height } else { 0 };
    let zero = T::from_f32(0.0);
    let row_of = |i: usize| {
        let row = top.wrapping_add(i as u32);
        let eight = (begin + i as isize * eights as isize).cast_unsigned();
        // SAFETY: of the image where they are loaded, whose rows are eights.
        unsafe {
            let before = x.load_if(PADDING > 0 && row < height_before, eight.wrapping_mul(8).wrapping_sub(1), zero);
            (T::load_eight(x, PADDING == 0 || row < height, eight), before)
        }
    };
    // All loads first.
    let rows = [row_of(0), row_of(1), if SIZE > 2 { row_of(2) } else { row_of(1) }];
    let rows = rows.map(|(eight, before)| {
        let [a, b, c, d, e, f, g, h] = T::of_eight(eight);
        if PADDING > 0 { [before.weight(), a, b, c, d, e, f, g, h] } else { [a, b, c, d, e, f, g, h, 0.0] }
    });
    let weights = windows(|which, i, j| rows[i][2 * which + j]);
    let index = number * EACH;
    let given = make.of_weights::<SIZE>([index, index + 1, index + 2, index + 3], &weights);
    // SAFETY: the outputs exist, and begin at a multiple of four.
    unsafe {
        T::store_four(y, number as usize, given.values);
        make.store_four(number as usize, &given);
        for_each_of(given.again, |which| {
            let [plane, row, four] = fours.place(number);
            let elements = elements_of(x, window, plane, row, four * EACH + which);
            let (position, value) = make.of_elements(index + which, &elements);
            y.store((index + which) as usize, T::from_f32(value));
            make.store((index + which) as usize, position);
        });
    }
}

/// # Safety
/// As [`stochastic_pool_forward_squares`]'s.
#[device_inline]
unsafe fn of_squares<T: Weighed, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nchw>,
    fours: &Fours,
    make: impl Make,
) {
    let Some(number) = fours.number() else { return };
    let [plane, square, across] = fours.place(number);
    let (own, column) = (square * 2, across * 2);
    // Where outputs have an odd number of rows, the last but one is two threads', of which one stores.
    let row = if own + 2 > window.output[0] { window.output[0] - 2 } else { own };
    let second = column + 1 < window.output[1];
    let zero = T::from_f32(0.0);
    let top = plane as usize * window.input[0] as usize + row as usize * 2;
    let width = window.input_line();
    // SAFETY: the windows' rows are of the image.
    let x_here = unsafe { x.offset(top * width + across as usize * 4) };
    let row_of = |i: usize| {
        // SAFETY: rows are a multiple of four; what is beside them is loaded where the second window exists, which has it.
        unsafe {
            let line = x_here.offset(i * width);
            (T::load_four(line), line.load_if(SIZE > 2 && second, 4, zero))
        }
    };
    let last = |i: usize| if i < SIZE + 2 { i } else { SIZE + 1 };
    let rows = [row_of(0), row_of(1), row_of(2), row_of(3), row_of(last(4))];
    let rows = rows.map(|(four, beside)| {
        let [a, b, c, d] = T::of_four(four);
        [a, b, c, d, if SIZE > 2 { beside.weight() } else { 0.0 }]
    });
    let weights = windows(|which, i, j| rows[which / 2 * 2 + i][which % 2 * 2 + j]);
    let line = window.output[1];
    let output = (plane as usize * window.output[0] as usize + row as usize) * line as usize + column as usize;
    let index = output as u32;
    let below = index.wrapping_add(line);
    let given = make.of_weights::<SIZE>([index, index.wrapping_add(1), below, below.wrapping_add(1)], &weights);
    // SAFETY: the outputs exist where they are stored.
    unsafe {
        let at = [output, output + 1, output + line as usize, output + line as usize + 1];
        let there = [row == own, (row == own) & second, true, second];
        // Neighbours one after another, so that they are written together.
        unrolled!(K in [0 1 2 3] { y.store_if(there[K], at[K], T::from_f32(given.values[K])); });
        unrolled!(K in [0 1 2 3] { make.store_if(there[K], at[K], &given, K); });
        for_each_of(given.again, |which| {
            let (below, right) = (which / 2, which % 2);
            if (row + below >= own) & (column + right < line) {
                let at = output + (below * line + right) as usize;
                let elements = elements_of(x, window, plane, row + below, column + right);
                let (position, value) = make.of_elements(at as u32, &elements);
                y.store(at, T::from_f32(value));
                make.store(at, position);
            }
        });
    }
}

/// # Safety
/// As [`stochastic_pool_forward_columns`]'s.
#[device_inline]
unsafe fn of_columns<T: Weighed, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nchw>,
    fours: &Fours,
    make: impl Make,
) {
    let Some(number) = fours.number() else { return };
    let [plane, four, column] = fours.place(number);
    let own = four * EACH;
    // Where outputs have no multiple of four rows, the last are two threads', of which one stores.
    let row = if own + EACH > window.output[0] { window.output[0] - EACH } else { own };
    let top = plane as usize * window.input[0] as usize + row as usize * 2;
    let width = window.input_line();
    // SAFETY: the windows' rows are of the image.
    let x_here = unsafe { x.offset(top * width + column as usize * 2) };
    let row_of = |i: usize| {
        // SAFETY: windows are whole.
        unsafe {
            let line = x_here.offset(i * width);
            [line.load(0), line.load(1), if SIZE > 2 { line.load(2) } else { T::from_f32(0.0) }]
        }
    };
    let last = if SIZE > 2 { 8 } else { 7 };
    let rows = [0, 1, 2, 3, 4, 5, 6, 7, last].map(row_of).map(|row| row.map(T::weight));
    let weights = windows(|which, i, j| rows[2 * which + i][j]);
    let line = window.output[1];
    let output = (plane as usize * window.output[0] as usize + row as usize) * line as usize + column as usize;
    let index = output as u32;
    let indices = [0, 1, 2, 3].map(|which: u32| index.wrapping_add(which.wrapping_mul(line)));
    let given = make.of_weights::<SIZE>(indices, &weights);
    // SAFETY: the outputs exist where they are stored.
    unsafe {
        unrolled!(K in [0 1 2 3] {
            let (is, at) = (row + K as u32 >= own, output + K * line as usize);
            y.store_if(is, at, T::from_f32(given.values[K]));
            make.store_if(is, at, &given, K);
        });
        for_each_of(given.again, |which| {
            if row + which >= own {
                let at = output + (which * line) as usize;
                let elements = elements_of(x, window, plane, row + which, column);
                let (position, value) = make.of_elements(at as u32, &elements);
                y.store(at, T::from_f32(value));
                make.store(at, position);
            }
        });
    }
}

/// Four windows of what is at their positions.
#[device_inline]
pub(super) fn windows<const SIZE: usize>(at: impl Fn(usize, usize, usize) -> f32) -> Weights<SIZE> {
    let mut windows = [[[0.0; SIZE]; SIZE]; 4];
    unrolled!(K in [0 1 2 3] { unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE { windows[K][I][J] = at(K, I, J); }
    }); }); });
    windows
}

/// The window of an output, in memory.
///
/// # Safety
/// The output exists.
#[device_inline]
unsafe fn elements_of<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    plane: u32,
    row: u32,
    column: u32,
) -> Elements<Nchw, InMemory<T, Nchw>> {
    // SAFETY: the plane is one.
    let x = unsafe { x.offset(window.input_plane(plane)) };
    Elements { window: *window, source: InMemory { x, window: *window, channel: 0 }, row, column, by_rows: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_whole_windows_two_apart() {
        let window = |size: u32, input: [u32; 2], output: [u32; 2]| Window::<Nchw> {
            planes: 3,
            channels: 1,
            input,
            output,
            size: [size; 2],
            stride: [2; 2],
            dilation: [1; 2],
            ..Window::default()
        };
        let fits = |window: Window<Nchw>| {
            [Fours::of_a_row(&window), Fours::of_squares(&window), Fours::of_columns(&window)]
                .map(|found| found.is_some())
        };
        assert_eq!(fits(window(2, [8, 16], [4, 8])), [true; 3]);
        // A row of inputs more than outputs cover; a row of windows that are not whole.
        assert_eq!(fits(window(2, [9, 16], [4, 8])), [false, true, true]);
        assert_eq!(fits(window(2, [9, 16], [5, 8])), [false; 3]);
        assert_eq!(fits(window(3, [9, 12], [4, 5])), [false, true, true]);
        assert_eq!(fits(window(3, [9, 13], [4, 6])), [false, false, true]);
        assert_eq!(fits(window(3, [7, 12], [3, 5])), [false, true, false]);
        let padded = Window { padding: [1; 2], ..window(3, [9, 16], [5, 8]) };
        assert_eq!(fits(padded), [true, false, false]);
        assert_eq!(fits(Window { planes: 1 << 30, ..window(2, [8, 16], [4, 8]) }), [false; 3]);
    }
}
