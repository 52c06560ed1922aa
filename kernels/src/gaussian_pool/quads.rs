//! Gaussian pooling of row-major images of 16 bits, of 2×2 and 3×3 windows two pixels apart whose weights are the same everywhere and
//! which all planes share: straight from memory, by [fours](crate::patch::quads) of windows.
//!
//! A thread has the products of the weights along y and x in registers; those along each axis the block's first threads
//! compute while what all threads load is on its way. Of 3×3 windows without padding a row has an output less than half as many as inputs, so
//! that its outputs begin anywhere: they go through shared memory, from where a block stores all of its own, which lie together, by vectors.
//!
//! Bound by memory: on an H200, 3×3 on 64×64×112×112, 0.93 of the copy rate forward and 0.88 backward (docs/perf).

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

use super::patches::{Weights, weights};
use super::weights::Shape;
use crate::band::least;
use crate::patch::quads::{self, BLOCK, EACH, Four, Giving, Here, Quads};
use crate::window::{Divider, FEWER_BLOCKS, MIN_BLOCKS, Nchw, Window};

/// Rows of outputs of a thread.
const DOWN: u32 = 2;
/// Elements of 16 bytes.
const VECTOR: u32 = 8;
/// Elements of a block's room for outputs, which begin anywhere within 16 bytes.
const ROOM: usize = (BLOCK * DOWN * EACH + VECTOR) as usize;
/// Threads of a block that have outputs, at least.
const LEAST: u32 = BLOCK / 4 * 3;

/// Cells of a thread of the backward pass.
pub const CELLS: u32 = 2;
/// Blocks that a multiprocessor has room for in the backward pass, at least. Older GPUs' code spills with as many as newer ones'.
const BACKWARD_BLOCKS: u32 = if cfg!(target_feature = "sm_90") { MIN_BLOCKS } else { FEWER_BLOCKS };

/// How blocks are laid over outputs, by whole pairs of rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Pairs of rows of all planes, of a block and of a plane.
    count: u32,
    of_block: u32,
    height: u32,
    /// Fours of a row.
    width: u32,
    by_height: Divider,
    by_width: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Lines {}

impl Lines {
    /// Over the window's outputs, and the blocks of the launch. None where windows are others, are padded by more than 1 or end
    /// elsewhere than their rows, rows are no multiple of eight elements or of so many that a quarter of the threads had none, or
    /// there are too many.
    pub fn new(window: &Window<Nchw>) -> Option<(Self, u32)> {
        let ([_, inputs], [rows, columns], padding) = (window.input, window.output, window.padding[0]);
        let fits = (window.stride, window.dilation, window.padding) == ([2; 2], [1; 2], [padding; 2]);
        let half = match (window.size, padding) {
            ([2, 2], 0) | ([3, 3], 1) => columns.checked_mul(2) == Some(inputs),
            ([3, 3], 0) => (columns + 1).checked_mul(2) == Some(inputs),
            _ => false,
        };
        let width = inputs / (2 * EACH);
        if !fits || !half || !inputs.is_multiple_of(2 * EACH) || width > BLOCK {
            return None;
        }
        let (of_block, height) = (BLOCK / width, rows.div_ceil(DOWN));
        let count = window.planes.checked_mul(height).filter(|&count| count < 1 << 31)?;
        let [by_height, by_width] = [height, width].map(Divider::new);
        let lines = Self { count, of_block, height, width, by_height, by_width };
        (of_block * width >= LEAST).then(|| (lines, count.div_ceil(of_block)))
    }

    /// Where this thread is.
    #[device_inline]
    fn here(&self) -> Here {
        let of_block = self.by_width.divide(thread::thread_idx_x());
        let quad = thread::thread_idx_x() - of_block * self.width;
        let first = thread::block_idx_x() * self.of_block;
        let there = (of_block < self.of_block) & (first + of_block < self.count);
        let [plane, row] = self.place(if there { first + of_block } else { first });
        Here { there, plane, row, quad }
    }

    /// The plane of a pair of rows, and its number there.
    #[device_inline]
    fn place(&self, line: u32) -> [u32; 2] {
        let plane = self.by_height.divide(line);
        [plane, line - plane * self.height]
    }

    /// The first output of the block, and that after its last.
    #[device_inline]
    fn span(&self, window: &Window<Nchw>) -> [usize; 2] {
        let first = thread::block_idx_x() * self.of_block;
        [first, least(first + self.of_block, self.count)].map(|line| {
            let [plane, row] = self.place(line);
            window.output_plane(plane) + (row * DOWN) as usize * window.output_line()
        })
    }
}

/// `y` = `x` pooled by one Gaussian, of such windows of `SIZE` by `SIZE` positions padded by `PADDING`.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, which is such; `mean` holds two and `var` `variances` elements; `lines` are of the
/// window, with as many blocks.
#[kernel(
    block = BLOCK,
    min_blocks = MIN_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn gaussian_pool_forward_quads<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    window: Window<Nchw>,
    lines: Lines,
) {
    // SAFETY: the caller's; all threads come here.
    let shape = unsafe { Shape::own([mean, var], variances) };
    // SAFETY: as above.
    let before = || unsafe { weights(SIZE as u32, |_| shape) };
    let of_row = |_: &Weights, [a, b, c, d]: [u32; 4], beside: u32| {
        let [[a, b], [c, d], [e, f], [g, h]] = [a, b, c, d].map(T::split);
        let [beside, _] = T::split(beside);
        if PADDING > 0 { [beside, a, b, c, d, e, f, g, h] } else { [a, b, c, d, e, f, g, h, beside] }
    };
    // Whether a row's outputs begin anywhere.
    let staged = SIZE > 2 && PADDING == 0;
    let room = shared_array![u16; ROOM].handle();
    let [begin, end] = if staged { lines.span(&window) } else { [0; 2] };
    let skew = begin as u32 % VECTOR;
    let finish = |weights: &Weights, four: Four, rows: [[f32; 9]; SIZE]| {
        let mut sums = [0.0; EACH as usize];
        unrolled!(K in [0 1 2 3] { unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE { sums[K] = float::fma(weights[I][J], rows[I][2 * K + J], sums[K]); }
        }); }); });
        let words = [T::join([sums[0], sums[1]]), T::join([sums[2], sums[3]])];
        let line = window.output_plane(four.plane) + four.row as usize * window.output_line();
        let at = line + four.column as usize;
        // SAFETY: the outputs exist, all four, which begin at a multiple of four. Else in the block's room.
        unsafe {
            if !staged {
                y.cast::<u32>().store2(at / 2, Vec2::from(words));
                return;
            }
            let at = (at - begin) as u32 + skew;
            unrolled!(K in [0 1 2 3] {
                let half = (words[K / 2] >> (16 * (K as u32 % 2))) as u16;
                room.store_if(four.column + (K as u32) < window.output[1], at + K as u32, half);
            });
        }
    };
    // SAFETY: the caller's; the block's room is for what all its threads have.
    unsafe {
        quads::each::<_, _, SIZE, PADDING>(x.cast(), &window, lines.here(), 0, before, of_row, finish);
        if staged {
            thread::sync_threads();
            store(y.cast(), room, begin - skew as usize, [skew, skew + (end - begin) as u32]);
        }
    }
}

/// Stores what is in the room between these places, by vectors, and what is left at either end by elements; place 0 belongs to element `first`.
///
/// # Safety
/// All threads of the block together, which have more than `VECTOR`; the elements exist, and `first` is a multiple of [`VECTOR`].
#[device_inline]
unsafe fn store(y: GlobalMut<u16>, room: Shared<u16>, first: usize, [begin, end]: [u32; 2]) {
    let whole = [begin.next_multiple_of(VECTOR), end / VECTOR * VECTOR];
    let thread = thread::thread_idx_x();
    // SAFETY: the caller's.
    unsafe {
        let mut place = whole[0] + thread * VECTOR;
        while place < whole[1] {
            let words = room.cast::<u32>().load4(place / 2);
            y.cast::<u32>().store4((first + place as usize) / 2, words);
            place += BLOCK * VECTOR;
        }
        if thread < VECTOR {
            let before = begin + thread;
            y.store_if(before < least(whole[0], end), first + before as usize, room.load(before));
            let after = if whole[0] > whole[1] { whole[0] } else { whole[1] } + thread;
            if after < end {
                y.store(first + after as usize, room.load(after));
            }
        }
    }
}

/// `dx`, as it was not: without `beta`, of [`gaussian_pool_forward_quads`].
///
/// # Safety
/// As [`gaussian_pool_forward_quads`]'s, of `dy` and `dx`; `quads` are of the window's [inputs](Quads::of_inputs) by [`CELLS`], with as many
/// blocks.
#[kernel(
    block = BLOCK,
    min_blocks = BACKWARD_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn gaussian_pool_backward_quads<T: Paired, const SIZE: usize, const PADDING: u32>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    variances: u32,
    window: Window<Nchw>,
    quads: Quads,
) {
    // SAFETY: the caller's; elements are bits, and memory begins at a multiple of 16 bytes.
    let (shape, dy) = unsafe { (Shape::own([mean, var], variances), dy.cast::<u32>()) };
    // Five neighbours, by pairs: what is beside the four is after them with padding, else before them.
    let load = |inside: bool, beside: bool, from: Giving| {
        // SAFETY: the caller's; `gather` says which are there.
        unsafe {
            if PADDING > 0 {
                let after = dy.cast::<u16>().load_if(beside, from.output + EACH as usize, 0);
                let Vec2 { x, y } = dy.load2_if(inside, from.output / 2, Vec2::splat(0));
                return [x, y, after.into()];
            }
            let count = window.planes * window.output[0] * window.output[1];
            let [a, b, c] = quads::from_before(dy, inside, count, from.output);
            // Of another row: none.
            let last = from.column + 3 < window.output[1];
            [if beside { a } else { a & 0xffff_0000 }, b, if last { c } else { 0 }]
        }
    };
    // SAFETY: as above; all threads come here.
    let before = || unsafe { weights(SIZE as u32, |_| shape) };
    if SIZE == 2 {
        // SAFETY: the caller's.
        return unsafe { apart::<T>(dy, dx.cast(), &window, &quads, before) };
    }
    let give = |weights: &Weights, rows: [[u32; 3]; 2]| {
        let rows = rows.map(|pairs| {
            let [[a, b], [c, d], [e, _]] = pairs.map(T::split);
            [a, b, c, d, e]
        });
        let mut inputs = [[0; 4]; 2];
        unrolled!(R in [0 1] {
            // Of every two rows of inputs one is a row of one window, and the other one of two: their last, and the first of the next.
            let two = (R == 1) == (PADDING > 0);
            let sum = |first: usize, last: Option<usize>| {
                let row = |row: usize, i: usize| match last {
                    Some(last) => float::fma(weights[i][0], rows[row][first], weights[i][2] * rows[row][last]),
                    None => weights[i][1] * rows[row][first],
                };
                if two { row(0, 2) + row(1, 0) } else { row(if PADDING > 0 { 0 } else { 1 }, 1) }
            };
            unrolled!(K in [0 1 2 3] {
                let pair = if PADDING > 0 {
                    [sum(K, None), sum(K + 1, Some(K))]
                } else {
                    [sum(K + 1, Some(K)), sum(K + 1, None)]
                };
                inputs[R][K] = T::join(pair);
            });
        });
        inputs
    };
    // SAFETY: the caller's.
    unsafe { quads::gather::<_, _, PADDING, { CELLS as usize }>(dx.cast(), &window, &quads, load, before, give) };
}

/// [`gaussian_pool_backward_quads`] of windows of 2×2: an input has one window over it.
///
/// # Safety
/// The kernel's; all threads of the block come here.
#[device_inline]
unsafe fn apart<T: Paired>(
    dy: Global<u32>,
    dx: GlobalMut<u32>,
    window: &Window<Nchw>,
    quads: &Quads,
    before: impl FnOnce() -> Weights,
) {
    let Here { there, plane, row, quad } = quads.here();
    let [height, fours] = [window.output[0], window.output[1] / EACH];
    let first = row * CELLS;
    let output = |row: u32| (plane as usize * height as usize + row as usize) * fours as usize + quad as usize;
    // Nothing, below the last windows.
    // SAFETY: outputs that are there, which begin at a multiple of four.
    let load = |row: u32| unsafe { dy.load2_if(row < height, output(row).wrapping_mul(2), Vec2::splat(0)) };
    let loaded = [load(first), load(first + 1)];
    let weights = before();
    if !there {
        return;
    }
    let line = plane as usize * window.input[0] as usize + 2 * first as usize;
    let octet = line * fours as usize + quad as usize;
    unrolled!(C in [0 1] {
        let [[a, b], [c, d]] = loaded[C].to_array().map(T::split);
        let dy = [a, b, c, d];
        unrolled!(R in [0 1] {
            let mut inputs = [0; 4];
            unrolled!(K in [0 1 2 3] { inputs[K] = T::join([weights[R][0] * dy[K], weights[R][1] * dy[K]]); });
            let down = 2 * C + R;
            // SAFETY: the row is there, and rows are a multiple of eight.
            unsafe {
                let there = 2 * first + (down as u32) < window.input[0];
                dx.store4_if(there, (octet + down * fours as usize) * 4, Vec4::from(inputs));
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_rows_of_a_multiple_of_eight() {
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
        let fits = |window: Window<Nchw>| Lines::new(&window).is_some();
        assert!(fits(window([9, 16], [4, 7], 0)));
        assert!(fits(window([9, 16], [5, 8], 1)));
        assert!(!fits(window([9, 16], [4, 8], 0)));
        assert!(fits(Window { size: [2; 2], ..window([9, 16], [4, 8], 0) }));
        assert!(!fits(Window { size: [2; 2], ..window([9, 16], [4, 7], 0) }));
        assert!(!fits(Window { size: [2; 2], ..window([9, 16], [5, 8], 1) }));
        assert!(!fits(window([9, 12], [4, 5], 0)));
        assert!(!fits(window([9, 16], [5, 9], 2)));
        // 130 threads a pair of rows: one a block.
        assert!(!fits(window([9, 1040], [4, 519], 0)));
        assert!(fits(window([9, 2048], [4, 1023], 0)));
        assert!(!fits(window([9, 2056], [4, 1027], 0)));
        assert!(!fits(Window { planes: 1 << 31, ..window([9, 16], [4, 7], 0) }));
    }
}
