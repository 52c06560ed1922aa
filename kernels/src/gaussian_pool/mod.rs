//! Gaussian pooling: windows averaged with the weights of Gaussians, `K` for each feature map (Zeiler & Fergus 2012,
//! arXiv 1207.0151).
//!
//! A weight is a product of a factor along y and one along x, so that a window of `kh * kw` positions costs `kh + kw`.
//!
//! Planes that follow each other and share one Gaussian go by [`quads`], [`squares`] or [`bands`] where windows are of 2×2 or 3×3 two apart, and
//! by [`falling`] where they are of other few known sizes one or two apart, or by [`runs`] in 16 bits. Others go forward by
//! [`direct`] where windows are small, of a known size and share little, and by [`apart`] where
//! others do not overlap; in 16 bits, where windows are larger and two apart, by [`matrices`]; backward by [`shares`] where windows are far apart, by
//! [`meshes`], or with the parameters' gradients by [`planes`], where windows of a few known sizes are three apart; by [`lanes`] where windows are of a few known sizes and most lanes of a warp have work; else by
//! [`strips`] where these can take them. Channels that are neighbours and share one Gaussian go by [`packs`] where windows are of a few
//! small sizes, but of much by [`patches`] or by [`falling_packs`], and by [`few`] where such windows do not overlap and channels are no whole
//! vectors; such with a Gaussian each by [`packs_apiece`], and of much by [`falling_packs`], too. Others go by [`staged`] where channels share one or three Gaussians of a large known size, by [`slide`] for other windows of a
//! few known sizes, by [`vectors`] for others that share one Gaussian or large ones that share several, by [`lines`] for these where they
//! are no whole vectors; the gradients of the parameters that such channels
//! share come of [`correlate`] in 16 bits where windows are large, of [`positions`] where they are small. Gradients of the parameters
//! and the input of windows of 3×3 one apart come of [`runs_learnt`], in both orders. Few outputs of large windows come of [`large`], in
//! both orders; windows of 5×5 and 7×7 far apart and little of other small ones of [`packs`] in row-major images too, and what is far apart or little otherwise of
//! [`elements`]; row-major windows of a few columns that are not square of [`spans`], small ones with the channels last of [`taps`] where each channel has a
//! Gaussian or they are wide. The rest goes the general way:
//!
//! - [`gaussian_pool_weights`] computes the factors of every Gaussian, once per pass, into a table.
//! - [`gaussian_pool_forward`] and [`gaussian_pool_backward`] share one shape. A block takes a tile of one plane of what
//!   it writes, or of a few planes side by side. First its threads sum along y, straight from global memory: a thread
//!   takes one or two columns of the source and [`SUMS`] rows of the tile at once, so that it loads each value once for
//!   all the rows whose windows cover it, and warps load adjacent elements. These sums go to shared memory, column by
//!   column. Then a thread takes [`SUMS`] rows of one column of the tile, and sums along x. Windows wider than shared
//!   memory's columns are taken a part at a time. The Gaussians of a map come one after another; what they read again is
//!   in the L1 cache.
//! - [`gaussian_pool_backward_parameters`] is the backward pass with the derivatives of the weights beside the
//!   weights: besides `dx` each block leaves, for each Gaussian, its part of the sums that are the gradients of mean and
//!   variance; [`gaussian_pool_sum_parameters`] adds these up. The order of both is fixed.
//!
//! Each is compiled for both orders in memory. Where planes follow each other (`NHWC = false`), neighbouring threads
//! have neighbouring columns, and a tile is 16 rows of up to 128 columns of one plane. Where the channels of a pixel
//! are neighbours (`NHWC = true`), so are the threads that have them, its lanes: up to 32, and a tile is 8 rows of up to
//! `256 / lanes` columns of each of these channels' planes. `Threads` is all that differs, beside where a pixel is.
//!
//! `x`, `y` and their gradients are `f32`, `f16` or `bf16`; all else is `f32`, the parameters and their gradients too.
//!
//! Bound by memory for windows of a few pixels, by shared memory's bandwidth for larger ones.
//!
//! # Safety
//! Every kernel relies on [`Geometry`] being what its documentation says, on buffers of the sizes that it gives, and on
//! the grid that its own documentation names. Buffers begin at multiples of 16 bytes.

pub mod all_gradients;
pub mod along_y;
pub mod apart;
pub mod apiece;
mod backward;
pub mod bands;
pub mod bands_along_y;
mod cell;
pub mod channels;
pub mod correlate;
pub mod direct;
pub mod elements;
pub mod falling;
pub mod falling_packs;
pub mod few;
pub mod flat;
mod forward;
mod geometry;
pub mod global;
pub mod lanes;
pub mod large;
pub mod lines;
pub mod matrices;
pub mod meshes;
pub mod packs;
pub mod packs_apiece;
mod parameters;
pub mod parameters_falling;
pub mod patches;
pub mod planes;
pub mod positions;
pub mod quads;
pub mod runs;
pub mod runs_learnt;
pub mod sets;
pub mod shares;
pub mod slide;
pub mod spans;
pub mod squares;
pub mod staged;
pub mod strips;
pub mod taps;
pub mod vectors;
mod weights;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use geometry::{Axis, Geometry};
pub use parameters::*;
pub use weights::*;

/// Threads of a block of the forward and the backward kernels.
pub const BLOCK: u32 = 128;
/// Bytes that come from memory together.
const SECTOR: u32 = 32;
/// Rows of a tile that a thread sums at once.
pub const SUMS: usize = 8;
/// The most lanes of a block: neighbouring channels that it takes side by side.
pub const MAX_LANES: u32 = warp::WARP_SIZE;

/// Columns of a band that each thread takes in the largest tile.
const ROUNDS: usize = 2;

/// Bands of [`SUMS`] rows of a tile. Two let a block of one plane load fewer rows twice; lanes leave too few columns.
const fn bands(nhwc: bool) -> u32 {
    if nhwc { 1 } else { 2 }
}

/// Rows of a tile.
pub const fn tile_rows(nhwc: bool) -> u32 {
    bands(nhwc) * SUMS as u32
}

/// Threads that have different columns of a band.
const fn column_threads(nhwc: bool, lanes: u32) -> u32 {
    BLOCK / lanes / bands(nhwc)
}

/// The most columns of a tile.
pub const fn max_tile_columns(nhwc: bool, lanes: u32) -> u32 {
    ROUNDS as u32 * column_threads(nhwc, lanes)
}

/// Elements from one column in shared memory to the next: a tile's rows, and for one lane four more so that 16-byte
/// accesses to adjacent columns fall into different banks. Lanes, whose elements lie between, do so by themselves.
const fn pitch(nhwc: bool) -> u32 {
    if nhwc { tile_rows(nhwc) } else { tile_rows(nhwc) + 4 }
}

/// Rows of the source that are loaded before the first of them is used.
const ROWS_IN_FLIGHT: u32 = 4;

/// Repeats a statement for literal values of a variable: an array that is indexed by it stays in registers, which is not
/// sure of a loop.
macro_rules! each {
    ($i:ident in $($n:literal)*: $body:expr) => {{
        $({
            let $i: usize = $n;
            $body;
        })*
    }};
}
use each;

/// What one lane of a block works on.
#[derive(Clone, Copy)]
struct Tile {
    plane: u32,
    /// The plane's image and channel; of use, and known, with `NHWC` only.
    image: u32,
    channel: u32,
    /// Whether this lane has a channel of its own. One that has not does what the last channel's does, and stores nothing.
    present: bool,
    /// The tile's number among the plane's.
    number: u32,
    row: u32,
    column: u32,
}

impl Tile {
    /// The tile of this block, in a grid of one dimension that has each plane's tiles side by side, row by row, so that
    /// what neighbours both read is still in the L2 cache; with `NHWC` each tile's groups of channels are side by side.
    ///
    /// `turn` is as for [`Threads::item`].
    #[device_inline]
    fn of_block<const NHWC: bool>(geometry: &Geometry, turn: u32) -> Self {
        let [down, across] = geometry.tiles;
        let block = thread::block_idx_x() + (turn >> 31);
        let (rest, group) = if NHWC { divide(block, geometry.groups) } else { (block, 0) };
        let (image, number) = divide(rest, down * across);
        let (row, column) = divide(number, across);
        let (row, column) = (row * tile_rows(NHWC), column * geometry.tile_columns);
        if !NHWC {
            return Self { plane: image, image, channel: 0, present: true, number, row, column };
        }
        let channel = (group << geometry.lanes_log) + Threads::<NHWC>::new(geometry).lane;
        let (channel, present) = (channel.min(geometry.channels - 1), channel < geometry.channels);
        Self { plane: image * geometry.channels + channel, image, channel, present, number, row, column }
    }

    /// The set of parameters of this lane's channel.
    #[device_inline]
    fn set<const NHWC: bool>(&self, geometry: &Geometry) -> u32 {
        match geometry.sets {
            1 => 0,
            _ if NHWC => self.channel,
            _ => divide(self.plane, geometry.channels).1,
        }
    }

    /// Where the pixels of map number `map` of the `maps` that this lane's plane has are, in a tensor of images of this
    /// height and width.
    #[device_inline]
    fn pixels<const NHWC: bool>(&self, geometry: &Geometry, [height, width]: [u32; 2], map: u32, maps: u32) -> Pixels {
        if NHWC {
            let column = geometry.channels * maps;
            let row = width * column;
            let first = self.image as usize * (height as usize * row as usize) + (self.channel * maps + map) as usize;
            Pixels { first, row, column }
        } else {
            let plane = self.plane as usize * maps as usize + map as usize;
            Pixels { first: plane * (height as usize * width as usize), row: width, column: 1 }
        }
    }
}

/// Where the pixels of a plane are in memory.
#[derive(Clone, Copy)]
struct Pixels {
    /// The element of the first.
    first: usize,
    /// Elements from one to the one below.
    row: u32,
    /// Elements from one to the next of its row.
    column: u32,
}

impl Pixels {
    /// How far a pixel is from the first; any number for one that is not in the plane.
    #[device_inline]
    fn at(self, row: u32, column: u32) -> usize {
        let (row, column) = (row as usize * self.row as usize, column as usize * self.column as usize);
        row.wrapping_add(column)
    }
}

/// A thread's place in its block. Lanes have neighbouring channels; a lane's threads are the workers on its plane.
#[derive(Clone, Copy)]
struct Threads<const NHWC: bool> {
    lanes_log: u32,
    lane: u32,
    worker: u32,
}

impl<const NHWC: bool> Threads<NHWC> {
    #[device_inline]
    fn new(geometry: &Geometry) -> Self {
        let thread = thread::thread_idx_x();
        if !NHWC {
            return Self { lanes_log: 0, lane: 0, worker: thread };
        }
        let lanes_log = geometry.lanes_log;
        Self { lanes_log, lane: thread & ((1 << lanes_log) - 1), worker: thread >> lanes_log }
    }

    #[device_inline]
    fn lanes(self) -> u32 {
        1 << self.lanes_log
    }

    /// Workers that have different columns of a band.
    #[device_inline]
    fn columns(self) -> u32 {
        (BLOCK / bands(NHWC)) >> self.lanes_log
    }

    /// The column of the source, of [`Threads::columns`], and the first of the [`SUMS`] rows of the tile that this thread
    /// sums along y.
    #[device_inline]
    fn source(self) -> (u32, u32) {
        let band = if NHWC { 0 } else { self.worker / self.columns() };
        (self.worker - band * self.columns(), band * SUMS as u32)
    }

    /// The column and the first of [`SUMS`] rows, both relative to the tile, that this thread takes in a round; none in the
    /// rounds after the last.
    ///
    /// `turn` is the variable of the loop that asks, below 2³¹, and changes nothing; but the compiler cannot know that, or
    /// it would keep everything that follows from the result in registers from one turn to the next.
    #[device_inline]
    fn item(self, geometry: &Geometry, round: usize, turn: u32) -> Option<(u32, u32)> {
        let item = ((round as u32 * BLOCK) >> self.lanes_log) + self.worker + (turn >> 31);
        let band = (item * geometry.tile_columns_reciprocal) >> 16;
        (band < bands(NHWC)).then(|| (item - band * geometry.tile_columns, band * SUMS as u32))
    }

    /// Where a lane's sums of one column stand in shared memory, from row `first` of the tile on: four, and the next four
    /// behind those of all lanes.
    #[device_inline]
    fn places(self, place: u32, first: u32) -> [u32; 2] {
        let quad = place * (pitch(NHWC) / 4) + first / 4;
        let at = ((quad << self.lanes_log) + self.lane) * 4;
        [at, at + (4 << self.lanes_log)]
    }

    /// Puts a thread's sums of one column into shared memory, from row `first` of the tile on.
    ///
    /// # Safety
    /// `to` has such a place; nobody else uses it.
    #[device_inline]
    unsafe fn put_sums(self, to: Shared<f32>, place: u32, first: u32, sums: &Sums) {
        let [low, high] = self.places(place, first);
        let [a, b, c, d, e, f, g, h] = *sums;
        // SAFETY: the caller's; the places are multiples of 4.
        unsafe {
            to.store4(low, Vec4::new(a, b, c, d));
            to.store4(high, Vec4::new(e, f, g, h));
        }
    }

    /// What [`Threads::put_sums`] has put there.
    ///
    /// # Safety
    /// It has, and nobody writes there.
    #[device_inline]
    unsafe fn get_sums(self, from: Shared<f32>, place: u32, first: u32) -> Sums {
        let [low, high] = self.places(place, first);
        // SAFETY: the caller's; the places are multiples of 4.
        let (low, high) = unsafe { (from.load4(low), from.load4(high)) };
        [low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w]
    }
}

/// `a / b` and `a % b`; `b` is not zero, as no size is.
#[device_inline]
fn divide(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: sizes that this divides by are not zero, see `Geometry`.
    unsafe { core::hint::assert_unchecked(b != 0) };
    let quotient = a / b;
    (quotient, a - quotient * b)
}

/// Element `i`, as arithmetic takes it, if the predicate is true, else 0.
///
/// # Safety
/// `from` holds it where the predicate is true.
#[device_inline]
unsafe fn get_if<T: Storage>(from: Global<T>, predicate: bool, i: usize) -> f32 {
    // SAFETY: the caller's.
    unsafe { from.load_if(predicate, i, T::from_f32(0.0)) }.to_f32()
}

/// Sums of a thread, one for each of its rows.
type Sums = [f32; SUMS];

/// Sums along y: `sums[w][c][t] = sum over rows of weight(w, row, t) * load(row, c)`, of `C` columns with `W` tables of
/// weights.
///
/// `position(row)` is that of `row` in the window of the thread's row 0, wrapping where it is before it; `step` leads to
/// that in the window of the next row. `vector(row, t)` is where the weights of row `t` for this row begin in the table, and
/// `weights(vector, position)` loads one of them from each table.
/// `load` gives 0 for rows from `end` on, which are asked for but not used.
#[device_inline]
fn sum_along_y<const C: usize, const W: usize>(
    (begin, end): (u32, u32),
    size: u32,
    load: impl Fn(u32, usize) -> f32,
    (position, step): (impl Fn(u32) -> u32, u32),
    vector: impl Fn(u32, usize) -> u32,
    weights: impl Fn(u32, u32) -> [f32; W],
) -> [[Sums; C]; W] {
    // SAFETY: zero bits are 0.0. (An array literal would become a loop, and the array local memory.)
    let mut sums: [[Sums; C]; W] = unsafe { core::mem::zeroed() };
    let mut row = begin;
    while row < end {
        let mut values = [[0.0; C]; ROWS_IN_FLIGHT as usize];
        each!(r in 0 1 2 3: values[r] = core::array::from_fn(|c| load(row + r as u32, c)));
        each!(r in 0 1 2 3: {
            let mut position = position(row + r as u32);
            each!(t in 0 1 2 3 4 5 6 7: {
                if position < size {
                    let weights = weights(vector(row + r as u32, t), position);
                    for w in 0..W {
                        for c in 0..C {
                            sums[w][c][t] = float::fma(weights[w], values[r][c], sums[w][c][t]);
                        }
                    }
                }
                position = position.wrapping_add(step);
            });
        });
        row += ROWS_IN_FLIGHT;
    }
    sums
}

/// `sums += weight * values`, row by row.
#[device_inline]
fn add_weighted(sums: &mut Sums, weight: f32, values: &Sums) {
    each!(t in 0 1 2 3 4 5 6 7: sums[t] = float::fma(weight, values[t], sums[t]));
}

/// The sum of products, row by row.
#[device_inline]
fn dot(a: &Sums, b: &Sums) -> f32 {
    let mut sum = 0.0;
    each!(t in 0 1 2 3 4 5 6 7: sum = float::fma(a[t], b[t], sum));
    sum
}
