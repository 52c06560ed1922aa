//! Windows of row-major images whose rows are whole chunks of 16 bytes: lanes of a warp share a window, a chunk at a time.
//!
//! A window's chunks are counted row by row. Of as many neighbouring lanes as leave each some four chunks, or a warp's, each takes
//! every so manyth, several under way before it uses the first. What lanes found is brought together by shuffles, in a fixed order. Where a window has all columns of the image, its rows follow each other,
//! and are one row here: planes whose rows are no whole chunks may be.
//!
//! Bound by memory where windows do not overlap: 16×16 on 16×64×128×128 takes 0.86 of the copy rate on an H200 (maximum) and 0.90 (average), 0.68 and
//! 0.79 in 16 bits, where a launch is a fifth of the time.

use cuda_std::prelude::*;

use crate::vectors::{LANES, Lanes, lanes};
use crate::window::{Divider, Nchw, Window};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Chunks that a lane loads before it uses the first.
const AHEAD: u32 = 4;
/// Chunks of a window, at least: smaller ones have other kernels.
const LEAST: u32 = 8;
/// Windows over an element, at most, and how far these are apart, at least: where they overlap more, or by less, what they share is worth
/// to be staged.
const MOST_OVER: u32 = 4;
const LEAST_APART: u32 = 8;
/// Threads from which on memory is busy: of fewer, each with more chunks than it loads at once, several [warps](crate::warps) share a window.
const ENOUGH_THREADS: u32 = 1 << 15;

/// How lanes are laid over windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Windows of all planes, and of one.
    windows: u32,
    by_windows: Divider,
    /// Windows of a row.
    by_width: Divider,
    /// Lanes of a window, a power of two, as an exponent.
    lanes: u32,
    /// Chunks of a window, and of its row.
    count: u32,
    across: u32,
    by_across: Divider,
    /// Chunks of an image's row and of a plane, and from one window to the next along each axis.
    line: u32,
    plane: u32,
    step: [u32; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Chunks {}

impl Chunks {
    /// Over windows of elements of so many bytes, and the blocks; `None` where windows are not such, reach outside of the image,
    /// overlap much, or are few and large.
    pub fn new(window: &Window<Nchw>, bytes: usize) -> Option<(Self, u32)> {
        let ([height, width], [rows, columns], [down, right]) = (window.input, window.size, window.output);
        let inside = (0..2).all(|axis| {
            let last = u64::from(window.output[axis] - 1) * u64::from(window.stride[axis]);
            last + u64::from(window.size[axis]) <= u64::from(window.input[axis])
        });
        let over = [0, 1].map(|axis| window.size[axis].div_ceil(window.stride[axis]));
        let over = over[0].saturating_mul(over[1]);
        let overlap = over > MOST_OVER || (over > 1 && window.stride.iter().any(|&stride| stride < LEAST_APART));
        if window.padding != [0; 2] || window.dilation != [1; 2] || !inside || overlap {
            return None;
        }
        let positions = rows.checked_mul(columns)?;
        let (across, line) = if columns == width { (positions, 0) } else { (columns, width) };
        let step = [
            if down > 1 { window.stride[0].checked_mul(width)? } else { 0 },
            if right > 1 { window.stride[1] } else { 0 },
        ];
        let plane = height.checked_mul(width)?;
        let of_chunk = (16 / bytes) as u32;
        if ![across, line, plane, step[0], step[1]].iter().all(|elements| elements.is_multiple_of(of_chunk)) {
            return None;
        }
        let (count, across) = (positions / of_chunk, across / of_chunk);
        let lanes = (count / AHEAD).next_power_of_two().min(warp::WARP_SIZE).trailing_zeros();
        let of_plane = down.checked_mul(right)?;
        let limit = (i32::MAX as u32 - BLOCK) >> lanes;
        let windows = of_plane.checked_mul(window.planes).filter(|&windows| windows <= limit)?;
        let alone = (windows << lanes) < ENOUGH_THREADS && count >= (2 * AHEAD) << lanes;
        if !(LEAST..1 << 30).contains(&count) || alone {
            return None;
        }
        let chunks = Self {
            windows,
            by_windows: Divider::new(of_plane),
            by_width: Divider::new(right),
            lanes,
            count,
            across,
            by_across: Divider::new(across),
            line: line / of_chunk,
            plane: plane / of_chunk,
            step: step.map(|step| step / of_chunk),
        };
        Some((chunks, (windows << lanes).div_ceil(BLOCK)))
    }

    /// The position that this lane begins with.
    #[device_inline]
    pub(crate) fn first<T: Lanes>(&self) -> u32 {
        (thread::thread_idx_x() & ((1 << self.lanes) - 1)) * lanes::<T>() as u32
    }

    /// Brings together what a window's lanes have: all of them get `join(own, another's)`.
    #[device_inline]
    pub(crate) fn joined<V: Copy>(&self, mut own: V, join: impl Fn(V, u32) -> V) -> V {
        let mut step = (1 << self.lanes) / 2;
        while step > 0 {
            own = join(own, step);
            step /= 2;
        }
        own
    }
}

/// An output of this lane's.
pub(crate) struct Output {
    /// Whether it is this lane that stores it.
    pub first: bool,
    /// Its number among all.
    pub number: usize,
    /// Its plane, and its place there.
    pub plane: u32,
    pub row: u32,
    pub column: u32,
}

/// Calls `f(value, position)` with the elements that are this lane's, in row-major order, or with `outside` and a position after all where
/// it has fewer than others; and gives the output. A lane past the last window goes through that one.
///
/// # Safety
/// `x` holds the window's planes and begins at a multiple of 16 bytes; `chunks` are of it, with the launch's grid and block.
#[device_inline]
pub(crate) unsafe fn for_each<T: Lanes>(
    x: Global<T>,
    window: &Window<Nchw>,
    chunks: &Chunks,
    outside: f32,
    mut f: impl FnMut(f32, u32),
) -> Output {
    let thread = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
    let (number, lane) = (thread >> chunks.lanes, thread & ((1 << chunks.lanes) - 1));
    let there = number < chunks.windows;
    let number = if there { number } else { chunks.windows - 1 };
    let plane = chunks.by_windows.divide(number);
    let place = number - plane * (window.output[0] * window.output[1]);
    let row = chunks.by_width.divide(place);
    let column = place - row * window.output[1];
    let begin = plane as usize * chunks.plane as usize + (row * chunks.step[0] + column * chunks.step[1]) as usize;
    let nothing = Vec4::from(T::words([outside; LANES]));
    let mut next = lane;
    while next < chunks.count {
        let mut loaded = [nothing; AHEAD as usize];
        unrolled!(K in [0 1 2 3] {
            let chunk = next + ((K as u32) << chunks.lanes);
            let i = chunks.by_across.divide(chunk);
            let at = begin + (i * chunks.line + chunk - i * chunks.across) as usize;
            // SAFETY: loaded only where it is in the window, which is in the image.
            loaded[K] = unsafe { x.cast::<u32>().load4_if(chunk < chunks.count, at * 4, nothing) };
        });
        unrolled!(K in [0 1 2 3] {
            let position = (next + ((K as u32) << chunks.lanes)) * lanes::<T>() as u32;
            let numbers = T::numbers(loaded[K].to_array());
            unrolled!(E in [0 1 2 3 4 5 6 7] { if E < lanes::<T>() { f(numbers[E], position + E as u32); } });
        });
        next += AHEAD << chunks.lanes;
    }
    Output { first: there & (lane == 0), number: number as usize, plane, row, column }
}
