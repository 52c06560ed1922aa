//! Gradients against central differences.

use std::fmt::{Display, Formatter};

/// The element whose gradient is furthest from the central difference.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientMismatch {
    /// What the gradient is of.
    pub what: String,
    /// The flat index of the element.
    pub index: usize,
    /// What backward gave.
    pub analytic: f64,
    /// What the difference of two forwards gave.
    pub numeric: f64,
    /// Their distance over the larger of the gradient's largest magnitude and 1.
    pub error: f64,
}

impl Display for GradientMismatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { what, index, analytic, numeric, error } = self;
        write!(
            f,
            "gradient of {what} at {index}: backward {analytic:e}, central difference {numeric:e}, error {error:e}"
        )
    }
}

impl std::error::Error for GradientMismatch {}

/// The relative error that a right gradient stays below.
///
/// A central difference with step `h` is off by `h² f'''/6` and by rounding of about `2^-53 |f| / h`; at `h = 1e-5` both
/// are below 1e-9 for the magnitudes of tests, and a wrong formula is off by far more.
pub const GRADIENT_TOLERANCE: f64 = 1e-6;

/// Compares `gradient`, the derivative of `loss` by each element of `at`, with central differences in f64.
///
/// Choose `at` so that no kink of `loss` (a maximum's tie, a rectifier's zero) lies within 1e-5 of any element.
///
/// # Errors
/// The worst element, when its relative error passes 1e-6.
///
/// # Panics
/// When `gradient` is not as long as `at`.
pub fn gradcheck(
    what: &str,
    at: &[f64],
    gradient: &[f64],
    mut loss: impl FnMut(&[f64]) -> f64,
) -> Result<(), GradientMismatch> {
    const STEP: f64 = 1e-5;
    assert_eq!(at.len(), gradient.len(), "{what}: one derivative for each element");
    let scale = gradient.iter().fold(1.0f64, |scale, g| scale.max(g.abs()));
    let mut moved = at.to_vec();
    let mut worst: Option<GradientMismatch> = None;
    for (index, &analytic) in gradient.iter().enumerate() {
        let (above, below) = (at[index] + STEP, at[index] - STEP);
        moved[index] = above;
        let high = loss(&moved);
        moved[index] = below;
        let low = loss(&moved);
        moved[index] = at[index];
        let numeric = (high - low) / (above - below);
        let error = (analytic - numeric).abs() / scale;
        // NaN is no small error: it must neither pass nor hide behind a number.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > GRADIENT_TOLERANCE && worst.as_ref().is_none_or(|w| error > w.error) {
            worst = Some(GradientMismatch { what: what.to_owned(), index, analytic, numeric, error });
        }
    }
    worst.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_right_gradient_and_names_the_wrong_element() {
        let at = [0.5, -1.5, 2.0];
        let loss = |v: &[f64]| v.iter().map(|v| v.powi(3)).sum::<f64>();
        let mut gradient: Vec<f64> = at.iter().map(|v| 3.0 * v * v).collect();
        gradcheck("x", &at, &gradient, loss).unwrap();
        gradient[1] *= 1.0001;
        let error = gradcheck("x", &at, &gradient, loss).unwrap_err();
        assert_eq!(error.index, 1);
        gradient[1] = f64::NAN;
        gradcheck("x", &at, &gradient, loss).unwrap_err();
    }
}
