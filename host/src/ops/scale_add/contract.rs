use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::{Device, Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the settings `s` and `c`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    type Saved = ();

    fn name(&self) -> &'static str {
        "scale_add"
    }

    fn inputs(&self) -> Names {
        Names { settings: &["s", "c"], ..Names::new(&["x"], &[]) }
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<()>)> {
        let ([x], [s, c]) = inputs.exactly("scale_add.forward")?;
        Ok((super::forward(x, s, c)?, mode.keep(|| ())))
    }

    fn backward(
        &self,
        _: &mut (),
        _: &(),
        parameters: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        const OP: &str = "scale_add.backward";
        let [s, _] = op::exactly(OP, "parameters", parameters)?;
        let ([dx], []) = gradients.exactly(OP)?;
        dx.map_or(Ok(()), |dx| super::backward(dy, s, dx))
    }
}
