//! The loops in which nearly all time goes: sums of products over neighbours in memory.

use multiversion::multiversion;

use crate::element::convert::{Halves, halves, widen_some};
use crate::ops::gaussian_pool::weights::{BLOCK, Factor};
use crate::ops::pixels::blocks;
use crate::{Compute, Real};

/// A weight, and where the values begin that it is multiplied with.
pub(super) type Term<'a, W> = (&'a W, usize);

/// Neighbours that are summed for, the first one's lane being a pixel's first; and again in each of several columns, in
/// each of several rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    pub length: usize,
    pub columns: Steps,
    pub rows: Steps,
}

/// So many times, sums and values being so many elements on from one time to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub count: usize,
    pub sums: usize,
    pub values: usize,
}

impl Steps {
    pub const ONCE: Self = Self { count: 1, sums: 0, values: 0 };
}

/// `out[i] = sum over the terms of weight * values[begin + i]`, in the terms' order, for each run.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+f16c"))]
pub(super) fn weighted_sums<T: Real, W: Factor<T::Compute>>(
    out: &mut [T::Compute],
    values: &[T],
    terms: &[Term<'_, W>],
    runs: Runs,
) {
    let halves = halves!();
    match runs.length {
        0 => {}
        1..4 => by_blocks::<1, T, W>(out, values, terms, runs, halves),
        4..8 => by_blocks::<4, T, W>(out, values, terms, runs, halves),
        8..16 => by_blocks::<8, T, W>(out, values, terms, runs, halves),
        16..32 => by_blocks::<16, T, W>(out, values, terms, runs, halves),
        32..BLOCK => by_blocks::<32, T, W>(out, values, terms, runs, halves),
        BLOCK.. => by_blocks::<BLOCK, T, W>(out, values, terms, runs, halves),
    }
}

/// So many sums at once, which stay in registers while all terms are added.
#[inline(always)]
fn by_blocks<const SUMS: usize, T: Real, W: Factor<T::Compute>>(
    out: &mut [T::Compute],
    values: &[T],
    terms: &[Term<'_, W>],
    Runs { length, columns, rows }: Runs,
    halves: impl Halves,
) {
    let runs = (0..rows.count).flat_map(|row| (0..columns.count).map(move |column| (row, column)));
    for (row, column) in runs {
        let out = &mut out[row * rows.sums + column * columns.sums..][..length];
        let values = &values[row * rows.values + column * columns.values..];
        for first in blocks::<SUMS>(length) {
            let lane = terms.first().map_or(0, |(weight, _)| weight.lane(first));
            let mut sums = [T::Compute::of(0.0); SUMS];
            for &(weight, begin) in terms {
                let weights = weight.of_lanes::<SUMS>(lane);
                let values = widen_some::<SUMS, T>(&values[begin + first..], halves);
                for i in 0..SUMS {
                    sums[i] += weights[i] * values[i];
                }
            }
            out[first..][..SUMS].copy_from_slice(&sums);
        }
    }
}

/// Products that are added up in `C` before they are added in f64.
const PRODUCTS: usize = 1024;

/// Adds the products of elements: of all to one sum, or of each lane to its own.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn add_products<C: Compute>(sums: &mut [f64], a: &[C], b: &[C]) {
    if let [sum] = sums {
        *sum += a.chunks(PRODUCTS).zip(b.chunks(PRODUCTS)).map(|(a, b)| dot(a, b).f64()).sum::<f64>();
        return;
    }
    let lanes = sums.len();
    let (blocks, rest) = sums.as_chunks_mut::<16>();
    let first_left = 16 * blocks.len();
    for (i, sums) in blocks.iter_mut().enumerate() {
        add_by_lane(sums, &a[16 * i..], &b[16 * i..], lanes);
    }
    for (i, sum) in rest.iter_mut().enumerate() {
        add_by_lane(std::array::from_mut(sum), &a[first_left + i..], &b[first_left + i..], lanes);
    }
}

/// The sum of products, over sums side by side so that it vectorises.
#[inline(always)]
fn dot<C: Compute>(a: &[C], b: &[C]) -> C {
    let mut sums = [C::zero(); 32];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..32 {
            sums[i] += a[i] * b[i];
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(a_rest).zip(b_rest) {
        *sum += *a * *b;
    }
    sums.into_iter().sum()
}

/// Of the first lanes of pixels that have so many.
#[inline(always)]
fn add_by_lane<const LANES: usize, C: Compute>(out: &mut [f64; LANES], a: &[C], b: &[C], lanes: usize) {
    let mut sums = [C::zero(); LANES];
    for (a, b) in a.chunks(lanes).zip(b.chunks(lanes)) {
        let (a, b) = (&a[..LANES], &b[..LANES]);
        for i in 0..LANES {
            sums[i] += a[i] * b[i];
        }
    }
    out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum.f64());
}
