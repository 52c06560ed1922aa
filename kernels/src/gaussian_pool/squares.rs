//! Gaussian pooling forward of row-major images of 3×3 windows two pixels apart whose weights are the same everywhere and which all
//! planes share, straight from memory: two by two outputs a thread.
//!
//! There is no shared memory but for the weights: rows that threads share are in the cache, and threads beside each other have pixels beside
//! each other. A thread has the products of the weights along y and x in registers; those along each axis the block's first threads
//! compute while what all threads load is on its way.
//!
//! Bound by memory: on an H200, f32 on 64×64×112×112, 0.99 of the copy rate; in 16 bits by that and by instructions (docs/perf).

use cuda_std::prelude::*;

use super::patches::weights;
use super::weights::Shape;
use crate::window::{Divider, FEWER_BLOCKS, Nchw, Window};

/// Threads of a block.
pub const SQUARES_BLOCK: u32 = 256;
/// Positions of a window each way.
const SIZE: usize = 3;
/// Columns of inputs that a thread loads at once, and rows of them.
const FOUR: u32 = 4;
const ROWS: usize = 5;

/// How threads are laid over outputs, two by two.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squares {
    count: u32,
    size: [u32; 2],
    by: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Squares {}

impl Squares {
    /// Over the window's outputs, and the blocks of the launch. None where windows are others, are padded by more than 1 or reach
    /// past the end of a row, rows are no multiple of four elements, or there are too many.
    pub fn new(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let ([_, width], [height, columns]) = (window.input, window.output);
        let padding = window.padding[0];
        let end = (u64::from(columns) - 1) * 2 + SIZE as u64;
        let inside = end <= u64::from(width) + u64::from(padding);
        let fits = (window.size, window.stride, window.dilation) == ([SIZE as u32; 2], [2; 2], [1; 2]);
        if !fits || padding > 1 || window.padding[1] != padding || !inside || !width.is_multiple_of(FOUR) {
            return None;
        }
        let size = [height, columns].map(|outputs| outputs.div_ceil(2));
        let lines = u64::from(window.planes) * u64::from(size[0]);
        let count = lines.checked_mul(size[1].into())?;
        let count = u32::try_from(count).ok().filter(|&count| count < 1 << 31)?;
        Some((Self { count, size, by: size.map(Divider::new) }, count.div_ceil(SQUARES_BLOCK)))
    }
}

/// `y` = `x` pooled by one Gaussian, of such windows padded by `PADDING`.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, which is such; `mean` holds two and `var` `variances` elements; `squares` are of the
/// window, with as many blocks.
#[kernel(block = SQUARES_BLOCK, min_blocks = FEWER_BLOCKS, instances(T = [f32, f16, bf16], PADDING = [0, 1]))]
pub unsafe fn gaussian_pool_forward_squares<T: Storage, const PADDING: u32>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    window: Window<Nchw>,
    squares: Squares,
) {
    // SAFETY: the caller's.
    let shape = unsafe { Shape::own([mean, var], variances) };
    let number = thread::block_idx_x() * SQUARES_BLOCK + thread::thread_idx_x();
    // Threads past the last load what the last does.
    let there = number < squares.count;
    let number = if there { number } else { squares.count - 1 };
    let line = squares.by[1].divide(number);
    let plane = squares.by[0].divide(line);
    let (row, column) = ((line - plane * squares.size[0]) * 2, (number - line * squares.size[1]) * 2);
    let [height, width] = window.input;
    // What is before the image wraps round to far after it.
    let top = (row * 2).wrapping_sub(PADDING);
    let second = column + 1 < window.output[1];
    // Beside the four inputs is one before them, of the first window, or one after them, of the second. One comparison says of row and column
    // whether it is there: the row is below its column's height.
    let beside = if PADDING > 0 { column > 0 } else { second };
    let height_beside = if beside { height } else { 0 };
    let rows = plane as isize * height as isize + top.cast_signed() as isize;
    let begin = rows * width as isize + (column * 2) as isize;
    let zero = T::from_f32(0.0);
    let mut loaded = [(Vec4::splat(zero), zero); ROWS];
    unrolled!(I in [0 1 2 3 4] {
        let row = top.wrapping_add(I as u32);
        let at = (begin + I as isize * width as isize).cast_unsigned();
        let at_beside = if PADDING > 0 { at.wrapping_sub(1) } else { at.wrapping_add(FOUR as usize) };
        // SAFETY: of the image where they are loaded, whose rows are a multiple of four.
        loaded[I] = unsafe { (x.load4_if(row < height, at, Vec4::splat(zero)), x.load_if(row < height_beside, at_beside, zero)) };
    });
    // SAFETY: the caller's; all threads come here.
    let weights = unsafe { weights(SIZE as u32, |_| shape) };
    if !there {
        return;
    }
    let mut sums = [[0.0; 2]; 2];
    unrolled!(I in [0 1 2 3 4] {
        let (four, beside) = loaded[I];
        let [a, b, c, d] = four.map(T::to_f32).to_array();
        let beside = beside.to_f32();
        let inputs = if PADDING > 0 { [beside, a, b, c, d] } else { [a, b, c, d, beside] };
        unrolled!(R in [0 1] { unrolled!(C in [0 1] { unrolled!(J in [0 1 2] {
            // The row is the window's row `I - 2 * R`.
            if I >= 2 * R && I < 2 * R + SIZE {
                sums[R][C] = float::fma(weights[I - 2 * R][J], inputs[2 * C + J], sums[R][C]);
            }
        }); }); });
    });
    let outputs = window.output[1] as usize;
    let at = (plane as usize * window.output[0] as usize + row as usize) * outputs + column as usize;
    let below = row + 1 < window.output[0];
    // SAFETY: the outputs exist where they are stored; padded, rows have an even number of outputs.
    unsafe {
        unrolled!(R in [0 1] {
            let (there, at, values) = (R == 0 || below, at + R * outputs, sums[R].map(T::from_f32));
            if PADDING > 0 {
                y.store2_if(there, at, Vec2::from(values));
            } else {
                // Neighbours one after another, so that they are written together.
                y.store_if(there, at, values[0]);
                y.store_if(there & second, at + 1, values[1]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_windows_two_apart() {
        let window = |input: [u32; 2], output: [u32; 2], padding: u32| Window::<Nchw> {
            planes: 3,
            channels: 1,
            input,
            output,
            size: [3; 2],
            stride: [2; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            ..Window::default()
        };
        let fits = |window: Window<Nchw>| Squares::new(&window).is_some();
        assert!(fits(window([9, 12], [4, 5], 0)));
        assert!(fits(window([9, 12], [5, 6], 1)));
        // Rows of windows below the image are no matter, columns beside it are.
        assert!(fits(window([10, 12], [5, 5], 0)));
        assert!(!fits(window([9, 12], [4, 6], 0)));
        assert!(!fits(window([9, 13], [4, 6], 0)));
        assert!(!fits(window([9, 12], [5, 7], 2)));
        assert!(!fits(Window { size: [2; 2], ..window([9, 12], [4, 5], 0) }));
        assert!(!fits(Window { planes: 1 << 31, ..window([9, 12], [4, 5], 0) }));
    }
}
