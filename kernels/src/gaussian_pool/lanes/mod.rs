//! Gaussian pooling of planes that follow each other, a warp for itself: for windows of a few known sizes, two pixels apart,
//! whose weights are the same everywhere, which is all but padded ones under `Valid`; but for `dx` alone of images whose rows
//! are multiples of 16 bytes.
//!
//! A lane has four columns, in which two windows begin, and goes down the plane row by row; neighbouring lanes have neighbouring
//! columns, and what a window needs of other lanes comes by shuffles. No warp waits for another. A step is two rows of the
//! image and one of the output.
//!
//! Rows of the image come into a ring in the warp's shared memory by asynchronous copies, some steps ahead: loads into
//! registers would have to be moved there at the end of each turn of the loop, and a move waits for its load. Rows of `dy`, of
//! which there are less, are loaded into registers a whole turn ahead.
//!
//! - [`gaussian_pool_forward_lanes`]: a lane adds its columns of each row to the windows over the row. Of a row of windows that
//!   is complete it forms what its columns give to each window over them, and sums these from its neighbours.
//! - [`gaussian_pool_backward_lanes`]: a lane spreads each row of `dy` over its columns, with what its neighbours have of it,
//!   and then over the rows of the image.
//! - [`gaussian_pool_backward_maps_lanes`]: of several Gaussians of a channel, it spreads their rows of `dy` over the rows of the image first.
//! - [`gaussian_pool_backward_parameters_lanes`]: as of one Gaussian, with `x` at hand.
//!
//! A warp's work is a *unit*: a part of a plane's rows, and a tile of its columns.

mod backward;
mod forward;
mod maps;
mod parameters;
mod plan;
mod ring;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use maps::*;
pub use parameters::*;
pub use plan::*;
use ring::Ring;

use super::weights::{Shape, vector};
use super::{Axis, Geometry, divide};

/// Threads of a block.
pub const LANES_BLOCK: u32 = 128;
/// Warps of a block.
const WARPS: u32 = LANES_BLOCK / warp::WARP_SIZE;
/// The stride of the windows.
const STRIDE: usize = 2;
/// Columns of a lane.
const COLUMNS: usize = 4;
/// Columns of a warp.
const LINE: u32 = warp::WARP_SIZE * COLUMNS as u32;
/// Windows that begin in a lane's columns.
const WINDOWS: usize = COLUMNS / STRIDE;
/// Windows over a pixel along an axis, at most.
const MOST_TAPS: usize = 6;
/// Gaussians of a channel, at most.
const MOST_KERNELS: usize = 3;
/// Units that are enough for any GPU: with fewer, planes are taken apart along y.
const ENOUGH: u32 = 2048;
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 12;

/// Windows over a pixel along an axis.
const fn taps(size: u32) -> usize {
    size.div_ceil(STRIDE as u32) as usize
}

/// Lanes beside its own that a lane's windows reach over.
const fn reach(size: u32) -> u32 {
    (taps(size) - 1).div_ceil(WINDOWS) as u32
}

/// Steps that are written out one after another: what is kept from one to another stays in its registers, not moved.
const fn turn(size: u32) -> usize {
    if taps(size) == 2 { 4 } else { taps(size) }
}

/// How warps take planes apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Units in all.
    units: u32,
    /// Tiles of a plane's columns.
    pub tiles: u32,
    /// Lanes of a tile that store.
    lanes: u32,
    /// Parts of a plane along y.
    pub parts: u32,
    /// Steps that a part stores, and steps of a plane.
    steps: u32,
    total: u32,
    /// Variances of each Gaussian, 1 or 2.
    variances: u32,
    /// Columns before the padding that the first lane's begin with, so that each 16 bytes of a row are copied to where 16
    /// begin.
    lead: u32,
    /// The first lane of the first tile that stores.
    first: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Lanes {}

/// What a warp works on.
#[derive(Clone, Copy)]
struct Unit {
    plane: u32,
    /// The lane's number; whether it stores; and lanes of the warp before those that do.
    lane: u32,
    stores: bool,
    before: u32,
    /// Its first step that is stored, and that past its last.
    begin: u32,
    end: u32,
    /// Its tile and part, of a plane.
    number: u32,
}

impl Unit {
    /// That of this warp; `before` lanes of a tile come before those that store.
    #[device_inline]
    fn of_warp(lanes: &Lanes, before: u32) -> Option<Self> {
        let unit = thread::block_idx_x() * WARPS + warp_of_block();
        (unit < lanes.units).then(|| Self::new(lanes, before, unit))
    }

    /// The same, and where there is none for this warp the last one with nothing to do, for who still meets the block's other warps.
    #[device_inline]
    fn of_warp_or_nothing(lanes: &Lanes, before: u32) -> Self {
        let unit = thread::block_idx_x() * WARPS + warp_of_block();
        let mut own = Self::new(lanes, before, unit.min(lanes.units - 1));
        if unit >= lanes.units {
            own.end = own.begin;
        }
        own
    }

    #[device_inline]
    fn new(lanes: &Lanes, before: u32, unit: u32) -> Self {
        let (plane, number) = divide(unit, lanes.tiles * lanes.parts);
        let (part, tile) = divide(number, lanes.tiles);
        let of_tile = warp::lane_id().wrapping_sub(before);
        let begin = part * lanes.steps;
        Self {
            plane,
            lane: (lanes.first + tile * lanes.lanes).wrapping_add(of_tile),
            stores: of_tile < lanes.lanes,
            before,
            begin,
            end: (begin + lanes.steps).min(lanes.total),
            number,
        }
    }

    /// The first column of the image that the lane has; wraps where it is before the image.
    #[device_inline]
    fn column(&self, lanes: &Lanes, horizontal: &Axis) -> u32 {
        self.lane.wrapping_mul(COLUMNS as u32).wrapping_sub(lanes.lead + horizontal.padding)
    }

    /// The first window that begins in its columns, likewise.
    #[device_inline]
    fn window(&self, lanes: &Lanes) -> u32 {
        self.lane.wrapping_mul(WINDOWS as u32).wrapping_sub(lanes.lead / STRIDE as u32)
    }

    /// The first pixel of the plane.
    #[device_inline]
    fn first_pixel(&self, geometry: &Geometry) -> usize {
        let [vertical, horizontal] = &geometry.axes;
        self.plane as usize * vertical.image as usize * horizontal.image as usize
    }

    /// The first of the plane's set of Gaussians.
    #[device_inline]
    fn gaussian(&self, geometry: &Geometry) -> u32 {
        let set = if geometry.sets == 1 { 0 } else { divide(self.plane, geometry.channels).1 };
        set * geometry.kernels
    }
}

/// A lane's values of its columns, and of its windows.
type Columns = [f32; COLUMNS];
type Windows = [f32; WINDOWS];

/// The warp's number in its block.
#[device_inline]
fn warp_of_block() -> u32 {
    thread::thread_idx_x() / warp::WARP_SIZE
}

/// Computes a Gaussian's weights along y and x in this warp's shared memory at `at`, and with `tables` of 3 after these their
/// derivatives by mean and by variance. They are there after the warp's barrier.
///
/// # Safety
/// Shared memory holds two vectors of each table there, which are the warp's; the parameters are there.
#[device_inline]
unsafe fn compute(
    at: Shared<f32>,
    [mean, var]: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    gaussian: u32,
    tables: u32,
) {
    unrolled!(A in [0 1] {
        let of = |table: u32| (2 * table + A as u32) * VECTOR;
        // SAFETY: the caller's.
        unsafe {
            let shape = Shape::load([mean, var], gaussian, A == 0, variances);
            let put = |i: u32, weight: f32| at.store(of(0) + i, weight);
            let put_derivatives = |i: u32, _: f32, [by_mean, by_var]: [f32; 2]| {
                at.store(of(1) + i, by_mean);
                at.store(of(2) + i, by_var);
            };
            vector(&geometry.axes[A], 0, shape, tables == 3, put, |i| at.load(of(0) + i), put_derivatives);
        }
    });
}

/// A vector of weights.
type Weights = [f32; VECTOR as usize];

/// The vector at element `at`.
///
/// # Safety
/// It is there, at a multiple of 4.
#[device_inline]
unsafe fn load_vector<const SIZE: u32>(from: Shared<f32>, at: u32) -> Weights {
    // SAFETY: zero bits are 0.0.
    let mut weights: Weights = unsafe { core::mem::zeroed() };
    unrolled!(Q in [0 1 2] {
        if 4 * (Q as u32) < SIZE {
            // SAFETY: the caller's.
            let four = unsafe { from.load4(at + 4 * Q as u32) }.to_array();
            unrolled!(R in [0 1 2 3] { weights[4 * Q + R] = four[R]; });
        }
    });
    weights
}

/// The weights along y and x of all Gaussians of a unit's channel, by way of shared memory: where all channels have the same, each of the block's
/// warps computes some of the vectors.
///
/// # Safety
/// Shared memory has two vectors for each Gaussian and warp from `shared` on; the parameters are there; all threads of the block come together.
#[device_inline]
unsafe fn of_maps<const SIZE: u32, const KERNELS: usize>(
    shared: Shared<f32>,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    unit: &Unit,
) -> ([Weights; MOST_KERNELS], [Weights; MOST_KERNELS]) {
    let (warp, vectors) = (warp_of_block(), 2 * KERNELS as u32);
    let (own, mut vector, step) = if geometry.sets == 1 { (0, warp, WARPS) } else { (warp, 0, 1) };
    // SAFETY: zero bits are 0.0.
    let (mut by_y, mut by_x): ([Weights; MOST_KERNELS], [Weights; MOST_KERNELS]) = unsafe { core::mem::zeroed() };
    // SAFETY: the caller's; the vectors are written before the barrier.
    unsafe {
        let at = shared.offset(own * vectors * VECTOR);
        while vector < vectors {
            let (gaussian, vertical) = (unit.gaussian(geometry) + vector / 2, vector.is_multiple_of(2));
            weights(at.offset(vector * VECTOR), parameters, geometry, variances, gaussian, vertical);
            vector += step;
        }
        thread::sync_threads();
        unrolled!(K in [0 1 2] {
            if K < KERNELS {
                by_y[K] = load_vector::<SIZE>(at, 2 * K as u32 * VECTOR);
                by_x[K] = load_vector::<SIZE>(at, (2 * K as u32 + 1) * VECTOR);
            }
        });
    }
    (by_y, by_x)
}

/// Computes a Gaussian's weights along one axis at `at` in shared memory. They are there after the warp's barrier.
///
/// # Safety
/// As [`compute`], for one vector.
#[device_inline]
unsafe fn weights(
    at: Shared<f32>,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    gaussian: u32,
    vertical: bool,
) {
    // SAFETY: the caller's.
    unsafe {
        let shape = Shape::load(parameters, gaussian, vertical, variances);
        let put = |i: u32, weight: f32| at.store(i, weight);
        vector(&geometry.axis(vertical), 0, shape, false, put, |i| at.load(i), |_, _, _| {});
    }
}

/// A value that a lane so many before this one has; anything where there is none.
#[device_inline]
fn from_before(value: f32, lanes: usize) -> f32 {
    if lanes == 0 { value } else { warp::shuffle_up(value, lanes as u32) }
}
