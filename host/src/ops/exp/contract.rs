use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::{Compute, Result, Tensor};

/// The op as [`op::Op`]: of `x`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Compute> op::Op<T> for Op {
    type State = ();
    /// `x` and `y`
    type Saved = [Tensor<T>; 2];

    fn names(&self) -> Names {
        Names::new("exp", &["x"], &[])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("exp.forward")?;
        let y = super::forward(x)?;
        let saved = mode.keep(|| [x.clone(), y.clone()]);
        Ok((y, saved))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let ([x, y], dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly("exp.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(x, y, dy, dx))
    }
}
