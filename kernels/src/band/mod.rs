//! Pooling by bands: what the kernels share that keep rows of planes in shared memory.
//!
//! A block takes a band of rows of a plane, or whole planes where they are small. In memory such rows are one range without
//! gaps, whatever their length: the block copies it in pieces of 16 bytes past the registers (`cp.async`), so that a
//! multiprocessor has all of its blocks' bands under way at once, and only then reads elements one by one. Rows of any
//! length are read and written as fast as memory gives them; where a range begins within 16 bytes is only a number to add.
//!
//! - [`slide`]: forward over small windows, a thread a column and a run of rows of outputs;
//! - [`cells`]: backward over small windows two apart, a thread two columns and a run of pairs of rows of inputs;
//! - [`pairs`]: both, where rows are a multiple of four elements: twice as many columns a thread, and vectors;
//! - [`groups`]: windows of any size down a column, a thread a column and a run of rows;
//! - [`meshes`]: forward over larger windows, a thread a square as large as windows are apart, without copies;
//! - [`any`]: windows of any size, stride and dilation, an element at a time.
//!
//! `choice` says which rows and threads a block takes.
//!
//! Bound by memory where windows are small: docs/perf has the share of the copy rate that each pass reaches.

pub mod any;
pub mod cells;
mod choice;
pub mod groups;
pub mod meshes;
pub mod pairs;
mod series;
pub mod slide;
pub mod spread;

pub use series::Series;

use cuda_std::arch::sm_80::{cp_async_commit, cp_async_wait_all, cp_async16};
use cuda_std::prelude::*;

use crate::elementwise::{put, put4};
use crate::window::{Divider, Nchw, Steps, Window};

/// Threads of a block, at most.
pub const THREADS: u32 = 256;
/// Such blocks that a multiprocessor has room for, at least: 40 registers a thread.
pub const MIN_BLOCKS: u32 = 6;
/// As [`MIN_BLOCKS`], for kernels that keep more: 48 registers a thread.
pub const FEWER_BLOCKS: u32 = 5;

/// Bytes that are copied at once.
const COPY: u32 = 16;

/// How blocks are laid over bands of rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    planes: u32,
    /// Planes of a block: one, or as many whole ones.
    depth: u32,
    /// Rows of a plane.
    height: u32,
    /// Rows of a band.
    rows: u32,
    /// Whether the grid's y has the planes and its x the bands of one, or each the other. Blocks start in the order of x, then y:
    /// where the planes are last, what is under way at a time lies in few of them.
    planes_last: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Block {}

/// A launch by bands: its grid, its block and the bytes of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandLaunch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared: u32,
}

impl Block {
    /// Planes of a block, at most.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// What this block takes.
    #[device_inline]
    pub(crate) fn span(&self) -> Span {
        let (x, y) = (thread::block_idx_x(), thread::block_idx_y());
        let (plane, band) = if self.planes_last == 1 { (y, x) } else { (x, y) };
        self.span_of(plane, band)
    }

    /// What a block takes of so many planes, or groups of them, after the first, and of the band of this number there.
    #[device_inline]
    pub(crate) fn span_of(&self, plane: u32, band: u32) -> Span {
        let first_plane = plane * self.depth;
        let first = band * self.rows;
        Span {
            first_plane,
            depth: least(self.depth, self.planes - first_plane),
            whole: self.depth > 1,
            rows: [first, least(first + self.rows, self.height)],
        }
    }
}

/// What a block takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub first_plane: u32,
    /// How many planes.
    pub depth: u32,
    /// Whether blocks take several planes, all of their rows.
    pub whole: bool,
    /// The first row, and that past the last.
    pub rows: [u32; 2],
}

/// How threads of a block are laid over a band: a column each, and of it a run of consecutive rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    pub(crate) block: Block,
    /// Columns of a plane.
    width: u32,
    /// Rows of a thread.
    run: u32,
    /// Runs of a band in a plane.
    groups: u32,
    by_run: Divider,
    by_groups: Divider,
    by_columns: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Bands {}

/// What a thread takes of its block's band.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The thread's plane among the block's.
    pub plane: u32,
    /// Its first row, and that past its last; none where this is not after the first.
    pub rows: [u32; 2],
    /// Its first column; the next are [`Bands::columns`] on.
    pub column: u32,
}

impl Bands {
    /// Planes of a block, at most.
    pub fn depth(&self) -> u32 {
        self.block.depth
    }

    /// What this thread takes.
    #[device_inline]
    pub(crate) fn part(&self, span: &Span) -> Part {
        let lane = self.by_columns.divide(thread::thread_idx_x());
        let column = thread::thread_idx_x() - lane * self.columns();
        let plane = self.by_groups.divide(lane);
        let row = span.rows[0] + (lane - plane * self.groups) * self.run;
        let end = if plane < span.depth { least(row + self.run, span.rows[1]) } else { 0 };
        Part { plane, rows: [row, end], column }
    }

    /// Threads of each plane of a block, one after another.
    #[device_inline]
    pub(crate) fn threads_of_plane(&self) -> u32 {
        self.groups * self.columns()
    }

    /// The columns of this thread, if it has rows: for what is too much for [`for_each_column`](Self::for_each_column)'s function to be inlined,
    /// whose loop keeps a register less.
    #[device_inline]
    pub(crate) fn each_column(&self, part: &Part) -> Steps {
        let end = if part.rows[0] < part.rows[1] { self.width } else { 0 };
        Steps::new(part.column, self.columns(), end)
    }

    /// Calls `f` with each column of this thread, if it has rows.
    #[device_inline]
    pub(crate) fn for_each_column(&self, part: &Part, f: impl Fn(u32)) {
        let mut column = part.column;
        while column < self.width && part.rows[0] < part.rows[1] {
            f(column);
            column += self.columns();
        }
    }

    /// The number of this thread's run in its plane, and how many runs with rows there are.
    #[device_inline]
    pub(crate) fn group(&self, part: &Part, span: &Span) -> (u32, u32) {
        let by_run = |rows: u32| self.by_run.divide(rows);
        (by_run(part.rows[0] - span.rows[0]), by_run(span.rows[1] - span.rows[0] + self.run - 1))
    }

    /// Columns that the threads of a block take at once.
    #[device_inline]
    fn columns(&self) -> u32 {
        least(self.width, THREADS)
    }
}

#[device_inline]
pub(crate) fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// Rows of planes in shared memory, one after another as in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Staged<T> {
    shared: Shared<T>,
    /// Where the first row begins.
    skew: u32,
    /// How many elements there are.
    count: u32,
    /// The first row, and that past the last.
    pub rows: [u32; 2],
    width: u32,
    /// This thread's of the elements after the last whole piece, and its place; past the last, if it has none.
    rest: T,
    rest_at: u32,
}

/// Bytes of shared memory for a range of so many.
pub(crate) const fn staged_bytes(range: u64) -> u64 {
    range.next_multiple_of(COPY as u64) + COPY as u64
}

impl<T: Element> Staged<T> {
    /// The rows of a tensor of planes of this height and width, in memory that begins where they do within 16 bytes.
    #[device_inline]
    fn new(shared: Shared<T>, span: &Span, rows: [u32; 2], [height, width]: [u32; 2]) -> (Self, usize) {
        let each = const { COPY / size_of::<T>() as u32 };
        let first = rows[0] as usize * width as usize;
        let begin = span.first_plane as usize * (height as usize * width as usize) + first;
        let skew = begin as u32 & (each - 1);
        // SAFETY: elements are integers and floats.
        let rest = unsafe { core::mem::zeroed() };
        let count = span.depth * (rows[1] - rows[0]) * width;
        (Self { shared, skew, count, rows, width, rest, rest_at: u32::MAX }, begin)
    }

    /// Issues the copies of these rows of the block's planes. They are there after [`wait`].
    ///
    /// # Safety
    /// `source` holds planes of this height and width, and begins at a multiple of 16 bytes; `shared` holds
    /// [`staged_bytes`] from a multiple of 16 bytes on.
    #[device_inline]
    pub(crate) unsafe fn copy(
        shared: Shared<T>,
        source: Global<T>,
        span: &Span,
        rows: [u32; 2],
        size: [u32; 2],
    ) -> Self {
        let each = const { COPY / size_of::<T>() as u32 };
        let (mut staged, begin) = Self::new(shared, span, rows, size);
        let (begin, end) = (begin - staged.skew as usize, staged.skew + staged.count);
        let whole = end & !(each - 1);
        // SAFETY: whole pieces end where the rows do, and begin there or before within the buffer; what is left of the rows is
        // less than a piece, and elements go one by one: a copy of fewer bytes reads all 16, past the buffer's end. They are
        // on their way with the copies, and are put down when these have come.
        unsafe {
            let i = whole + thread::thread_idx_x();
            staged.rest = source.load_if(i < end, begin + i as usize, staged.rest);
            staged.rest_at = i;
            let mut i = thread::thread_idx_x() * each;
            while i < whole {
                cp_async16(shared, i, source, begin + i as usize);
                i += thread::block_dim_x() * each;
            }
        }
        staged
    }

    /// The shared memory behind these rows.
    ///
    /// # Safety
    /// There is some.
    #[device_inline]
    pub(crate) unsafe fn behind<U: Element>(&self) -> Shared<U> {
        let each = const { COPY / size_of::<T>() as u32 };
        // SAFETY: the caller's.
        unsafe { self.shared.offset((self.skew + self.count + each - 1) & !(each - 1)) }.cast()
    }

    /// The place of a plane of the block, row and column; of no element where the row or the column is not there.
    #[device_inline]
    pub(crate) fn place(&self, plane: u32, row: u32, column: u32) -> u32 {
        let line = plane.wrapping_mul(self.rows[1] - self.rows[0]).wrapping_add(row).wrapping_sub(self.rows[0]);
        line.wrapping_mul(self.width).wrapping_add(column).wrapping_add(self.skew)
    }

    /// The element at a place.
    ///
    /// # Safety
    /// It is one.
    #[device_inline]
    pub(crate) unsafe fn load(&self, place: u32) -> T {
        // SAFETY: the caller's.
        unsafe { self.shared.load(place) }
    }

    /// The element at a place if `inside`, else `otherwise`.
    ///
    /// # Safety
    /// The place is one where it is loaded.
    #[device_inline]
    pub(crate) unsafe fn load_if(&self, inside: bool, place: u32, otherwise: T) -> T {
        // SAFETY: the caller's.
        unsafe { self.shared.load_if(inside, place, otherwise) }
    }

    /// The four elements from a place on if `inside`, else `otherwise`.
    ///
    /// # Safety
    /// The place is a multiple of four, and they are elements, where they are loaded.
    #[device_inline]
    pub(crate) unsafe fn load4_if(&self, inside: bool, place: u32, otherwise: Vec4<T>) -> Vec4<T>
    where
        T: Vector4,
    {
        // SAFETY: the caller's.
        unsafe { self.shared.load4_if(inside, place, otherwise) }
    }
}

/// Rows whose copies were issued.
pub(crate) trait Copied: Copy {
    /// Puts down what is no whole piece.
    ///
    /// # Safety
    /// Their shared memory is still theirs.
    unsafe fn put_rest(self);
}

impl<T: Element> Copied for Staged<T> {
    #[device_inline]
    unsafe fn put_rest(self) {
        // SAFETY: the caller's; the place is one of the rows.
        unsafe { self.shared.store_if(self.rest_at < self.skew + self.count, self.rest_at, self.rest) };
    }
}

impl<A: Copied, B: Copied> Copied for (A, B) {
    #[device_inline]
    unsafe fn put_rest(self) {
        // SAFETY: the caller's.
        unsafe {
            self.0.put_rest();
            self.1.put_rest();
        }
    }
}

impl<A: Copied> Copied for Option<A> {
    #[device_inline]
    unsafe fn put_rest(self) {
        if let Some(copied) = self {
            // SAFETY: the caller's.
            unsafe { copied.put_rest() };
        }
    }
}

/// Waits for all copies of the block, which are these.
///
/// # Safety
/// Their shared memory is still theirs.
#[device_inline]
pub(crate) unsafe fn wait(copied: impl Copied) {
    cp_async_commit();
    // SAFETY: the caller's.
    unsafe { copied.put_rest() };
    cp_async_wait_all();
    thread::sync_threads();
}

/// Rows of gradients that a block makes in shared memory, and stores in vectors.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    rows: Staged<f32>,
    /// Where they begin in the tensor.
    begin: usize,
}

impl Tile {
    /// For these rows of the block's planes.
    ///
    /// # Safety
    /// `shared` has [`staged_bytes`] for them.
    #[device_inline]
    pub(crate) unsafe fn new(shared: Shared<f32>, span: &Span, rows: [u32; 2], size: [u32; 2]) -> Self {
        let (rows, begin) = Staged::new(shared, span, rows, size);
        Self { rows, begin }
    }

    /// As [`Staged::place`].
    #[device_inline]
    pub(crate) fn place(&self, plane: u32, row: u32, column: u32) -> u32 {
        self.rows.place(plane, row, column)
    }

    /// Where the sums are.
    #[device_inline]
    pub(crate) fn sums(&self) -> Shared<f32> {
        self.rows.shared
    }

    /// Makes all sums zeros.
    ///
    /// # Safety
    /// Nobody uses them meanwhile.
    #[device_inline]
    pub(crate) unsafe fn clear(&self) {
        let mut i = thread::thread_idx_x() * 4;
        while i < self.rows.skew + self.rows.count {
            // SAFETY: there is room for whole vectors.
            unsafe { self.rows.shared.store4(i, Vec4::splat(0.0)) };
            i += thread::block_dim_x() * 4;
        }
    }

    /// `dx = sums + beta * dx`, once all threads have put theirs: a barrier comes first.
    ///
    /// # Safety
    /// `dx` holds the tensor, and begins at a multiple of 16 bytes.
    #[device_inline]
    pub(crate) unsafe fn write_out<T: Storage>(&self, dx: GlobalMut<T>, beta: f32) {
        thread::sync_threads();
        let Staged { shared, skew, count, .. } = self.rows;
        let (first, end) = (self.begin - skew as usize, skew + count);
        // Whole vectors, two at a time, and what is before and after them.
        let whole = [(skew + 3) & !3, end & !3];
        let (number, step) = (thread::thread_idx_x(), thread::block_dim_x() * 4);
        let mut i = whole[0] + number * 4;
        // SAFETY: what is stored are places of the range.
        unsafe {
            while i + step < whole[1] {
                let (here, next) = (shared.load4(i), shared.load4(i + step));
                put4(dx, first + i as usize, here, beta);
                put4(dx, first + (i + step) as usize, next, beta);
                i += 2 * step;
            }
            if i < whole[1] {
                put4(dx, first + i as usize, shared.load4(i), beta);
            }
            if number < 4 {
                let (before, after) = (skew + number, if whole[0] > whole[1] { whole[0] } else { whole[1] } + number);
                if before < least(whole[0], end) {
                    put(dx, first + before as usize, shared.load(before), beta);
                }
                if after < end {
                    put(dx, first + after as usize, shared.load(after), beta);
                }
            }
        }
    }
}

/// The rows of inputs that the windows of the block's rows of outputs have.
#[device_inline]
pub(crate) fn inputs_of(window: &Window<Nchw>, span: &Span) -> [u32; 2] {
    if span.whole {
        return [0, window.input[0]];
    }
    let top = (span.rows[0] * window.stride[0]).saturating_sub(window.padding[0]);
    let bottom = (span.rows[1] - 1) * window.stride[0] + window.size[0] - window.padding[0];
    [top, least(bottom, window.input[0])]
}

#[cfg(test)]
mod tests;
