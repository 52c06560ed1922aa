//! Rows of windows on their way to the backward pass.

use cuda_std::arch::sm_80::Half;
use cuda_std::prelude::*;

use super::ring::{Ring, VECTOR};
use super::{PIXELS, STRIDE, TILES, Unit, WINDOWS};
use crate::gaussian_pool::{Axis, Geometry};

/// Windows that pixels of a tile are taken to have along an axis: 16, of which no pixel's are more than these.
pub(super) const REACH: u32 = 2 * WINDOWS;

/// Elements from one row to the next of a step's rows of windows: what eight rows have of a column is in different banks, or nearly.
pub(super) const PITCH: u32 = 9 * VECTOR;
/// Vectors of a row of windows that hold what a strip's tiles have of it, wherever it begins in a vector.
const VECTORS: u32 = 8;

/// A step's rows.
pub(super) type Rows<T, const ROWS: u32> = Ring<T, ROWS, PITCH>;

/// The last window that a tile's pixels are taken to have, counted from its number by eight: that of the last pixel, or one more, so that pieces
/// begin with an even one.
#[device_inline]
pub(super) fn last(axis: &Axis) -> u32 {
    ((PIXELS - 1 + axis.padding) / STRIDE) | 1
}

/// A plane's maps, of which a strip's rows may begin anywhere: vectors that hold them are copied, and what is in the rows beside is passed over. A lane
/// copies two vectors of each map, one as many after the other as a row has lanes.
pub(super) struct Maps {
    /// The first element of the first map, down to a whole vector, and what is left; elements from one map to the next.
    first: usize,
    skew: u32,
    of_map: u32,
    /// The strip's first column, which may be before the map.
    column: i32,
    width: u32,
    /// The next step's first row, and how many there are.
    row: u32,
    height: u32,
    /// Elements from `first` to the end of the last plane's, or more than all that are asked for.
    end: u32,
    /// Whether the last elements of all, of which there is no whole vector, may be among the plane's.
    pub(super) ends: bool,
}

/// Lanes that copy a row of windows.
const LANES: u32 = warp::WARP_SIZE / WINDOWS;

impl Maps {
    /// Of the unit, from the rows of step `step` on.
    #[device_inline]
    pub(super) fn new(geometry: &Geometry, unit: &Unit, kernels: u32, step: u32) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let of_map = vertical.output * horizontal.output;
        let of_plane = (kernels * of_map) as usize;
        let begin = unit.plane as usize * of_plane;
        let first = begin & !(VECTOR as usize - 1);
        let skew = (begin - first) as u32;
        let end = (geometry.planes as usize * of_plane - first).min(u32::MAX as usize / 2) as u32;
        Self {
            first,
            skew,
            of_map,
            column: (unit.strip * TILES as u32 * WINDOWS + last(horizontal)).cast_signed() - (REACH - 1).cast_signed(),
            width: horizontal.output,
            row: step * WINDOWS,
            height: vertical.output.min(unit.end * WINDOWS),
            end,
            ends: !end.is_multiple_of(VECTOR) && end - skew - kernels * of_map < VECTOR,
        }
    }

    /// Where a row of a map begins, counted from `first`; wraps where it is not there or begins before the map.
    #[device_inline]
    fn begins(&self, map: u32, row: u32) -> i32 {
        (self.skew + map * self.of_map)
            .wrapping_add(row.wrapping_mul(self.width))
            .cast_signed()
            .wrapping_add(self.column)
    }

    /// Where a vector of a row of a map is, counted from `first`, and whether any of it is in the row.
    #[device_inline]
    fn vector(&self, map: u32, row: u32, vector: u32) -> (u32, bool) {
        let begin = self.begins(map, row);
        let at = (begin & !(VECTOR - 1).cast_signed()) + (vector * VECTOR).cast_signed();
        // In the row, from before its first column by a vector on.
        let column = (self.column + (at - begin) + (VECTOR - 1).cast_signed()).cast_unsigned();
        (at.cast_unsigned(), (row < self.height) & (column < self.width + VECTOR - 1))
    }

    /// Begins to copy the next step's rows of all maps to a place: whole vectors, zeros where there are none. `nothing` is 0.
    ///
    /// # Safety
    /// The maps are there; nobody reads what is at that place.
    #[device_inline]
    pub(super) unsafe fn begin<T: Half, const KERNELS: usize, const ROWS: u32>(
        &mut self,
        nothing: u32,
        ring: Rows<T, ROWS>,
        place: usize,
        dy: Global<T>,
    ) {
        let lane = warp::lane_id() + if KERNELS > 1 { nothing } else { 0 };
        let below = lane / LANES;
        unrolled!(K in [0 1 2] {
            if K < KERNELS {
                unrolled!(I in [0 1] {
                    let vector = lane % LANES + I as u32 * (VECTORS / 2);
                    let (at, there) = self.vector(K as u32, self.row + below, vector);
                    let whole = self.end.wrapping_sub(at) >= VECTOR;
                    let from = self.first.wrapping_add_signed(at.cast_signed() as isize);
                    // SAFETY: the caller's; what is copied is in the maps.
                    unsafe { ring.copy(place, [K as u32 * WINDOWS + below, vector], dy, from, there & whole) };
                });
            }
        });
        ring.commit();
        self.row += WINDOWS;
    }

    /// Puts the last elements of all, of which there is no whole vector, where they belong of the rows at a place, of which `row` is the first.
    ///
    /// # Safety
    /// These have been copied, for all lanes; nobody reads them before the warp's next barrier.
    #[device_inline]
    pub(super) unsafe fn put_last<T: Half, const KERNELS: usize, const ROWS: u32>(
        &self,
        row: u32,
        ring: Rows<T, ROWS>,
        place: usize,
        dy: Global<T>,
    ) {
        let below = warp::lane_id() / LANES;
        let mut number = 0;
        while number < 2 * KERNELS as u32 {
            let (map, vector) = (number / 2, warp::lane_id() % LANES + number % 2 * (VECTORS / 2));
            let (at, there) = self.vector(map, row + below, vector);
            let left = self.end.wrapping_sub(at);
            let mut i = 0;
            while there & (left < VECTOR) & (i < left) {
                // SAFETY: the caller's; the element is in the maps.
                unsafe {
                    let to = ring.rows(place, map * WINDOWS + below);
                    to.store(vector * VECTOR + i, dy.load(self.first + (at + i) as usize));
                }
                i += 1;
            }
            number += 1;
        }
    }

    /// What the lane has of a piece of its row of a map, a pair of windows: zeros beside the map. `nothing` is 0.
    ///
    /// # Safety
    /// `row` is where it has been copied to.
    #[device_inline]
    pub(super) unsafe fn pair<T: Half, const EVEN: bool>(
        &self,
        row: Shared<T>,
        map: usize,
        nothing: u32,
        piece: usize,
        [g, c]: [u32; 2],
    ) -> u32 {
        // All rows of a lane begin likewise: those of a step are a multiple of eight.
        let skew = self.begins(map as u32, g + if map > 0 { nothing } else { 0 }).cast_unsigned() % VECTOR;
        let beside = piece as u32 * WINDOWS + 2 * c;
        let at = skew + beside;
        let there = [0, 1].map(|i| (self.column + (beside + i).cast_signed()).cast_unsigned() < self.width);
        // SAFETY: the caller's; what lies in rows that are not there are zeros.
        unsafe {
            if EVEN {
                row.cast::<u32>().load_if(there[0], at / 2, 0)
            } else {
                let row = row.cast::<u16>();
                u32::from(row.load_if(there[0], at, 0)) | u32::from(row.load_if(there[1], at + 1, 0)) << 16
            }
        }
    }
}
