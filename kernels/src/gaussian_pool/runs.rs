//! Gaussian pooling of row-major images of 16 bits by windows of 3×3, one pixel apart, whose weights are the same everywhere and which all planes
//! share: both passes, for backward is the pooling of `dy` with the weights turned round.
//!
//! A thread has a run of outputs below each other, of 16 bytes of columns. It goes down
//! the rows that their windows have: sums each along x once, while its own pixels of the next rows are on their way and what is beside
//! them comes from the L1 cache, and adds that to all windows over it, of which it holds as many as a window has rows.
//!
//! Bound by memory (docs/perf).

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::vectors::{FEWER_THREADS, LANES, Lanes, Numbers, Place, Vectors, lanes, put};
use crate::window::{FEWEST_BLOCKS, Nhwc, Window};

/// The size, of both axes alike, that there is a kernel for.
pub const SIZE: u32 = 3;
/// Elements of a vector of weights in shared memory.
const VECTOR: u32 = 8;
/// Bytes of shared memory of a block: of the weights along y and along x.
pub const SHARED_BYTES: u32 = 2 * VECTOR * 4;

/// The weights along y and x.
struct Weights<const SIZE: usize> {
    by_y: [f32; SIZE],
    by_x: [f32; SIZE],
}

impl<const SIZE: usize> Weights<SIZE> {
    /// Those of a Gaussian, turned round or not. All threads of the block come here.
    ///
    /// # Safety
    /// `parameters` hold the Gaussian, `geometry` has windows of that size, and shared memory is [`SHARED_BYTES`].
    #[device_inline]
    unsafe fn compute(parameters: [Global<f32>; 2], variances: u32, geometry: &Geometry, turned: bool) -> Self {
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
        let mut weights = Self { by_y: [0.0; SIZE], by_x: [0.0; SIZE] };
        unrolled!(I in [0 1 2] {
            let i = if turned { SIZE - 1 - I } else { I } as u32;
            // SAFETY: written before the barrier.
            (weights.by_y[I], weights.by_x[I]) = unsafe { (shared.load(i), shared.load(VECTOR + i)) };
        });
        weights
    }
}

/// `to = weights * from + beta * to` of this thread's run of `vectors`: `own` gives what the windows have of a row of `from` in the
/// middle, and `across` sums that along x with what is beside it. Rows are counted from the first window's; none is there where the
/// second argument is false.
///
/// # Safety
/// The kernels'.
#[device_inline]
unsafe fn run<T: Lanes, const SIZE: usize>(
    (to, beta): (GlobalMut<T>, f32),
    window: &Window<Nhwc>,
    vectors: &Vectors,
    place: &Place,
    weights: impl Fn() -> Weights<SIZE>,
    own: impl Fn(u32, bool) -> Vec4<u32>,
    across: impl Fn(&Weights<SIZE>, u32, Vec4<u32>) -> Numbers,
) {
    let mut ahead = [Vec4::splat(0); SIZE];
    unrolled!(R in [0 1 2] { ahead[R] = own(R as u32, place.there); });
    let weights = weights();
    if !place.there {
        return;
    }
    let left = window.output[0] - place.row;
    let rows = vectors.each.min(left);
    let end = rows + SIZE as u32 - 1;
    let line = window.output[1] * vectors.groups;
    let begin = vectors.first(place, window.output) + vectors.at(place.row, place.column, window.output[1]);
    // Of the windows that a row is in, as they come round.
    let mut sums = [[0.0; LANES]; SIZE];
    let mut first = 0;
    while first < end {
        unrolled!(R in [0 1 2] {
            let row = first + R as u32;
            let across = across(&weights, row, ahead[R]);
            ahead[R] = own(row + SIZE as u32, row + (SIZE as u32) < end);
            unrolled!(I in [0 1 2] {
                let sum = &mut sums[(R + SIZE - I) % SIZE];
                *sum = add(*sum, weights.by_y[I], across);
            });
            // The window whose last row it was.
            let (whole, done) = (&mut sums[(R + 1) % SIZE], (row + 1).wrapping_sub(SIZE as u32));
            // SAFETY: the caller's.
            unsafe { put(to, beta, done < rows, begin.wrapping_add(done.wrapping_mul(line) as usize), *whole) };
            *whole = [0.0; LANES];
        });
        first += SIZE as u32;
    }
}

/// `to = weights * from + beta * to`, of windows of `SIZE` by `SIZE` positions, one apart, with the weights turned round where
/// `turned` is not 0. Columns of row-major images, in rows of whole vectors, take the place of channels, and windows are padded by as many
/// before as after.
///
/// # Safety
/// The parent module's. `from` holds the inputs of `window`, which is of images of one column, of as many channels as there are columns, and
/// `to` the outputs; both begin at multiples of 16 bytes. `geometry` has windows of that size, `mean` two and `var` `variances`
/// elements; `vectors` are of runs of the outputs, with the launch's grid and block, and shared memory is [`SHARED_BYTES`].
#[kernel(max_threads = FEWER_THREADS, min_blocks = FEWEST_BLOCKS, instances(T = [f16, bf16], SIZE = [3]))]
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
    let place = vectors.run();
    let top = place.row.wrapping_sub(window.padding[0]);
    let first = vectors.first(&place, window.input);
    let (begins, ends) = (place.group == 0, place.group + 1 == window.channels / lanes::<T>() as u32);
    // SAFETY: the caller's; all threads of the block come here.
    let weights = || unsafe { Weights::<SIZE>::compute([mean, var], variances, &geometry, turned != 0) };
    let vector = |row: u32| first.wrapping_add(vectors.at(top.wrapping_add(row), 0, 1));
    let own = |row: u32, there: bool| {
        let inside = there & (top.wrapping_add(row) < window.input[0]);
        // SAFETY: loaded where the row is in the image.
        unsafe { from.cast::<u32>().load4_if(inside, vector(row).wrapping_mul(4), Vec4::splat(0)) }
    };
    let across = |weights: &Weights<SIZE>, row: u32, own: Vec4<u32>| {
        let inside = top.wrapping_add(row) < window.input[0];
        let element = vector(row).wrapping_mul(lanes::<T>());
        let zero = T::from_f32(0.0);
        // SAFETY: loaded where the row is in the image and the vector not its first or last.
        let (before, after) = unsafe {
            (
                from.load_if(inside & !begins, element.wrapping_sub(1), zero),
                from.load_if(inside & !ends, element.wrapping_add(lanes::<T>()), zero),
            )
        };
        let [a, b, c, d, e, f, g, h] = T::numbers(own.to_array());
        let across = add([0.0; LANES], weights.by_x[0], [before.to_f32(), a, b, c, d, e, f, g]);
        let across = add(across, weights.by_x[1], [a, b, c, d, e, f, g, h]);
        add(across, weights.by_x[2], [b, c, d, e, f, g, h, after.to_f32()])
    };
    // SAFETY: the caller's.
    unsafe { run((to, beta), &window, &vectors, &place, weights, own, across) };
}

/// `sum + weight * numbers`.
#[device_inline]
pub(super) fn add(mut sum: Numbers, weight: f32, numbers: Numbers) -> Numbers {
    unrolled!(K in [0 1 2 3 4 5 6 7] { sum[K] = float::fma(weight, numbers[K], sum[K]); });
    sum
}
