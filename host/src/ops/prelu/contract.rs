use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::{Device, Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the parameter `alpha`. Backward needs `x`, so that it may be overwritten in
/// [`Mode::Eval`] only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `x`
    type Saved = Tensor<T>;

    fn name(&self) -> &'static str {
        "prelu"
    }

    fn inputs(&self) -> Names {
        Names::new(&["x"], &["alpha"])
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], [alpha]) = inputs.exactly("prelu.forward")?;
        Ok((super::forward(x, alpha)?, mode.keep(|| x.clone())))
    }

    fn backward(
        &self,
        _: &mut (),
        x: &Tensor<T>,
        parameters: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        const OP: &str = "prelu.backward";
        let [alpha] = op::exactly(OP, "parameters", parameters)?;
        let ([dx], [dalpha]) = gradients.exactly(OP)?;
        super::backward(x, alpha, dy, dx, dalpha)
    }

    fn overwrites(&self, mode: Mode) -> bool {
        mode == Mode::Eval
    }

    fn forward_in_place(
        &self,
        state: &mut (),
        x: &mut Tensor<T>,
        others: Inputs<'_, T>,
        mode: Mode,
    ) -> Result<Option<Tensor<T>>> {
        let ([], [alpha]) = others.exactly("prelu.forward_in_place")?;
        match mode {
            Mode::Eval => super::forward_in_place(x, alpha).map(|()| None),
            Mode::Train => {
                let (y, saved) = self.forward(state, Inputs { data: &[x], ..others }, mode)?;
                *x = y;
                Ok(saved)
            }
        }
    }
}
