use super::Output;
use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::{Compute, Result, Tensor};

/// The op as [`op::Op`]: of `x`, for these labels. What it gives is the loss.
#[derive(Clone, Debug)]
pub struct Op {
    /// The right classes, `[N]`; they are moved to where `x` is.
    pub labels: Tensor<u32>,
}

impl<T: Compute> op::Op<T> for Op {
    type State = ();
    /// `x` and `log_sum`
    type Saved = [Tensor<T>; 2];

    fn names(&self) -> Names {
        Names::new("softmax_cross_entropy", &["x"], &[])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("softmax_cross_entropy.forward")?;
        let Output { loss, log_sum } = super::forward(x, &self.labels.to(x.device())?)?;
        Ok((loss, mode.keep(|| [x.clone(), log_sum])))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let ([x, log_sum], dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly("softmax_cross_entropy.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(x, &self.labels.to(x.device())?, log_sum, Some(dy), dx))
    }
}
