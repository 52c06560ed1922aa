//! The table of weights.

use cuda_std::prelude::*;

use super::{Axis, Geometry, divide};
use crate::elementwise::reciprocal;

/// Threads of a block of [`gaussian_pool_weights`].
pub const WEIGHTS_BLOCK: u32 = 128;
/// Vectors of weights that a block computes: one a warp.
pub const WEIGHTS_PER_BLOCK: u32 = WEIGHTS_BLOCK / warp::WARP_SIZE;
/// Elements of a table's entry that has derivatives: the weight, its derivatives by mean and variance, and one unused.
pub const DERIVATIVES_ENTRY: u32 = 4;

/// Computes the factors of the weights of every Gaussian along both axes.
///
/// A table holds, for each Gaussian and each case of its axis, a vector of the window's size; with `nhwc` not 0, the
/// same entry of all sets of parameters is side by side, `[kernels, cases, size, sets]`. An entry is one weight; with
/// `derivatives` not 0, [`DERIVATIVES_ENTRY`] elements. Positions that do not count have zeros. A Gaussian with a
/// parameter that is not finite, or a variance that is not above 0, has NaN.
///
/// `exp(-q_i) / sum exp(-q)`, with `q_i = (d_i² - d_m²) / (2 var)` by the position `m` that counts and is nearest to the
/// mean, so that no `q` is negative and the sum at least 1. Derivatives are `w_i (i - E[i]) / var` and
/// `w_i (q_i - E[q]) / var`.
///
/// The grid is [Gaussians, vectors / [`WEIGHTS_PER_BLOCK`] rounded up or fewer, 2]: the last are the axes. A warp takes a
/// vector, its lanes the positions. Latency is all that it costs: the tables are small.
///
/// # Safety
/// The module's. `mean` holds 2 elements for each Gaussian, `var` 1 or 2, which is `variances`.
#[kernel(block = WEIGHTS_BLOCK)]
pub unsafe fn gaussian_pool_weights(
    mean: Global<f32>,
    var: Global<f32>,
    weights_y: GlobalMut<f32>,
    weights_x: GlobalMut<f32>,
    geometry: Geometry,
    variances: u32,
    derivatives: u32,
    nhwc: u32,
) {
    let (gaussian, vertical) = (thread::block_idx_x(), thread::block_idx_z() == 0);
    let axis = geometry.axis(vertical);
    let table = if vertical { weights_y } else { weights_x };
    let entry = if derivatives == 0 { 1 } else { DERIVATIVES_ENTRY as usize };
    // SAFETY: the grid has as many blocks along x as there are Gaussians.
    let shape = unsafe { Shape::load([mean, var], gaussian, vertical, variances) };
    let (set, kernel) = divide(gaussian, geometry.kernels);
    let (first, step) = (geometry.first_entry(nhwc != 0, &axis, set, kernel), geometry.entry_step(nhwc != 0) as usize);
    let mut case = thread::block_idx_y() * WEIGHTS_PER_BLOCK + thread::thread_idx_x() / warp::WARP_SIZE;
    while case < axis.cases {
        let at = (first + (case * axis.size) as usize * step) * entry;
        // SAFETY: the table holds a vector for each case of each Gaussian; no other warp has this one.
        let (out, step) = (unsafe { table.offset(at) }, step * entry);
        // SAFETY: positions are those of the vector.
        let put = |i: u32, weight: f32| unsafe { out.store(i as usize * step, weight) };
        // SAFETY: as above.
        let get = |i: u32| unsafe { out.load(i as usize * step) };
        let put_derivatives = |i: u32, weight: f32, [by_mean, by_var]: [f32; 2]| {
            // SAFETY: entries with derivatives have four elements, at multiples of 16 bytes.
            unsafe { out.store4(i as usize * step, Vec4::new(weight, by_mean, by_var, 0.0)) };
        };
        vector(&axis, case, shape, derivatives != 0, put, get, put_derivatives);
        case += thread::grid_dim_y() * WEIGHTS_PER_BLOCK;
    }
}

/// A Gaussian along one axis.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    mean: f32,
    var: f32,
    valid: bool,
}

impl Shape {
    /// That of Gaussian number `gaussian`, of `mean` and `var` with so many `variances` each.
    ///
    /// # Safety
    /// They hold it.
    #[device_inline]
    pub(super) unsafe fn load([mean, var]: [Global<f32>; 2], gaussian: u32, vertical: bool, variances: u32) -> Self {
        let coordinate = if vertical { 0 } else { 1 };
        // SAFETY: the caller's.
        let (mean, var) = unsafe {
            (
                mean.load((gaussian * 2 + coordinate) as usize),
                var.load((gaussian * variances + coordinate.min(variances - 1)) as usize),
            )
        };
        Self::new(mean, var)
    }

    /// As [`load`](Self::load) where it is `there`; else any.
    ///
    /// # Safety
    /// As `load`, where it is there.
    #[device_inline]
    pub(super) unsafe fn load_if(
        there: bool,
        [mean, var]: [Global<f32>; 2],
        gaussian: u32,
        vertical: bool,
        variances: u32,
    ) -> Self {
        let coordinate = if vertical { 0 } else { 1 };
        // SAFETY: the caller's.
        unsafe {
            let mean = mean.load_if(there, (gaussian * 2 + coordinate) as usize, 0.0);
            let var = var.load_if(there, (gaussian * variances + coordinate.min(variances - 1)) as usize, 1.0);
            Self::new(mean, var)
        }
    }

    /// That of the axis whose weights this thread computes of those that the first eight threads do, of a block that has as many; else any.
    ///
    /// # Safety
    /// As [`load`](Self::load), of Gaussian 0.
    #[device_inline]
    pub(super) unsafe fn own([mean, var]: [Global<f32>; 2], variances: u32) -> Self {
        let number = thread::index_in_block();
        let coordinate = if number < 4 { 0 } else { 1 };
        // SAFETY: the caller's.
        unsafe {
            let mean = mean.load_if(number < 8, coordinate as usize, 0.0);
            Self::new(mean, var.load_if(number < 8, coordinate.min(variances - 1) as usize, 1.0))
        }
    }

    #[device_inline]
    fn new(mean: f32, var: f32) -> Self {
        // Written so that NaN is not valid.
        let valid = mean.abs() <= f32::MAX && var > 0.0 && var <= f32::MAX;
        Self { mean, var: var.max(f32::MIN_POSITIVE), valid }
    }
}

/// Computes the vector of one case; all lanes of a warp come here together. `put` keeps a weight, which `get` then gives to
/// the same lane, and `put_derivatives` a weight with its derivatives by mean and variance, if they are asked for.
#[device_inline]
pub(super) fn vector(
    axis: &Axis,
    case: u32,
    Shape { mean, var, valid }: Shape,
    derivatives: bool,
    put: impl Fn(u32, f32),
    get: impl Fn(u32) -> f32,
    put_derivatives: impl Fn(u32, f32, [f32; 2]),
) {
    let (begin, end) = counted(axis, case);
    let last = (axis.size - 1) as f32;
    let nearest = nearest(begin, end, last, mean);
    let step = |i: u32| i as f32 - nearest;
    let exponent = |i: u32| exponent(i, nearest, last, mean, var);
    let lane = warp::lane_id();
    let mut sum = 0.0;
    let mut i = lane;
    while i < axis.size {
        let weight = if begin <= i && i < end { float::exp(-exponent(i)) } else { 0.0 };
        sum += weight;
        put(i, weight);
        i += warp::WARP_SIZE;
    }
    let sum = if valid { warp::reduce_sum(sum) } else { f32::NAN };
    let (mut mean_step, mut mean_exponent) = (0.0, 0.0);
    i = lane;
    while i < axis.size {
        let weight = get(i) / sum;
        put(i, weight);
        mean_step += weighted(weight, step(i));
        mean_exponent += weighted(weight, exponent(i));
        i += warp::WARP_SIZE;
    }
    if !derivatives {
        return;
    }
    let (mean_step, mean_exponent) = (warp::reduce_sum(mean_step), warp::reduce_sum(mean_exponent));
    i = lane;
    while i < axis.size {
        let weight = get(i);
        let by_mean = weighted(weight, step(i) - mean_step) / var;
        let by_var = weighted(weight, exponent(i) - mean_exponent) / var;
        put_derivatives(i, weight, [by_mean, by_var]);
        i += warp::WARP_SIZE;
    }
}

/// Computes a Gaussian's weights along y, their derivatives by mean and by variance, and the same along x, vector after vector, each of `each`
/// elements from `at` on; of windows that no edge cuts off. They are there after a barrier.
///
/// # Safety
/// Shared memory holds six such vectors, which have room for the window; the parameters hold the Gaussian; all threads of the block, which has two
/// warps or more, come together.
#[device_inline]
pub(super) unsafe fn with_derivatives(
    at: Shared<f32>,
    each: u32,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
) {
    let number = thread::thread_idx_x() / warp::WARP_SIZE;
    if number < 2 {
        let first = number * 3 * each;
        // SAFETY: the caller's.
        unsafe {
            let shape = Shape::load(parameters, 0, number == 0, variances);
            let put = |i: u32, weight: f32| at.store(first + i, weight);
            let get = |i: u32| at.load(first + i);
            let put_derivatives = |i: u32, _: f32, [by_mean, by_var]: [f32; 2]| {
                at.store(first + each + i, by_mean);
                at.store(first + 2 * each + i, by_var);
            };
            vector(&geometry.axis(number == 0), 0, shape, true, put, get, put_derivatives);
        }
    }
}

/// Computes the weights of Gaussian number `map` along y and after them those along x, the other way round where they are turned, of
/// windows that no edge cuts off. They are there after a barrier.
///
/// # Safety
/// [`along_axes_of`]'s, of one Gaussian.
#[device_inline]
pub(super) unsafe fn along_axes(
    at: Shared<f32>,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    map: u32,
    turned: bool,
) {
    let of = [geometry.axes[0].size, 0];
    // SAFETY: the caller's.
    unsafe { along_axes_of(at, parameters, geometry, variances, (1, |_| map), of, turned) }
}

/// The same of so many Gaussians, of each of which the function gives the number: those along x so many words after those along y, and one
/// Gaussian's so many after another's.
///
/// # Safety
/// Shared memory has room for as many as the window has rows and columns, for each Gaussian; the parameters hold them; all threads of the block,
/// of whole warps in one dimension, come together.
#[device_inline]
pub(super) unsafe fn along_axes_of(
    at: Shared<f32>,
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
    (count, gaussian): (u32, impl Fn(u32) -> u32),
    [along_x, of_gaussian]: [u32; 2],
    turned: bool,
) {
    let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
    while number < 2 * count {
        let (own, vertical) = (number / 2, number.is_multiple_of(2));
        let axis = geometry.axis(vertical);
        // SAFETY: the caller's.
        unsafe {
            let at = at.offset(own * of_gaussian + if vertical { 0 } else { along_x });
            let shape = Shape::load(parameters, gaussian(own), vertical, variances);
            let place = |i: u32| if turned { axis.size - 1 - i } else { i };
            vector(&axis, 0, shape, false, |i, weight| at.store(place(i), weight), |i| at.load(place(i)), |_, _, _| {});
        }
        number += thread::block_dim_x() / warp::WARP_SIZE;
    }
}

/// The weight of a position of a window of `size` of them, before all are divided by their sum; 0 past the last, NaN of a Gaussian that is none.
#[device_inline]
pub(super) fn unscaled(size: u32, i: u32, Shape { mean, var, valid }: Shape) -> f32 {
    let last = (size - 1) as f32;
    let weight = float::exp(-exponent(i, nearest(0, size, last, mean), last, mean, var));
    if i >= size {
        0.0
    } else if valid {
        weight
    } else {
        f32::NAN
    }
}

/// The weights of a window of `SIZE` positions, this thread all of them; NaN of a Gaussian that is none.
///
/// By the reciprocals of the variance and of the sum, each within a unit in the last place or two: an exponent `q` is off by as little of itself, and what
/// that takes of a weight, `q exp(-q)` times as much, is less than its rounding.
#[device_inline]
pub(super) fn whole<const SIZE: usize>(shape: Shape) -> [f32; SIZE] {
    let mut weights = [0.0; SIZE];
    let all = of_size::<SIZE>(SIZE as u32, shape);
    unrolled!(I in [0 1 2 3 4 5 6 7] { if I < SIZE { weights[I] = all[I]; } });
    weights
}

/// As [`whole`], of a window of so many positions, 8 at most; zeros after them.
#[device_inline]
pub(super) fn few(size: u32, shape: Shape) -> [f32; 8] {
    of_size::<8>(size, shape)
}

/// The weights of a window of `size` positions, of which there are `MOST`, 8 or less, at most.
#[device_inline]
fn of_size<const MOST: usize>(size: u32, Shape { mean, var, valid }: Shape) -> [f32; 8] {
    let last = (size - 1) as f32;
    let nearest = nearest(0, size, last, mean);
    // The reciprocal of a large one would be subnormal.
    let scale = if var > 1e30 { 1e-20 } else { 1.0 };
    let of_var = reciprocal(var * scale);
    let mut weights = [0.0; 8];
    let mut sum = 0.0;
    unrolled!(I in [0 1 2 3 4 5 6 7] { if I < MOST {
        let step = I as f32 - nearest;
        let exponent = step * (((I as f32 + nearest - last) * 0.5 - mean) * scale * of_var);
        // A selection among exponents, not a branch round each exponential, so that all of these are under way together.
        let weight = float::exp(if step == 0.0 { 0.0 } else { -exponent });
        weights[I] = if (I as u32) < size { weight } else { 0.0 };
        sum += weights[I];
    } });
    let of_sum = if valid { reciprocal(sum) } else { f32::NAN };
    unrolled!(I in [0 1 2 3 4 5 6 7] { if I < MOST { weights[I] *= of_sum; } });
    weights
}

/// Puts the weights of a window of `size` positions, and their derivatives by mean and variance, of what [`unscaled`] gave of them; this thread
/// all of them.
#[device_inline]
pub(super) fn derive(
    size: u32,
    Shape { mean, var, .. }: Shape,
    unscaled: impl Fn(u32) -> f32,
    put: impl Fn(u32, [f32; 3]),
) {
    let last = (size - 1) as f32;
    let nearest = nearest(0, size, last, mean);
    let step = |i: u32| i as f32 - nearest;
    let exponent = |i: u32| exponent(i, nearest, last, mean, var);
    let (mut sum, mut steps, mut exponents) = (0.0, 0.0, 0.0);
    let mut i = 0;
    while i < size {
        let weight = unscaled(i);
        sum += weight;
        steps += weighted(weight, step(i));
        exponents += weighted(weight, exponent(i));
        i += 1;
    }
    let (mean_step, mean_exponent) = (steps / sum, exponents / sum);
    i = 0;
    while i < size {
        let weight = unscaled(i) / sum;
        let by_mean = weighted(weight, step(i) - mean_step) / var;
        put(i, [weight, by_mean, weighted(weight, exponent(i) - mean_exponent) / var]);
        i += 1;
    }
}

/// Of a position's weight, less that of the nearest's. The difference of two squares as a product: exact where they nearly cancel,
/// and never infinity times zero or less infinity.
#[device_inline]
fn exponent(i: u32, nearest: f32, last: f32, mean: f32, var: f32) -> f32 {
    let step = i as f32 - nearest;
    if step == 0.0 { 0.0 } else { step * (((i as f32 + nearest - last) * 0.5 - mean) / var) }
}

/// `weight * value`, where a weight of 0 outweighs an infinite exponent.
#[device_inline]
fn weighted(weight: f32, value: f32) -> f32 {
    if weight == 0.0 { 0.0 } else { weight * value }
}

/// The positions that count, from the first to before the second.
#[device_inline]
fn counted(axis: &Axis, case: u32) -> (u32, u32) {
    if case == axis.shared_begin {
        return (0, axis.size);
    }
    let output = if case < axis.shared_begin { case } else { case - axis.shared_begin - 1 + axis.shared_end };
    let first = output * axis.stride;
    (axis.padding.saturating_sub(first), axis.size.min(axis.image + axis.padding - first))
}

/// The position that counts and is nearest to the mean.
#[device_inline]
fn nearest(begin: u32, end: u32, last: f32, mean: f32) -> f32 {
    let (first, final_) = (begin as f32, (end - 1) as f32);
    let guess = float::floor((last * 0.5 + mean).max(first).min(final_));
    // The sum above is rounded. The middle between two positions is not, nor is its difference from a mean close to it.
    let after_middle = |position: f32| mean > (2.0 * position + 1.0 - last) * 0.5;
    let next = (guess < final_) & after_middle(guess);
    let before = (guess > first) & !after_middle(guess - 1.0);
    guess
        + if next {
            1.0
        } else if before {
            -1.0
        } else {
            0.0
        }
}
