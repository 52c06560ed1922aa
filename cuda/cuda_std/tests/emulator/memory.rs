//! Loads and stores of every kind, and asynchronous copies.

use cuda_std::launch::LaunchDims;
use cuda_std::prelude::*;

use crate::run;

/// A structure as an element and as an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Pair {
    key: u32,
    weight: f32,
}

// SAFETY: plain values, #[repr(C)].
unsafe impl KernelParam for Pair {}

/// Moves elements in ones, twos and fours, with and without predicates.
#[kernel]
pub unsafe fn moves(
    ones: Global<Pair>,
    ones_out: GlobalMut<Pair>,
    twos: Global<f64>,
    twos_out: GlobalMut<f64>,
    fours: Global<u8>,
    fours_out: GlobalMut<u8>,
    add: Pair,
) {
    let t = thread::thread_idx_x() as usize;
    let tile = shared_array![u8; 256];
    // SAFETY: elements of this thread only.
    unsafe {
        let one = ones.load(t);
        let sum = Pair { key: one.key + add.key, weight: one.weight + add.weight };
        ones_out.store(t, sum);

        let two = twos.offset(t * 2).load2(0);
        twos_out.store2(t * 2, Vec2::new(two.y, two.x));

        let at = t as u32 * 4;
        tile.store4(at, fours.load4(t * 4));
        tile.store(at + 1, tile.load(at + 1) + 1);
        let half = tile.handle().offset(at).load2(2);
        tile.store2(at + 2, half.map(|v| v + 2));
        fours_out.store4(t * 4, tile.load4(at));
    }
}

#[test]
fn elements_move_in_ones_twos_and_fours() {
    let pair = |key: u32| Pair { key, weight: key as f32 / 2.0 };
    let ones: Vec<Pair> = (0..64).map(pair).collect();
    let mut ones_out = vec![pair(0); 64];
    let twos: Vec<f64> = (0..128).map(f64::from).collect();
    let mut twos_out = vec![0.0; 128];
    let (fours, mut fours_out) = ((0..=255u8).map(|i| i / 2).collect::<Vec<_>>(), vec![0; 256]);
    let launch = Moves {
        ones: &ones,
        ones_out: &mut ones_out,
        twos: &twos,
        twos_out: &mut twos_out,
        fours: &fours,
        fours_out: &mut fours_out,
        add: pair(10),
    };
    run(launch, LaunchDims::new(1, 64)).unwrap();
    assert!((0..).zip(&ones_out).all(|(i, one)| *one == pair(i + 10)));
    assert!((0..128).all(|i| twos_out[i] == (i ^ 1) as f64));
    let added = [0, 1, 2, 2];
    assert!((0..256).all(|i| fours_out[i] == fours[i] + added[i % 4]));
}

/// Predicated accesses: where the predicate is false the index is far outside.
#[kernel]
pub unsafe fn predicated(x: Global<f32>, y: GlobalMut<f32>, n: u32) {
    let t = thread::thread_idx_x();
    let inside = t < n;
    let at = if inside { t as usize } else { usize::MAX / 2 };
    let at4 = if inside { t as usize * 4 } else { usize::MAX / 8 };
    // SAFETY: elements of this thread only, where the predicate is true.
    unsafe {
        x.prefetch_if(inside, at);
        let one = x.load_if(inside, at, -1.0);
        let two = x.load2_if(inside, at4, Vec2::splat(-2.0));
        let four = x.load4_if(inside, at4, Vec4::splat(-4.0));
        let sums = [one, two.x + two.y, four.x + four.y + four.z + four.w];
        y.store_if(inside, at, sums[0]);
        y.store2_if(inside, at4.wrapping_add(64), Vec2::new(sums[1], sums[2]));
        y.store4_if(inside, at4.wrapping_add(128), four.map(|v| v + 1.0));
        if !inside {
            assert_eq!(sums, [-1.0, -4.0, -16.0]);
        }
        let tile = shared_array![f32; 64];
        let (at, at4) = if inside { (t, t * 4) } else { (u32::MAX / 8, u32::MAX / 8) };
        tile.store_if(inside, at, sums[0]);
        assert_eq!(tile.load_if(inside, at, -5.0), if inside { sums[0] } else { -5.0 });
        thread::sync_threads();
        tile.store4(t * 4, four);
        assert_eq!(tile.load4_if(inside, at4, Vec4::splat(-6.0)), if inside { four } else { Vec4::splat(-6.0) });
    }
}

#[test]
fn a_false_predicate_touches_nothing() {
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut y = vec![0.0; 192];
    let launch = Predicated { x: &x, y: &mut y, n: 5 };
    run(launch, LaunchDims::new(1, 16)).unwrap();
    let mut expected = vec![0.0; 192];
    for t in 0..5 {
        expected[t] = t as f32;
        expected[64 + t * 4] = (8 * t + 1) as f32;
        expected[65 + t * 4] = (16 * t + 6) as f32;
        for k in 0..4 {
            expected[128 + t * 4 + k] = (t * 4 + k + 1) as f32;
        }
    }
    assert_eq!(y, expected);
}

/// Copies a tile in two groups, and says what was there before the second had been waited for.
#[kernel(block = 8)]
pub unsafe fn copies(x: Global<f32>, early: GlobalMut<f32>, late: GlobalMut<f32>, valid: u32) {
    use arch::sm_80::{cp_async_commit, cp_async_wait, cp_async16, cp_async16_zero_fill};
    let tile = dynamic_shared::<f32>();
    let t = thread::thread_idx_x();
    let i = t as usize * 4;
    // SAFETY: a wait and a barrier before elements of other threads are read.
    unsafe {
        cp_async16(tile, t * 4, x, i);
        cp_async_commit();
        let from = if valid == 0 { usize::MAX / 8 } else { i };
        cp_async16_zero_fill(tile, 32 + t * 4, x, from, valid);
        cp_async_commit();
        cp_async_wait::<1>();
        early.store4(i, tile.load4(t * 4));
        early.store4(32 + i, tile.load4(32 + t * 4));
        cp_async_wait::<0>();
        thread::sync_threads();
        late.store4(i, tile.load4((t ^ 1) * 4));
        late.store4(32 + i, tile.load4(32 + (t ^ 1) * 4));
    }
}

#[test]
fn copies_arrive_when_they_are_waited_for() {
    for valid in 0..=4 {
        let x: Vec<f32> = (1..=32).map(|i| i as f32).collect();
        let (mut early, mut late) = (vec![0.0; 64], vec![0.0; 64]);
        let launch = Copies { x: &x, early: &mut early, late: &mut late, valid };
        run(launch, LaunchDims::new(1, 8).with_shared(256)).unwrap();
        assert_eq!(early[..32], x);
        // Not yet there: poison.
        assert!(early[32..].iter().all(|v| v.to_bits() == u32::MAX));
        for i in 0..32 {
            let from = i ^ 4;
            assert_eq!(late[i], x[from]);
            let expected = if (from as u32 % 4) < valid { x[from] } else { 0.0 };
            assert_eq!(late[32 + i], expected);
        }
    }
}

/// Copies that are in no group, waited for together.
#[kernel(block = 8)]
pub unsafe fn copies_without_groups(x: Global<f32>, y: GlobalMut<f32>) {
    let tile = shared_array![f32; 32];
    let t = thread::thread_idx_x();
    // SAFETY: each thread reads what it copied itself.
    unsafe {
        arch::sm_80::cp_async16(tile.handle(), t * 4, x, t as usize * 4);
        arch::sm_80::cp_async_wait_all();
        y.store4(t as usize * 4, tile.load4(t * 4));
    }
}

#[test]
fn waiting_for_all_copies() {
    let x: Vec<f32> = (1..=32).map(|i| i as f32).collect();
    let mut y = vec![0.0; 32];
    run(CopiesWithoutGroups { x: &x, y: &mut y }, LaunchDims::new(1, 8)).unwrap();
    assert_eq!(x, y);
}

/// Turns a matrix of eight by eight on its way: element by element, those of its last rows as zeros.
#[kernel(block = 64)]
pub unsafe fn turned(x: Global<f32>, y: GlobalMut<f32>, rows: u32) {
    use arch::sm_80::{cp_async_wait_all, cp_async4, cp_async4_zero_fill};
    let tile = shared_array![f32; 64];
    let t = thread::thread_idx_x();
    let (row, column) = (t / 8, t % 8);
    // SAFETY: a wait and a barrier before elements of other threads are read.
    unsafe {
        if row < 4 {
            cp_async4(tile.handle(), column * 8 + row, x, t as usize);
        } else {
            let from = if row < rows { t as usize } else { usize::MAX / 8 };
            cp_async4_zero_fill(tile.handle(), column * 8 + row, x, from, row < rows);
        }
        cp_async_wait_all();
        thread::sync_threads();
        y.store(t as usize, tile.load(t));
    }
}

#[test]
fn copies_of_an_element_go_anywhere() {
    let x: Vec<f32> = (1..=64).map(|i| i as f32).collect();
    for rows in 4..=8 {
        let mut y = vec![0.0; 64];
        let there = x[..8 * rows].to_vec();
        run(Turned { x: &there, y: &mut y, rows: rows as u32 }, LaunchDims::new(1, 64)).unwrap();
        for (i, y) in y.into_iter().enumerate() {
            let (column, row) = (i / 8, i % 8);
            assert_eq!(y, if row < rows { x[row * 8 + column] } else { 0.0 });
        }
    }
}

/// One buffer of dynamic shared memory as two of different types.
#[kernel(block = 16)]
pub unsafe fn two_views(y: GlobalMut<f32>) {
    let bytes = dynamic_shared::<u8>();
    let t = thread::thread_idx_x();
    // SAFETY: each thread uses its own elements; 16 floats fill the first 64 bytes.
    unsafe {
        let (floats, halves) = (bytes.cast::<f32>(), bytes.offset(64).cast::<f16>());
        floats.store(t, t as f32);
        halves.store(t, float::f32_to_f16(0.5));
        y.store(t as usize, floats.load(t) + float::f16_to_f32(halves.load(t)));
    }
}

#[test]
fn dynamic_shared_memory_in_parts() {
    let mut y = vec![0.0; 16];
    run(TwoViews { y: &mut y }, LaunchDims::new(1, 16).with_shared(96)).unwrap();
    assert!((0..16).all(|i| y[i] == i as f32 + 0.5));
}
