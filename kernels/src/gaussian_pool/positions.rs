//! Gradients of mean and variance that all channels share, of small windows of a known size whose weights are the same everywhere, with
//! the channels last: by a sum for each position.
//!
//! `C[a, b]` is the sum over windows and channels of `x` at position `(a, b)` of the window times the window's `dy`; a gradient is the sum
//! of these by the derivatives of the weights: `sum C[a, b] dw_y[a] w_x[b]` is that of the mean along y. Weights do not take part in the
//! large sum.
//!
//! A thread takes 16 bytes of channels of a window, by [`Vectors`], then of others a grid further on, and keeps all positions' sums in
//! registers. A block leaves four sums, which another kernel adds up. The input's gradient is another pass's. Bound by memory and by what
//! the L1 cache gives, for each window reads its own pixels: with `dx`, 3×3 windows three apart on 64×64×112×112 take 0.83 of the copy rate on
//! an H200, 0.71 in 16 bits. Of 3×3 windows one apart [`runs_learnt`](super::runs_learnt) reads less.

use cuda_std::prelude::*;

use super::weights::with_derivatives;
use super::{Geometry, SUMS_PER_GAUSSIAN, leave};
use crate::vectors::{Lanes, Vectors, lanes};
use crate::window::{Nhwc, Window};

/// The sizes, of both axes alike, that there are kernels for.
pub const SIZES: [u32; 2] = [2, 3];
/// Threads of a block, those of [`Vectors`] that share no window, and warps.
pub const POSITIONS_BLOCK: u32 = crate::vectors::FEWER_THREADS;
const WARPS: u32 = POSITIONS_BLOCK / warp::WARP_SIZE;
/// Such blocks that a multiprocessor has room for, at least: 80 registers a thread.
const MIN_BLOCKS: u32 = 3;
/// Blocks, at most: what an H200 has room for.
pub const MOST_BLOCKS: u32 = 132 * MIN_BLOCKS;
/// Elements of a vector of weights in shared memory, and vectors: weights along an axis, and their derivatives by mean and variance.
const VECTOR: u32 = 4;
const VECTORS: u32 = 6;
/// Bytes of shared memory of a block: vectors, and sums of warps.
pub const POSITIONS_SHARED_BYTES: u32 = (VECTORS * VECTOR + WARPS * SUMS_PER_GAUSSIAN) * 4;

/// Each block's part of the sums of `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`, laid out `[blocks, 4]`.
///
/// # Safety
/// The parent module's. `x` holds the inputs of `window` and `dy` its outputs, which `geometry` says too, of `SIZE` by `SIZE` positions;
/// both begin at multiples of 16 bytes; `mean` holds two and `var` `variances` elements; `sums` has four for each block of the grid;
/// `vectors` are of the outputs, none shared by threads, and shared memory is [`POSITIONS_SHARED_BYTES`].
#[kernel(block = POSITIONS_BLOCK, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16], SIZE = [2, 3]))]
pub unsafe fn gaussian_pool_positions<T: Lanes, const SIZE: usize>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    sums: GlobalMut<f32>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    let mut products = [[0.0; SIZE]; SIZE];
    let mut block = thread::block_idx_x();
    while block < vectors.blocks() {
        let place = vectors.place_of(block, 1);
        let [top, left] = [(0, place.row), (1, place.column)]
            .map(|(axis, output)| (output * window.stride[axis]).wrapping_sub(window.padding[axis]));
        let output = vectors.first(&place, window.output) + vectors.at(place.row, place.column, window.output[1]);
        let first = vectors.first(&place, window.input);
        let mut inside = [[false; SIZE]; SIZE];
        let mut loaded = [[Vec4::splat(0u32); SIZE]; SIZE];
        // SAFETY: loaded only where it is in the image, of a place that is there.
        let dy = unsafe { dy.cast::<u32>().load4_if(place.there, output * 4, Vec4::splat(0)) };
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE {
                let (row, column) = (top.wrapping_add(I as u32), left.wrapping_add(J as u32));
                inside[I][J] = place.there & (row < window.input[0]) & (column < window.input[1]);
                let at = first.wrapping_add(vectors.at(row, column, window.input[1])).wrapping_mul(4);
                // SAFETY: as above.
                loaded[I][J] = unsafe { x.cast::<u32>().load4_if(inside[I][J], at, Vec4::splat(0)) };
            }
        }); });
        let dy = T::numbers(dy.to_array());
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            // What is outside of the image is no term: by an infinite `dy` it would be NaN.
            if I < SIZE && J < SIZE && inside[I][J] {
                let x = T::numbers(loaded[I][J].to_array());
                let mut product = 0.0;
                unrolled!(K in [0 1 2 3 4 5 6 7] {
                    if K < lanes::<T>() { product = float::fma(x[K], dy[K], product); }
                });
                products[I][J] += product;
            }
        }); });
        block += thread::grid_dim_x();
    }

    let shared = dynamic_shared::<f32>();
    // SAFETY: the caller's.
    unsafe { with_derivatives(shared, VECTOR, [mean, var], &geometry, variances) };
    thread::sync_threads();
    // SAFETY: written before the barrier.
    let of_thread = unsafe { gradients(shared, VECTOR, products) };
    // SAFETY: there is room for the sums of all warps, and four for each block.
    unsafe {
        let of_warps = shared.offset(VECTORS * VECTOR);
        leave(of_thread, of_warps, sums, thread::block_idx_x() as usize);
    }
}

/// The gradients by `mu_y`, `mu_x`, `var_y` and `var_x` of a sum for each position.
///
/// # Safety
/// [`with_derivatives`] left its vectors, of `each` elements, in shared memory, before a barrier.
#[device_inline]
pub(super) unsafe fn gradients<const SIZE: usize>(
    shared: Shared<f32>,
    each: u32,
    products: [[f32; SIZE]; SIZE],
) -> [f32; SUMS_PER_GAUSSIAN as usize] {
    // SAFETY: the caller's.
    let of = |vector: u32, position: usize| unsafe { shared.load(vector * each + position as u32) };
    let (mut y, mut x) = ([0.0; 2], [0.0; 2]);
    unrolled!(I in [0 1 2] {
        if I < SIZE {
            // Along x, by the weights and their derivatives.
            let mut along = [0.0; 3];
            unrolled!(J in [0 1 2] {
                if J < SIZE {
                    along[0] = float::fma(of(3, J), products[I][J], along[0]);
                    along[1] = float::fma(of(4, J), products[I][J], along[1]);
                    along[2] = float::fma(of(5, J), products[I][J], along[2]);
                }
            });
            y = [float::fma(of(1, I), along[0], y[0]), float::fma(of(2, I), along[0], y[1])];
            x = [float::fma(of(0, I), along[1], x[0]), float::fma(of(0, I), along[2], x[1])];
        }
    });
    [y[0], x[0], y[1], x[1]]
}
