//! Rows of an image on their way through a warp's shared memory.

use cuda_std::arch::sm_80::{cp_async_commit, cp_async_wait, cp_async16_zero_fill};
use cuda_std::prelude::*;

use super::{COLUMNS, LINE, Lanes, STRIDE, Unit};
use crate::gaussian_pool::Geometry;

/// Bytes of a warp's copy, 16 of each lane.
const COPY: u32 = 16 * warp::WARP_SIZE;

/// Bytes of shared memory of a warp with so many steps in its ring.
pub const fn bytes(steps: usize, element: u32) -> u32 {
    steps as u32 * STRIDE as u32 * LINE * element
}

/// A warp's rows of an image: the last steps of `STEPS` in shared memory, all but one of them on their way.
pub(super) struct Ring<T: Element, const STEPS: usize> {
    image: Global<T>,
    shared: Shared<T>,
    /// The row that the lane copies next of, counted from the first that is wanted, and where its columns are there.
    row: u32,
    at: u32,
    /// Rows that are wanted, of a lane that has columns; and elements from a row to the next.
    count: u32,
    line: u32,
}

impl<T: Storage, const STEPS: usize> Ring<T, STEPS> {
    /// Rows that a copy of a warp takes.
    const ROWS: u32 = COPY / (LINE * size_of::<T>() as u32);

    /// For the rows of step `start` of the unit and after it, zeros but where they are from `wanted.0` to before `wanted.1`;
    /// begins the first copies.
    ///
    /// # Safety
    /// `image` begins with the unit's plane; shared memory has [`bytes`] at `shared`, for this warp.
    #[device_inline]
    pub(super) unsafe fn new(
        image: Global<T>,
        shared: Shared<T>,
        geometry: &Geometry,
        lanes: &Lanes,
        unit: &Unit,
        start: u32,
        wanted: (u32, u32),
    ) -> Self {
        let horizontal = &geometry.axes[1];
        let lane = warp::lane_id();
        // By 16 bytes, row by row.
        let element = lane * (16 / size_of::<T>() as u32);
        let (below, beside) = (element / LINE, element % LINE);
        let column = unit.column(lanes, horizontal).wrapping_sub(lane * COLUMNS as u32).wrapping_add(beside);
        let row = (start * STRIDE as u32).wrapping_sub(geometry.axes[0].padding).wrapping_add(below);
        let at = row.wrapping_mul(horizontal.image).wrapping_add(column);
        let count = if column < horizontal.image { wanted.1 - wanted.0 } else { 0 };
        let mut ring = Self { image, shared, row: row.wrapping_sub(wanted.0), at, count, line: horizontal.image };
        unrolled!(A in [0 1 2 3 4 5] {
            if A + 1 < STEPS {
                // SAFETY: the caller's.
                unsafe { ring.copy(A, 0) };
            }
        });
        ring
    }

    /// Begins to copy the next step's rows to a place of the ring. `nothing` is 0, see [`Self::next`].
    ///
    /// # Safety
    /// No lane reads there.
    #[device_inline]
    unsafe fn copy(&mut self, place: usize, nothing: u32) {
        unrolled!(I in [0 1] {
            if (I as u32) < STRIDE as u32 / Self::ROWS {
                let to = (place * STRIDE) as u32 * LINE
                    + I as u32 * Self::ROWS * LINE
                    + warp::lane_id() * (16 / size_of::<T>() as u32);
                let valid = if self.row < self.count { 16 / size_of::<T>() as u32 } else { 0 };
                // SAFETY: what is valid is in the image, at a multiple of 16 bytes, as rows and the first column are; the
                // place is the caller's.
                unsafe { cp_async16_zero_fill(self.shared, to, self.image, self.at as usize, valid) };
                self.at = self.at.wrapping_add((self.line + nothing) * Self::ROWS);
                self.row = self.row.wrapping_add(Self::ROWS);
            }
        });
        cp_async_commit();
    }

    /// The lane's columns of the rows of step `step` of the loop, `place` in the ring; and begins to copy those of the step
    /// that is `STEPS - 1` after it. `nothing` is 0, which the compiler cannot know to be the same in every turn of the loop: it
    /// would keep the places of all steps' rows in registers.
    ///
    /// # Safety
    /// All lanes call it for one step after another.
    #[device_inline]
    pub(super) unsafe fn next(&mut self, place: usize, nothing: u32) -> [[T; COLUMNS]; STRIDE] {
        match STEPS {
            4 => cp_async_wait::<2>(),
            _ => cp_async_wait::<4>(),
        }
        // What other lanes have copied is there, and they have read what this step's copy takes the place of.
        warp::sync_warp(warp::FULL_MASK);
        let mut rows = [[T::from_f32(0.0); COLUMNS]; STRIDE];
        unrolled!(I in [0 1] {
            let at = (place * STRIDE + I) as u32 * LINE + warp::lane_id() * COLUMNS as u32;
            // SAFETY: copied before the barrier.
            rows[I] = unsafe { self.shared.load4(at) }.to_array();
        });
        // SAFETY: the place of the step before.
        unsafe { self.copy((place + STEPS - 1) % STEPS, nothing) };
        rows
    }
}
