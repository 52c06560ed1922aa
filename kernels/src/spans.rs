//! Windows of a few columns and of any number of rows, any rows apart, over row-major planes that follow each other: what a few windows beside each other
//! have of a row, straight from memory.
//!
//! Forward, a thread has four outputs beside each other, of 16 bits eight where that is little, and of each row of their windows a *span*: with `n` windows
//! `(n - 1) * STRIDE + COLUMNS` elements; backward, the inputs that as many windows begin in, and the span of gradients over them. A span is loaded by vectors
//! of four elements, as far as it has whole ones, where rows are a multiple of these; what is before and behind them, and spans of other rows, element by
//! element. Up to three rows are under way before the first is used. Neighbouring threads have neighbouring spans of a row; what they store goes through
//! their warp's shared memory, where it is more than a vector each. Windows that overlap meet in the L1 cache.
//!
//! For windows whose height, steps or padding are not their width's, of which other kernels are for one size each, or stage rows for any.

use cuda_std::prelude::*;

use crate::elementwise::{put, put4};
use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Blocks that fit on a multiprocessor: 64 registers a thread.
pub(crate) const BLOCKS: u32 = 4;
/// Columns of windows, columns from a window to the next and columns of padding, of which there are kernels; of the last two Gaussians' alone.
pub const KNOWN: [[u32; 3]; 9] =
    [[1, 1, 0], [2, 1, 0], [2, 1, 1], [2, 2, 0], [3, 1, 1], [3, 2, 1], [4, 4, 0], [5, 1, 2], [5, 2, 2]];
/// Elements of a vector, of which rows are a multiple where they are loaded or stored by such.
const VECTOR: u32 = 4;
/// Windows of a thread, at most.
pub(crate) const MOST_WINDOWS: usize = 8;
/// Inputs that the windows of a thread begin in, at most.
pub(crate) const MOST_INPUTS: usize = 16;
/// Elements of a span forward, at most, and gradients of one backward.
const MOST: usize = 20;
pub(crate) const MOST_GRADIENTS: usize = 12;
/// Rows under way at once, at most.
const ROWS: usize = 3;
/// Elements of the spans that are under way at once, at most: they stay in registers.
const MOST_AT_ONCE: usize = 38;
/// Words of a warp's part of shared memory.
const STAGED: usize = 32 * MOST_INPUTS + 4 * MOST_INPUTS;

/// The elements of a span, and any after them.
pub(crate) type Span<T> = [T; MOST];

/// Windows of a thread, of elements of so many bytes and windows so many columns apart.
pub(crate) const fn windows(bytes: usize, stride: usize) -> usize {
    if bytes == 2 && stride <= 2 { MOST_WINDOWS } else { MOST_WINDOWS / 2 }
}

/// Elements of a span of so many windows' outputs before and from the first that a window without padding would have.
pub(crate) const fn of_outputs(windows: usize, columns: usize, stride: usize, padding: usize) -> [usize; 2] {
    [padding, (windows - 1) * stride + columns - padding]
}

/// Gradients of a span before and from that of the first of so many windows, over the inputs that these begin in without padding.
pub(crate) const fn of_inputs(windows: usize, columns: usize, stride: usize, padding: usize) -> [usize; 2] {
    [(columns - 1 - padding) / stride, windows + padding.div_ceil(stride)]
}

/// Rows that are under way at once.
const fn rows([before, after]: [usize; 2]) -> usize {
    let most = MOST_AT_ONCE / (before + after);
    if most < ROWS { most } else { ROWS }
}

/// The nearest that memory can hold of four numbers.
#[device_inline]
pub(crate) fn four_of<T: Storage>(bits: [u32; 4]) -> Vec4<T> {
    let [a, b, c, d] = bits.map(f32::from_bits);
    let ([a, b], [c, d]) = (T::from_two_f32([a, b]), T::from_two_f32([c, d]));
    Vec4::new(a, b, c, d)
}

/// What a thread stores of its outputs, and any after them.
#[device_inline]
pub(crate) fn all([a, b, c, d, e, f, g, h]: [u32; MOST_WINDOWS]) -> [u32; MOST_INPUTS] {
    [a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// What is made of spans, row by row. A method of its own, and no closure, so that it is compiled into each place that it is called from.
pub(crate) trait Rows<T> {
    /// Takes the span of the row of that number.
    fn take(&mut self, number: u32, span: Span<T>);
}

/// The spans that a thread wants.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<T> {
    /// Where the plane begins, and its height and width.
    pub x: Global<T>,
    pub size: [u32; 2],
    /// The first row, which may be above the plane, how far the next ones are apart, and how many there are.
    pub first: u32,
    pub step: u32,
    pub count: u32,
    /// The column from which on there are vectors, and how many elements around that.
    pub column: u32,
    pub around: [usize; 2],
    /// What elements are that are not in the plane.
    pub outside: T,
}

impl<T: Storage> Wanted<T> {
    /// The elements from the first of the span of the row of that number to the row's end, if there is such a row. Of the row, so that the span's elements'
    /// comparisons with this, too many for what a thread keeps, are made with each row's.
    #[device_inline]
    fn there(&self, number: u32) -> u32 {
        let [height, width] = self.size;
        let there = (width + self.around[0] as u32).saturating_sub(self.column);
        let row = self.first.wrapping_add(number * self.step);
        if (number < self.count) & (row < height) { there } else { 0 }
    }

    /// The span of the row of that number, whose first element of a vector is number `at`, by vectors.
    ///
    /// # Safety
    /// As [`Spans::each`]'s.
    #[device_inline]
    unsafe fn vectors(&self, number: u32, at: usize) -> Span<T> {
        let (mut span, there, [before, after]) = ([self.outside; MOST], self.there(number), self.around);
        // SAFETY: what is loaded is there.
        unsafe {
            unrolled!(K in [0 1 2 3 4] { if K < before { span[K] = self.element(there, at, K); } });
            unrolled!(V in [0 1 2 3 4] { if 4 * V + 4 <= after {
                let k = before + 4 * V;
                let outside = Vec4::splat(self.outside);
                // At a multiple of four elements of a row that is one.
                let four = self.x.load4_if((k as u32) < there, at.wrapping_add(4 * V), outside).to_array();
                unrolled!(K in [0 1 2 3] { span[k + K] = four[K]; });
            } });
            unrolled!(K in [0 1 2] { if K < after % 4 {
                let k = before + after / 4 * 4 + K;
                span[k] = self.element(there, at, k);
            } });
        }
        span
    }

    /// The same element by element.
    ///
    /// # Safety
    /// As [`vectors`](Self::vectors)'.
    #[device_inline]
    unsafe fn elements(&self, number: u32, at: usize) -> Span<T> {
        let (mut span, there, [before, after]) = ([self.outside; MOST], self.there(number), self.around);
        unrolled!(K in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19] {
            // SAFETY: the caller's.
            if K < before + after { span[K] = unsafe { self.element(there, at, K) }; }
        });
        span
    }

    /// Element `k` of the span, if as many are there.
    ///
    /// # Safety
    /// As [`vectors`](Self::vectors)'.
    #[device_inline]
    unsafe fn element(&self, there: u32, at: usize, k: usize) -> T {
        let [before, _] = self.around;
        // Those before the vector's first are in the row where that is not the row's.
        let inside = ((k as u32) < there) & (k >= before || self.column > 0);
        // SAFETY: the caller's.
        unsafe { self.x.load_if(inside, at.wrapping_add(k).wrapping_sub(before), self.outside) }
    }
}

/// How threads are laid over spans.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Spans of all planes, and of a row.
    total: u32,
    of_row: u32,
    by_row: Divider,
    by_rows: Divider,
    /// Whether rows that are loaded, and rows that are stored, are multiples of four elements.
    loads: u32,
    stores: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Spans {}

/// Where a thread's span is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Whether it is one: the last threads have none, but the place of the last.
    pub there: bool,
    pub plane: u32,
    /// Of outputs, or of inputs.
    pub row: u32,
    /// Its number in that.
    pub number: u32,
    /// The last lane of the warp that has one, if the first does.
    last: u32,
}

impl Spans {
    /// Over the outputs of elements of so many bytes, and the blocks; none where no kernel is for such windows, or there are too many to count.
    pub fn of_outputs(window: &Window<Nchw>, bytes: usize) -> Option<(Self, u32)> {
        let ([height, width], each) = (window.output, windows(bytes, window.stride[1] as usize) as u32);
        Self::new(window, height, width.div_ceil(each), [window.input[1], width])
    }

    /// The same over the inputs.
    pub fn of_inputs(window: &Window<Nchw>, bytes: usize) -> Option<(Self, u32)> {
        let ([height, width], stride) = (window.input, window.stride[1]);
        let each = windows(bytes, stride as usize) as u32;
        if window.dilation[0] != 1 {
            return None;
        }
        Self::new(window, height, width.div_ceil(each.checked_mul(stride)?), [window.output[1], width])
    }

    fn new(window: &Window<Nchw>, height: u32, of_row: u32, [loaded, stored]: [u32; 2]) -> Option<(Self, u32)> {
        let geometry = [window.size[1], window.stride[1], window.padding[1]];
        if !KNOWN.contains(&geometry) || window.dilation[1] != 1 {
            return None;
        }
        let lines = window.planes.checked_mul(height)?;
        let total = lines.checked_mul(of_row).filter(|&total| total > 0 && total < 1 << 31)?;
        let [loads, stores] = [loaded, stored].map(|row| u32::from(row.is_multiple_of(VECTOR)));
        let (by_row, by_rows) = (Divider::new(of_row), Divider::new(height));
        Some((Self { total, of_row, by_row, by_rows, loads, stores }, total.div_ceil(BLOCK)))
    }

    /// Blocks whose threads have a span each.
    #[device_inline]
    pub(crate) fn blocks(&self) -> u32 {
        self.total.div_ceil(BLOCK)
    }

    /// This thread's in such a block, of planes of so many rows.
    #[device_inline]
    pub(crate) fn place(&self, height: u32, block: u32) -> Place {
        let own = block * BLOCK + thread::thread_idx_x();
        let end = self.total - 1;
        let (number, left) = (if own < end { own } else { end }, end.saturating_sub(own - warp::lane_id()));
        let line = self.by_row.divide(number);
        let plane = self.by_rows.divide(line);
        Place {
            there: own <= end,
            plane,
            row: line - plane * height,
            number: number - line * self.of_row,
            last: if left < warp::WARP_SIZE - 1 { left } else { warp::WARP_SIZE - 1 },
        }
    }

    /// Has what `taken` makes of spans take each that is wanted, row by row.
    ///
    /// # Safety
    /// `wanted.x` holds the plane, and begins with a multiple of 16 bytes where rows are loaded by vectors; the column is a multiple of four.
    #[device_inline]
    pub(crate) unsafe fn each<T: Storage>(&self, wanted: &Wanted<T>, taken: &mut impl Rows<T>) {
        let Wanted { size: [_, width], first, step, count, column, around, outside, .. } = *wanted;
        let (rows, line) = (rows(around), step as usize * width as usize);
        let mut at = (first.cast_signed() as isize as usize).wrapping_mul(width as usize).wrapping_add(column as usize);
        let mut spans = [[outside; MOST]; ROWS];
        // Without a branch for each, after which the compiler would have the first row waited for before the next is under way.
        // SAFETY: the caller's.
        unsafe {
            if self.loads == 0 {
                unrolled!(R in [0 1 2] {
                    if R < rows { spans[R] = wanted.elements(R as u32, at.wrapping_add(R * line)); }
                });
            } else if count == 1 {
                spans[0] = wanted.vectors(0, at);
            } else {
                unrolled!(R in [0 1 2] {
                    if R < rows { spans[R] = wanted.vectors(R as u32, at.wrapping_add(R * line)); }
                });
            }
        }
        unrolled!(R in [0 1 2] { if R < rows && (R as u32) < count { taken.take(R as u32, spans[R]); } });
        let mut number = rows as u32;
        at = at.wrapping_add(rows * line);
        while number < count {
            // SAFETY: the caller's.
            let span =
                unsafe { if self.loads == 0 { wanted.elements(number, at) } else { wanted.vectors(number, at) } };
            taken.take(number, span);
            at = at.wrapping_add(line);
            number += 1;
        }
    }

    /// Stores what each thread of the warp has for its place: `count` elements of a row of so many, from column `column` on, the first as number `at`, of which
    /// those past the row's end are none. By `vectors`, which get the number of a vector's first element and the bits of the four, or where rows are no
    /// multiple of these by `single`, which gets an element's number and its bits. The elements of a warp follow each other in memory; where a thread has more
    /// than a vector they go through the warp's shared memory, so that neighbouring lanes store what is beside each other.
    ///
    /// # Safety
    /// All threads of the block come here together; the row has these elements, and no other thread has them.
    #[device_inline]
    pub(crate) unsafe fn store(
        &self,
        place: &Place,
        (at, [column, width]): (usize, [u32; 2]),
        (count, bits): (usize, [u32; MOST_INPUTS]),
        vectors: impl Fn(usize, [u32; 4]),
        single: impl Fn(usize, u32),
    ) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bits;
        let fours = [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]];
        if count == 4 && self.stores != 0 {
            if place.there & (column < width) {
                vectors(at, fours[0]);
            }
            return;
        }
        let staged = shared_array![u32; (BLOCK / warp::WARP_SIZE) as usize * STAGED].handle();
        let (lane, of_warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
        let left = width.saturating_sub(column);
        let own = if place.there { if left < count as u32 { left } else { count as u32 } } else { 0 };
        let begin = warp::shuffle(at as u64, 0) as usize;
        let first = at.wrapping_sub(begin) as u32;
        let end = warp::shuffle(first + own, place.last);
        // SAFETY: the warp's part of shared memory is its own, and has room for all that its threads have, of which rows that are multiples of four elements
        // have whole vectors; elements are the caller's.
        unsafe {
            let staged = staged.offset(of_warp * STAGED as u32);
            // What was stored before has been loaded.
            warp::sync_warp(warp::FULL_MASK);
            if self.stores != 0 {
                unrolled!(V in [0 1 2 3] {
                    if 4 * V < count && (4 * V as u32) < own {
                        staged.store4(apart::<VECTOR>(first + 4 * V as u32), Vec4::from(fours[V]));
                    }
                });
                warp::sync_warp(warp::FULL_MASK);
                unrolled!(V in [0 1 2 3] { if 4 * V < count {
                    let number = (V as u32 * warp::WARP_SIZE + lane) * VECTOR;
                    if number < end {
                        vectors(begin + number as usize, staged.load4(apart::<VECTOR>(number)).to_array());
                    }
                } });
            } else {
                unrolled!(K in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                    if K < count { staged.store_if((K as u32) < own, apart::<1>(first + K as u32), bits[K]); }
                });
                warp::sync_warp(warp::FULL_MASK);
                unrolled!(K in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] { if K < count {
                    let number = K as u32 * warp::WARP_SIZE + lane;
                    if number < end { single(begin + number as usize, staged.load(apart::<1>(number))); }
                } });
            }
        }
    }

    /// As [`store`](Self::store), the sums of the inputs that windows begin in, plus `beta` times what is there.
    ///
    /// # Safety
    /// As `store`'s.
    #[device_inline]
    pub(crate) unsafe fn put<T: Storage>(
        &self,
        place: &Place,
        y: GlobalMut<T>,
        at: (usize, [u32; 2]),
        beta: f32,
        (count, sums): (usize, [f32; MOST_INPUTS]),
    ) {
        // SAFETY: the caller's.
        unsafe {
            let vectors = |at: usize, four: [u32; 4]| put4(y, at, Vec4::from(four.map(f32::from_bits)), beta);
            let single = |at: usize, bits: u32| put(y, at, f32::from_bits(bits), beta);
            self.store(place, at, (count, sums.map(f32::to_bits)), vectors, single);
        }
    }
}

/// Where an element is staged: so that what threads beside each other store or load at a time, `TOGETHER` elements each, is in different banks.
#[device_inline]
fn apart<const TOGETHER: u32>(number: u32) -> u32 {
    number + number / warp::WARP_SIZE * TOGETHER
}
