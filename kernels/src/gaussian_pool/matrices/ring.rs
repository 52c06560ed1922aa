//! Rows of a strip on their way through a warp's shared memory.

use cuda_std::arch::sm_80::{Half, cp_async_commit, cp_async_wait, cp_async16_zero_fill};
use cuda_std::prelude::*;

/// Elements that are copied at once, 16 bytes.
pub(super) const VECTOR: u32 = 8;
/// Steps that have a place.
const STEPS: u32 = 2;

/// A place for the rows of two steps, in a warp's shared memory, of so many rows each: those of all maps.
#[derive(Clone, Copy)]
pub(super) struct Ring<T: Element, const ROWS: u32, const PITCH: u32>(pub Shared<T>);

impl<T: Half, const ROWS: u32, const PITCH: u32> Ring<T, ROWS, PITCH> {
    /// Bytes of shared memory.
    pub(super) const BYTES: u32 = STEPS * ROWS * PITCH * 2;

    /// The rows at a place, from number `row` on.
    ///
    /// # Safety
    /// Shared memory has the ring.
    #[device_inline]
    pub(super) unsafe fn rows(self, place: usize, row: u32) -> Shared<T> {
        // SAFETY: the caller's.
        unsafe { self.0.offset((place as u32 * ROWS + row) * PITCH) }
    }

    /// Begins to copy a vector of a row to a place, if it is there; else begins to write zeros.
    ///
    /// # Safety
    /// As [`rows`](Self::rows); no lane reads there; `source` holds the vector if it is there, at a multiple of 16 bytes.
    #[device_inline]
    pub(super) unsafe fn copy(
        self,
        place: usize,
        [row, vector]: [u32; 2],
        source: Global<T>,
        from: usize,
        there: bool,
    ) {
        // SAFETY: the caller's.
        unsafe {
            cp_async16_zero_fill(self.rows(place, row), vector * VECTOR, source, from, if there { VECTOR } else { 0 })
        };
    }

    /// All that a lane copies of a step has been begun.
    #[device_inline]
    pub(super) fn commit(self) {
        cp_async_commit();
    }

    /// Waits until all that was to be copied is there, for all lanes, which have read what they wanted before.
    #[device_inline]
    pub(super) fn wait(self) {
        cp_async_wait::<0>();
        warp::sync_warp(warp::FULL_MASK);
    }
}
