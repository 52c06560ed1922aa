//! Gaussian pooling with the channels last, of windows of any size whose weights are the same everywhere and which all channels share:
//! by [vectors] of 16 bytes of channels.
//!
//! A block computes the weights along each axis, a warp an axis, and of these their products, into shared memory. Of several Gaussians a
//! map each has a launch of its own forward.
//!
//! Bound by memory, of windows that overlap much by instructions.

use cuda_std::prelude::*;

use super::Geometry;
use super::runs::add;
use super::weights::along_axes;
pub use crate::vectors::Lanes;
use crate::vectors::{self, FEWER_THREADS, LANES, Numbers, Over, Place, Vectors, Words, lanes};
use crate::window::{Divider, FEWER_BLOCKS, Nhwc, Window};

/// Positions of a window, at most: what blocks have time and shared memory for.
pub const MOST_POSITIONS: u32 = 1024;

/// How weights come from the parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Variances of the Gaussian, 1 or 2.
    variances: u32,
    by_width: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Weights {}

impl Weights {
    /// Of windows of so many columns.
    pub fn new(variances: u32, width: u32) -> Self {
        Self { variances, by_width: Divider::new(width) }
    }

    /// Variances of the Gaussian.
    pub fn variances(&self) -> u32 {
        self.variances
    }

    /// Bytes of a block's shared memory for windows of so many rows and columns.
    pub fn shared_bytes(size: [u32; 2]) -> u32 {
        words(size) * 4
    }

    /// The products of Gaussian number `map` for each position, row by row, turned round or not, in shared memory. All threads of the block come here.
    ///
    /// # Safety
    /// `parameters` hold the Gaussian, and shared memory is as large as [`shared_bytes`](Self::shared_bytes) says.
    #[device_inline]
    pub(super) unsafe fn products(
        &self,
        parameters: [Global<f32>; 2],
        geometry: &Geometry,
        map: u32,
        turned: bool,
    ) -> Shared<f32> {
        let [height, width] = [geometry.axes[0].size, geometry.axes[1].size];
        let products = dynamic_shared::<f32>();
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        // SAFETY: shared memory holds both vectors and the products; the parameters are there.
        unsafe {
            let by_axis = products.offset(height * width);
            along_axes(by_axis, parameters, geometry, self.variances, map, turned);
            thread::sync_threads();
            let mut position = thread;
            while position < height * width {
                let row = self.by_width.divide(position);
                let column = position - row * width;
                products.store(position, by_axis.load(row) * by_axis.load(height + column));
                position += threads;
            }
        }
        thread::sync_threads();
        products
    }
}

/// Words of the products and of the weights along each axis.
#[device_inline]
const fn words([height, width]: [u32; 2]) -> u32 {
    (height * width + height + width + 3) & !3
}

/// `y[n, c*K + map]` = `x[n, c]` pooled by Gaussian `map` of `K`, which `geometry.kernels` is. Backward, of one Gaussian and windows one apart, it is the
/// pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says and, forward, `geometry`, which are of the same windows; `mean` holds two and `var` `variances`
/// elements for each Gaussian; `vectors` are of the window's outputs, with the launch's grid and block, and shared memory has room for the weights and
/// after these for what a thread of a shared window has summed, a word for each channel.
#[kernel(max_threads = vectors::THREADS, min_blocks = vectors::MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward_vectors<T: Lanes>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    weights: Weights,
    map: u32,
    turned: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    // SAFETY: the caller's; positions past the last, whose vector is of zeros, have the last's weight.
    unsafe {
        let products = weights.products([mean, var], &geometry, map, turned != 0);
        let last = window.size[0] * window.size[1] - 1;
        let found = |_: &Place| [0.0; LANES];
        let add = |sum: Numbers, words: Words, position: u32| {
            add(sum, products.load(if position < last { position } else { last }), T::numbers(words))
        };
        let sums = products.offset(words(window.size));
        let Some((sum, _, output)) = vectors::of_windows(x, &window, &vectors, sums, 0, found, add) else { return };
        if geometry.kernels == 1 {
            y.cast().store4(output * 4, Vec4::from(T::words(sum)));
            return;
        }
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < lanes::<T>() {
                let at = (output * lanes::<T>() + K) * geometry.kernels as usize + map as usize;
                y.store(at, T::from_f32(sum[K]));
            }
        });
    }
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, `ROWS` inputs a thread.
///
/// # Safety
/// As [`gaussian_pool_forward_vectors`]'s, of `dy` and `dx`; `vectors` are of the window's inputs; windows overlap, or `ROWS` is
/// [`AHEAD`](vectors::AHEAD).
#[kernel(
    max_threads = FEWER_THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], ROWS = [1, 4])
)]
pub unsafe fn gaussian_pool_backward_vectors<T: Lanes, const ROWS: usize>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    weights: Weights,
    geometry: Geometry,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    // SAFETY: the caller's; what is past a window, whose vector is of zeros, has its last weight.
    unsafe {
        let products = weights.products([mean, var], &geometry, 0, false);
        let last = window.size[0] * window.size[1] - 1;
        let dy = dy.cast::<u32>();
        let load = |inside, vector: usize| dy.load4_if(inside, vector.wrapping_mul(4), Vec4::splat(0));
        let add = |sum: Numbers, dy: Vec4<u32>, Over { position: [i, j], .. }: Over| {
            let position = i.wrapping_mul(window.size[1]).wrapping_add(j);
            add(sum, products.load(if position < last { position } else { last }), T::numbers(dy.to_array()))
        };
        vectors::gather::<T, _, ROWS>(dx, beta, &window, &vectors, load, add);
    }
}
