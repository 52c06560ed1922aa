use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`. Backward needs the output alone, so that `x` may be overwritten.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `y`
    type Saved = Tensor<T>;

    fn names(&self) -> Names {
        Names::new("relu", &["x"], &[])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], []) = inputs.exactly("relu.forward")?;
        let y = super::forward(x)?;
        let saved = mode.keep(|| y.clone());
        Ok((y, saved))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let (y, dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly("relu.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(y, dy, dx))
    }

    fn overwrites(&self, _: Mode) -> bool {
        true
    }

    fn forward_in_place(
        &self,
        _: &mut (),
        x: &mut Tensor<T>,
        others: Inputs<'_, T>,
        mode: Mode,
    ) -> Result<Option<Tensor<T>>> {
        let ([], []) = others.exactly("relu.forward_in_place")?;
        super::forward_in_place(x)?;
        Ok(mode.keep(|| x.clone()))
    }
}
