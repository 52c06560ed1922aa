//! Gaussian pooling of planes that follow each other, down their columns: for windows of known taps whose weights are the
//! same everywhere, which is all but padded ones under `Valid`.
//!
//! A block has a few planes side by side, or a part of a wide one, and goes down them in steps of 4 or 8 windows; a thread
//! keeps what the windows that reach into the next step have so far. Nothing is read twice but between the parts of a plane,
//! and each step's loads are under way while the one before is computed with: a thread holds them in registers.
//!
//! - [`gaussian_pool_forward_walk`]: a thread has a column of the image. It adds each row to the windows over it; those
//!   that are complete go to shared memory, from where a thread takes a window in four rows and sums along x.
//! - [`gaussian_pool_backward_walk`]: the rows of `dy` go to shared memory; a thread has the columns of the image in which
//!   a window begins and its next does not yet, spreads four rows of `dy` over them, and those over the rows of the image.
//! - [`gaussian_pool_backward_parameters_walk`]: the same, with `x` at hand. What each position of a window along one axis
//!   meets, `x` times `dy` with the weights of the other axis, is summed for the position; weights' derivatives come last.
//!
//! Instructions bound these kernels before memory does where windows are large or elements have 16 bits. What a step costs
//! beside its sums was kept small for that: places and addresses are found once a block, and every row or column is loaded
//! without asking whether it is in the image where a whole step is.
//!
//! `TAPS` is how many windows lie over a pixel along an axis, at most, and [`CLASSES`] says which windows that is compiled
//! for: positions that only some of them have are asked for when the kernel runs.

mod backward;
mod forward;
mod parameters;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use parameters::*;

use super::{Divisor, MAX_SHARED, QUAD, Strips, Weights, of_gaussian};
use crate::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN, divide};

/// Threads of a block of [`gaussian_pool_forward_walk`], at most: two planes of 112 columns, or as many of half and a quarter
/// of these.
pub const FORWARD_THREADS: u32 = 224;
/// Threads of a block of [`gaussian_pool_backward_walk`], at most.
pub const BACKWARD_THREADS: u32 = 224;
/// Threads of a block of [`gaussian_pool_backward_parameters_walk`], at most: few, which wait less for each other.
pub const fn parameters_threads(stride: u32) -> u32 {
    if stride == 3 { 128 } else { 64 }
}
/// Shared memory of a block that planes are taken together up to, in bytes.
const TOGETHER: u64 = 80 << 10;
/// Blocks that are enough for any GPU: with fewer, planes are taken apart along y.
const ENOUGH: u64 = 1024;
/// Steps that a part of a plane has, at least: one more is done twice.
const STEPS: u32 = 2;
/// Positions of a window, at most.
const MOST: usize = 12;
/// Rows of the image in a step, at most.
const MOST_ROWS: usize = 24;

/// The windows that are compiled for: taps, stride, and the sizes from the first to the second.
pub const CLASSES: [(u32, u32, [u32; 2]); 3] = [(2, 2, [3, 4]), (6, 2, [9, 12]), (4, 3, [9, 12])];

/// The sizes of windows that have as many taps, from the first to the second.
const fn sizes(taps: u32, stride: u32) -> [u32; 2] {
    let mut i = 0;
    while i < CLASSES.len() {
        let (t, s, sizes) = CLASSES[i];
        if t == taps && s == stride {
            return sizes;
        }
        i += 1;
    }
    [0, 0]
}

/// Whether a window of this size has a position.
#[device_inline]
const fn has<const TAPS: u32, const STRIDE: u32>(size: u32, position: usize) -> bool {
    (position as u32) < sizes(TAPS, STRIDE)[0]
        || ((position as u32) < sizes(TAPS, STRIDE)[1] && (position as u32) < size)
}

/// How blocks take planes apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Planes of a block.
    pub planes: u32,
    /// Tiles of a plane's columns.
    pub tiles: u32,
    /// Columns of windows of a tile: of the output, or, backward, those whose first column lies in the image.
    pub windows: u32,
    /// Parts of a plane along y, and steps of each; the last may have fewer.
    pub parts: u32,
    /// See `parts`.
    pub steps: u32,
    /// Steps of a plane.
    pub total: u32,
    /// Variances of each Gaussian, 1 or 2.
    pub variances: u32,
    /// Gaussians of a plane.
    pub kernels: Divisor,
    /// Threads of a plane.
    pub columns: Divisor,
    /// Forward: columns of windows. Backward: columns of `dy` that are brought into shared memory.
    pub second: Divisor,
    /// Forward: places in shared memory for columns a stride apart.
    pub places: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Walk {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkPlan {
    /// What the kernel takes.
    pub walk: Walk,
    /// The taps that it is compiled for.
    pub taps: u32,
    /// Blocks.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// Which pass a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    /// With so many tables of weights, 1 or 3.
    Backward(u32),
}

impl WalkPlan {
    /// For the forward pass; none where the kernels cannot.
    pub fn forward(geometry: &Geometry, variances: u32) -> Option<Self> {
        Self::new(geometry, variances, Pass::Forward)
    }

    /// For the backward pass, `tables` of the weights and their derivatives, 1 or 3; none where the kernels cannot.
    pub fn backward(geometry: &Geometry, variances: u32, tables: u32) -> Option<Self> {
        // Of three columns a thread there are too many sums for 8 windows a step, and 4 are slower than strips.
        let can = if tables == 3 { geometry.kernels == 1 } else { geometry.axes[0].stride < 3 };
        if !can {
            return None;
        }
        Self::new(geometry, variances, Pass::Backward(tables))
    }

    /// The taps of these windows' class.
    fn taps(geometry: &Geometry) -> Option<u32> {
        let [vertical, horizontal] = &geometry.axes;
        let small = [vertical, horizontal].iter().all(|axis| axis.image.max(axis.output) < 1 << 28);
        let shared = vertical.cases == 1 && horizontal.cases == 1 && vertical.stride == horizontal.stride;
        let of_class = |&&(_, stride, [first, last]): &&(u32, u32, [u32; 2])| {
            let has = |size: u32| (first..=last).contains(&size);
            vertical.stride == stride && has(vertical.size) && has(horizontal.size)
        };
        CLASSES.iter().find(of_class).filter(|_| small && shared).map(|&(taps, ..)| taps)
    }

    fn new(geometry: &Geometry, variances: u32, pass: Pass) -> Option<Self> {
        let taps = Self::taps(geometry)?;
        let [vertical, horizontal] = &geometry.axes;
        let stride = vertical.stride;
        let forward = pass == Pass::Forward;
        let most = match pass {
            Pass::Forward => FORWARD_THREADS,
            Pass::Backward(1) => BACKWARD_THREADS,
            Pass::Backward(_) => parameters_threads(stride),
        };
        // Windows that begin in the image, from the first such on.
        let begun =
            |axis: &crate::gaussian_pool::Axis| (axis.padding + axis.image - 1) / stride - axis.padding / stride + 1;
        // Of a tile: a thread's share and what windows reach over.
        let all = if forward { horizontal.output } else { begun(horizontal) };
        let fitting = if forward { most / stride - (taps - 1) } else { most };
        let windows = all.div_ceil(all.div_ceil(fitting));
        let tiles = all.div_ceil(windows);
        let columns = if forward { (windows + taps - 1) * stride } else { windows };
        let staged = windows + taps - 1;
        let total = if forward {
            (vertical.output + taps - 1).div_ceil(rows(pass))
        } else {
            begun(vertical).div_ceil(rows(pass))
        };
        let places = Strips::places(stride, columns);
        let sets = |planes: u32| if geometry.sets == 1 { 1 } else { planes };
        let shared = |planes: u32, threads: u32| {
            let tables = if let Pass::Backward(tables) = pass { tables } else { 1 };
            let weights =
                u64::from(sets(planes)) * u64::from(geometry.kernels) * u64::from(of_gaussian(geometry) * tables);
            let rows = u64::from(planes * rows(pass));
            let rest = match pass {
                Pass::Forward => {
                    let sums = 2 * rows * u64::from(stride * places);
                    u64::from(geometry.kernels) * (sums + u64::from((taps - 1) * FORWARD_THREADS))
                }
                Pass::Backward(1) => 2 * rows * u64::from(staged),
                // The sums that threads leave come in the same place.
                Pass::Backward(_) => {
                    (u64::from(RING) * rows * u64::from(staged)).max(u64::from(SUMS_PER_GAUSSIAN * threads))
                }
            };
            (weights + rest) * 4
        };
        let threads = |planes: u32| (planes * columns).next_multiple_of(warp::WARP_SIZE);
        let quads = rows(pass) / QUAD;
        // From its first plane on a block counts in 32 bits.
        let pixels =
            |axis: fn(&crate::gaussian_pool::Axis) -> u32| u64::from(axis(vertical)) * u64::from(axis(horizontal));
        let of_plane = pixels(|axis| axis.image).max(pixels(|axis| axis.output) * u64::from(geometry.kernels));
        let fits = |&planes: &u32| {
            let stages = forward || planes * staged * quads <= ahead(quads) * threads(planes);
            let stages = stages && u64::from(planes) * of_plane < 1 << 31;
            threads(planes) <= most && stages && (planes == 1 || shared(planes, threads(planes)) <= TOGETHER)
        };
        let planes = (1..=(most / columns).min(geometry.planes).max(1)).rev().find(fits)?;
        let (threads, groups) = (threads(planes), geometry.planes.div_ceil(planes));
        let shared_bytes = shared(planes, threads);
        if shared_bytes > u64::from(MAX_SHARED) {
            return None;
        }
        let items = u64::from(groups) * u64::from(tiles);
        let parts = (ENOUGH / items.max(1)).clamp(1, u64::from((total / STEPS).max(1))) as u32;
        let steps = total.div_ceil(parts);
        let parts = total.div_ceil(steps);
        let walk = Walk {
            planes,
            tiles,
            windows,
            parts,
            steps,
            total,
            variances,
            kernels: Divisor::new(geometry.kernels),
            columns: Divisor::new(columns),
            second: Divisor::new(if forward { windows } else { staged }),
            places,
        };
        Some(Self { walk, taps, blocks: items * u64::from(parts), threads, shared_bytes: shared_bytes as u32 })
    }
}

/// Windows of a step.
const fn rows(pass: Pass) -> u32 {
    match pass {
        Pass::Forward | Pass::Backward(1) => 2 * QUAD,
        Pass::Backward(_) => QUAD,
    }
}

/// Fours of rows of `dy` that a thread brings to shared memory in a step, at most: of so many fours of windows.
const fn ahead(quads: u32) -> u32 {
    quads + 1
}
/// The same of any.
const AHEAD: usize = 3;
/// Steps whose rows of `dy` stay in shared memory for the parameters' gradients, with the next one's.
const RING: u32 = 4;

/// `size`, which the compiler cannot know to be the same in every step: it would keep its multiples, for the rows of a step,
/// in registers. `step` is below 2³¹.
#[device_inline]
fn in_step(size: u32, step: u32) -> usize {
    (size + (step >> 31)) as usize
}

/// What a block works on.
#[derive(Clone, Copy)]
struct Part {
    /// Its first plane, and how many it has.
    plane: u32,
    planes: u32,
    /// The first column of windows of its tile.
    window: u32,
    /// Its steps, from the first to before the second.
    begin: u32,
    end: u32,
    /// Its tile and part, of a plane.
    number: u32,
}

impl Part {
    #[device_inline]
    fn of_block(geometry: &Geometry, walk: &Walk) -> Self {
        let (rest, part) = divide(thread::block_idx_x(), walk.parts);
        let (group, tile) = divide(rest, walk.tiles);
        let (plane, begin) = (group * walk.planes, part * walk.steps);
        Self {
            plane,
            planes: walk.planes.min(geometry.planes - plane),
            window: tile * walk.windows,
            begin,
            end: (begin + walk.steps).min(walk.total),
            number: tile * walk.parts + part,
        }
    }
}

/// The weights of a window's positions, from `at` on.
///
/// # Safety
/// `from` holds the vector, from a multiple of 4 on.
#[device_inline]
unsafe fn vector<const TAPS: u32, const STRIDE: u32>(from: Shared<f32>, at: u32, size: u32) -> [f32; MOST] {
    // SAFETY: zero bits are 0.0.
    let mut weights: [f32; MOST] = unsafe { core::mem::zeroed() };
    unrolled!(Q in [0 1 2] {
        if has::<TAPS, STRIDE>(size, 4 * Q) {
            // SAFETY: the caller's; a vector's elements are a multiple of 4.
            let four = unsafe { from.load4(at + 4 * Q as u32) }.to_array();
            unrolled!(R in [0 1 2 3] { weights[4 * Q + R] = four[R]; });
        }
    });
    weights
}
