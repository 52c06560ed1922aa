//! Backward with the gradients of mean and variance.

use cuda_std::prelude::*;

use super::backward::tile;
use super::{BACKWARD_SHARED, BLOCK, DERIVATIVES_ENTRY, Geometry, MAX_LANES, Threads, Tile, divide};
use crate::elementwise::put;

/// Sums that a block leaves for each Gaussian: by `mu_y`, `mu_x`, `var_y` and `var_x`.
pub const SUMS_PER_GAUSSIAN: u32 = 4;
/// Warps of a block of the backward kernels.
const WARPS: u32 = BLOCK / warp::WARP_SIZE;
/// Threads of a block of [`gaussian_pool_sum_parameters`].
pub const SUM_BLOCK: u32 = 512;

/// The backward pass for `dx`, where it is there, with this tile's part of the sums for each Gaussian of its plane, laid
/// out `[planes, tiles, kernels, 4]`. The grid is that of
/// [`gaussian_pool_backward`](super::gaussian_pool_backward).
///
/// # Safety
/// The module's, as for that kernel; `x` holds the planes, the tables have derivatives.
#[kernel(block = BLOCK, min_blocks = 5, instances(T = [f32, f16, bf16], NHWC = [false, true]))]
pub unsafe fn gaussian_pool_backward_parameters<T: Storage, const NHWC: bool>(
    x: Global<T>,
    dy: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: GlobalMut<f32>,
    geometry: Geometry,
) {
    let shared = shared_array![f32; 3 * BACKWARD_SHARED as usize].handle();
    let of_warps = shared_array![f32; (SUMS_PER_GAUSSIAN * WARPS * MAX_LANES) as usize].handle();
    // SAFETY: the indices are those of entries, of four elements, in tables that begin at multiples of 16 bytes.
    let weights = |table: Global<f32>, i: usize| unsafe {
        let entry = table.load4(i * DERIVATIVES_ENTRY as usize);
        [entry.x, entry.y, entry.z]
    };
    let threads = Threads::<NHWC>::new(&geometry);
    let done = |tile: &Tile, kernel: u32, of_thread: [f32; 4]| {
        let of_warp = of_thread.map(|sum| sum_of_workers(threads, sum));
        // Where in shared memory the sums of this thread's lane are that a warp has left.
        let place = |warp: u32| ((warp << threads.lanes_log) + threads.lane) * SUMS_PER_GAUSSIAN;
        // SAFETY: the first worker of a lane in each warp writes the warp's four sums, and its first worker in the block
        // reads them between two barriers; there are four sums for each tile of each plane and Gaussian.
        unsafe {
            if warp::lane_id() < threads.lanes() {
                of_warps.store4(place(thread::thread_idx_x() / warp::WARP_SIZE), Vec4::from(of_warp));
            }
            thread::sync_threads();
            if threads.worker == 0 && tile.present {
                let mut sum = Vec4::splat(0.0);
                for warp in 0..WARPS {
                    sum = of_warps.load4(place(warp)).zip_with(sum, |term, sum| sum + term);
                }
                let tiles = geometry.tiles[0] as usize * geometry.tiles[1] as usize;
                let at = (tile.plane as usize * tiles + tile.number as usize) * geometry.kernels as usize;
                sums.store4((at + kernel as usize) * SUMS_PER_GAUSSIAN as usize, sum);
            }
            thread::sync_threads();
        }
    };
    let (tables, x) = ([weights_y, weights_x], Some(x));
    // SAFETY: passed on.
    unsafe {
        tile::<T, NHWC, 3>(dy, tables, DERIVATIVES_ENTRY as usize, weights, x, dx, dx_beta, &geometry, shared, done);
    }
}

/// The sum over the threads of a warp that have this one's lane.
#[device_inline]
fn sum_of_workers<const NHWC: bool>(threads: Threads<NHWC>, value: f32) -> f32 {
    if !NHWC {
        return warp::reduce_sum(value);
    }
    let mut sum = value;
    let mut distance = warp::WARP_SIZE / 2;
    while distance >= threads.lanes() {
        sum += warp::shuffle_xor(sum, distance);
        distance /= 2;
    }
    sum
}

/// Adds up the blocks' sums: `dmean` and `dvar`, each where it is there, `+ beta` times what they held. One block for each
/// Gaussian: thread `i` takes every [`SUM_BLOCK`]th of its terms from `i` on, then warps and the block in a butterfly.
///
/// # Safety
/// The module's; `sums` as [`gaussian_pool_backward_parameters`] leaves them; `dmean` holds two elements for each
/// Gaussian, `dvar` `variances`, which is 1 or 2.
#[kernel(block = SUM_BLOCK)]
pub unsafe fn gaussian_pool_sum_parameters(
    sums: Global<f32>,
    dmean: Option<GlobalMut<f32>>,
    dmean_beta: f32,
    dvar: Option<GlobalMut<f32>>,
    dvar_beta: f32,
    variances: u32,
    geometry: Geometry,
) {
    const SUM_WARPS: u32 = SUM_BLOCK / warp::WARP_SIZE;
    let of_warps = shared_array![f32; (SUMS_PER_GAUSSIAN * SUM_BLOCK / warp::WARP_SIZE) as usize].handle();
    let gaussian = thread::block_idx_x();
    let (set, kernel) = divide(gaussian, geometry.kernels);
    let tiles = geometry.tiles[0] * geometry.tiles[1];
    let count = divide(geometry.planes, geometry.sets).0 * tiles;
    let mut sum = Vec4::splat(0.0);
    let mut i = thread::thread_idx_x();
    while i < count {
        let (number, tile) = divide(i, tiles);
        let block = (number * geometry.sets + set) as usize * tiles as usize + tile as usize;
        let at = (block * geometry.kernels as usize + kernel as usize) * SUMS_PER_GAUSSIAN as usize;
        // SAFETY: there are four sums for each block and Gaussian; the buffer begins at a multiple of 16 bytes.
        sum = unsafe { sums.load4(at) }.zip_with(sum, |term, sum| sum + term);
        i += SUM_BLOCK;
    }
    let of_warp = sum.map(|sum| warp::reduce_sum(sum));
    let (lane, number) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
    // SAFETY: one lane of each warp writes, before the barrier; one thread a block writes its Gaussian's elements.
    unsafe {
        if lane == 0 {
            of_warps.store4(number * SUMS_PER_GAUSSIAN, of_warp);
        }
        thread::sync_threads();
        if number > 0 {
            return;
        }
        let of_warp = if lane < SUM_WARPS { of_warps.load4(lane * SUMS_PER_GAUSSIAN) } else { Vec4::splat(0.0) };
        let [mean_y, mean_x, var_y, var_x] = of_warp.map(|sum| warp::reduce_sum(sum)).to_array();
        if lane > 0 {
            return;
        }
        if let Some(dmean) = dmean {
            let at = gaussian as usize * 2;
            put(dmean, at, mean_y, dmean_beta);
            put(dmean, at + 1, mean_x, dmean_beta);
        }
        if let Some(dvar) = dvar {
            if variances == 1 {
                put(dvar, gaussian as usize, var_y + var_x, dvar_beta);
            } else {
                let at = gaussian as usize * 2;
                put(dvar, at, var_y, dvar_beta);
                put(dvar, at + 1, var_x, dvar_beta);
            }
        }
    }
}

/// Leaves the sums over a block's threads, by `mu_y`, `mu_x`, `var_y` and `var_x`, as part number `part`: of each warp by a butterfly, then
/// warp after warp.
///
/// # Safety
/// `of_warps` holds as many for each warp of the block, which is one-dimensional and made of whole warps, at a multiple of 16 bytes, and nobody
/// uses it; `sums` holds the part; all threads of the block come together.
#[device_inline]
pub(super) unsafe fn leave(
    of_thread: [f32; SUMS_PER_GAUSSIAN as usize],
    of_warps: Shared<f32>,
    sums: GlobalMut<f32>,
    part: usize,
) {
    let of_warp = Vec4::from(of_thread.map(|sum| warp::reduce_sum(sum)));
    let thread = thread::thread_idx_x();
    // SAFETY: the first lane of each warp writes, and the block's first thread reads after a barrier.
    unsafe {
        if warp::lane_id() == 0 {
            of_warps.store4(thread / warp::WARP_SIZE * SUMS_PER_GAUSSIAN, of_warp);
        }
        thread::sync_threads();
        if thread == 0 {
            let mut sum = of_warp;
            for warp in 1..thread::block_dim_x() / warp::WARP_SIZE {
                sum = sum.zip_with(of_warps.load4(warp * SUMS_PER_GAUSSIAN), |sum, term| sum + term);
            }
            sums.store4(part * SUMS_PER_GAUSSIAN as usize, sum);
        }
    }
}
