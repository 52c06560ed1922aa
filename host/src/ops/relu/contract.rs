use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::{Device, Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`. Backward needs the output alone, so that `x` may be overwritten.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `y`
    type Saved = Tensor<T>;

    fn name(&self) -> &'static str {
        "relu"
    }

    fn inputs(&self) -> Names {
        Names::new(&["x"], &[])
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], []) = inputs.exactly("relu.forward")?;
        let y = super::forward(x)?;
        let saved = mode.keep(|| y.clone());
        Ok((y, saved))
    }

    fn backward(
        &self,
        _: &mut (),
        y: &Tensor<T>,
        _: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        let ([dx], []) = gradients.exactly("relu.backward")?;
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
