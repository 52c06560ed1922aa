//! Forward.

use cuda_std::arch::sm_80::{Half, Paired, mma_m16n8k16};
use cuda_std::prelude::*;

use super::ring::{Ring, VECTOR};
use super::{
    Fragment, Known, MATRICES_BLOCK, MOST_KERNELS, Matrices, PIECES, PIXELS, STRIDE, TILES, Unit, WARPS, WINDOWS,
    Weights, is_wrong, of_warp, parts, place, scales,
};
use crate::gaussian_pool::staged::Pool;
use crate::gaussian_pool::{Axis, Geometry, divide, get_if};

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(kernels: usize) -> u32 {
    if kernels == 1 { 4 } else { 3 }
}

/// Elements from one row to the next of a step's rows of the image, and of its rows of windows where they wait to be stored: what eight rows have of a
/// column is in different banks.
const PITCH: u32 = PIECES as u32 * PIXELS;
const STAGED_PITCH: u32 = TILES as u32 * WINDOWS + VECTOR;

/// A step's rows.
type Rows<T> = Ring<T, PIXELS, PITCH>;

/// Elements of a step's rows of windows where they wait to be stored.
const fn staged(kernels: usize) -> u32 {
    kernels as u32 * WINDOWS * STAGED_PITCH
}

/// Words of shared memory of a warp beside weights: rows of the image, and rows of windows, of two steps each.
pub(super) const fn words(kernels: usize) -> u32 {
    let bytes = Rows::<f16>::BYTES + 2 * staged(kernels) * 2;
    bytes / 4
}

/// Columns that the first of a strip's pieces begins before the padding, so that it begins with a whole vector.
#[device_inline]
pub(super) fn lead(horizontal: &Axis) -> u32 {
    horizontal.padding.next_multiple_of(VECTOR) - horizontal.padding
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set. Warps take one unit after another.
///
/// The first product has the weights along x on its left, eight windows by their higher parts and the same by their lower, and on its right, as they
/// lie in memory, eight rows of the image: which element of four a lane loads stands for which column is all the same, if the
/// weights stand likewise. The second one has the weights along y on its left, for the eight windows that began a step before and the eight that
/// begin, and on its right the sums of eight windows.
///
/// # Safety
/// The module's. `x` holds the planes, `y` as many for each of `KERNELS` Gaussians, `mean` two and `var` `variances` elements for each Gaussian;
/// `matrices` is what [`MatricesPlan::forward`](super::MatricesPlan::forward) made of `geometry`.
#[kernel(block = MATRICES_BLOCK, min_blocks = blocks(KERNELS), instances(T = [f16, bf16], KERNELS = [1, 3]))]
pub unsafe fn gaussian_pool_forward_matrices<T: Half + Pool, const KERNELS: usize>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
    matrices: Matrices,
) {
    let [g, c] = place();
    // SAFETY: shared memory is the plan's.
    let (weights, ring, windows) = unsafe {
        let (weights, rows) = of_warp(&geometry, KERNELS as u32, words(KERNELS));
        let windows = rows.offset(Rows::<T>::BYTES / 4).cast::<T>();
        (weights, Ring(rows.cast()), [0, 1].map(|place| windows.offset(place * staged(KERNELS))))
    };
    let prepare = |weights: Weights, gaussian: u32| {
        // SAFETY: the parameters are there; the warp's lanes are here.
        unsafe { prepare::<T>(weights, [mean, var], &geometry, matrices.variances, gaussian) };
    };
    // SAFETY: shared memory has them.
    let mut known = unsafe { Known::of_block::<KERNELS>(&geometry, weights, prepare) };
    let mut next = thread::block_idx_x() * WARPS + thread::thread_idx_x() / warp::WARP_SIZE;
    while next < matrices.units {
        let unit = Unit::new(&matrices, next);
        next += thread::grid_dim_x() * WARPS;
        let mut copies = Copies::new(x, ring, &geometry, &unit);
        // SAFETY: nobody reads there; the image is there.
        unsafe { copies.begin(0) };
        // SAFETY: shared memory has them; the warp's lanes are here, and past those of the unit before.
        unsafe { known.of_plane::<KERNELS>(&geometry, weights, unit.plane, prepare) };
        let mut lines = Lines::new(&geometry, &unit, KERNELS);

        // SAFETY: prepared.
        let of_one = if KERNELS == 1 { unsafe { fragments(weights, 0) } } else { Default::default() };
        // SAFETY: zero bits are 0.0.
        let mut open: [[[f32; 4]; TILES]; MOST_KERNELS] = unsafe { core::mem::zeroed() };
        let mut wrong = 0;
        let mut step = unit.begin;
        'steps: while step <= unit.end {
            // 0, which of several maps the compiler cannot know to be the same in every turn of the loop: it would keep what follows in registers.
            let nothing = if KERNELS == 1 { 0 } else { step >> 31 };
            unrolled!(P in [0 1] {
                let now = step + P as u32;
                if now > unit.end {
                    break 'steps;
                }
                ring.wait();
                // Of the first step nothing is complete.
                if now > unit.begin + 1 {
                    // SAFETY: staged before the barrier.
                    unsafe { lines.store::<T, KERNELS>(nothing, windows[1 - P], y) };
                }
                // SAFETY: all lanes have read what was there; the image is there.
                unsafe { copies.begin(1 - P) };
                // SAFETY: copied.
                let rows = unsafe { load(ring, P, [g, c]) };
                unrolled!(K in [0 1 2] {
                    if K < KERNELS {
                        // SAFETY: prepared.
                        let (across, [high, low]) = if KERNELS == 1 { of_one } else { unsafe { fragments(weights, K as u32) } };
                        let own = (K as u32 * WINDOWS + g) * STAGED_PITCH + 2 * c + lines.skew(K, g + nothing);
                        unrolled!(I in [0 1 2 3] {
                            // SAFETY: all lanes are here.
                            let sums = unsafe {
                                let left = [rows[0][I], rows[1][I]];
                                let right = [rows[0][I + 1], rows[1][I + 1]];
                                along_x::<T>(across, left, right)
                            };
                            wrong = bf16::sum(bf16::sum(sums[0][1], sums[1][1]), wrong);
                            let [upper, lower] = [[sums[0][0], sums[1][0]], [sums[0][1], sums[1][1]]];
                            // SAFETY: all lanes are here.
                            let four = unsafe {
                                let four = mma_m16n8k16::<bf16>(high, upper, open[K][I]);
                                mma_m16n8k16::<bf16>(high, lower, mma_m16n8k16::<bf16>(low, upper, four))
                            };
                            // The first half is complete, and the second is the next step's first.
                            open[K][I] = [four[2], four[3], 0.0, 0.0];
                            let complete = T::from_two_f32([four[0], four[1]]);
                            let at = own + I as u32 * WINDOWS;
                            // SAFETY: the warp's, of which this lane has these.
                            unsafe {
                                windows[P].store(at, complete[0]);
                                windows[P].store(at + 1, complete[1]);
                            }
                        });
                    }
                });
            });
            step += 2;
        }
        // What was begun to be copied is not wanted, but its place is.
        ring.wait();
        // SAFETY: staged before the barrier; the next unit stages after another one.
        unsafe {
            let last = (unit.end - unit.begin) % 2;
            lines.store::<T, KERNELS>(0, if last == 0 { windows[0] } else { windows[1] }, y);
        }
        warp::sync_warp(warp::FULL_MASK);
        if is_wrong(wrong) {
            // SAFETY: the unit's windows are stored, and seen by the warp after the barrier.
            unsafe { again::<T, KERNELS>(x, y, weights, &geometry, &unit) };
            // The next unit may have other weights.
            warp::sync_warp(warp::FULL_MASK);
        }
    }
}

/// Computes a Gaussian's weights and their fragments.
///
/// # Safety
/// As [`Weights::compute`].
#[device_inline]
unsafe fn prepare<T: Half + Pool>(
    weights: Weights,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    gaussian: u32,
) {
    let [g, c] = place();
    let [by, back] = scales::<T>();
    // SAFETY: the caller's.
    unsafe {
        weights.compute(parameters, geometry, variances, gaussian);
        // Of columns 4c to 4c + 3 of a piece, for window g.
        unrolled!(S in [0 1] {
            let first = (S as u32 * PIXELS + 4 * c).wrapping_sub(STRIDE * g + lead(&geometry.axes[1]));
            let [a, b] = weights.two::<T>(geometry, false, by, first, 1);
            let [d, e] = weights.two::<T>(geometry, false, by, first.wrapping_add(2), 1);
            weights.put(S as u32, [a, b, d, e]);
        });
        // Of rows 2c and 2c + 1, and eight after these, for windows g of those that began a step before and of those that begin.
        let (mut high, mut low) = ([0; 4], [0; 4]);
        unrolled!(J in [0 1 2 3] {
            let (began, rows) = (J % 2 == 0, J as u32 / 2 * WINDOWS + 2 * c);
            let first = (rows + if began { PIXELS } else { 0 }).wrapping_sub(STRIDE * g);
            [high[J], low[J]] = weights.two::<bf16>(geometry, true, back, first, 1);
        });
        weights.put(2, high);
        weights.put(3, low);
    }
}

/// The fragments of a Gaussian's weights, of those along x and those along y.
///
/// # Safety
/// They have been prepared.
#[device_inline]
unsafe fn fragments(weights: Shared<f32>, kernel: u32) -> ([Fragment; 2], [Fragment; 2]) {
    // SAFETY: the caller's.
    unsafe {
        let weights = Weights::of(weights, kernel);
        (weights.get(0), weights.get(2))
    }
}

/// What a warp copies of the image: of rows by fours eight vectors each, and of all 16 the two beside.
struct Copies<T: Element> {
    x: Global<T>,
    ring: Rows<T>,
    /// Of these and of those: where the lane's first vector is, which wraps where it is not in the image; its row there; and rows that there are.
    from: [usize; 2],
    row: [u32; 2],
    rows: [u32; 2],
    /// Elements of a row.
    line: u32,
}

/// Rows that the lane's are after the first, of those and of these, and its vectors' numbers.
#[device_inline]
fn copied() -> [[u32; 2]; 2] {
    let lane = warp::lane_id();
    [[lane / VECTOR, lane / 2], [lane % VECTOR, VECTOR + lane % 2]]
}

impl<T: Half> Copies<T> {
    /// Of the unit's rows, from its first step's on.
    #[device_inline]
    fn new(x: Global<T>, ring: Rows<T>, geometry: &Geometry, unit: &Unit) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let plane = unit.plane as usize * vertical.image as usize * horizontal.image as usize;
        let column = (unit.strip * TILES as u32 * PIXELS).wrapping_sub(horizontal.padding + lead(horizontal));
        let top = (unit.begin * PIXELS).wrapping_sub(vertical.padding);
        // Below the last of the unit's windows nothing is read.
        let height = vertical.image.min((unit.end * WINDOWS - 1) * STRIDE + vertical.size - vertical.padding);
        let [below, vector] = copied();
        let row = below.map(|below| top.wrapping_add(below));
        let column = vector.map(|vector| column.wrapping_add(vector * VECTOR));
        let from = [0, 1].map(|i| {
            let at = row[i].wrapping_mul(horizontal.image).wrapping_add(column[i]);
            plane.wrapping_add_signed(at.cast_signed() as isize)
        });
        let rows = column.map(|column| if column < horizontal.image { height } else { 0 });
        Self { x, ring, from, row, rows, line: horizontal.image }
    }

    /// Begins to copy the next step's rows to a place.
    ///
    /// # Safety
    /// The image is there; nobody reads what is at that place.
    #[device_inline]
    unsafe fn begin(&mut self, place: usize) {
        const DOWN: u32 = warp::WARP_SIZE / VECTOR;
        let [below, vector] = copied();
        let copy = |i: usize, down: u32| {
            let there = self.row[i].wrapping_add(down) < self.rows[i];
            let from = self.from[i].wrapping_add((down * self.line) as usize);
            // SAFETY: the caller's; a row's vectors are in the image or beside it as a whole.
            unsafe { self.ring.copy(place, [below[i] + down, vector[i]], self.x, from, there) };
        };
        unrolled!(R in [0 1 2 3] { copy(0, R as u32 * DOWN); });
        copy(1, 0);
        self.ring.commit();
        unrolled!(I in [0 1] {
            self.row[I] = self.row[I].wrapping_add(PIXELS);
            self.from[I] = self.from[I].wrapping_add((PIXELS * self.line) as usize);
        });
    }
}

/// What a lane has of 8 and 8 rows of a step, of each piece of 16 columns.
///
/// # Safety
/// They have been copied.
#[device_inline]
unsafe fn load<T: Half>(ring: Rows<T>, place: usize, [g, c]: [u32; 2]) -> [[[u32; 2]; PIECES]; 2] {
    let mut rows = [[[0; 2]; PIECES]; 2];
    unrolled!(R in [0 1] {
        unrolled!(I in [0 1 2 3 4] {
            let at = (g + R as u32 * WINDOWS) * PITCH + I as u32 * PIXELS + 4 * c;
            // SAFETY: the caller's; pairs of elements are words.
            rows[R][I] = unsafe { ring.rows(place, 0).cast::<u32>().load2(at / 2) }.to_array();
        });
    });
    rows
}

/// Sums along x of eight windows by 8 and 8 rows, of two neighbouring pieces of the rows; each as two parts.
///
/// # Safety
/// All lanes of the warp come together.
#[device_inline]
unsafe fn along_x<T: Half>(weights: [Fragment; 2], left: [[u32; 2]; 2], right: [[u32; 2]; 2]) -> [[u32; 2]; 2] {
    let of_rows = |left: [u32; 2], right: [u32; 2]| {
        // SAFETY: the caller's.
        let [a, b, c, d] = unsafe {
            let sums = mma_m16n8k16::<T>(weights[0], left, [0.0; 4]);
            mma_m16n8k16::<T>(weights[1], right, sums)
        };
        parts::<bf16>([a + c, b + d])
    };
    [of_rows(left[0], right[0]), of_rows(left[1], right[1])]
}

/// Where a warp stores rows of windows: each is staged where it begins in a word as it does in memory, so that whole words go there.
struct Lines {
    /// The first window of the strip of the next row, in the first map; and that row's number, and how many there are.
    first: usize,
    row: u32,
    height: u32,
    /// Elements from one row and from one map to the next, and columns of the strip.
    line: u32,
    of_map: u32,
    columns: u32,
}

impl Lines {
    #[device_inline]
    fn new(geometry: &Geometry, unit: &Unit, kernels: usize) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let of_map = vertical.output * horizontal.output;
        let column = unit.strip * TILES as u32 * WINDOWS;
        let row = unit.begin * WINDOWS;
        Self {
            first: unit.plane as usize * kernels * of_map as usize + (row * horizontal.output + column) as usize,
            row,
            height: vertical.output,
            line: horizontal.output,
            of_map,
            columns: (horizontal.output - column).min(TILES as u32 * WINDOWS),
        }
    }

    /// How many elements after a whole word the row so many below begins, in a map. (A step's rows are of an even number.)
    #[device_inline]
    fn skew(&self, map: usize, below: u32) -> u32 {
        (self.first as u32).wrapping_add(below * self.line).wrapping_add(map as u32 * self.of_map) % 2
    }

    /// Stores the staged rows of all maps, and goes on to the next step's. `nothing` is 0.
    ///
    /// # Safety
    /// They are staged; the windows are the warp's.
    #[device_inline]
    unsafe fn store<T: Half, const KERNELS: usize>(&mut self, nothing: u32, staged: Shared<T>, y: GlobalMut<T>) {
        unrolled!(K in [0 1 2] {
            // SAFETY: the caller's.
            if K < KERNELS { unsafe { self.store_map(K, nothing, staged, y) } }
        });
        self.first += (WINDOWS * self.line) as usize;
        self.row += WINDOWS;
    }

    /// Those of a map.
    ///
    /// # Safety
    /// As [`store`](Self::store).
    #[device_inline]
    unsafe fn store_map<T: Half>(&self, map: usize, nothing: u32, staged: Shared<T>, y: GlobalMut<T>) {
        const LANES: u32 = TILES as u32 * WINDOWS / 2;
        const DOWN: u32 = warp::WARP_SIZE / LANES;
        let lane = warp::lane_id() + nothing;
        let first = self.first + map * self.of_map as usize;
        let rows = map as u32 * WINDOWS * STAGED_PITCH;
        // Rows an even number below begin likewise.
        let (below, word) = (lane / LANES, lane % LANES);
        let begin = first + (below * self.line) as usize;
        let skew = begin as u32 % 2;
        let whole = (2 * word >= skew) & (2 * word + 1 < self.columns + skew);
        let left = if whole { (self.height - self.row).saturating_sub(below) } else { 0 };
        let at = (rows + below * STAGED_PITCH) / 2 + word;
        unrolled!(R in [0 1 2 3] {
            let down = R as u32 * DOWN;
            // SAFETY: the caller's; a word that is stored has two of the row's windows.
            unsafe {
                let pair = staged.cast::<u32>().load(at + down * STAGED_PITCH / 2);
                let to = begin / 2 + word as usize + (down / 2 * self.line) as usize;
                y.cast::<u32>().store_if(down < left, to, pair);
            }
        });
        // The first and the last one of a row that begins or ends within a word.
        if !self.line.is_multiple_of(2) {
            let (below, is_last) = (lane % WINDOWS, lane / WINDOWS == 1);
            let begin = first + (below * self.line) as usize;
            let skew = begin as u32 % 2;
            let beside = if is_last { self.columns - 1 } else { 0 };
            let half = if is_last { !(self.columns + skew).is_multiple_of(2) } else { skew == 1 };
            let wanted = (below < self.height - self.row) & half & (lane < 2 * WINDOWS);
            // SAFETY: the caller's.
            unsafe {
                let one = staged.load(rows + below * STAGED_PITCH + skew + beside);
                y.store_if(wanted, begin + beside as usize, one);
            }
        }
    }
}

/// Computes those of a unit's windows again that are not finite, one by one.
///
/// # Safety
/// They are stored, and the weights are where they were computed; the warp's lanes come together.
#[device_inline]
unsafe fn again<T: Half + Pool, const KERNELS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    weights: Shared<f32>,
    geometry: &Geometry,
    unit: &Unit,
) {
    let [vertical, horizontal] = &geometry.axes;
    let first = unit.strip * TILES as u32 * WINDOWS;
    let columns = (horizontal.output - first).min(TILES as u32 * WINDOWS);
    let (begin, end) = (unit.begin * WINDOWS, (unit.end * WINDOWS).min(vertical.output));
    let maps = unit.plane as usize * KERNELS * (vertical.output * horizontal.output) as usize;
    // SAFETY: the plane begins there.
    let plane = unsafe { x.offset(unit.plane as usize * vertical.image as usize * horizontal.image as usize) };
    let mut i = warp::lane_id();
    while i < (end - begin) * columns * KERNELS as u32 {
        let (rest, right) = divide(i, columns);
        let (kernel, below) = divide(rest, end - begin);
        let (row, column) = (begin + below, first + right);
        let to = maps + ((kernel * vertical.output + row) * horizontal.output + column) as usize;
        // SAFETY: the unit's.
        if unsafe { y.as_global().load(to) }.to_f32() * 0.0 != 0.0 {
            // SAFETY: shared memory has them.
            let weights = unsafe { Weights::of(weights, kernel) };
            let mut sum = 0.0;
            let mut a = 0;
            while a < vertical.size {
                let top = (row * STRIDE + a).wrapping_sub(vertical.padding);
                let mut of_row = 0.0;
                let mut b = 0;
                while b < horizontal.size {
                    let left = (column * STRIDE + b).wrapping_sub(horizontal.padding);
                    let inside = (top < vertical.image) & (left < horizontal.image);
                    let at = top.wrapping_mul(horizontal.image).wrapping_add(left) as usize;
                    // SAFETY: loaded where it is in the image; the weights are there.
                    of_row = unsafe { float::fma(weights.at(false, b), get_if(plane, inside, at), of_row) };
                    b += 1;
                }
                // SAFETY: as above.
                sum = float::fma(unsafe { weights.at(true, a) }, of_row, sum);
                a += 1;
            }
            // SAFETY: the unit's, and this lane's now.
            unsafe { y.store(to, T::from_f32(sum)) };
        }
        i += warp::WARP_SIZE;
    }
}
