//! Gaussian pooling of windows one pixel apart and of a known size, whose weights are the same everywhere and which all channels
//! share: both passes, for backward is the pooling of `dy` with the weights turned round.
//!
//! A thread has a run of outputs below each other, of 16 bytes of channels, or of columns of row-major images of 16 bits: of each
//! row that their windows have it sums along x once, and adds that to all of them. Bound by memory.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::vectors::{AHEAD, FEWER_THREADS, LANES, Lanes, Numbers, Vectors, lanes};
use crate::window::{FEWEST_BLOCKS, Nhwc, Window};

/// The sizes, of both axes alike, that there are kernels for.
pub const SIZES: [u32; 2] = [3, 5];
/// That of row-major images.
pub const ROWS_SIZE: u32 = 3;
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 8;
/// Bytes of shared memory of a block: of the weights along y and along x.
pub const SHARED_BYTES: u32 = 2 * VECTOR * 4;

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks<T>() -> u32 {
    if size_of::<T>() == 4 { FEWEST_BLOCKS } else { FEWEST_BLOCKS - 1 }
}

/// The weights along y and x.
struct Weights<const SIZE: usize> {
    by_y: [f32; SIZE],
    by_x: [f32; SIZE],
}

impl<const SIZE: usize> Weights<SIZE> {
    /// Leaves those of a Gaussian in shared memory. All threads of the block come here.
    ///
    /// # Safety
    /// `parameters` hold the Gaussian, `geometry` has windows of that size, and shared memory is [`SHARED_BYTES`].
    #[device_inline]
    unsafe fn compute(parameters: [Global<f32>; 2], variances: u32, geometry: &Geometry) {
        let shared = dynamic_shared::<f32>();
        let mut axis = thread::thread_idx_x() / warp::WARP_SIZE;
        while axis < 2 {
            // SAFETY: the parameters are there, and the vector is this warp's until the barrier.
            unsafe {
                let own = shared.offset(axis * VECTOR);
                let shape = Shape::load(parameters, 0, axis == 0, variances);
                let put = |i: u32, weight: f32| own.store(i, weight);
                vector(&geometry.axis(axis == 0), 0, shape, false, put, |i| own.load(i), |_, _, _| {});
            }
            axis += thread::block_dim_x() / warp::WARP_SIZE;
        }
        thread::sync_threads();
    }

    /// These, turned round or not.
    ///
    /// # Safety
    /// They are there.
    #[device_inline]
    unsafe fn load(turned: bool) -> Self {
        let shared = dynamic_shared::<f32>();
        let mut weights = Self { by_y: [0.0; SIZE], by_x: [0.0; SIZE] };
        unrolled!(I in [0 1 2 3 4] {
            if I < SIZE {
                let i = if turned { SIZE - 1 - I } else { I } as u32;
                // SAFETY: the caller's.
                (weights.by_y[I], weights.by_x[I]) = unsafe { (shared.load(i), shared.load(VECTOR + i)) };
            }
        });
        weights
    }

    /// Adds a row of the run's windows, summed along x, to the outputs that have it.
    #[device_inline]
    fn add_row(&self, row: usize, sums: &mut [Numbers; AHEAD], across: Numbers) {
        unrolled!(O in [0 1 2 3] {
            let i = row.wrapping_sub(O);
            if i < SIZE { sums[O] = add(sums[O], self.by_y[i], across); }
        });
    }
}

/// `to = weights * from + beta * to`, of windows of `SIZE` by `SIZE` positions, one apart, with the weights turned round where
/// `turned` is not 0.
///
/// # Safety
/// The parent module's. `from` holds the inputs of `window`, which is such but may be padded by all but one of its positions, and
/// `to` the outputs; both begin at multiples of 16 bytes. `geometry` has windows of that size, `mean` two and `var` `variances`
/// elements; `vectors` are of runs of the outputs, with the launch's grid and block, and shared memory is [`SHARED_BYTES`].
#[kernel(max_threads = FEWER_THREADS, min_blocks = blocks::<T>(), instances(T = [f32, f16, bf16], SIZE = [3, 5]))]
pub unsafe fn gaussian_pool_runs<T: Lanes, const SIZE: usize>(
    from: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    to: GlobalMut<T>,
    beta: f32,
    turned: u32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    // SAFETY: the caller's.
    unsafe { Weights::<SIZE>::compute([mean, var], variances, &geometry) };
    let place = vectors.place(AHEAD as u32);
    if !place.there {
        return;
    }
    // SAFETY: computed above, before a barrier.
    let weights = unsafe { Weights::<SIZE>::load(turned != 0) };
    let [height, width] = window.input;
    let [top, left] = [place.row.wrapping_sub(window.padding[0]), place.column.wrapping_sub(window.padding[1])];
    // SAFETY: the plane is one of the image's, and the group one of its pixels'.
    let from = unsafe { from.cast::<u32>().offset(vectors.first(&place, window.input) * 4) };
    let mut sums = [[0.0; LANES]; AHEAD];
    unrolled!(R in [0 1 2 3 4 5 6 7] {
        if R < SIZE + AHEAD - 1 {
            let row = top.wrapping_add(R as u32);
            let mut loaded = [Vec4::splat(0u32); SIZE];
            unrolled!(J in [0 1 2 3 4] {
                if J < SIZE {
                    let column = left.wrapping_add(J as u32);
                    let inside = (row < height) & (column < width);
                    // SAFETY: in the image where it is loaded.
                    loaded[J] = unsafe { from.load4_if(inside, vectors.at(row, column, width) * 4, Vec4::splat(0)) };
                }
            });
            let mut across = [0.0; LANES];
            unrolled!(J in [0 1 2 3 4] {
                if J < SIZE { across = add(across, weights.by_x[J], T::numbers(loaded[J].to_array())); }
            });
            weights.add_row(R, &mut sums, across);
        }
    });
    // SAFETY: the caller's.
    unrolled!(O in [0 1 2 3] { unsafe { vectors.put(to, beta, window.output, &place, O as u32, sums[O]) }; });
}

/// As [`gaussian_pool_runs`], of row-major images: their columns take the place of channels, in rows of whole vectors, and windows
/// are padded by as many before as after.
///
/// # Safety
/// As [`gaussian_pool_runs`]'s; `window` is of images of one column, of as many channels as there are columns, and `vectors` are of it.
#[kernel(max_threads = FEWER_THREADS, min_blocks = blocks::<T>(), instances(T = [f16, bf16], SIZE = [3]))]
pub unsafe fn gaussian_pool_runs_rows<T: Lanes, const SIZE: usize>(
    from: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    to: GlobalMut<T>,
    beta: f32,
    turned: u32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    // SAFETY: the caller's.
    unsafe { Weights::<SIZE>::compute([mean, var], variances, &geometry) };
    let place = vectors.place(AHEAD as u32);
    if !place.there {
        return;
    }
    // SAFETY: computed above, before a barrier.
    let weights = unsafe { Weights::<SIZE>::load(turned != 0) };
    let top = place.row.wrapping_sub(window.padding[0]);
    let first = vectors.first(&place, window.input);
    let mut sums = [[0.0; LANES]; AHEAD];
    unrolled!(R in [0 1 2 3 4 5] {
        if R < SIZE + AHEAD - 1 {
            let row = top.wrapping_add(R as u32);
            let inside = row < window.input[0];
            let vector = first.wrapping_add(vectors.at(row, 0, 1));
            let element = vector.wrapping_mul(lanes::<T>());
            let zero = T::from_f32(0.0);
            let (begins, ends) = (place.group == 0, place.group + 1 == window.channels / lanes::<T>() as u32);
            // SAFETY: loaded where the row is in the image, and beside the vector others are in the row.
            let (before, own, after) = unsafe {
                (
                    from.load_if(inside & !begins, element.wrapping_sub(1), zero).to_f32(),
                    from.cast::<u32>().load4_if(inside, vector.wrapping_mul(4), Vec4::splat(0)),
                    from.load_if(inside & !ends, element.wrapping_add(lanes::<T>()), zero).to_f32(),
                )
            };
            let [a, b, c, d, e, f, g, h] = T::numbers(own.to_array());
            let mut across = add([0.0; LANES], weights.by_x[0], [before, a, b, c, d, e, f, g]);
            across = add(across, weights.by_x[1], [a, b, c, d, e, f, g, h]);
            across = add(across, weights.by_x[2], [b, c, d, e, f, g, h, after]);
            weights.add_row(R, &mut sums, across);
        }
    });
    // SAFETY: the caller's.
    unrolled!(O in [0 1 2 3] { unsafe { vectors.put(to, beta, window.output, &place, O as u32, sums[O]) }; });
}

/// `sum + weight * numbers`.
#[device_inline]
pub(super) fn add(mut sum: Numbers, weight: f32, numbers: Numbers) -> Numbers {
    unrolled!(K in [0 1 2 3 4 5 6 7] { sum[K] = float::fma(weight, numbers[K], sum[K]); });
    sum
}
