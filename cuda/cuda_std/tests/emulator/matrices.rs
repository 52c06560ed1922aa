//! Matrices of a warp: fragments where the PTX ISA says, and products against a plain one.

use cuda_std::arch::sm_80::{Half, ldmatrix_x4, ldmatrix_x4_trans, mma_m16n8k16};
use cuda_std::launch::{EmulationError, LaunchDims};
use cuda_std::prelude::*;

use crate::run;

/// The words of each lane, of four matrices that lie one after the other; `transposed` of their transposes.
#[kernel(block = 32, instances(T = [f16, bf16]))]
pub unsafe fn spread<T: Half>(matrices: Global<T>, words: GlobalMut<u32>, transposed: u32) {
    let shared = shared_array![T; 256];
    let lane = thread::thread_idx_x();
    // SAFETY: eight elements of each lane; four words of each; together.
    unsafe {
        shared.store4(8 * lane, matrices.load4(8 * lane as usize));
        shared.store4(8 * lane + 4, matrices.load4(8 * lane as usize + 4));
        thread::sync_threads();
        let got = if transposed == 1 {
            ldmatrix_x4_trans(shared.handle(), 8 * lane)
        } else {
            ldmatrix_x4(shared.handle(), 8 * lane)
        };
        words.store4(4 * lane as usize, Vec4::new(got[0], got[1], got[2], got[3]));
    }
}

#[test]
fn matrices_are_spread_over_the_lanes_as_the_ptx_isa_says() {
    // Every element another number, as bits.
    let matrices: Vec<f16> = (0..256).map(f16::from_bits).collect();
    for transposed in [false, true] {
        let mut words = vec![0; 128];
        let launch = Spread { matrices: &matrices, words: &mut words, transposed: transposed.into() };
        run(launch, LaunchDims::new(1, 32)).unwrap();
        for (at, word) in words.iter().enumerate() {
            let (lane, matrix) = (at / 4, at % 4);
            let element = |i: usize| {
                let (row, column) = (lane / 4, lane % 4 * 2 + i);
                let at = if transposed { 8 * column + row } else { 8 * row + column };
                (64 * matrix + at) as u32
            };
            assert_eq!(*word, element(1) << 16 | element(0), "lane {lane}, matrix {matrix}, {transposed}");
        }
    }
}

/// `d = a · b + c`, the fragments put together element by element.
#[kernel(block = 32, instances(T = [f16, bf16]))]
pub unsafe fn one_product<T: Half>(a: Global<T>, b: Global<T>, c: Global<f32>, d: GlobalMut<f32>) {
    let (g, t) = (thread::thread_idx_x() as usize / 4, thread::thread_idx_x() as usize % 4);
    // SAFETY: `a` is 16 × 16, `b` 16 × 8, `c` and `d` are 16 × 8, row by row; together.
    unsafe {
        let pair = |low: T, high: T| {
            let bits = |value: T| {
                let (shared, lane) = (shared_array![T; 32], thread::thread_idx_x());
                shared.store(lane, value);
                u32::from(shared.cast::<u16>().load(lane))
            };
            bits(high) << 16 | bits(low)
        };
        let of_a = |j: usize| {
            let at = (g + 8 * (j % 2)) * 16 + 2 * t + 8 * (j / 2);
            pair(a.load(at), a.load(at + 1))
        };
        let of_b = |j: usize| {
            let row = 2 * t + 8 * j;
            pair(b.load(row * 8 + g), b.load((row + 1) * 8 + g))
        };
        let place = |j: usize| (g + 8 * (j / 2)) * 8 + 2 * t + j % 2;
        let sums = [0, 1, 2, 3].map(|j| c.load(place(j)));
        let sums = mma_m16n8k16::<T>([0, 1, 2, 3].map(of_a), [0, 1].map(of_b), sums);
        for (j, sum) in sums.into_iter().enumerate() {
            d.store(place(j), sum);
        }
    }
}

fn products_match<T: Half>(of: fn(f32) -> T)
where
    for<'a> OneProduct<'a, T>: cuda_std::launch::Launch,
{
    // Small whole numbers and their halves: every sum is exact.
    let number = |i: usize| ((i * 37 + i / 16 * 11) % 41) as f32 / 2.0 - 10.0;
    let a: Vec<T> = (0..256).map(|i| of(number(i))).collect();
    let b: Vec<T> = (0..128).map(|i| of(number(i + 1000))).collect();
    let c: Vec<f32> = (0..128).map(|i| number(i + 2000)).collect();
    let mut d = vec![f32::NAN; 128];
    run(OneProduct { a: &a, b: &b, c: &c, d: &mut d }, LaunchDims::new(1, 32)).unwrap();
    for (at, sum) in d.iter().enumerate() {
        let (row, column) = (at / 8, at % 8);
        let products = (0..16).map(|k| a[row * 16 + k].to_f32() * b[k * 8 + column].to_f32());
        assert_eq!(*sum, products.sum::<f32>() + c[at], "row {row}, column {column}");
    }
}

#[test]
fn products_are_those_of_matrices() {
    products_match::<f16>(f16::from_f32);
    products_match::<bf16>(bf16::from_f32);
}

/// A product that half of the warp does not come to.
#[kernel(block = 32)]
pub unsafe fn half_a_warp() {
    if thread::thread_idx_x() < 16 {
        // SAFETY: not together: what is tested.
        let _ = unsafe { mma_m16n8k16::<f16>([0; 4], [0; 2], [0.0; 4]) };
    } else {
        thread::sync_threads();
    }
}

#[test]
fn a_product_without_all_lanes_is_reported() {
    let error = run(HalfAWarp {}, LaunchDims::new(1, 32)).unwrap_err();
    assert!(matches!(error, EmulationError::Divergence { .. }), "{error}");
    assert!(error.to_string().contains("mma_m16n8k16"), "{error}");
}
