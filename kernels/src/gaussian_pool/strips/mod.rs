//! Gaussian pooling of planes that follow each other, by strips: for strides up to [`MAX_STRIDE`], where all weights of a
//! block fit into its shared memory.
//!
//! A strip is [`ROWS`] windows of a plane down, and all of its width. A block takes a tile of strips of one plane, or
//! several planes, and works in this order:
//!
//! - [`gaussian_pool_forward_strips`]: a thread takes a strip of one column of the image, loads the rows that the
//!   strip's windows cover straight from global memory, all at once, and leaves [`ROWS`] sums along y in shared memory.
//!   After a barrier a thread takes half of the strip's windows at one column and sums these along x.
//! - [`gaussian_pool_backward_strips`]: the rows of `dy` whose windows reach into the tile go to shared memory, with zeros
//!   around the plane; then a thread spreads four rows of them along x, where a window's column gives a stride's columns of
//!   the image; then it gathers along y a strip of one column of the image, `ROWS * stride` rows, which it stores.
//! - [`gaussian_pool_backward_parameters_strips`] does the same with `dy` spread by the weights and by both their
//!   derivatives. A thread holds its part of `x` in registers; each weight along y meets the sum of `x` times what it is the
//!   weight of, so that both parameters along y cost one sum.
//!
//! Most windows do not come here: [`walk`] has kernels for those of a few known numbers of taps.
//!
//! The weights are computed by each block for itself, once: less than a launch of their own would take. Windows are taken a
//! few positions at a time.
//!
//! Sums along y stand in shared memory as fours of rows, one after another for columns that are a stride apart, so that
//! neighbouring threads read 16 bytes each from neighbouring places.

mod backward;
mod forward;
mod parameters;
pub mod walk;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use parameters::*;

use super::weights::{Shape, vector};
use super::{Axis, Geometry, SUMS_PER_GAUSSIAN, divide};

/// Windows of a strip, one below another.
pub const ROWS: u32 = 8;
/// The largest stride that there are kernels for.
pub const MAX_STRIDE: u32 = 3;
/// Shared memory that a block may have, in bytes: what all GPUs of these architectures give.
const MAX_SHARED: u32 = 96 << 10;
/// Shared memory that is aimed for: whole planes of about 100 pixels each way, as more blocks than these on a multiprocessor
/// gain less than what each does once, its weights and the rows that two tiles both read, costs.
const AIM: u32 = 56 << 10;
/// Turns of a block's threads that several small planes are taken together for.
const TURNS: u32 = 2;
/// Vectors of weights that a block computes, at most.
const MAX_VECTORS: u32 = 128;
/// Positions of a window that are taken at once: a multiple of every stride.
const POSITIONS: u32 = 12;
/// Rows that stand side by side in shared memory.
const QUAD: u32 = 4;

/// A number to divide by: a quotient is one product.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    divisor: u32,
    /// 2³¹ by the divisor, rounded up.
    reciprocal: u32,
}

impl Divisor {
    /// Of a number that is not 0.
    pub const fn new(divisor: u32) -> Self {
        Self { divisor, reciprocal: (1u32 << 31).div_ceil(divisor) }
    }

    /// Quotient and remainder of a number whose product with the divisor is below 2³¹: the reciprocal is too large by less
    /// than 1 in `divisor * 2³¹`.
    #[device_inline]
    fn divide(self, a: u32) -> (u32, u32) {
        let quotient = ((u64::from(a << 1) * u64::from(self.reciprocal)) >> 32) as u32;
        (quotient, a - quotient * self.divisor)
    }
}

/// How blocks take planes apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strips {
    /// Planes of a block; more than one only where it takes them whole.
    pub planes: u32,
    /// Tiles of a plane.
    pub tiles: u32,
    /// Strips of a plane.
    pub total: u32,
    /// Variances of each Gaussian, 1 or 2.
    pub variances: u32,
    /// Strips of a tile; the last may have fewer.
    pub strips: Divisor,
    /// Columns of the image.
    pub columns: Divisor,
    /// Gaussians of a plane.
    pub kernels: Divisor,
    /// Columns of windows: of the output, or, backward, those whose first column lies in the image.
    pub windows: Divisor,
    /// Backward: columns of `dy` that are brought into shared memory.
    pub staged: Divisor,
    /// Backward: fours of rows of `dy` that are, of a tile.
    pub quads: Divisor,
    /// Places in shared memory for columns that are a stride apart.
    pub places: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Strips {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub strips: Strips,
    /// Blocks.
    pub blocks: u64,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// What a pass keeps in shared memory, in elements, and how far down strips go.
struct Needs {
    total: u32,
    /// Of each tile of a plane, and of each strip.
    tile: u32,
    strip: u32,
    /// Tables of each vector of weights.
    tables: u32,
    /// Columns of the image.
    columns: u32,
    /// Whether a block may take planes that have different parameters.
    mixed: bool,
    /// Blocks that small planes are left to, at least.
    least: u32,
}

impl Strips {
    /// For the forward pass; none where the kernels cannot. Small planes are taken together by no fewer than `least` blocks, if
    /// there are as many.
    pub fn forward(geometry: &Geometry, variances: u32, least: u32) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let stride = Self::stride(geometry)?;
        let covered = (horizontal.output - 1) * stride + horizontal.size;
        let places = Self::places(stride, covered.max(horizontal.padding + horizontal.image));
        let needs = Needs {
            total: vertical.output.div_ceil(ROWS),
            tile: 0,
            strip: geometry.kernels.checked_mul(ROWS * stride)?.checked_mul(places)?,
            tables: 1,
            columns: horizontal.image,
            mixed: true,
            least,
        };
        Self::plan(geometry, variances, places, horizontal.output, [1, 1], needs)
    }

    /// As [`forward`](Self::forward), for the backward pass, `tables` of the weights and their derivatives, 1 or 3.
    pub fn backward(geometry: &Geometry, variances: u32, tables: u32, least: u32) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let stride = Self::stride(geometry)?;
        let windows = (horizontal.padding + horizontal.image - 1) / stride - horizontal.padding / stride + 1;
        let places = Self::places(stride, windows * stride);
        let staged = windows + horizontal.size.div_ceil(stride) - 1;
        let last = (vertical.padding + vertical.image - 1) / stride - vertical.padding / stride;
        let line = geometry.kernels.checked_mul(tables * stride)?.checked_mul(places)?.checked_add(staged)?;
        let needs = Needs {
            total: last / ROWS + 1,
            tile: line.checked_mul(margin(&vertical, stride) * QUAD)?,
            strip: line.checked_mul(ROWS)?,
            tables,
            columns: horizontal.image,
            mixed: tables == 1 || geometry.sets == 1,
            least,
        };
        Self::plan(geometry, variances, places, windows, [staged, margin(&vertical, stride)], needs)
    }

    fn stride(geometry: &Geometry) -> Option<u32> {
        let [vertical, horizontal] = geometry.axes;
        let small = |axis: Axis| axis.image.max(axis.size) < 1 << 14;
        (vertical.stride == horizontal.stride && vertical.stride <= MAX_STRIDE && geometry.axes.into_iter().all(small))
            .then_some(vertical.stride)
    }

    /// Places for columns a stride apart, of so many columns, of which eight neighbours from a window's first on fall into
    /// different banks.
    fn places(stride: u32, columns: u32) -> u32 {
        let places = columns.div_ceil(stride) + 1;
        let remainder = [0, 4, 3][stride as usize - 1];
        if stride == 1 { places } else { (places + 7 - remainder) / 8 * 8 + remainder }
    }

    fn plan(
        geometry: &Geometry,
        variances: u32,
        places: u32,
        windows: u32,
        [staged, margin]: [u32; 2],
        needs: Needs,
    ) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let vectors = geometry.kernels.checked_mul(vertical.cases.checked_add(horizontal.cases)?)?;
        let weights = of_gaussian(geometry).checked_mul(geometry.kernels)?.checked_mul(needs.tables)?;
        if vectors > MAX_VECTORS || weights > MAX_SHARED / 4 {
            return None;
        }
        let sets = |planes: u32| if geometry.sets == 1 { 1 } else { planes };
        // Of what warps leave for each Gaussian's parameters too.
        let parts = if needs.tables == 1 {
            0
        } else {
            PARAMETERS_BLOCK / warp::WARP_SIZE * SUMS_PER_GAUSSIAN * geometry.kernels
        };
        let elements = |planes: u32, strips: u32| {
            let of_plane = u64::from(needs.tile) + u64::from(needs.strip) * u64::from(strips);
            of_plane * u64::from(planes) + u64::from(weights) * u64::from(sets(planes)) + u64::from(parts)
        };
        let fits = |planes: u32, strips: u32, room: u32| elements(planes, strips) * 4 <= u64::from(room);
        let fitting = (1..=needs.total).rev().find(|&strips| fits(1, strips, AIM)).unwrap_or(1);
        let tiles = needs.total.div_ceil(fitting);
        let strips = needs.total.div_ceil(tiles);
        let tiles = needs.total.div_ceil(strips);
        // Small planes together.
        let tasks = strips * needs.columns;
        let together = if tiles == 1 && needs.mixed {
            (TURNS * FORWARD_BLOCK / tasks).min(geometry.planes / needs.least).max(1)
        } else {
            1
        };
        let planes =
            (1..=together).rev().find(|&planes| fits(planes, strips, AIM) && vectors * sets(planes) <= MAX_VECTORS);
        let planes = planes.unwrap_or(1);
        if !fits(planes, strips, MAX_SHARED) {
            return None;
        }
        let strips = Self {
            planes,
            tiles,
            total: needs.total,
            variances,
            strips: Divisor::new(strips),
            columns: Divisor::new(needs.columns),
            kernels: Divisor::new(geometry.kernels),
            windows: Divisor::new(windows),
            staged: Divisor::new(staged),
            quads: Divisor::new(2 * strips + margin),
            places,
        };
        let blocks = u64::from(geometry.planes.div_ceil(planes)) * u64::from(tiles);
        Some(Plan { strips, blocks, shared_bytes: elements(planes, strips.strips.divisor) as u32 * 4 })
    }
}

/// Fours of rows of `dy` above those that a strip's first window begins in, which windows over the strip reach back to.
#[device_inline]
const fn margin(vertical: &Axis, stride: u32) -> u32 {
    (vertical.size.div_ceil(stride) - 1).div_ceil(QUAD)
}

/// Elements from one vector of weights to the next.
#[device_inline]
const fn pitch(axis: &Axis) -> u32 {
    axis.size.next_multiple_of(4)
}

/// Elements of a Gaussian's vectors of weights.
#[device_inline]
const fn of_gaussian(geometry: &Geometry) -> u32 {
    let [vertical, horizontal] = &geometry.axes;
    vertical.cases * pitch(vertical) + horizontal.cases * pitch(horizontal)
}

/// What a block works on.
#[derive(Clone, Copy)]
struct Part {
    /// Its place among the blocks.
    number: u32,
    /// Its first plane and how many it has, and its first strip in each.
    plane: u32,
    planes: u32,
    strip: u32,
    /// Its strips, of all its planes.
    bands: u32,
}

impl Part {
    #[device_inline]
    fn of_block(geometry: &Geometry, strips: &Strips) -> Self {
        let number = thread::block_idx_x();
        let (group, tile) = divide(number, strips.tiles);
        let (plane, strip, most) = (group * strips.planes, tile * strips.strips.divisor, strips.strips.divisor);
        let planes = strips.planes.min(geometry.planes - plane);
        // More than one plane are whole, and their last strip is the tile's.
        let bands = if strips.planes == 1 { most.min(strips.total - strip) } else { planes * most };
        Self { number, plane, planes, strip, bands }
    }
}

/// The vectors of weights in a block's shared memory: of each of its sets of parameters and each Gaussian those along y and
/// then those along x, and after all weights their derivatives by mean and by variance.
#[derive(Clone, Copy)]
struct Weights {
    at: Shared<f32>,
    of_gaussian: u32,
    of_table: u32,
    /// What of a plane's number in the block is that of its set of parameters: all bits or none.
    mask: u32,
    kernels: u32,
}

impl Weights {
    /// Computes them, `W` tables, 1 or 3, for blocks of `most` planes, of which this has `planes` from `plane` on; all threads
    /// of a block come here. They are there after a barrier.
    ///
    /// # Safety
    /// `at` holds them; `mean` and `var` what the geometry says, `kernels` divides by the geometry's.
    #[device_inline]
    unsafe fn compute<const W: usize>(
        at: Shared<f32>,
        mean: Global<f32>,
        var: Global<f32>,
        geometry: &Geometry,
        [most, plane, planes]: [u32; 3],
        variances: u32,
        kernels: Divisor,
    ) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let one_set = geometry.sets == 1;
        let sets = if one_set { 1 } else { most };
        let of_gaussian = of_gaussian(geometry);
        let weights = Self {
            at,
            of_gaussian,
            of_table: sets * geometry.kernels * of_gaussian,
            mask: if one_set { 0 } else { u32::MAX },
            kernels: geometry.kernels,
        };
        let sets = if one_set { 1 } else { planes };
        let cases = vertical.cases + horizontal.cases;
        let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
        while number < sets * geometry.kernels * cases {
            let (here, case) = divide(number, cases);
            let (set_here, kernel) = kernels.divide(here);
            let set = if one_set { 0 } else { divide(plane + set_here, geometry.channels).1 };
            let down = case < vertical.cases;
            let axis = geometry.axis(down);
            let case = if down { case } else { case - vertical.cases };
            let first =
                here * of_gaussian + case * pitch(&axis) + if down { 0 } else { vertical.cases * pitch(vertical) };
            // SAFETY: the caller's; the vector is this warp's.
            unsafe {
                let shape = Shape::load([mean, var], set * geometry.kernels + kernel, down, variances);
                vector(
                    &axis,
                    case,
                    shape,
                    W == 3,
                    |i, weight| at.store(first + i, weight),
                    |i| at.load(first + i),
                    |i, _, [by_mean, by_var]| {
                        at.store(weights.of_table + first + i, by_mean);
                        at.store(2 * weights.of_table + first + i, by_var);
                    },
                );
            }
            number += thread::block_dim_x() / warp::WARP_SIZE;
        }
        weights
    }

    /// Elements of all tables.
    #[device_inline]
    fn len(&self, tables: u32) -> u32 {
        tables * self.of_table
    }

    /// Where the vectors of a Gaussian along y and along x begin, for a plane of the block.
    #[device_inline]
    fn of(&self, geometry: &Geometry, plane: u32, kernel: u32) -> [u32; 2] {
        let first = ((plane & self.mask) * self.kernels + kernel) * self.of_gaussian;
        let vertical = &geometry.axes[0];
        [first, first + vertical.cases * pitch(vertical)]
    }
}

/// The weights of [`POSITIONS`] positions, from `at` on, of which `left` are left.
///
/// # Safety
/// `from` holds them, from a multiple of 4 on.
#[device_inline]
unsafe fn chunk_of_weights(from: Shared<f32>, at: u32, left: u32) -> [f32; POSITIONS as usize] {
    // SAFETY: zero bits are 0.0.
    let mut weights: [f32; POSITIONS as usize] = unsafe { core::mem::zeroed() };
    unrolled!(Q in [0 1 2] {
        if 4 * (Q as u32) < left {
            // SAFETY: the caller's; a vector's elements are a multiple of 4.
            let four = unsafe { from.load4(at + 4 * Q as u32) }.to_array();
            unrolled!(R in [0 1 2 3] { weights[4 * Q + R] = four[R]; });
        }
    });
    weights
}

/// Four rows of a place.
///
/// # Safety
/// `i` is a place's four, that nobody writes.
#[device_inline]
unsafe fn load_quad(from: Shared<f32>, i: u32) -> [f32; 4] {
    // SAFETY: the caller's.
    unsafe { from.load4(i * QUAD) }.to_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        for divisor in (1..2000).chain([1 << 14, (1 << 15) - 1]) {
            let most = (1 << 31) / divisor - 1;
            let near = (0..most.min(5000)).chain((1..50).map(|i| most - most / 50 * i)).chain([most]);
            for a in near {
                assert_eq!(Divisor::new(divisor).divide(a), (a / divisor, a % divisor), "{a} by {divisor}");
            }
        }
    }

    #[test]
    fn eight_neighbours_fall_into_different_banks() {
        for stride in 2..=MAX_STRIDE {
            for columns in 1..300 {
                let places = Strips::places(stride, columns);
                assert!(places * stride > columns);
                let of = |column: u32| (column % stride * places + column / stride) % 8;
                let banks: std::collections::HashSet<_> = (0..8).map(of).collect();
                assert_eq!(banks.len(), 8, "stride {stride}, {columns} columns");
            }
        }
    }
}
