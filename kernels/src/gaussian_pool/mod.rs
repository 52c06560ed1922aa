//! Gaussian pooling: windows averaged with the weights of Gaussians, `K` for each feature map (Zeiler & Fergus 2012,
//! arXiv 1207.0151).
//!
//! A weight is a product of a factor along y and one along x, so that a window of `kh * kw` positions costs `kh + kw`.
//!
//! - [`gaussian_pool_weights`] computes the factors of every Gaussian, once per pass, into a table.
//! - [`gaussian_pool_forward`] and [`gaussian_pool_backward`] share one shape. A block takes a tile of one plane
//!   of what it writes, [`TILE_ROWS`] rows of up to [`MAX_TILE_COLUMNS`] columns. First its threads sum along y,
//!   straight from global memory: a thread takes one or two columns of the source and [`SUMS`] rows of the tile at once,
//!   so that it loads each value once for all the rows whose windows cover it, and warps load adjacent columns. These
//!   sums go to shared memory, column by column. Then a thread takes [`SUMS`] rows of one column of the tile, and sums
//!   along x. Windows wider than shared memory's columns are taken a part at a time. The Gaussians of a map come one after
//!   another; what they read again is in the L1 cache.
//! - [`gaussian_pool_backward_parameters`] is the backward pass with the derivatives of the weights beside the
//!   weights: besides `dx` each block leaves, for each Gaussian, its part of the sums that are the gradients of mean and
//!   variance; [`gaussian_pool_sum_parameters`] adds these up. The order of both is fixed.
//!
//! `x`, `y` and their gradients are `f32`, `f16` or `bf16`; all else is `f32`, the parameters and their gradients too.
//!
//! Bound by memory for windows of a few pixels, by shared memory's bandwidth for larger ones.
//!
//! # Safety
//! Every kernel relies on [`Geometry`] being what its documentation says, on buffers of the sizes that it gives, and on
//! the grid that its own documentation names. Buffers begin at multiples of 16 bytes.

mod backward;
mod forward;
mod parameters;
mod weights;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use parameters::*;
pub use weights::*;

/// Threads of a block of the forward and the backward kernels.
pub const BLOCK: u32 = 128;
/// Rows of a tile.
pub const TILE_ROWS: u32 = 16;
/// The most columns of a tile.
pub const MAX_TILE_COLUMNS: u32 = ROUNDS as u32 * BLOCK / BANDS;
/// Rows of a tile that a thread sums at once.
pub const SUMS: usize = 8;

/// Bands of [`SUMS`] rows of a tile.
const BANDS: u32 = TILE_ROWS / SUMS as u32;
/// Columns of a band that each thread takes in the largest tile.
const ROUNDS: usize = 2;
/// Elements from one column in shared memory to the next: a tile's rows, and four more so that 16-byte accesses to
/// adjacent columns fall into different banks.
const PITCH: u32 = TILE_ROWS + 4;
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

/// A window's way along one axis; all below 2³¹, also `image + 2 * padding + size`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Pixels.
    pub image: u32,
    /// Windows.
    pub output: u32,
    /// Positions of a window.
    pub size: u32,
    /// Pixels from one window to the next.
    pub stride: u32,
    /// Pixels by which the first window begins before the image; at most half of `size`.
    pub padding: u32,
    /// The windows from this one to before `shared_end` have one vector of weights. Each one before has its own, counted
    /// from 0; the shared one follows, then those of each one after.
    pub shared_begin: u32,
    /// See `shared_begin`.
    pub shared_end: u32,
    /// How many vectors there are.
    pub cases: u32,
}

/// Sizes of a pass; none is zero but `planes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Images: batch times channels.
    pub planes: u32,
    /// Images of each element of the batch.
    pub channels: u32,
    /// Gaussians for each image, in order in the output's channels.
    pub kernels: u32,
    /// Sets of parameters: 1, or `channels`.
    pub sets: u32,
    /// Vertical and horizontal; a plane of the input or the output has fewer than 2³¹ elements.
    pub axes: [Axis; 2],
    /// Columns of a tile, up to [`MAX_TILE_COLUMNS`].
    pub tile_columns: u32,
    /// 2¹⁶ by `tile_columns`, rounded up: a number below `2 * MAX_TILE_COLUMNS` is divided by it exactly.
    pub tile_columns_reciprocal: u32,
    /// Tiles that cover a plane of what the pass writes, vertically and horizontally.
    pub tiles: [u32; 2],
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Geometry {}

impl Axis {
    /// The vector of weights that a window has.
    #[inline(always)]
    fn case(&self, output: u32) -> u32 {
        output.min(self.shared_begin) + (output + 1).saturating_sub(self.shared_end)
    }

    /// The windows that cover any of `count` pixels from `pixel` on: the first, and the one after the last. None when the
    /// second is not greater.
    #[inline(always)]
    fn covering(&self, pixel: u32, count: u32) -> (u32, u32) {
        let padded = pixel + self.padding;
        let begin = divide((padded + self.stride).saturating_sub(self.size), self.stride).0;
        let end = divide(padded + count - 1, self.stride).0 + 1;
        (begin, end.min(self.output))
    }
}

/// What one block works on.
#[derive(Clone, Copy)]
struct Tile {
    plane: u32,
    row: u32,
    column: u32,
}

impl Tile {
    /// The tile of this block, in a grid of one dimension that has each plane's tiles side by side, row by row, so that
    /// what neighbours both read is still in the L2 cache.
    #[inline(always)]
    fn of_block(geometry: &Geometry) -> Self {
        let [down, across] = geometry.tiles;
        let (plane, number) = divide(thread::block_idx_x(), down * across);
        let (row, column) = divide(number, across);
        Self { plane, row: row * TILE_ROWS, column: column * geometry.tile_columns }
    }
}

impl Geometry {
    /// Field by field: an index would put both axes into local memory.
    #[inline(always)]
    fn axis(&self, vertical: bool) -> Axis {
        let [y, x] = &self.axes;
        let choose = |y: u32, x: u32| if vertical { y } else { x };
        Axis {
            image: choose(y.image, x.image),
            output: choose(y.output, x.output),
            size: choose(y.size, x.size),
            stride: choose(y.stride, x.stride),
            padding: choose(y.padding, x.padding),
            shared_begin: choose(y.shared_begin, x.shared_begin),
            shared_end: choose(y.shared_end, x.shared_end),
            cases: choose(y.cases, x.cases),
        }
    }

    /// The number, among all Gaussians, of a plane's first.
    #[inline(always)]
    fn first_gaussian(&self, plane: u32) -> u32 {
        let set = if self.sets == 1 { 0 } else { divide(plane, self.channels).1 };
        set * self.kernels
    }

    /// The column and the first of [`SUMS`] rows, both relative to the tile, that this thread takes in a round; none in the
    /// rounds after the last.
    ///
    /// `turn` is the variable of the loop that asks, below 2³¹, and changes nothing; but the compiler cannot know that, or
    /// it would keep everything that follows from the result in registers from one turn to the next.
    #[inline(always)]
    fn item(&self, round: usize, turn: u32) -> Option<(u32, u32)> {
        let item = round as u32 * BLOCK + thread::thread_idx_x() + (turn >> 31);
        let band = (item * self.tile_columns_reciprocal) >> 16;
        (band < BANDS).then(|| (item - band * self.tile_columns, band * SUMS as u32))
    }
}

/// `a / b` and `a % b`; `b` is not zero, as no size is.
#[inline(always)]
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
#[inline(always)]
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
/// that in the window of the next row. `vector(row, t)` is where the weights of row `t` for this row begin in the table.
/// `load` gives 0 for rows from `end` on, which are asked for but not used.
#[inline(always)]
fn sum_along_y<const C: usize, const W: usize>(
    (begin, end): (u32, u32),
    size: u32,
    load: impl Fn(u32, usize) -> f32,
    (position, step): (impl Fn(u32) -> u32, u32),
    vector: impl Fn(u32, usize) -> u32,
    weights: impl Fn(u32) -> [f32; W],
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
                    let weights = weights(vector(row + r as u32, t) + position);
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

/// Puts a thread's sums of one column into shared memory, from row `first` of the tile on.
///
/// # Safety
/// `to` has such a place; nobody else uses it.
#[inline(always)]
unsafe fn put_sums(to: Shared<f32>, place: u32, first: u32, sums: &Sums) {
    let at = place * PITCH + first;
    let [a, b, c, d, e, f, g, h] = *sums;
    // SAFETY: the caller's; `PITCH` and `first` are multiples of 4.
    unsafe {
        to.store4(at, Vec4::new(a, b, c, d));
        to.store4(at + 4, Vec4::new(e, f, g, h));
    }
}

/// What [`put_sums`] has put there.
///
/// # Safety
/// It has, and nobody writes there.
#[inline(always)]
unsafe fn get_sums(from: Shared<f32>, place: u32, first: u32) -> Sums {
    let at = place * PITCH + first;
    // SAFETY: the caller's; `PITCH` and `first` are multiples of 4.
    let (low, high) = unsafe { (from.load4(at), from.load4(at + 4)) };
    [low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w]
}

/// `sums += weight * values`, row by row.
#[inline(always)]
fn add_weighted(sums: &mut Sums, weight: f32, values: &Sums) {
    each!(t in 0 1 2 3 4 5 6 7: sums[t] = float::fma(weight, values[t], sums[t]));
}

/// The sum of products, row by row.
#[inline(always)]
fn dot(a: &Sums, b: &Sums) -> f32 {
    let mut sum = 0.0;
    each!(t in 0 1 2 3 4 5 6 7: sum = float::fma(a[t], b[t], sum));
    sum
}
