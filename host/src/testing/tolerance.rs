//! How far two right results of one sum may lie apart.

use std::fmt::{Display, Formatter};

use crate::{Compute, Real};

/// The largest plausible error of a sum of `terms` rounded products computed in `T`, relative to the sum of the terms'
/// magnitudes.
///
/// Each of the `n` products and `n - 1` additions rounds by a relative error of at most the unit roundoff `u = eps / 2`.
/// The worst case is `n u` times the sum of magnitudes. Rounding errors are not all of one sign: taken as independent
/// with mean zero, the error stays below `lambda sqrt(n) u` times that sum with probability at least
/// `1 - 2 n exp(-lambda²/2)` (Higham & Mary, *A New Approach to Probabilistic Rounding Error Analysis*, SIAM J. Sci.
/// Comput. 41(5), 2019, theorem 3.1). `lambda = 8` makes that `1 - 2.5e-14 n`. Eight roundings more are granted for what
/// an op does besides the sum: a scale, an activation, `exp` to within 2 ulp, `beta * out`.
///
/// Two computed results may then lie twice this apart, and a computed one from the exact one once.
pub fn summation_error<T: Compute>(terms: usize) -> f64 {
    const LAMBDA: f64 = 8.0;
    const OTHER_ROUNDINGS: f64 = 8.0;
    let roundoff = T::EPSILON / 2.0;
    (LAMBDA * (terms.max(1) as f64).sqrt() + OTHER_ROUNDINGS) * roundoff
}

/// The element at which two results lie furthest beyond what is allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// What was compared.
    pub what: String,
    /// The flat index of the worst element.
    pub index: usize,
    /// What was computed there.
    pub got: f64,
    /// What was expected there.
    pub expected: f64,
    /// How far they may lie apart.
    pub allowed: f64,
    /// How many elements are beyond it, of how many.
    pub count: (usize, usize),
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { what, index, got, expected, allowed, count: (bad, all) } = self;
        let difference = (got - expected).abs();
        write!(f, "{what}: {bad} of {all} elements differ; worst at {index}: got {got:e}, expected {expected:e}, ")?;
        write!(f, "apart by {difference:e}, allowed {allowed:e}")
    }
}

impl std::error::Error for Mismatch {}

/// Compares `got` with `expected`: each element may be off by twice [`summation_error`] of `terms` times the element of
/// `magnitudes`, the sum of the magnitudes of the terms it is made of. 16-bit types are summed in `f32`, whose error this
/// is then; beside it each of the two may be off by half a unit in the last place of what is stored.
///
/// NaN equals NaN, and an infinity itself, and nothing else equals either.
///
/// # Errors
/// The worst element, when any is off by more.
///
/// # Panics
/// When the lengths differ.
pub fn assert_close<T: Real>(
    what: &str,
    got: &[T],
    expected: &[T],
    terms: usize,
    magnitudes: &[f64],
) -> Result<(), Mismatch> {
    assert_eq!((got.len(), magnitudes.len()), (expected.len(), expected.len()), "{what}: lengths");
    let factor = 2.0 * summation_error::<T::Compute>(terms);
    // Storing rounds once more where memory has fewer bits: half a unit in the last place for each of the two.
    let storing = if T::EPSILON > T::Compute::EPSILON { T::EPSILON } else { 0.0 };
    let mut worst: Option<(f64, Mismatch)> = None;
    let mut bad = 0;
    for (index, ((got, expected), magnitude)) in got.iter().zip(expected).zip(magnitudes).enumerate() {
        let (got, expected) = (got.f64(), expected.f64());
        let allowed = factor * magnitude + storing * got.abs().max(expected.abs()) + T::MIN_POSITIVE;
        let same = got == expected || got.is_nan() && expected.is_nan();
        // NaN on one side only makes the comparison false, an infinity makes the difference one.
        if same || (got - expected).abs() <= allowed && got.is_finite() && expected.is_finite() {
            continue;
        }
        bad += 1;
        let excess = if (got - expected).is_finite() { (got - expected).abs() / allowed } else { f64::INFINITY };
        if worst.as_ref().is_none_or(|(w, _)| excess > *w) {
            let what = what.to_owned();
            worst = Some((excess, Mismatch { what, index, got, expected, allowed, count: (0, 0) }));
        }
    }
    match worst {
        None => Ok(()),
        Some((_, mismatch)) => Err(Mismatch { count: (bad, expected.len()), ..mismatch }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinities_match_only_themselves() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert_close("same", &[nan, inf, -inf, 1.0], &[nan, inf, -inf, 1.0], 1, &[1.0; 4]).unwrap();
        for (got, expected) in [(nan, 1.0), (1.0, nan), (inf, -inf), (inf, f32::MAX), (f32::MAX, inf), (nan, inf)] {
            assert_close("other", &[got], &[expected], 1, &[f64::INFINITY]).unwrap_err();
        }
    }

    #[test]
    fn names_the_worst_element() {
        let error = assert_close("y", &[1.0f32, 1.1, 3.0], &[1.0, 1.0, 2.0], 4, &[1.0; 3]).unwrap_err();
        assert_eq!((error.index, error.count), (2, (2, 3)));
    }

    /// The bound holds for f32 sums of random terms, and is not loose beyond use.
    #[test]
    fn bounds_the_error_of_f32_sums() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        for terms in [10, 1000, 100_000] {
            let values: Vec<f32> = (0..terms).map(|_| next()).collect();
            let (sum, exact) = (values.iter().sum::<f32>(), values.iter().map(|&v| f64::from(v)).sum::<f64>());
            let error = (f64::from(sum) - exact).abs() / exact;
            assert!(error < summation_error::<f32>(terms), "{terms}: {error:e}");
            assert!(summation_error::<f32>(terms) < 3e-4, "{terms}");
        }
    }
}
