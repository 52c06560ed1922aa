//! Gradients against central differences.

use std::fmt::{Display, Formatter};

use super::point::{NAN, Point, Wanted};
use super::{Failure, WEIGHTS_SEED};
use crate::device::Cpu;
use crate::op::{Inputs, Mode, Op};
use crate::{Device, Result, Tensor};

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

/// The step of a central difference.
const STEP: f64 = 1e-5;

/// Checks an op's gradients of all inputs against central differences of `sum of weight * y`, in f64 on the CPU.
///
/// Forward runs in [`Mode::Train`], with a new state each time: an op that draws must draw the same. Gradients are written
/// to tensors of NaN, so that an element that backward leaves out is seen. Settings stay as they are.
///
/// Where a function has a kink (a rectifier's zero, a maximum's tie) no difference quotient is its derivative. A kink is
/// told from a curve by its two one-sided quotients: for a smooth function their difference shrinks with the step, at a kink
/// it does not. An element whose gradient is off and that lies at a kink is moved away by 0.001 and more, a few times, and
/// all gradients are checked again. So any inputs will do; a wrong formula stays wrong wherever the element goes.
///
/// ```
/// use ferrolayer::op::Inputs;
/// use ferrolayer::ops::prelu;
/// use ferrolayer::{Device, Tensor, testing};
///
/// // The second element is at the kink.
/// let x = Tensor::from_slice(&Device::cpu(), &[3], &[-1.0, 0.0, 2.0])?;
/// let alpha = Tensor::from_slice(&Device::cpu(), &[1], &[0.25])?;
/// testing::gradcheck(&prelu::Op, Inputs { data: &[&x], parameters: &[&alpha] })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Failure::Gradient`] with the worst element of the first input that is off by a relative error of more than 1e-6;
/// [`Failure::Kink`] when an element cannot be moved away from one; the op's own errors.
pub fn gradcheck<O: Op<f64>>(op: &O, inputs: Inputs<'_, f64>) -> Result<(), Failure> {
    const MOVES: u32 = 8;
    let device = Device::Cpu(Cpu::poisoning());
    let names = op.names();
    let mut point = Point::<f64>::new(&device, inputs)?;
    let count = point.check_count(op)?;
    let y = op.output(point.inputs().of())?;
    let weights: Tensor<f64> = super::normal(&device, WEIGHTS_SEED, y.shape())?.in_order_of(&y)?;
    let factors = weights.to_vec()?;
    let loss = |point: &Point<f64>| -> Result<f64> {
        let (y, _) = op.forward(&mut O::State::default(), point.inputs().of(), Mode::Train)?;
        Ok(y.to_vec()?.iter().zip(&factors).map(|(y, factor)| y * factor).sum())
    };
    let mut moves = 0;
    'again: loop {
        let gradients = point.gradients(op, &weights, (NAN, 0.0), Wanted::All)?;
        for (number, gradient) in gradients.iter().enumerate().take(count) {
            let (at, gradient) = (point.values(number)?, gradient.to_vec()?);
            let mut failed = None;
            let mut moved = |values: &[f64]| {
                let result = point.set(number, values).and_then(|()| loss(&point));
                result.unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    f64::NAN
                })
            };
            let checked = gradcheck_fn(names.name(number), &at, &gradient, &mut moved);
            let kink = match &checked {
                Err(mismatch) => has_kink(&at, mismatch.index, &mut moved),
                Ok(()) => false,
            };
            moved(&at);
            if let Some(error) = failed {
                return Err(error.into());
            }
            let Err(mismatch) = checked else { continue };
            if !kink {
                return Err(Failure::Gradient { op: op.names().op, mismatch });
            }
            if moves == MOVES * u32::try_from(at.len()).unwrap_or(u32::MAX) {
                return Err(Failure::Kink { op: op.names().op, input: names.name(number), index: mismatch.index });
            }
            moves += 1;
            let mut away = at;
            away[mismatch.index] += 1e-3 * f64::from(moves);
            point.set(number, &away)?;
            continue 'again;
        }
        return Ok(());
    }
}

/// Whether `loss` has a kink near this element: whether the difference of its two one-sided quotients fails to shrink as
/// the step does, by 8 each time.
fn has_kink(at: &[f64], index: usize, mut loss: impl FnMut(&[f64]) -> f64) -> bool {
    let middle = loss(at);
    let mut moved = at.to_vec();
    let differences = [STEP, STEP / 8.0, STEP / 64.0].map(|step| {
        moved[index] = at[index] + step;
        let right = (loss(&moved) - middle) / step;
        moved[index] = at[index] - step;
        let left = (middle - loss(&moved)) / step;
        (right - left).abs()
    });
    // Below this it is rounding.
    let least = 1e-7 * middle.abs().max(1.0);
    let smooth = |[larger, smaller]: [f64; 2]| (4.0 * smaller..=16.0 * smaller).contains(&larger);
    differences[0] > least && !(smooth([differences[0], differences[1]]) && smooth([differences[1], differences[2]]))
}

/// Compares `gradient`, the derivative of `loss` by each element of `at`, with central differences in f64.
///
/// Choose `at` so that no kink of `loss` (a maximum's tie, a rectifier's zero) lies within 1e-5 of any element.
///
/// # Errors
/// The worst element, when its relative error passes 1e-6.
///
/// # Panics
/// When `gradient` is not as long as `at`.
pub fn gradcheck_fn(
    what: &str,
    at: &[f64],
    gradient: &[f64],
    mut loss: impl FnMut(&[f64]) -> f64,
) -> Result<(), GradientMismatch> {
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
        gradcheck_fn("x", &at, &gradient, loss).unwrap();
        gradient[1] *= 1.0001;
        let error = gradcheck_fn("x", &at, &gradient, loss).unwrap_err();
        assert_eq!(error.index, 1);
        gradient[1] = f64::NAN;
        gradcheck_fn("x", &at, &gradient, loss).unwrap_err();
    }
}
