//! Indices, barriers, shared memory.

use cuda_std::launch::LaunchDims;
use cuda_std::prelude::*;

use crate::run;

/// Writes the indices of each thread at its place in the grid.
#[kernel]
pub unsafe fn indices(seen: GlobalMut<u32>, places: GlobalMut<u32>) {
    let (i, b, n, g) = (thread::thread_idx(), thread::block_idx(), thread::block_dim(), thread::grid_dim());
    let block = (b.z * g.y + b.y) * g.x + b.x;
    let place = (block * n.x * n.y * n.z + thread::index_in_block()) as usize;
    let values = [i.x, i.y, i.z, b.x, b.y, b.z, n.x, n.y, n.z, g.x, g.y, g.z];
    let Vec3 { x, y, z } = thread::index_3d();
    assert_eq!([thread::index_2d().x, thread::index_2d().y, z], [x, y, z]);
    assert_eq!(thread::index_1d(), x);
    // SAFETY: 12 and 5 elements for each thread.
    unsafe {
        for (k, value) in values.into_iter().enumerate() {
            seen.store(place * 12 + k, value);
        }
        for (k, value) in [x, y, z, warp::lane_id(), warp::warp_id()].into_iter().enumerate() {
            places.store(place * 5 + k, value);
        }
    }
}

#[test]
fn every_thread_of_the_grid_runs_once_with_its_indices() {
    let (grid, block) = ([2, 3, 2], [5, 4, 3]);
    let threads = 60;
    let mut seen = vec![u32::MAX; 12 * threads * 12];
    let mut places = vec![u32::MAX; 12 * threads * 5];
    let launch = Indices { seen: &mut seen, places: &mut places };
    run(launch, LaunchDims::new(grid, block)).unwrap();
    let mut place = 0;
    for bz in 0..2 {
        for by in 0..3 {
            for bx in 0..2 {
                for z in 0..3 {
                    for y in 0..4 {
                        for x in 0..5 {
                            let expected = [x, y, z, bx, by, bz, 5, 4, 3, 2, 3, 2];
                            assert_eq!(seen[place * 12..][..12], expected);
                            let in_block = (z * 4 + y) * 5 + x;
                            let expected = [bx * 5 + x, by * 4 + y, bz * 3 + z, in_block % 32, in_block / 32];
                            assert_eq!(places[place * 5..][..5], expected);
                            place += 1;
                        }
                    }
                }
            }
        }
    }
}

/// Reverses each block of 96 elements through shared memory, `rounds` times.
#[kernel(block = 96)]
pub unsafe fn reverse(x: GlobalMut<u32>, rounds: u32) {
    let tile = shared_array![u32; 96];
    let t = thread::thread_idx_x();
    let i = thread::index_1d() as usize;
    // SAFETY: a barrier between each store and the loads of others.
    unsafe {
        for _ in 0..rounds {
            tile.store(t, x.load(i));
            thread::sync_threads();
            x.store(i, tile.load(95 - t));
            thread::sync_threads();
        }
    }
}

#[test]
fn barriers_order_shared_memory() {
    for rounds in [1, 2, 25] {
        let mut x: Vec<u32> = (0..96 * 3).collect();
        run(Reverse { x: &mut x, rounds }, LaunchDims::new(3, 96)).unwrap();
        for (i, &value) in (0u32..).zip(&x) {
            let expected = if rounds % 2 == 1 { i / 96 * 96 + 95 - i % 96 } else { i };
            assert_eq!(value, expected);
        }
    }
}

/// The block's counts of a predicate.
#[kernel]
pub unsafe fn counts(below: u32, count: GlobalMut<u32>, all: GlobalMut<u32>, any: GlobalMut<u32>) {
    let predicate = thread::thread_idx_x() < below;
    let i = thread::index_1d() as usize;
    // SAFETY: one element for each thread.
    unsafe {
        count.store(i, thread::sync_threads_count(predicate));
        all.store(i, thread::sync_threads_and(predicate).into());
        any.store(i, thread::sync_threads_or(predicate).into());
    }
}

#[test]
fn barriers_that_reduce() {
    for below in [0, 1, 17, 39, 40] {
        let [mut count, mut all, mut any] = [[u32::MAX; 40]; 3];
        let launch = Counts { below, count: &mut count, all: &mut all, any: &mut any };
        run(launch, LaunchDims::new(1, 40)).unwrap();
        assert_eq!(count, [below; 40]);
        assert_eq!(all, [u32::from(below == 40); 40]);
        assert_eq!(any, [u32::from(below > 0); 40]);
    }
}

/// What shared memory holds when a block starts, and that each block then writes it.
#[kernel(block = 32)]
pub unsafe fn fresh(stale: GlobalMut<u32>, dynamic: GlobalMut<u32>) {
    let (fixed, sized) = (shared_array![u32; 32], dynamic_shared::<u32>());
    let t = thread::thread_idx_x();
    let i = thread::index_1d() as usize;
    // SAFETY: each thread has its own elements.
    unsafe {
        stale.store(i, fixed.load(t));
        dynamic.store(i, sized.load(t));
        fixed.store(t, 1);
        sized.store(t, 2);
    }
}

#[test]
fn shared_memory_is_poisoned_in_every_block() {
    let [mut stale, mut dynamic] = [[0; 96]; 2];
    let launch = Fresh { stale: &mut stale, dynamic: &mut dynamic };
    run(launch, LaunchDims::new(3, 32).with_shared(128)).unwrap();
    assert_eq!(stale, [u32::MAX; 96]);
    assert_eq!(dynamic, [u32::MAX; 96]);
}

#[inline(always)]
unsafe fn block_sum(value: f32) -> f32 {
    let partial = shared_array![f32; 32];
    let sum = warp::reduce_sum(value);
    // SAFETY: barriers on both sides of the loads.
    unsafe {
        if warp::lane_id() == 0 {
            partial.store(warp::warp_id(), sum);
        }
        thread::sync_threads();
        let mut total = 0.0;
        for warp in 0..thread::block_dim_x() / 32 {
            total += partial.load(warp);
        }
        thread::sync_threads();
        total
    }
}

/// Two sums through one helper: its array is one array.
#[kernel]
pub unsafe fn sums(x: Global<f32>, sum: GlobalMut<f32>, twice: GlobalMut<f32>) {
    let i = thread::index_1d() as usize;
    let other = shared_array![f32; 1];
    // SAFETY: one element for each thread; thread 0 alone uses `other`.
    unsafe {
        if thread::thread_idx_x() == 0 {
            other.store(0, 7.0);
        }
        let first = block_sum(x.load(i));
        let second = block_sum(2.0 * x.load(i));
        sum.store(i, first);
        twice.store(i, second);
        if thread::thread_idx_x() == 0 {
            assert_eq!(other.load(0), 7.0);
        }
    }
}

#[test]
fn a_block_of_1024_threads_sums() {
    let x: Vec<f32> = (0..2048).map(|i| (i % 17) as f32).collect();
    let (mut sum, mut twice) = (vec![0.0; 2048], vec![0.0; 2048]);
    let launch = Sums { x: &x, sum: &mut sum, twice: &mut twice };
    run(launch, LaunchDims::new(2, 1024)).unwrap();
    for block in 0..2 {
        let range = block * 1024..(block + 1) * 1024;
        // Whole numbers: exact in any order.
        let expected: f32 = x[range.clone()].iter().sum();
        assert!(sum[range.clone()].iter().all(|&s| s == expected));
        assert!(twice[range].iter().all(|&s| s == 2.0 * expected));
    }
}
