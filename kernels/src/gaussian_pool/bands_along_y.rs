//! Forward of row-major images of any width, of windows of any size whose weights are the same everywhere, where windows are far apart, as
//! [`along_y`](super::along_y): the sums along y of all columns of a row of windows, and of these the sums along x; by [bands](crate::band) of
//! rows in shared memory, which are copied 16 bytes at a time wherever rows begin.
//!
//! `y = sum over columns of weight_x * (sum down the column of weight_y * x)`
//!
//! Launch: a block for each band of rows of windows of a plane, or for a few planes, as [`Block`] lays them. While its rows are on their way the block computes the
//! weights of its planes' Gaussians, or of those that all share. Then a thread sums four columns of inputs along y for one row of
//! windows after another, into shared memory, and after a barrier one window's columns after another's; so for each Gaussian of a map. A word is left
//! out after every 32 sums, so that windows a power of two apart are in different banks.
//!
//! Bound by instructions in 16 bits (with one column a thread, whose place took as many as its sum, `ncu` showed 85 % of their slots taken), and by what blocks wait for
//! between their barriers: on an H200, 9×9 five apart on 64×64×111×113 0.63 of the copy rate in f32 and 0.49 in bf16 (docs/perf).

use cuda_std::prelude::*;

use super::Geometry;
use super::along_y::{padded, words, words_of};
use super::weights::along_axes_of;
use crate::band::any::{Lines, for_each_below, steps_inside};
use crate::band::{self, BandLaunch, Block, Staged, inputs_of, least, staged_bytes};
use crate::window::{Divider, Nchw, Window};

/// Columns of a thread: each has the same rows and weights, and neighbouring threads have neighbouring ones of each.
const GROUP: usize = 4;

/// Blocks that fit on a multiprocessor, at least.
const BLOCKS: u32 = 4;

/// How the elements of a block's rows are told apart, and whose Gaussians are whose.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Rows of windows by a thread's columns of inputs, and by windows.
    columns: Lines,
    outputs: Lines,
    /// Gaussians of all channels, where each has its own; else of a map.
    gaussians: u32,
    by_gaussians: Divider,
    /// Whether each has its own.
    own: u32,
    /// Words of shared memory for weights, and from a row's sums to the next row's.
    weights: u32,
    of_line: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Sums {}

impl Sums {
    /// Over a window none of whose sizes is zero, of elements of so many bytes, with as many sets of as many Gaussians; its blocks and the launch, with the
    /// most planes of one. `None` where there is no room, or too many to count.
    pub fn plan(window: &Window<Nchw>, bytes: usize, [sets, kernels]: [u32; 2]) -> Option<(Self, Block, BandLaunch)> {
        let gaussians = sets.checked_mul(kernels).filter(|&count| count < 1 << 20)?;
        window.planes.checked_mul(kernels).filter(|&count| count < 1 << 30)?;
        // No block has room for longer rows.
        Some(window.input[1]).filter(|&columns| columns < 1 << 24)?;
        let (of_set, height) = (u64::from(kernels) * u64::from(words_of(window)?), window.size[0]);
        let of_weights = move |depth: u64| if sets > 1 { depth * of_set } else { of_set };
        let (rows_of_input, columns, stride) =
            (u64::from(window.input[0]), u64::from(window.input[1]), window.stride[0]);
        let of_line = padded(window.input[1]) | 1;
        let shared = move |rows: u64, depth: u64| {
            let reach = if depth > 1 {
                rows_of_input
            } else {
                rows_of_input.min((rows - 1) * u64::from(stride) + u64::from(height))
            };
            of_weights(depth) * 4
                + staged_bytes(depth * reach * columns * bytes as u64)
                + depth * rows * u64::from(of_line) * 4
        };
        let (block, launch) = Block::of_outputs_with(window, bytes, shared)?;
        let rows = window.output[0];
        let sums = Self {
            columns: Lines::new([rows, window.input[1].div_ceil(GROUP as u32)]),
            outputs: Lines::new([rows, window.output[1]]),
            gaussians,
            by_gaussians: Divider::new(gaussians),
            own: u32::from(sets > 1),
            weights: u32::try_from(of_weights(block.depth().into())).ok()?,
            of_line,
        };
        Some((sums, block, launch))
    }
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of `K`, which `geometry.kernels` is, of those that all channels share or of the channel's.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, `y` as many planes for each Gaussian; `mean` holds two and `var` `variances` elements for
/// each of `geometry`'s; `block` and `sums` are of the window, with the launch's grid, block and shared memory.
#[kernel(max_threads = band::THREADS, min_blocks = BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward_bands_along_y<T: Storage>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nchw>,
    block: Block,
    sums: Sums,
) {
    let span = block.span();
    let weights = dynamic_shared::<f32>();
    let (of, kernels, size) = (words(window.size), geometry.kernels, window.size[0]);
    let (rows, lines) = (span.rows[1] - span.rows[0], span.depth * (span.rows[1] - span.rows[0]));
    // SAFETY: the launch's shared memory is for these rows, sums and weights; the outputs exist, and each is one thread's; all threads come together.
    unsafe {
        let x =
            Staged::copy(weights.offset(sums.weights).cast::<T>(), x, &span, inputs_of(&window, &span), window.input);
        let to = x.behind::<f32>();
        let first = span.first_plane * kernels;
        let gaussian = |number: u32| {
            let number = if sums.own == 0 { number } else { first + number };
            number - sums.by_gaussians.divide(number) * sums.gaussians
        };
        let count = if sums.own == 0 { kernels } else { span.depth * kernels };
        along_axes_of(weights, [mean, var], &geometry, variances, (count, gaussian), of, false);
        band::wait(x);
        let mut map = 0;
        while map < kernels {
            let weights_of = |plane: u32| {
                let plane = if sums.own == 0 { 0 } else { plane };
                weights.offset((plane * kernels + map) * of[1])
            };
            // Of columns that are not there the last is summed again.
            let last = window.input[1] - 1;
            let of_group = |column: u32| [0, 1, 2, 3].map(|k| column + k * sums.columns.width);
            for_each_below(&sums.columns, lines, of_group, |columns, _, line| {
                let plane = sums.columns.plane(&span, line);
                let begin = (span.rows[0] + line - plane * rows) * window.stride[0];
                let weights = weights_of(plane);
                // Of the window's rows those inside of the image.
                let mut i = window.padding[0].saturating_sub(begin);
                let end = size.min(window.input[0] + window.padding[0] - begin);
                let row = begin + i - window.padding[0];
                let mut at = columns.map(|column| x.place(plane, row, least(column, last)));
                let mut down = [0.0; GROUP];
                while i < end {
                    let weight = weights.load(i);
                    unrolled!(K in [0 1 2 3] {
                        down[K] = float::fma(weight, x.load(at[K]).to_f32(), down[K]);
                        at[K] += window.input[1];
                    });
                    i += 1;
                }
                unrolled!(K in [0 1 2 3] {
                    if columns[K] <= last { to.store(line * sums.of_line + padded(columns[K]), down[K]); }
                });
            });
            thread::sync_threads();
            let of_column = |column: u32| {
                let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
                (left, steps_inside(&window, 1, column))
            };
            for_each_below(&sums.outputs, lines, of_column, |(left, [begin, end]), column, line| {
                let plane = sums.outputs.plane(&span, line);
                let along_x = weights_of(plane).offset(of[0]);
                let mut sum = 0.0;
                let mut j = begin;
                while j < end {
                    let along_y = to.load(line * sums.of_line + padded(left.wrapping_add(j)));
                    sum = float::fma(along_x.load(j), along_y, sum);
                    j += 1;
                }
                let row = span.rows[0] + line - plane * rows;
                let y = y.offset(window.output_plane((span.first_plane + plane) * kernels + map));
                y.store(row as usize * window.output_line() + column as usize, T::from_f32(sum));
            });
            thread::sync_threads();
            map += 1;
        }
    }
}
