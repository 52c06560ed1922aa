//! The window of a pooling kernel, as its launch carries it.

use cuda_std::prelude::*;

/// Sizes of one image and of the window slid over it. All but `planes` are per image plane, `[vertical, horizontal]`.
///
/// The host has checked that every window begins inside the padded image, that `padding <= size / 2`, and that a plane
/// has fewer than 2³¹ elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Planes: batch times channels.
    pub planes: u32,
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
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Window {}

/// Where a window begins inside the image, along one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    /// The first position whose coordinate is not negative.
    pub position: u32,
    /// Its coordinate; past the image where the whole window is outside.
    pub coordinate: u32,
}

impl Window {
    /// Where plane `plane` of the input begins.
    #[inline(always)]
    pub(crate) fn input_plane(&self, plane: u64) -> usize {
        (plane * (self.input[0] * self.input[1]) as u64) as usize
    }

    /// Where plane `plane` of the output begins.
    #[inline(always)]
    pub(crate) fn output_plane(&self, plane: u64) -> usize {
        (plane * (self.output[0] * self.output[1]) as u64) as usize
    }

    /// Where the window of an output begins inside the image.
    #[inline(always)]
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
    #[inline(always)]
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

impl Divider {
    /// The division by `divisor`, which is not zero.
    pub const fn new(divisor: u32) -> Self {
        assert!(divisor > 0, "a divisor is not zero");
        let shift = 31 + divisor.next_power_of_two().trailing_zeros();
        Self { multiplier: (1u64 << shift).div_ceil(divisor as u64) as u32, shift }
    }

    /// `n / divisor`, rounded down, for `n < 2³¹`.
    #[inline(always)]
    pub const fn divide(self, n: u32) -> u32 {
        ((n as u64 * self.multiplier as u64) >> self.shift) as u32
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
    pub fn new(window: &Window) -> Self {
        Self {
            stride: [Divider::new(window.stride[0]), Divider::new(window.stride[1])],
            dilation: [Divider::new(window.dilation[0]), Divider::new(window.dilation[1])],
            width: Divider::new(window.size[1]),
        }
    }

    /// The outputs along `axis` whose windows reach over this input; with dilation also some that step over it.
    #[inline(always)]
    pub(crate) fn outputs(&self, window: &Window, axis: usize, input: u32) -> Steps {
        let last = input + window.padding[axis];
        let extent = (window.size[axis] - 1) * window.dilation[axis] + 1;
        let first = if last < extent { 0 } else { self.stride[axis].divide(last - extent) + 1 };
        let end = self.stride[axis].divide(last) + 1;
        Steps { next: first, step: 1, end: if end < window.output[axis] { end } else { window.output[axis] } }
    }
}

/// Threads of a block that goes over planes, at most.
pub const THREADS: u32 = 256;

/// Such blocks that a multiprocessor has room for, at least: 48 registers a thread. Not said, `ptxas` picks an odd limit
/// and spills.
pub const MIN_BLOCKS: u32 = 5;

/// Blocks along an axis of the grid other than x, at most.
const MOST_BLOCKS: u32 = 65_535;

/// Columns that a block takes, at most.
const MOST_COLUMNS: u32 = 128;

/// Rows that a thread takes, where no more are needed: what it works out about its column serves for all of them.
const ROWS: u32 = 4;

/// How blocks and threads are laid over the cells of planes, one thread for a column of a few rows.
///
/// A block is as wide as the plane where that is possible, so that neighbouring threads have neighbouring cells also
/// from one row to the next; of small planes it takes several. No thread divides.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    planes: u32,
    /// Height and width.
    size: [u32; 2],
    /// Rows of a thread, a block's height apart.
    rows: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Layout {}

impl Layout {
    /// The layout over planes of this height and width, none of them zero, and the grid and the block of its launch.
    pub fn new(planes: u32, size: [u32; 2]) -> (Self, [u32; 3], [u32; 3]) {
        let [height, width] = size;
        let columns = width.div_ceil(width.div_ceil(MOST_COLUMNS));
        let lines = (THREADS / columns).min(height);
        let depth = (THREADS / (columns * lines)).min(planes.max(1)).min(64);
        let rows = ROWS.min(height.div_ceil(lines)).max(height.div_ceil(lines * MOST_BLOCKS));
        let grid = [planes.div_ceil(depth), height.div_ceil(lines * rows), width.div_ceil(columns).min(MOST_BLOCKS)];
        (Self { planes, size, rows }, grid, [columns, lines, depth])
    }

    /// The plane of this thread; none for threads past the last.
    #[inline(always)]
    pub fn plane(self) -> Option<u64> {
        let plane = thread::block_idx_x() * thread::block_dim_z() + thread::thread_idx_z();
        if plane < self.planes { Some(plane as u64) } else { None }
    }

    /// The columns of this thread.
    #[inline(always)]
    pub fn columns(self) -> Steps {
        let step = thread::grid_dim_z() * thread::block_dim_x();
        Steps { next: thread::block_idx_z() * thread::block_dim_x() + thread::thread_idx_x(), step, end: self.size[1] }
    }

    /// The rows of this thread.
    #[inline(always)]
    pub fn rows(self) -> Steps {
        let step = thread::block_dim_y();
        let first = thread::block_idx_y() * (step * self.rows);
        let end = first + step * self.rows;
        let end = if end < self.size[0] { end } else { self.size[0] };
        Steps { next: first + thread::thread_idx_y(), step, end }
    }
}

/// `next`, `next + step` and so on below `end`.
#[derive(Clone, Debug)]
pub struct Steps {
    next: u32,
    step: u32,
    end: u32,
}

impl Iterator for Steps {
    type Item = u32;

    #[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_as_division_does() {
        let interesting = [1, 2, 3, 5, 7, 10, 64, 1000, 65_535, 65_536, 715_827_883, (1 << 30) + 1, (1 << 31) - 1];
        for divisor in interesting {
            let divider = Divider::new(divisor);
            for multiple in interesting.map(|n: u32| n - n % divisor).into_iter().chain([0]) {
                for n in [multiple.wrapping_sub(1), multiple, multiple + 1, multiple + divisor - 1] {
                    if n < 1 << 31 {
                        assert_eq!(divider.divide(n), n / divisor, "{n} / {divisor}");
                    }
                }
            }
        }
    }

    #[test]
    fn layouts_cover_every_cell_within_the_limits() {
        for planes in [1, 5, 4096, 1 << 30] {
            for size in
                [[1, 1], [7, 7], [1, 300], [300, 1], [56, 56], [112, 112], [1, (1 << 31) - 1], [(1 << 31) - 1, 1]]
            {
                let (layout, grid, block) = Layout::new(planes, size);
                let covers = |axis: usize, each: u32, n: u32| u64::from(grid[axis]) * u64::from(each) >= u64::from(n);
                assert!(block.iter().product::<u32>() <= THREADS && block[2] <= 64, "{planes} {size:?}: {block:?}");
                assert!(grid[1] <= MOST_BLOCKS && grid[2] <= MOST_BLOCKS, "{planes} {size:?}: {grid:?}");
                assert!(
                    covers(0, block[2], planes) && covers(1, block[1] * layout.rows, size[0]),
                    "{size:?}: {grid:?}"
                );
            }
        }
    }
}
