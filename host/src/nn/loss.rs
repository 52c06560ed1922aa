//! What training makes small.

use super::Mode;
use super::layer::take;
use crate::ops::softmax_cross_entropy::{self, Output};
use crate::{Compute, Out, Result, Tensor};

/// [`softmax_cross_entropy`] with what its backward needs.
#[derive(Clone, Debug, Default)]
pub struct SoftmaxCrossEntropy<T: Compute> {
    saved: Option<Saved<T>>,
}

#[derive(Clone, Debug)]
struct Saved<T: Compute> {
    scores: Tensor<T>,
    labels: Tensor<u32>,
    log_sum: Tensor<T>,
}

impl<T: Compute> SoftmaxCrossEntropy<T> {
    /// The loss.
    pub fn new() -> Self {
        Self { saved: None }
    }

    /// The mean loss of the batch, `[1]`; it stays on the device until it is read.
    ///
    /// # Errors
    /// The op's errors.
    pub fn forward(&mut self, scores: &Tensor<T>, labels: &Tensor<u32>, mode: Mode) -> Result<Tensor<T>> {
        let Output { loss, log_sum } = softmax_cross_entropy::forward(scores, labels)?;
        self.saved = mode.keep(|| Saved { scores: scores.clone(), labels: labels.clone(), log_sum });
        Ok(loss)
    }

    /// The loss's gradient by the scores of the last forward in [`Mode::Train`].
    ///
    /// # Errors
    /// [`Error::NoForward`](crate::Error::NoForward) without such a forward; the op's errors.
    pub fn backward(&mut self) -> Result<Tensor<T>> {
        let Saved { scores, labels, log_sum } = take(&mut self.saved, "SoftmaxCrossEntropy")?;
        let mut dx = scores.empty_like()?;
        softmax_cross_entropy::backward(&scores, &labels, &log_sum, None, Out::write(&mut dx))?;
        Ok(dx)
    }
}
