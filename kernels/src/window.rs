//! The window of a pooling kernel, as its launch carries it, and what several such kernels do.
//!
//! One source serves both orders of images in memory. A *plane* here is what has its rows of pixels one after another: a
//! channel of an image, or, with the channels last, the whole image. The two differ in how many elements there are from a
//! pixel to the next ([`Order`]), and in which threads are neighbours: those of neighbouring elements, whatever they are
//! ([`Tiling`]), so that accesses are coalesced in both.

use core::marker::PhantomData;

use cuda_std::prelude::*;

/// The order of an image's elements in memory; pooling kernels have an instance for each.
pub trait Order: Copy + PartialEq + Send + Sync + 'static {
    /// Whether the channels of a pixel are neighbours.
    const CHANNELS_LAST: bool;
}

/// Row-major `[N, C, H, W]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nchw;

/// Row-major `[N, H, W, C]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nhwc;

impl Order for Nchw {
    const CHANNELS_LAST: bool = false;
}

impl Order for Nhwc {
    const CHANNELS_LAST: bool = true;
}

/// Sizes of the planes and of the window slid over them; pairs are `[vertical, horizontal]`, in pixels.
///
/// The host has checked that every window begins inside the padded image, that `padding <= size / 2`, and that the number
/// of planes, the elements of a row and the furthest coordinate that a window reaches are below 2³¹. A plane may have
/// more elements: only what is within a row is counted in 32 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window<L: Order> {
    /// Planes: batch times channels, or batch with the channels last.
    pub planes: u32,
    /// Channels that are neighbours: 1, or all with the channels last.
    pub channels: u32,
    /// Height and width of the input.
    pub input: [u32; 2],
    /// Height and width of the output.
    pub output: [u32; 2],
    /// Positions in the window.
    pub size: [u32; 2],
    /// Steps between windows.
    pub stride: [u32; 2],
    /// Padding before the first row and column.
    pub padding: [u32; 2],
    /// Steps between positions.
    pub dilation: [u32; 2],
    /// What `channels` is the number of.
    pub order: PhantomData<L>,
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl<L: Order> KernelParam for Window<L> {}

/// Where a window begins inside the image, along one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    /// The first position whose coordinate is not negative.
    pub position: u32,
    /// Its coordinate; past the image where the whole window is outside.
    pub coordinate: u32,
}

impl<L: Order> Window<L> {
    /// The same window over images in another order.
    pub fn in_order<M: Order>(&self) -> Window<M> {
        let Self { planes, channels, input, output, size, stride, padding, dilation, order: PhantomData } = *self;
        Window { planes, channels, input, output, size, stride, padding, dilation, order: PhantomData }
    }

    /// Elements from a pixel to the next in its row.
    #[device_inline]
    pub(crate) fn pixel(&self) -> u32 {
        if L::CHANNELS_LAST { self.channels } else { 1 }
    }

    /// Elements of a row of the input.
    #[device_inline]
    pub(crate) fn input_line(&self) -> usize {
        (self.input[1] * self.pixel()) as usize
    }

    /// Elements of a row of the output.
    #[device_inline]
    pub(crate) fn output_line(&self) -> usize {
        (self.output[1] * self.pixel()) as usize
    }

    /// Where plane `plane` of the input begins.
    #[device_inline]
    pub(crate) fn input_plane(&self, plane: u32) -> usize {
        plane as usize * (self.input[0] as usize * self.input_line())
    }

    /// Where plane `plane` of the output begins.
    #[device_inline]
    pub(crate) fn output_plane(&self, plane: u32) -> usize {
        plane as usize * (self.output[0] as usize * self.output_line())
    }

    /// Pixels along an axis from a window's first position to its last, both counted.
    #[device_inline]
    pub(crate) fn extent(&self, axis: usize) -> u32 {
        (self.size[axis] - 1) * self.dilation[axis] + 1
    }

    /// Where the window of an output begins inside the image.
    #[device_inline]
    pub(crate) fn first_inside(&self, axis: usize, output: u32) -> Inside {
        let (mut position, mut from_padding) = (0, output * self.stride[axis]);
        // At most half a window, and only at the image's edge.
        while from_padding < self.padding[axis] {
            position += 1;
            from_padding += self.dilation[axis];
        }
        Inside { position, coordinate: from_padding - self.padding[axis] }
    }

    /// The coordinates inside the image of an output's window without dilation.
    #[device_inline]
    pub(crate) fn inside(&self, axis: usize, output: u32) -> Steps {
        let begin = output * self.stride[axis];
        let end = begin + self.size[axis] - self.padding[axis];
        Steps {
            next: begin.saturating_sub(self.padding[axis]),
            step: 1,
            end: if end < self.input[axis] { end } else { self.input[axis] },
        }
    }
}

/// Division by a number that is known at launch: a multiplication and a shift, where `/` would be some twenty
/// instructions and a branch to a panic.
///
/// With `L = ceil(log2 d)` and `m = ceil(2^(31 + L) / d)`, `n / d = (n · m) >> (31 + L)` for `n < 2³¹`: `m` is off by
/// less than one, so the quotient by less than `n / 2^(31 + L) < 2^-L <= 1 / d` (Granlund & Montgomery, PLDI 1994).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider {
    multiplier: u32,
    shift: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Divider {}

impl Divider {
    /// The division by `divisor`, which is not zero.
    pub const fn new(divisor: u32) -> Self {
        assert!(divisor > 0, "a divisor is not zero");
        let shift = 31 + divisor.next_power_of_two().trailing_zeros();
        Self { multiplier: (1u64 << shift).div_ceil(divisor as u64) as u32, shift }
    }

    /// `n / divisor`, rounded down, for `n < 2³¹`.
    #[device_inline]
    pub fn divide(self, n: u32) -> u32 {
        (integer::mul_wide(n, self.multiplier) >> self.shift) as u32
    }
}

/// The window's numbers that a kernel divides by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covering {
    stride: [Divider; 2],
    /// By the window's dilation.
    pub(crate) dilation: [Divider; 2],
    /// By the number of the window's columns.
    pub(crate) width: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Covering {}

impl Covering {
    /// Those of this window.
    pub fn new<L: Order>(window: &Window<L>) -> Self {
        Self {
            stride: [Divider::new(window.stride[0]), Divider::new(window.stride[1])],
            dilation: [Divider::new(window.dilation[0]), Divider::new(window.dilation[1])],
            width: Divider::new(window.size[1]),
        }
    }

    /// The outputs along `axis` whose windows reach over this input; with dilation also some that step over it.
    #[device_inline]
    pub(crate) fn outputs<L: Order>(&self, window: &Window<L>, axis: usize, input: u32) -> Steps {
        let [next, end] = self.over(window, axis, input);
        Steps { next, step: 1, end }
    }

    /// As [`outputs`](Self::outputs), the first and that past the last.
    #[device_inline]
    pub(crate) fn over<L: Order>(&self, window: &Window<L>, axis: usize, input: u32) -> [u32; 2] {
        let last = input + window.padding[axis];
        let extent = window.extent(axis);
        let first = if last < extent { 0 } else { self.stride[axis].divide(last - extent) + 1 };
        let end = self.stride[axis].divide(last) + 1;
        [first, if end < window.output[axis] { end } else { window.output[axis] }]
    }
}

impl Covering {
    /// The last output along `axis` whose window may reach over this input, in images that go on for ever.
    #[device_inline]
    pub(crate) fn last<L: Order>(&self, window: &Window<L>, axis: usize, input: u32) -> u32 {
        self.stride[axis].divide(input + window.padding[axis])
    }
}

/// The outputs whose windows are over a row, from row to row: what [`Covering::over`] divides for, counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Down {
    /// The first output.
    pub begin: u32,
    /// That past the last, in images of any height.
    end: u32,
    /// Rows until the first and the last change.
    until: [u32; 2],
}

impl Covering {
    /// From this row on.
    #[device_inline]
    pub(crate) fn down(&self, window: &Window<Nchw>, row: u32) -> Down {
        let (last, extent, stride) = (row + window.padding[0], window.extent(0), window.stride[0]);
        let before = self.stride[0].divide(last);
        // The first window is left behind as many rows after its extent as a stride.
        let begin = if last < extent { 0 } else { self.stride[0].divide(last - extent) + 1 };
        let until = [begin * stride + extent - last, (before + 1) * stride - last];
        Down { begin, end: before + 1, until }
    }
}

impl Down {
    /// That past the last output.
    #[device_inline]
    pub(crate) fn end(&self, window: &Window<Nchw>) -> u32 {
        if self.end < window.output[0] { self.end } else { window.output[0] }
    }

    /// Goes one row on.
    #[device_inline]
    pub(crate) fn next(&mut self, window: &Window<Nchw>) {
        let stride = window.stride[0];
        let [leaves, comes] = self.until.map(|rows| rows == 1);
        self.begin += if leaves { 1 } else { 0 };
        self.end += if comes { 1 } else { 0 };
        self.until = [if leaves { stride } else { self.until[0] - 1 }, if comes { stride } else { self.until[1] - 1 }];
    }
}

/// Threads of a block that goes over planes, at most.
pub const THREADS: u32 = 256;

/// Such blocks that a multiprocessor has room for, at least: 48 registers a thread. Not said, `ptxas` picks an odd limit
/// and spills.
pub const MIN_BLOCKS: u32 = 5;

/// As [`MIN_BLOCKS`], for kernels that keep more and spill with as many: 64 registers a thread.
pub const FEWER_BLOCKS: u32 = 4;

/// As [`FEWER_BLOCKS`]: 80 registers a thread.
pub const FEWEST_BLOCKS: u32 = 3;

/// Blocks along an axis of the grid other than x, at most.
const MOST_BLOCKS: u32 = 65_535;

/// Columns that a block takes, at most.
pub(crate) const MOST_COLUMNS: u32 = 128;

/// Rows that a thread takes, where no more are needed: what it works out about its column serves for all of them.
const ROWS: u32 = 4;

/// Threads that a GPU has room for, about: where there are fewer elements than so many a row, a thread takes fewer rows.
const ENOUGH: u64 = 1 << 18;

/// How blocks and threads are laid over the elements of planes, one thread for one place in a few rows.
///
/// A block is as wide as the plane where that is possible, so that neighbouring threads have neighbouring elements also
/// from one row to the next; of small planes it takes several. No thread divides, but once by the number of channels where
/// these are last.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    planes: u32,
    /// Rows, and elements of a row.
    size: [u32; 2],
    /// Rows of a thread, a block's height apart.
    rows: u32,
    channels: Divider,
    /// Whether the grid's z has the planes and its x the places in a row, or each the other. Blocks start in the order of x, then y,
    /// then z: where the planes are last, what is under way at a time lies in few of them.
    planes_last: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Tiling {}

impl Tiling {
    /// The tiling over planes of this height and width in pixels, the window's input or output, neither zero; and the grid
    /// and the block of its launch.
    pub fn new<L: Order>(window: &Window<L>, size: [u32; 2]) -> (Self, [u32; 3], [u32; 3]) {
        Self::of_threads(window, size, THREADS)
    }

    /// As [`new`](Self::new), with so many threads a block, at most.
    pub fn of_threads<L: Order>(window: &Window<L>, size: [u32; 2], threads: u32) -> (Self, [u32; 3], [u32; 3]) {
        let of_plane = u64::from(size[0]) * u64::from(size[1] * window.pixel());
        let elements = of_plane.saturating_mul(u64::from(window.planes));
        let rows = (elements / ENOUGH).clamp(1, u64::from(ROWS)) as u32;
        Self::of_rows(window, size, rows, [MOST_COLUMNS, threads])
    }

    /// As [`new`](Self::new), so many rows a thread, where no more are needed, and columns and threads a block, at most.
    pub(crate) fn of_rows<L: Order>(
        window: &Window<L>,
        [height, width]: [u32; 2],
        rows: u32,
        [most_columns, threads]: [u32; 2],
    ) -> (Self, [u32; 3], [u32; 3]) {
        let (planes, width) = (window.planes, width * window.pixel());
        let columns = width.div_ceil(width.div_ceil(most_columns));
        let lines = (threads / columns).min(height);
        let depth = (threads / (columns * lines)).min(planes.max(1)).min(64);
        let rows = rows.min(height.div_ceil(lines)).max(height.div_ceil(lines * MOST_BLOCKS));
        let (deep, high, wide) = (planes.div_ceil(depth), height.div_ceil(lines * rows), width.div_ceil(columns));
        let planes_last = u32::from(deep <= MOST_BLOCKS);
        let grid = if planes_last == 1 { [wide, high, deep] } else { [deep, high, wide.min(MOST_BLOCKS)] };
        let channels = Divider::new(window.pixel());
        (Self { planes, size: [height, width], rows, channels, planes_last }, grid, [columns, lines, depth])
    }

    /// The plane of this thread; none for threads past the last.
    #[device_inline]
    pub fn plane(self) -> Option<u32> {
        let block = if self.planes_last == 1 { thread::block_idx_z() } else { thread::block_idx_x() };
        let plane = block * thread::block_dim_z() + thread::thread_idx_z();
        if plane < self.planes { Some(plane) } else { None }
    }

    /// The column that this place in a row is of.
    #[device_inline]
    pub(crate) fn column<L: Order>(self, place: u32) -> u32 {
        if L::CHANNELS_LAST { self.channels.divide(place) } else { place }
    }

    /// The column and the channel of the element at this place in a row.
    #[device_inline]
    pub(crate) fn pixel<L: Order>(self, window: &Window<L>, place: u32) -> Pixel {
        let column = self.column::<L>(place);
        Pixel { column, channel: place - column * window.pixel() }
    }

    /// The places in a row that are this thread's.
    #[device_inline]
    pub fn places(self) -> Steps {
        let (block, blocks) = if self.planes_last == 1 {
            (thread::block_idx_x(), thread::grid_dim_x())
        } else {
            (thread::block_idx_z(), thread::grid_dim_z())
        };
        let width = thread::block_dim_x();
        Steps { next: block * width + thread::thread_idx_x(), step: blocks * width, end: self.size[1] }
    }

    /// The rows of this thread.
    #[device_inline]
    pub fn rows(self) -> Steps {
        let step = thread::block_dim_y();
        let first = thread::block_idx_y() * (step * self.rows);
        let end = first + step * self.rows;
        let end = if end < self.size[0] { end } else { self.size[0] };
        Steps { next: first + thread::thread_idx_y(), step, end }
    }

    /// As many rows of this thread, one after another: the first, and that past the last.
    #[device_inline]
    pub(crate) fn run(self) -> [u32; 2] {
        let number = thread::block_idx_y() * thread::block_dim_y() + thread::thread_idx_y();
        let (first, end) = (number * self.rows, (number + 1) * self.rows);
        [first, if end < self.size[0] { end } else { self.size[0] }]
    }
}

/// What an element of a row is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pixel {
    pub column: u32,
    /// 0 where a plane has one.
    pub channel: u32,
}

/// `next`, `next + step` and so on below `end`.
#[derive(Clone, Debug)]
pub struct Steps {
    next: u32,
    step: u32,
    end: u32,
}

impl Steps {
    /// From `first` on, `step` apart, to before `end`.
    #[device_inline]
    pub(crate) fn new(first: u32, step: u32, end: u32) -> Self {
        Self { next: first, step, end }
    }
}

impl Iterator for Steps {
    type Item = u32;

    #[device_inline]
    fn next(&mut self) -> Option<u32> {
        let current = self.next;
        if current < self.end {
            self.next = current + self.step;
            Some(current)
        } else {
            None
        }
    }
}

/// Calls `f` with the number of each that is true, one after another: for what is seldom true, so that there is one piece of
/// code for all.
#[device_inline]
pub(crate) fn for_each_of<const COUNT: usize>(which: [bool; COUNT], f: impl Fn(u32)) {
    let mut any = false;
    unrolled!(K in [0 1 2 3 4 5 6 7] { if K < COUNT { any |= which[K]; } });
    if !any {
        return;
    }
    let mut left = 0u32;
    unrolled!(K in [0 1 2 3 4 5 6 7] { if K < COUNT && which[K] { left |= 1 << K; } });
    while left != 0 {
        f(left.trailing_zeros());
        left &= left - 1;
    }
}

/// An integer that names a position of a window.
pub trait Position: Vector4 {
    /// `position`, which the type can name: the type was chosen by the window.
    fn narrow(position: u32) -> Self;
    /// The position.
    fn widen(self) -> u32;
}

macro_rules! positions {
    ($($t:ty)*) => {$(
        impl Position for $t {
            // In the CPU's loops too.
            #[inline(always)]
            fn narrow(position: u32) -> Self {
                position as Self
            }
            #[inline(always)]
            fn widen(self) -> u32 {
                self as u32
            }
        }
    )*};
}
positions!(u8 u16);

#[cfg(test)]
mod tests;
