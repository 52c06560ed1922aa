//! Backward with the gradients of mean and variance.

use cuda_std::prelude::*;

use super::backward::tile;
use super::{Part, Strips};
use crate::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN, divide};

/// Threads of a block: fewer than for `dx` alone, since each needs more registers.
pub const PARAMETERS_BLOCK: u32 = 128;
/// Blocks that fit on a multiprocessor, as many as leave each thread the registers it needs.
const fn blocks(stride: u32) -> u32 {
    if stride == 3 { 2 } else { 4 }
}
/// Warps of a block.
const WARPS: u32 = PARAMETERS_BLOCK / warp::WARP_SIZE;

/// The backward pass for `dx`, where it is there, with each block's part of the sums for each Gaussian of its planes, laid
/// out `[blocks, kernels, 4]`. The grid is that of
/// [`gaussian_pool_backward_strips`](super::gaussian_pool_backward_strips).
///
/// # Safety
/// The module's, as for that kernel, with three tables; `x` holds the planes.
#[kernel(
    block = PARAMETERS_BLOCK,
    min_blocks = blocks(STRIDE),
    instances(T = [f32, f16, bf16], STRIDE = [1, 2, 3])
)]
pub unsafe fn gaussian_pool_backward_parameters_strips<T: Storage, const STRIDE: u32>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: GlobalMut<f32>,
    geometry: Geometry,
    strips: Strips,
) {
    let (part, shared) = (Part::of_block(&geometry, &strips), dynamic_shared::<f32>());
    // What each warp has summed for each Gaussian stands first.
    // SAFETY: shared memory holds it and the rest, as the plan says.
    let rest = unsafe { shared.offset(WARPS * geometry.kernels * SUMS_PER_GAUSSIAN) };
    let (warp, lane) = (thread::thread_idx_x() / warp::WARP_SIZE, warp::lane_id());
    let place = |warp: u32, kernel: u32| (warp * geometry.kernels + kernel) * SUMS_PER_GAUSSIAN;
    let mut i = lane;
    while i < geometry.kernels * SUMS_PER_GAUSSIAN {
        // SAFETY: each warp has sums of its own, of which its first lane alone changes these below, after a barrier.
        unsafe { shared.store(place(warp, 0) + i, 0.0) };
        i += warp::WARP_SIZE;
    }
    let add = |kernel: u32, of_thread: [f32; 4]| {
        let of_warp = Vec4::from(of_thread.map(|sum| warp::reduce_sum(sum)));
        if lane == 0 {
            // SAFETY: as above.
            unsafe {
                let sum = shared.load4(place(warp, kernel));
                shared.store4(place(warp, kernel), sum.zip_with(of_warp, |sum, term| sum + term));
            }
        }
    };
    // SAFETY: passed on.
    unsafe {
        tile::<T, STRIDE, 3, PARAMETERS_BLOCK>(
            dy,
            Some(x),
            [mean, var],
            dx,
            dx_beta,
            &geometry,
            &strips,
            &part,
            rest,
            add,
        );
    }
    thread::sync_threads();
    let mut i = thread::thread_idx_x();
    while i < geometry.kernels * SUMS_PER_GAUSSIAN {
        let (kernel, component) = divide(i, SUMS_PER_GAUSSIAN);
        let mut sum = 0.0;
        for warp in 0..WARPS {
            // SAFETY: written before the barrier.
            sum += unsafe { shared.load(place(warp, kernel) + component) };
        }
        let at = part.number as usize * (geometry.kernels * SUMS_PER_GAUSSIAN) as usize + i as usize;
        // SAFETY: each block has four sums for each Gaussian.
        unsafe { sums.store(at, sum) };
        i += PARAMETERS_BLOCK;
    }
}
