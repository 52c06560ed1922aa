//! Windows that are whole planes, and these small, as before a classifier: a thread a plane, or neighbouring lanes of a warp.
//!
//! Planes follow each other in memory, whatever their rows: a block copies its threads' planes as [bands](crate::band) do, and
//! each thread goes through its own in shared memory, or takes every so manyth element of it; what lanes found is brought together by
//! shuffles, in a fixed order. No column has a result of its own that a thread has to wait for.
//!
//! Bound by memory.

use cuda_std::prelude::*;

use crate::band::{self, Span, Staged, least, staged_bytes};
use crate::window::{Nchw, Window};

/// Threads of a block.
pub const BLOCK: u32 = 128;
/// Elements of a plane, at least: smaller windows have kernels of their own.
const LEAST: u32 = 17;
/// Elements of a thread, at most, so that a multiprocessor has room for many blocks.
const MOST: u32 = 63;
/// Threads beside each other are a plane apart: at multiples of so many bytes, eight or more of a warp meet in a bank.
const BANKS: u32 = 32;
/// Blocks that are enough where lanes share planes: of fewer planes, several warps share one.
const ENOUGH_BLOCKS: u32 = 16;

/// How threads are laid over planes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wholes {
    /// Lanes of a plane, a power of two, as an exponent.
    lanes: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Wholes {}

impl Wholes {
    /// Over the window's planes, and the blocks and each one's bytes of shared memory, where elements have `bytes`; `None` where windows are
    /// not such.
    pub fn new(window: &Window<Nchw>, bytes: usize) -> Option<(Self, u32, u32)> {
        let [height, width] = window.input;
        let each = height.checked_mul(width).filter(|&each| (LEAST..=MOST * warp::WARP_SIZE).contains(&each))?;
        let is_whole = window.size == window.input && window.padding == [0; 2] && window.dilation == [1; 2];
        let lanes = each.div_ceil(MOST).next_power_of_two();
        let (planes, bytes) = (BLOCK / lanes, each * bytes as u32);
        let blocks = window.planes.div_ceil(planes);
        // Several lanes' planes that are whole chunks of 16 bytes need no shared memory.
        let other =
            if lanes == 1 { bytes.is_multiple_of(BANKS) } else { bytes.is_multiple_of(16) || blocks < ENOUGH_BLOCKS };
        if !is_whole || other {
            return None;
        }
        Some((Self { lanes: lanes.trailing_zeros() }, blocks, staged_bytes(u64::from(bytes * planes)) as u32))
    }

    /// The position that this thread begins with.
    #[device_inline]
    pub(crate) fn first(self) -> u32 {
        thread::thread_idx_x() & ((1 << self.lanes) - 1)
    }

    /// Brings together what a plane's lanes have: all of them get `join(own, step)`, with the lane that is a step away.
    #[device_inline]
    pub(crate) fn joined<V: Copy>(self, mut own: V, join: impl Fn(V, u32) -> V) -> V {
        let mut step = (1 << self.lanes) / 2;
        while step > 0 {
            own = join(own, step);
            step /= 2;
        }
        own
    }
}

/// Calls `f(value, position)` with the elements that are this thread's of its plane, in row-major order, and gives the plane if it is this
/// thread that stores what comes of it. A thread past the last plane goes through that one.
///
/// # Safety
/// `x` holds the window's planes and begins at a multiple of 16 bytes; the launch is that of `wholes`.
#[device_inline]
pub(crate) unsafe fn for_each<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    wholes: Wholes,
    mut f: impl FnMut(f32, u32),
) -> Option<usize> {
    let (planes, lanes) = (BLOCK >> wholes.lanes, 1 << wholes.lanes);
    let first_plane = thread::block_idx_x() * planes;
    let depth = least(planes, window.planes - first_plane);
    let span = Span { first_plane, depth, whole: true, rows: [0, window.input[0]] };
    let (plane, lane) = (thread::thread_idx_x() >> wholes.lanes, wholes.first());
    // SAFETY: the launch has shared memory for these planes.
    unsafe {
        let staged = Staged::copy(dynamic_shared::<T>(), x, &span, span.rows, window.input);
        band::wait(staged);
        let each = window.input[0] * window.input[1];
        let from = staged.place(least(plane, depth - 1), 0, 0);
        let mut i = lane;
        while i + 7 * lanes < each {
            let mut values = [T::from_f32(0.0); 8];
            unrolled!(K in [0 1 2 3 4 5 6 7] { values[K] = staged.load(from + i + K as u32 * lanes); });
            unrolled!(K in [0 1 2 3 4 5 6 7] { f(values[K].to_f32(), i + K as u32 * lanes); });
            i += 8 * lanes;
        }
        while i < each {
            f(staged.load(from + i).to_f32(), i);
            i += lanes;
        }
    }
    if plane < depth && lane == 0 { Some((first_plane + plane) as usize) } else { None }
}
