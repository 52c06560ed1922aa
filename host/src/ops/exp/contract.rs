use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::{Compute, Device, Result, Tensor};

/// The op as [`op::Op`]: of `x`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Compute> op::Op<T> for Op {
    type State = ();
    /// `x` and `y`
    type Saved = [Tensor<T>; 2];

    fn name(&self) -> &'static str {
        "exp"
    }

    fn inputs(&self) -> Names {
        Names::new(&["x"], &[])
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("exp.forward")?;
        let y = super::forward(x)?;
        let saved = mode.keep(|| [x.clone(), y.clone()]);
        Ok((y, saved))
    }

    fn backward(
        &self,
        _: &mut (),
        [x, y]: &Self::Saved,
        _: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        let ([dx], []) = gradients.exactly("exp.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(x, y, dy, dx))
    }
}
