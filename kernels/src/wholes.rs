//! Windows that are whole planes, and these small, as before a classifier: a thread a plane.
//!
//! Planes follow each other in memory, whatever their rows: a block copies its threads' planes as [bands](crate::band) do, and
//! each thread goes through its own in shared memory. No column has a result of its own that a thread has to wait for.
//!
//! Bound by memory.

use cuda_std::prelude::*;

use crate::band::{self, Span, Staged, least, staged_bytes};
use crate::window::{Nchw, Window};

/// Threads of a block, and planes.
pub const BLOCK: u32 = 128;
/// Elements of a plane, at least: smaller windows have kernels of their own.
const LEAST: u32 = 17;
/// At most, so that a multiprocessor has room for many blocks.
const MOST: u32 = 63;
/// Threads beside each other are a plane apart: at multiples of so many bytes, eight or more of a warp meet in a bank.
const BANKS: u32 = 32;

/// The blocks, and each one's bytes of shared memory, where elements have `bytes`; `None` where windows are not such.
pub fn launch(window: &Window<Nchw>, bytes: usize) -> Option<(u32, u32)> {
    let [height, width] = window.input;
    let each = height.checked_mul(width).filter(|each| (LEAST..=MOST).contains(each))?;
    let is_whole = window.size == window.input && window.padding == [0; 2] && window.dilation == [1; 2];
    let bytes = each * bytes as u32;
    if !is_whole || bytes.is_multiple_of(BANKS) {
        return None;
    }
    Some((window.planes.div_ceil(BLOCK), staged_bytes(u64::from(bytes * BLOCK)) as u32))
}

/// Calls `f(value, position)` with the elements of this thread's plane in row-major order, and gives the plane. A thread past the
/// last plane goes through that one, and gives none.
///
/// # Safety
/// `x` holds the window's planes and begins at a multiple of 16 bytes; the launch is [`launch`]'s.
#[device_inline]
pub(crate) unsafe fn for_each<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    mut f: impl FnMut(f32, u32),
) -> Option<usize> {
    let first_plane = thread::block_idx_x() * BLOCK;
    let depth = least(BLOCK, window.planes - first_plane);
    let span = Span { first_plane, depth, whole: true, rows: [0, window.input[0]] };
    let plane = thread::thread_idx_x();
    // SAFETY: the launch has shared memory for these planes.
    unsafe {
        let staged = Staged::copy(dynamic_shared::<T>(), x, &span, span.rows, window.input);
        band::wait(staged);
        let each = window.input[0] * window.input[1];
        let from = staged.place(least(plane, depth - 1), 0, 0);
        let mut i = 0;
        while i + 8 <= each {
            let mut values = [T::from_f32(0.0); 8];
            unrolled!(K in [0 1 2 3 4 5 6 7] { values[K] = staged.load(from + i + K as u32); });
            unrolled!(K in [0 1 2 3 4 5 6 7] { f(values[K].to_f32(), i + K as u32); });
            i += 8;
        }
        while i < each {
            f(staged.load(from + i).to_f32(), i);
            i += 1;
        }
    }
    if plane < depth { Some((first_plane + plane) as usize) } else { None }
}
