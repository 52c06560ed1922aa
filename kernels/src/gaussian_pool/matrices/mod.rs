//! Gaussian pooling of planes of 16-bit floats that follow each other, of windows two pixels apart whose weights are the same everywhere, as
//! matrix products: `Y = Wy X Wxᵀ`, and backward `dX = Wyᵀ dY Wx`, by tensor cores.
//!
//! `Wx` and `Wy` are bands, the same from one place to the next, and have a window's weights in each row. So windows of any
//! size up to 15 along either axis go by the same kernel: what differs is in the weights' fragments.
//!
//! A warp goes down a *strip* of a plane by itself, four tiles wide. A step is 16 rows of the image and 8 of windows: it multiplies
//! the rows by `Wx`, and what comes of that, which lies in registers as the next product wants it, by `Wy`. The rows of a window are those of two
//! steps; its sum stays in registers between these. Rows come, and go, through the warp's own shared memory, so that it reads and writes
//! memory by whole lines: by what a lane has of a fragment, a row's 16 or 32 bytes, the L2 cache has four times as much to do (docs/perf/log.md).
//!
//! Elements are multiplied as they are, weights as the sum of two of their type (22 bits of `f16`, taken times 2¹⁵, that small ones keep
//! theirs; 16 of `bf16`), what lies between the products as two of `bf16`; of these products the one of both lower parts is
//! left out, 2⁻¹⁶ of the whole. Zeros of a band are multiplied too: where an element is infinite or NaN, sums beside its windows become NaN,
//! and a warp that finds such a sum computes those of its strip that are not finite again, one by one.
//!
//! Bound by the L1 cache, shared memory in it, and by what products wait for each other: on an H200, 64×64×112×112 in bf16, windows of any size, 0.53 to 0.68
//! of the copy rate forward and 0.64 to 0.67 backward, three Gaussians a channel 0.40 to 0.48 and 0.38 to 0.42 (docs/perf).
//!
//! Row `g` and columns `2c`, `2c + 1` of a fragment are those of lane `4g + c` ([`cuda_std::arch::sm_80`]).

mod backward;
mod forward;
mod maps;
mod plan;
mod ring;

pub use backward::*;
use cuda_std::arch::sm_80::{Half, Paired};
use cuda_std::prelude::*;
pub use forward::*;
pub use plan::*;

use super::staged::Pool;
use super::weights::{Shape, vector};
use super::{Geometry, divide};

/// Threads of a block.
pub const MATRICES_BLOCK: u32 = 128;
/// Warps of a block.
const WARPS: u32 = MATRICES_BLOCK / warp::WARP_SIZE;
/// The stride of the windows.
const STRIDE: u32 = 2;
/// Positions of a window along an axis, at most: what a tile of 16 pixels has of windows is half a fragment's, and those a step needs are two steps'.
const MOST_SIZE: u32 = 15;
/// Tiles of a strip, each of 8 windows and 16 pixels; and fragments of pixels, or halves of fragments of windows, that these need.
const TILES: usize = 4;
const PIECES: usize = TILES + 1;
/// Rows of windows and of pixels of a step.
const WINDOWS: u32 = 8;
const PIXELS: u32 = 16;
/// Elements of a vector of weights in shared memory, and of a Gaussian's two.
const LENGTH: u32 = 16;
const LENGTHS: u32 = 2 * LENGTH;
/// Fragments of a Gaussian's weights: two of those along x, and two of those along y; backward these for even steps of a strip, and two for odd ones.
const FRAGMENTS: u32 = 6;
/// Words of shared memory of a Gaussian: its vectors, and what each lane has of its fragments.
const OF_GAUSSIAN: u32 = LENGTHS + FRAGMENTS * 4 * warp::WARP_SIZE;
/// Gaussians of a channel, at most.
const MOST_KERNELS: usize = 3;

/// How warps take planes apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Units in all: parts of strips.
    units: u32,
    /// Strips of a plane, and parts of a strip.
    strips: u32,
    parts: u32,
    /// Steps that a part stores, and steps of a strip.
    steps: u32,
    total: u32,
    /// Variances of each Gaussian, 1 or 2.
    variances: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Matrices {}

/// What a warp works on.
#[derive(Clone, Copy)]
struct Unit {
    plane: u32,
    strip: u32,
    /// Its first step that is stored, and that past its last.
    begin: u32,
    end: u32,
}

impl Unit {
    /// Number `unit`. Strips that are neighbours follow each other: what both read, the second finds in a cache.
    #[device_inline]
    fn new(matrices: &Matrices, unit: u32) -> Self {
        let (rest, strip) = divide(unit, matrices.strips);
        let (plane, part) = divide(rest, matrices.parts);
        let begin = part * matrices.steps;
        Self { plane, strip, begin, end: (begin + matrices.steps).min(matrices.total) }
    }
}

/// This lane's row of a fragment, and the half of its first column.
#[device_inline]
fn place() -> [u32; 2] {
    [warp::lane_id() / 4, warp::lane_id() % 4]
}

/// What one lane has of a fragment of weights.
type Fragment = [u32; 4];

/// Words of a block's shared memory for weights of so many Gaussians a channel: once where all channels share them, else for each warp.
const fn weights_words(sets: u32, kernels: u32) -> u32 {
    (if sets == 1 { 1 } else { WARPS }) * kernels * OF_GAUSSIAN
}

/// A warp's parts of a block's shared memory: its weights, which may be the block's, and so many words after all warps' weights.
///
/// # Safety
/// The block has them.
#[device_inline]
unsafe fn of_warp(geometry: &Geometry, kernels: u32, each: u32) -> (Shared<f32>, Shared<f32>) {
    let number = thread::thread_idx_x() / warp::WARP_SIZE;
    let of_weights = if geometry.sets == 1 { 0 } else { number * kernels * OF_GAUSSIAN };
    // SAFETY: the caller's.
    unsafe {
        let shared = dynamic_shared::<f32>();
        (shared.offset(of_weights), shared.offset(weights_words(geometry.sets, kernels) + number * each))
    }
}

/// The weights of one Gaussian, in shared memory.
#[derive(Clone, Copy)]
struct Weights(Shared<f32>);

impl Weights {
    /// Those of Gaussian number `kernel` of a channel, of all of a warp, which begin there.
    ///
    /// # Safety
    /// Shared memory has [`OF_GAUSSIAN`] words for each.
    #[device_inline]
    unsafe fn of(all: Shared<f32>, kernel: u32) -> Self {
        // SAFETY: the caller's.
        Self(unsafe { all.offset(kernel * OF_GAUSSIAN) })
    }

    /// Computes the vectors along y and x of Gaussian number `gaussian` of all. They are there after the warp's barrier.
    ///
    /// # Safety
    /// The parameters are there; all lanes of the warp come together, and none reads these weights any more.
    #[device_inline]
    unsafe fn compute(self, parameters: [Global<f32>; 2], geometry: &Geometry, variances: u32, gaussian: u32) {
        let mut axis = 0;
        while axis < 2 {
            // SAFETY: the caller's; a window has as many positions as a vector at most.
            unsafe {
                let at = self.0.offset(axis * LENGTH);
                let shape = Shape::load(parameters, gaussian, axis == 0, variances);
                let put = |i: u32, weight: f32| at.store(i, weight);
                vector(&geometry.axis(axis == 0), 0, shape, false, put, |i| at.load(i), |_, _, _| {});
            }
            axis += 1;
        }
        warp::sync_warp(warp::FULL_MASK);
    }

    /// The weights at a position of the windows along y or x and so many after it, 0 where there are none, times `scale`: a word of the
    /// nearest, and a word of what is left.
    ///
    /// # Safety
    /// They have been computed.
    #[device_inline]
    unsafe fn two<T: Half>(self, geometry: &Geometry, vertical: bool, scale: f32, first: u32, step: u32) -> [u32; 2] {
        let (size, at) = (geometry.axis(vertical).size, if vertical { 0 } else { LENGTH });
        let weight = |position: u32| {
            // SAFETY: the caller's.
            unsafe { self.0.load_if(position < size, at.wrapping_add(position), 0.0) * scale }
        };
        parts::<T>([weight(first), weight(first.wrapping_add(step))])
    }

    /// Keeps fragment number `i`.
    ///
    /// # Safety
    /// As [`compute`](Self::compute).
    #[device_inline]
    unsafe fn put(self, i: u32, fragment: Fragment) {
        let at = LENGTHS + (i * warp::WARP_SIZE + warp::lane_id()) * 4;
        // SAFETY: the caller's.
        unsafe { self.0.cast::<u32>().store4(at, Vec4::from(fragment)) };
    }

    /// Fragments number `i` and `i + 1`, which this lane has put.
    ///
    /// # Safety
    /// It has.
    #[device_inline]
    unsafe fn get(self, i: u32) -> [Fragment; 2] {
        let at = LENGTHS + (i * warp::WARP_SIZE + warp::lane_id()) * 4;
        // SAFETY: the caller's.
        [at, at + 4 * warp::WARP_SIZE].map(|at| unsafe { self.0.cast::<u32>().load4(at) }.to_array())
    }

    /// A weight by itself, along y or x.
    ///
    /// # Safety
    /// It has been computed.
    #[device_inline]
    unsafe fn at(self, vertical: bool, position: u32) -> f32 {
        // SAFETY: the caller's.
        unsafe { self.0.load(if vertical { position } else { LENGTH + position }) }
    }
}

/// Whose weights a warp has at hand, the number of their set; none has the number [`u32::MAX`].
struct Known(u32);

impl Known {
    /// Those of the block, if all channels share `KERNELS` Gaussians: each warp has `prepare` one's, told its number.
    ///
    /// # Safety
    /// `all` is what [`of_warp`] says; all threads of the block come together.
    #[device_inline]
    unsafe fn of_block<const KERNELS: usize>(
        geometry: &Geometry,
        all: Shared<f32>,
        prepare: impl Fn(Weights, u32),
    ) -> Self {
        if geometry.sets > 1 {
            return Self(u32::MAX);
        }
        let kernel = thread::thread_idx_x() / warp::WARP_SIZE;
        if kernel < KERNELS as u32 {
            // SAFETY: the caller's.
            prepare(unsafe { Weights::of(all, kernel) }, kernel);
        }
        thread::sync_threads();
        Self(0)
    }

    /// Has `prepare` those of a plane's channel, if they are others.
    ///
    /// # Safety
    /// As above; all lanes of the warp come together, and none reads weights any more.
    #[device_inline]
    unsafe fn of_plane<const KERNELS: usize>(
        &mut self,
        geometry: &Geometry,
        all: Shared<f32>,
        plane: u32,
        prepare: impl Fn(Weights, u32),
    ) {
        let set = if geometry.sets == 1 { 0 } else { divide(plane, geometry.channels).1 };
        if set != self.0 {
            self.0 = set;
            unrolled!(K in [0 1 2] {
                // SAFETY: the caller's.
                if K < KERNELS { prepare(unsafe { Weights::of(all, K as u32) }, set * KERNELS as u32 + K as u32) }
            });
        }
    }
}

/// Two numbers as words of two parts each: the nearest of this type, and what is left.
#[device_inline]
fn parts<T: Half>(numbers: [f32; 2]) -> [u32; 2] {
    let high = T::join(numbers);
    let [first, second] = T::split(high);
    [high, T::join([numbers[0] - first, numbers[1] - second])]
}

/// By what sums along x of weights of this type are too large, and what those along y are taken times.
#[device_inline]
fn scales<T: Pool>() -> [f32; 2] {
    [T::SCALE, 1.0 / T::SCALE]
}

/// Whether any lane has a sum that is not finite.
#[device_inline]
fn is_wrong(sums: u32) -> bool {
    let [first, second] = bf16::split(sums);
    warp::reduce_sum((first + second) * 0.0) != 0.0
}
