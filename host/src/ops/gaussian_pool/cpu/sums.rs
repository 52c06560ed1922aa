//! The loops in which nearly all time goes: sums of products over neighbours in memory.

use multiversion::multiversion;

use crate::Compute;

/// A weight, and where the values begin that it is multiplied with, at least as many as there are sums.
pub(super) type Term<C> = (C, usize);

/// `out[i] = sum over the terms of weight * values[begin + i]`, in the terms' order.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn weighted_sum<C: Compute>(out: &mut [C], values: &[C], terms: &[Term<C>]) {
    match out.len() {
        0 => {}
        1..4 => by_blocks::<1, C>(out, values, terms),
        4..16 => by_blocks::<4, C>(out, values, terms),
        16.. => by_blocks::<16, C>(out, values, terms),
    }
}

/// So many sums at once, which stay in registers while all terms are added. The last ones overlap those before them where
/// they are no whole block: nothing is left to do one by one.
#[inline(always)]
fn by_blocks<const BLOCK: usize, C: Compute>(out: &mut [C], values: &[C], terms: &[Term<C>]) {
    let last = out.len() - BLOCK;
    for first in (0..out.len()).step_by(BLOCK).map(|first| first.min(last)) {
        let mut sums = [C::zero(); BLOCK];
        for &(weight, begin) in terms {
            for (sum, value) in sums.iter_mut().zip(&values[begin + first..][..BLOCK]) {
                *sum += weight * *value;
            }
        }
        out[first..][..BLOCK].copy_from_slice(&sums);
    }
}

/// The sum of products, over eight sums side by side so that it vectorises.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn dot<C: Compute>(a: &[C], b: &[C]) -> f64 {
    let mut sums = [C::zero(); 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: C = a_rest.iter().zip(b_rest).map(|(&a, &b)| a * b).sum();
    (sums.into_iter().sum::<C>() + rest).f64()
}
