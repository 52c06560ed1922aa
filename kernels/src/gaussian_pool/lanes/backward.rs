//! Backward: the input's gradient.

use cuda_std::prelude::*;

use super::{
    COLUMNS, Columns, LANES_BLOCK, LINE, Lanes, MOST_TAPS, STRIDE, Unit, VECTOR, WARPS, WINDOWS, Weights, Windows,
    compute, from_before, load_vector, reach, taps, turn, warp_of_block,
};
use crate::gaussian_pool::{Axis, Geometry, SECTOR, get_if};

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(size: u32) -> u32 {
    if taps(size) == 6 { 5 } else { 8 }
}

/// Values of `dy`, of the windows that begin in a lane's columns.
pub(super) type Own<T> = [T; WINDOWS];

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, for one Gaussian of each channel. The grid has a
/// warp for each unit. `WHOLE` says that a lane's columns are in the image all or not at all, and begin at multiples of four
/// elements; if not, warps take their rows through shared memory, to store neighbouring elements by neighbouring lanes.
///
/// On an H200, 64×64×112×112: in f32 0.90 of the copy rate for 3×3 and 0.85 for 11×11 windows, bound by memory, in bf16 0.78 and
/// 0.66; 3×3 with padding 1 on 111×113 0.79 in f32 (docs/perf).
///
/// # Safety
/// The module's. `dx` holds the planes, `dy` as many of the output, `mean` two and `var` `variances` elements for each Gaussian;
/// `lanes` is what [`LanesPlan::backward`](super::LanesPlan::backward) made of `geometry`, whose windows are of this size.
#[kernel(
    block = LANES_BLOCK,
    min_blocks = blocks(SIZE),
    instances(T = [f32, f16, bf16], SIZE = [3, 11], WHOLE = [false, true])
)]
pub unsafe fn gaussian_pool_backward_lanes<T: Storage, const SIZE: u32, const WHOLE: bool>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    lanes: Lanes,
) {
    let vertical = &geometry.axes[0];
    let Some(unit) = Unit::of_warp(&lanes, reach(SIZE)) else { return };
    let taps = taps(SIZE);
    // The first row of `dy` whose step is stored, and the first that the part needs.
    let first = vertical.padding / STRIDE as u32 + unit.begin;
    let before = first.min(taps as u32 - 1);
    let start = first - before;
    let stored = unit.end - unit.begin;
    // SAFETY: the plane begins there, and so does its map.
    let (mut from, mut pixels) = unsafe {
        let rows = rows_of_part(vertical, first, stored);
        let pixels = Pixels::new(dx.offset(unit.first_pixel(&geometry)), &geometry, &lanes, &unit, start, rows);
        (From::new(dy, 1, &geometry, &lanes, &unit, start), pixels)
    };
    // Those of the next turn.
    // SAFETY: zero bits are zeros.
    let mut ahead: [Own<T>; MOST_TAPS] = unsafe { core::mem::zeroed() };
    unrolled!(A in [0 1 2 3 4 5] {
        // SAFETY: the planes hold them.
        if A < turn(SIZE) { ahead[A] = unsafe { from.load(0) } }
    });
    // SAFETY: shared memory has two vectors for each warp, and then a row for each where rows go through it; the parameters are
    // there.
    let (by_y, by_x, line) = unsafe {
        let at = dynamic_shared::<f32>().offset(warp_of_block() * 2 * VECTOR);
        compute(at, [mean, var], &geometry, lanes.variances, unit.gaussian(&geometry), 1);
        warp::sync_warp(warp::FULL_MASK);
        let lines = dynamic_shared::<f32>().offset(WARPS * 2 * VECTOR);
        let line = if WHOLE { lines } else { lines.offset(warp_of_block() * LINE) };
        (load_vector::<SIZE>(at, 0), load_vector::<SIZE>(at, VECTOR), line)
    };
    // SAFETY: zero bits are 0.0.
    let mut spreads: [Columns; MOST_TAPS] = unsafe { core::mem::zeroed() };
    let steps = stored + before;
    let mut step = 0;
    while step < steps {
        // 0, see `From::load`.
        let nothing = step >> 31;
        let own = ahead;
        unrolled!(A in [0 1 2 3 4 5] {
            // SAFETY: the planes hold them.
            if A < turn(SIZE) { ahead[A] = unsafe { from.load(nothing) } }
        });
        unrolled!(Q in [0 1 2 3 4 5] {
            if Q < turn(SIZE) && step + (Q as u32) < steps {
                spreads[Q % taps] = spread::<SIZE>(own[Q].map(T::to_f32), &by_x);
                unrolled!(I in [0 1] {
                    let gradient = gather::<SIZE, COLUMNS>(&spreads, Q, I, &by_y);
                    // SAFETY: one lane of one warp has these pixels, and the warp its row.
                    unsafe {
                        if WHOLE {
                            pixels.put(gradient, dx_beta, nothing);
                        } else {
                            pixels.put_by_rows(gradient, dx_beta, nothing, line);
                        }
                    }
                });
            }
        });
        step += turn(SIZE) as u32;
    }
}

/// Where a lane reads `dy`: row by row.
pub(super) struct From<T> {
    dy: Global<T>,
    /// The next row, and where the lane's first window is there; before the map for one before the first.
    row: u32,
    at: i32,
    /// Rows that there are, of each window.
    rows: [u32; WINDOWS],
    /// Elements of a row.
    line: i32,
}

impl<T: Storage> From<T> {
    /// From row `start` on, which may be before the first, of a plane that has so many maps.
    ///
    /// # Safety
    /// `dy` holds the plane's maps.
    #[device_inline]
    pub(super) unsafe fn new(
        dy: Global<T>,
        maps: u32,
        geometry: &Geometry,
        lanes: &Lanes,
        unit: &Unit,
        start: u32,
    ) -> Self {
        let [height, line] = [geometry.axes[0].output, geometry.axes[1].output];
        // SAFETY: the caller's.
        let dy = unsafe { dy.offset(unit.plane as usize * (maps * height * line) as usize) };
        let window = unit.window(lanes);
        let at = start.wrapping_mul(line).wrapping_add(window).cast_signed();
        let mut rows = [0; WINDOWS];
        unrolled!(V in [0 1] { rows[V] = if window.wrapping_add(V as u32) < line { height } else { 0 } });
        Self { dy, row: start, at, rows, line: line.cast_signed() }
    }

    /// The next row's values of the windows that begin in the lane's columns; zeros where there are none. `nothing` is 0, as for
    /// [`Ring::next`](super::Ring::next).
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[device_inline]
    pub(super) unsafe fn load(&mut self, nothing: u32) -> Own<T> {
        // SAFETY: the caller's.
        let values = unsafe { self.of_map(0) };
        self.next(nothing);
        values
    }

    /// The same of the map that begins so many elements after the plane's first, without going on.
    ///
    /// # Safety
    /// As [`new`](Self::new), of that map.
    #[device_inline]
    pub(super) unsafe fn of_map(&self, map: u32) -> Own<T> {
        let mut values = [T::from_f32(0.0); WINDOWS];
        unrolled!(V in [0 1] {
            let at = (self.at as isize + map as isize + V as isize).cast_unsigned();
            // SAFETY: loaded only where row and column are in the output.
            values[V] = unsafe { self.dy.load_if(self.row < self.rows[V], at, values[V]) };
        });
        values
    }

    /// Brings a row of a map, so many rows after the next, into the L2 cache. Rows follow each other: what is left of one, the next one brings.
    ///
    /// # Safety
    /// As [`of_map`](Self::of_map).
    #[device_inline]
    pub(super) unsafe fn prefetch(&self, map: u32, rows: u32) {
        let sector = SECTOR / (WINDOWS * size_of::<T>()) as u32;
        let wanted = warp::lane_id().is_multiple_of(sector) & (self.row.wrapping_add(rows) < self.rows[0]);
        let at = (self.at as isize + map as isize + rows as isize * self.line as isize).cast_unsigned();
        // SAFETY: only where row and column are in the output.
        unsafe { self.dy.prefetch_if(wanted, at) };
    }

    /// Goes on to the next row.
    #[device_inline]
    pub(super) fn next(&mut self, nothing: u32) {
        self.at = self.at.wrapping_add(self.line + nothing.cast_signed());
        self.row = self.row.wrapping_add(1);
    }
}

/// Where a warp's pixels are, row by row.
pub(super) struct Pixels<T> {
    plane: GlobalMut<T>,
    /// The next row, counted from the first that is the part's, and where the lane's first column is there.
    row: u32,
    at: u32,
    /// Rows of the part, of a lane that has columns and stores; and elements from one to the next.
    count: u32,
    line: u32,
    /// The warp's columns that store, where they are not all or none of a lane's: from the first to before the second.
    columns: (u32, u32),
    /// Rows of the part, whichever lane.
    rows: u32,
}

impl<T: Storage> Pixels<T> {
    /// Of a plane, from the rows of step `start` on; those of the part are from `rows.0` to before `rows.1`.
    #[device_inline]
    pub(super) fn new(
        plane: GlobalMut<T>,
        geometry: &Geometry,
        lanes: &Lanes,
        unit: &Unit,
        start: u32,
        rows: (u32, u32),
    ) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let column = unit.column(lanes, horizontal);
        let row = (start * STRIDE as u32).wrapping_sub(vertical.padding);
        let at = row.wrapping_mul(horizontal.image).wrapping_add(column);
        let count = if unit.stores & (column < horizontal.image) { rows.1 - rows.0 } else { 0 };
        // Counted from the warp's first column, which may be before the image.
        let first = column.wrapping_sub(warp::lane_id() * COLUMNS as u32).cast_signed();
        let from_image = |column: u32| (column.cast_signed() - first).max(0).cast_unsigned();
        let stored = [unit.before, unit.before + lanes.lanes].map(|lane| lane * COLUMNS as u32);
        let columns = (from_image(0).max(stored[0]), from_image(horizontal.image).min(stored[1]));
        let (line, rows, row) = (horizontal.image, rows.1 - rows.0, row.wrapping_sub(rows.0));
        Self { plane, row, at, count, line, columns, rows }
    }

    /// `dx = gradient + beta * dx` in the next row, if it is of the part, for lanes whose columns are in the image all or not at
    /// all. `nothing` is 0, as for [`Ring::next`](super::Ring::next).
    ///
    /// # Safety
    /// Nobody else has the lane's pixels of the part.
    #[device_inline]
    pub(super) unsafe fn put(&mut self, mut gradient: Columns, beta: f32, nothing: u32) {
        let there = self.row < self.count;
        // SAFETY: loaded and stored only where the pixels are in the image, at a multiple of four elements.
        unsafe {
            if beta != 0.0 {
                let old = self.plane.load4_if(there, self.at as usize, Vec4::splat(T::from_f32(0.0))).map(T::to_f32);
                gradient = Vec4::from(gradient).zip_with(old, |sum, old| float::fma(beta, old, sum)).to_array();
            }
            self.plane.store4_if(there, self.at as usize, Vec4::from(gradient.map(T::from_f32)));
        }
        self.next(nothing);
    }

    /// The same for any lanes, by way of `line` in shared memory, which holds the warp's row.
    ///
    /// # Safety
    /// As [`put`](Self::put); nobody else uses the row.
    #[device_inline]
    pub(super) unsafe fn put_by_rows(&mut self, gradient: Columns, beta: f32, nothing: u32, line: Shared<f32>) {
        let lane = warp::lane_id();
        // SAFETY: the row is the warp's, with a barrier before and after all lanes write it; loaded and stored only where the
        // pixels are in the image.
        unsafe {
            warp::sync_warp(warp::FULL_MASK);
            line.store4(lane * COLUMNS as u32, Vec4::from(gradient));
            warp::sync_warp(warp::FULL_MASK);
            let first = self.at.wrapping_sub(lane * (COLUMNS as u32 - 1));
            unrolled!(J in [0 1 2 3] {
                let column = J as u32 * warp::WARP_SIZE + lane;
                let at = first.wrapping_add(J as u32 * warp::WARP_SIZE) as usize;
                let there = (self.row < self.rows) & (column >= self.columns.0) & (column < self.columns.1);
                let mut value = line.load(column);
                if beta != 0.0 {
                    let old = get_if(self.plane.as_global(), there, at);
                    value = float::fma(beta, old, value);
                }
                self.plane.store_if(there, at, T::from_f32(value));
            });
        }
        self.next(nothing);
    }

    #[device_inline]
    fn next(&mut self, nothing: u32) {
        self.at = self.at.wrapping_add(self.line + nothing);
        self.row = self.row.wrapping_add(1);
    }
}

/// The rows of the image of a unit that begins with step `first` and has so many, from the first to before the second.
#[device_inline]
pub(super) fn rows_of_part(vertical: &Axis, first: u32, steps: u32) -> (u32, u32) {
    let row = |step: u32| (step * STRIDE as u32).saturating_sub(vertical.padding).min(vertical.image);
    (row(first), row(first + steps))
}

/// A row of `dy` spread over the lane's columns, of its own windows' values and those of the lanes before.
#[device_inline]
pub(super) fn spread<const SIZE: u32>(own: Windows, by: &Weights) -> Columns {
    let before = taps(SIZE) - 1;
    let mut spread = [0.0; COLUMNS];
    unrolled!(P in [0 1 2 3 4 5 6] {
        if P < before + WINDOWS {
            // Window P - before of this lane's, counted on through the lanes before.
            let lanes = (before + WINDOWS - 1 - P) / WINDOWS;
            let value = from_before(own[P + lanes * WINDOWS - before], lanes);
            unrolled!(J in [0 1 2 3] {
                let position = (J + STRIDE * before).wrapping_sub(STRIDE * P);
                if position < SIZE as usize {
                    let first = position + STRIDE >= SIZE as usize;
                    spread[J] = if first { by[position] * value } else { float::fma(by[position], value, spread[J]) };
                }
            });
        }
    });
    spread
}

/// What row `i` of a step has of the rows over it, spread over columns or not, of which the step's own is kept as number `step`.
#[device_inline]
pub(super) fn gather<const SIZE: u32, const EACH: usize>(
    rows: &[[f32; EACH]; MOST_TAPS],
    step: usize,
    i: usize,
    by: &Weights,
) -> [f32; EACH] {
    let taps = taps(SIZE);
    let mut gradient = rows[step % taps].map(|value| by[i] * value);
    unrolled!(M in [1 2 3 4 5] {
        let position = M * STRIDE + i;
        if position < SIZE as usize {
            let row = (step + taps - M) % taps;
            unrolled!(J in [0 1 2 3] {
                if J < EACH { gradient[J] = float::fma(by[position], rows[row][J], gradient[J]); }
            });
        }
    });
    gradient
}
