//! Backward over row-major images by runs of elements, for pooling whose weights are products of one along y and one along x: what each output
//! gives to a row of the image is added up first, and of these sums what they give to each of its elements.
//!
//! `dx[r, c] = sum over windows over column c of weight_x * (sum over windows over row r of weight_y * dy)`.
//!
//! Blocks take runs of 4,096 elements of all planes, which follow each other, one run after another. Which windows are over each column, and their
//! weights there, a block works out once, in a table in shared memory; which are over each row of a run, run by run. A thread adds up what the
//! windows over a row give along y, an output's column each, and after a barrier what these sums give to an element; neighbouring threads
//! have neighbouring ones, or pairs of them, and no thread divides for them.
//!
//! For windows that are far apart, of which few are over an element. Bound by memory where one is in f32 (0.71 to 0.78 of the copy rate on 64×64×111×113,
//! an H200), else by instructions (0.38 to 0.47 in bf16, 0.29 to 0.33 of two windows over an element).

use cuda_std::prelude::*;

use crate::elementwise::put;
use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Such blocks that a multiprocessor has room for, of kernels for so many windows over an element: 32 registers a thread, or 40.
pub const fn blocks(over: usize) -> u32 {
    if over == 3 { 6 } else { 8 }
}

/// Elements of a run.
const RUN: u32 = 16 * BLOCK;
/// Sums, and elements or pairs of them, that a thread has under way at a time.
const AHEAD: usize = 4;
/// Neighbouring elements that a thread stores at once: two neighbours' entries of four words would meet in shared memory's banks.
const fn neighbours(over: u32) -> u32 {
    if over == 1 { 2 } else { 1 }
}
/// Windows over an element along an axis, at most, that there are kernels for.
pub const MOST_OVER: u32 = 3;
/// Bytes of shared memory that need no leave of the driver.
const MOST_SHARED: u32 = 48 << 10;
/// What stands for no output in a table of rows.
const NONE: u32 = u32::MAX;

/// Words of a table's entry: for each window where it is and its weight.
const fn entry(over: u32) -> u32 {
    if over == 3 { 8 } else { 2 * over }
}

/// How a thread goes on over lines of so many elements: whole lines, and elements; and by how many it divides for the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Onward {
    lines: u32,
    rest: u32,
    by_line: Divider,
}

impl Onward {
    const fn new(of_line: u32, step: u32) -> Self {
        Self { lines: step / of_line, rest: step % of_line, by_line: Divider::new(of_line) }
    }
}

/// How blocks take a gradient apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Elements of all planes.
    total: u32,
    runs: u32,
    /// Rows that a run has a part of, at most.
    rows: u32,
    over_row: Onward,
    over_outputs: Onward,
    by_height: Divider,
    by_stride: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Shares {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub shares: Shares,
    /// Windows over an element along an axis, at most.
    pub over: u32,
    /// Blocks, at most, of which each has a run.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes, with what is before the tables.
    pub shared_bytes: u32,
}

impl Shares {
    /// Of a window without dilation, with room for so many elements before the tables. None where more than
    /// [`MOST_OVER`] windows are over an element along an axis, or not as many along both, where elements are too many to count, or where tables
    /// and sums have no room.
    pub fn plan(window: &Window<Nchw>, before: u32) -> Option<Plan> {
        let [over, over_x] = [0, 1].map(|axis| window.size[axis].div_ceil(window.stride[axis]));
        let ([height, width], [of_column, of_row]) = (window.input, window.output);
        let countable = |count: &u32| *count < 1 << 30;
        let total = window.planes.checked_mul(height)?.checked_mul(width).filter(countable)?;
        let outputs = window.planes.checked_mul(of_column)?.checked_mul(of_row).filter(countable)?;
        if total == 0 || outputs == 0 || over != over_x || over > MOST_OVER || window.dilation != [1; 2] {
            return None;
        }
        // Of a run that begins with the last element of a row.
        let rows = (RUN - 2) / width + 2;
        let tables = rows.checked_add(width)?.checked_add(1)?.checked_mul(entry(over))?;
        let sums = rows.checked_mul(of_row.checked_add(1)?)?;
        let elements = before.checked_next_multiple_of(4)?.checked_add(tables)?.checked_add(sums)?;
        let shared_bytes = elements.checked_mul(4).filter(|&bytes| bytes <= MOST_SHARED)?;
        let runs = total.div_ceil(RUN);
        let shares = Self {
            total,
            runs,
            rows,
            over_row: Onward::new(width, BLOCK * neighbours(over)),
            over_outputs: Onward::new(of_row, BLOCK),
            by_height: Divider::new(height),
            by_stride: window.stride.map(Divider::new),
        };
        Some(Plan { shares, over, blocks: runs, shared_bytes })
    }
}

/// The windows over a row or column, from the last on: where each is, and its weight there.
#[derive(Clone, Copy)]
struct Over<const OVER: usize> {
    places: [u32; OVER],
    weights: [f32; OVER],
}

impl<const OVER: usize> Over<OVER> {
    const ENTRY: u32 = entry(OVER as u32);

    /// Of row or column `number` of a plane along `axis`, with the output for a place, [`NONE`] where it has none.
    #[device_inline]
    #[allow(unused_assignments, reason = "the last copy of what is unrolled steps on, too")]
    fn of(
        window: &Window<Nchw>,
        shares: &Shares,
        axis: usize,
        number: u32,
        weight: &impl Fn(usize, u32, u32) -> f32,
    ) -> Self {
        let padded = number + window.padding[axis];
        let last = shares.by_stride[axis].divide(padded);
        let mut position = padded - last * window.stride[axis];
        let mut over = Self { places: [NONE; OVER], weights: [0.0; OVER] };
        unrolled!(K in [0 1 2] { if K < OVER {
            let output = last.wrapping_sub(K as u32);
            if (output < window.output[axis]) & (position < window.size[axis]) {
                over.places[K] = output;
                over.weights[K] = weight(axis, output, position);
            }
            position += window.stride[axis];
        } });
        over
    }

    /// # Safety
    /// The table holds it, and begins at a multiple of four words.
    #[device_inline]
    unsafe fn load(table: Shared<u32>, number: u32) -> Self {
        let at = number * Self::ENTRY;
        let mut over = Self { places: [NONE; OVER], weights: [0.0; OVER] };
        let mut set = |k: usize, place: u32, weight: u32| {
            over.places[k] = place;
            over.weights[k] = f32::from_bits(weight);
        };
        // SAFETY: the caller's.
        unsafe {
            if OVER == 1 {
                let Vec2 { x, y } = table.load2(at);
                set(0, x, y);
            } else {
                let Vec4 { x, y, z, w } = table.load4(at);
                set(0, x, y);
                set(1, z, w);
            }
            if OVER == 3 {
                let Vec2 { x, y } = table.load2(at + 4);
                set(2, x, y);
            }
        }
        over
    }

    /// # Safety
    /// As [`load`](Self::load); the entry is this thread's.
    #[device_inline]
    unsafe fn store(self, table: Shared<u32>, number: u32) {
        let at = number * Self::ENTRY;
        unrolled!(K in [0 1 2] { if K < OVER {
            // SAFETY: the caller's.
            unsafe { table.store2(at + 2 * K as u32, Vec2 { x: self.places[K], y: self.weights[K].to_bits() }) };
        } });
    }
}

/// A sum of what the windows over a row give along y: where it is to be, and what it is of.
#[derive(Clone, Copy)]
struct Sum<T, const OVER: usize> {
    at: u32,
    weights: [f32; OVER],
    values: [T; OVER],
}

/// The rows of the image that a run has a part of.
#[derive(Clone, Copy)]
struct Rows {
    first: u32,
    count: u32,
}

/// `dx = what outputs give + beta * dx`, of windows of which at most `OVER` are over an element along an axis: output `(row, column)` of value `dy` gives
/// `dy * weight(0, row, i) * weight(1, column, j)` to its window's position `(i, j)`.
///
/// # Safety
/// `dy` and `dx` are what `window` says, which `shares` was planned of, `dx` begins at a multiple of 16 bytes, and the launch is the plan's, or has fewer blocks; `tables` is its shared memory behind what comes
/// before, at a multiple of 16 bytes. All threads of the block come here.
#[device_inline]
pub(crate) unsafe fn spread<T: Storage, const OVER: usize>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: &Window<Nchw>,
    shares: &Shares,
    tables: Shared<u32>,
    weight: impl Fn(usize, u32, u32) -> f32,
) {
    let own = thread::thread_idx_x();
    let ([height, width], [of_column, of_outputs]) = (window.input, window.output);
    // Before a row's sums is a zero, for windows that are not there.
    let of_sums = of_outputs + 1;
    let words = Over::<OVER>::ENTRY;
    // Elements of a thread beside each other, and from the first to the next of them.
    let beside = neighbours(OVER as u32);
    let step = BLOCK * beside;
    // SAFETY: the launch has room for these.
    let (columns, lines, sums) = unsafe {
        let lines = tables.offset((width + 1) * words);
        (tables, lines, lines.offset(shares.rows * words).cast::<f32>())
    };
    let rows_of = |run: u32| {
        let (first, past) = (run * RUN, (run + 1) * RUN);
        let past = if past < shares.total { past } else { shares.total };
        let first_row = shares.over_row.by_line.divide(first);
        Rows { first: first_row, count: shares.over_row.by_line.divide(past - 1) + 1 - first_row }
    };
    // Of each row of a run, where its outputs begin.
    let put_rows = |rows: Rows| {
        let mut number = own;
        while number < rows.count {
            let plane = shares.by_height.divide(rows.first + number);
            let mut over = Over::<OVER>::of(window, shares, 0, rows.first + number - plane * height, &weight);
            unrolled!(K in [0 1 2] { if K < OVER && over.places[K] != NONE {
                over.places[K] = (plane * of_column + over.places[K]) * of_outputs;
            } });
            // SAFETY: the table has room for a run's rows; the entry is this thread's until the next barrier.
            unsafe { over.store(lines, number) };
            number += BLOCK;
        }
    };

    let mut run = thread::block_idx_x();
    let mut number = own;
    // The last is the first of the next row, for pairs that rows end in.
    while number <= width {
        let wraps = number == width;
        let mut over = Over::<OVER>::of(window, shares, 1, if wraps { 0 } else { number }, &weight);
        // Where a row's sums begin is a zero.
        let before = if wraps { of_sums + 1 } else { 1 };
        unrolled!(K in [0 1 2] { if K < OVER { over.places[K] = over.places[K].wrapping_add(before); } });
        // SAFETY: the table has room for a row's columns; the entry is this thread's.
        unsafe { over.store(columns, number) };
        number += BLOCK;
    }
    let mut number = own;
    while number < shares.rows {
        // SAFETY: the sums of as many rows have room; nothing else is ever put here.
        unsafe { sums.store(number * of_sums, 0.0) };
        number += BLOCK;
    }
    if run < shares.runs {
        put_rows(rows_of(run));
    }
    thread::sync_threads();
    while run < shares.runs {
        let rows = rows_of(run);
        let mut line = shares.over_outputs.by_line.divide(own);
        let mut column = own - line * of_outputs;
        while line < rows.count {
            let mut under_way = [Sum { at: NONE, weights: [0.0; OVER], values: [T::from_f32(0.0); OVER] }; AHEAD];
            unrolled!(A in [0 1 2 3] {
                let there = line < rows.count;
                // SAFETY: written before the barrier; an output where it is loaded.
                let (weights, values) = unsafe {
                    let over = Over::<OVER>::load(lines, if there { line } else { 0 });
                    let mut values = [T::from_f32(0.0); OVER];
                    unrolled!(K in [0 1 2] { if K < OVER {
                        let at = over.places[K].wrapping_add(column) as usize;
                        values[K] = dy.load_if(there & (over.places[K] != NONE), at, T::from_f32(0.0));
                    } });
                    (over.weights, values)
                };
                under_way[A] = Sum { at: if there { line * of_sums + 1 + column } else { NONE }, weights, values };
                column += shares.over_outputs.rest;
                line += shares.over_outputs.lines;
                if column >= of_outputs {
                    column -= of_outputs;
                    line += 1;
                }
            });
            unrolled!(A in [0 1 2 3] {
                let Sum { at, weights, values } = under_way[A];
                let mut sum = 0.0;
                unrolled!(K in [0 1 2] { if K < OVER { sum = float::fma(weights[K], values[K].to_f32(), sum); } });
                // SAFETY: this sum is this thread's until the barrier.
                unsafe { sums.store_if(at != NONE, at, sum) };
            });
        }
        thread::sync_threads();
        let first = run * RUN;
        let mut element = first + own * beside;
        let from = element - rows.first * width;
        let mut line = shares.over_row.by_line.divide(from);
        let mut column = from - line * width;
        line *= of_sums;
        let past = if first + RUN < shares.total { first + RUN } else { shares.total };
        while element < past {
            let mut pairs = [[0.0; 2]; AHEAD];
            unrolled!(A in [0 1 2 3] {
                unrolled!(P in [0 1] { if P < beside as usize {
                    // SAFETY: a column of the table, and of sums that have room, though of an element that is not there none are written.
                    unsafe {
                        let over = Over::<OVER>::load(columns, column + P as u32);
                        unrolled!(K in [0 1 2] { if K < OVER {
                            pairs[A][P] = float::fma(over.weights[K], sums.load(line + over.places[K]), pairs[A][P]);
                        } });
                    }
                } });
                column += shares.over_row.rest;
                line += shares.over_row.lines * of_sums;
                if column >= width {
                    column -= width;
                    line += of_sums;
                }
            });
            let all = element + (AHEAD as u32 - 1) * step + beside <= past;
            // SAFETY: the elements exist, and are this thread's; a pair begins at an even one.
            unsafe {
                if all & (beta == 0.0) {
                    unrolled!(A in [0 1 2 3] {
                        let (at, [x, y]) = (element as usize + A * step as usize, pairs[A].map(T::from_f32));
                        if beside == 2 { dx.store2(at, Vec2 { x, y }) } else { dx.store(at, x) }
                    });
                } else {
                    unrolled!(A in [0 1 2 3] { unrolled!(P in [0 1] {
                        let at = element + A as u32 * step + P as u32;
                        if P < beside as usize && at < past {
                            put(dx, at as usize, pairs[A][P], beta);
                        }
                    }); });
                }
            }
            element += AHEAD as u32 * step;
        }
        run += thread::grid_dim_x();
        if run < shares.runs {
            put_rows(rows_of(run));
        }
        thread::sync_threads();
    }
}
