use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the parameter `beta`. Backward needs `x`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `x`
    type Saved = Tensor<T>;

    fn names(&self) -> Names {
        Names::new("swish", &["x"], &["beta"])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], [beta]) = inputs.exactly("swish.forward")?;
        Ok((super::forward(x, beta)?, mode.keep(|| x.clone())))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let (x, dy) = (call.saved, call.dy);
        let ([beta], [dx], [dbeta]) = call.exactly("swish.backward")?;
        super::backward(x, beta, dy, dx, dbeta)
    }
}
