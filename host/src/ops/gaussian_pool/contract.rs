use super::Normalize;
use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::ops::Window;
use crate::{Compute, Device, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the parameters `mean` and `var`.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What is averaged over.
    pub window: Window,
    /// Which positions the weights are normalised over.
    pub normalize: Normalize,
}

impl<T: Compute> op::Op<T> for Op {
    type State = ();
    /// `x`
    type Saved = Tensor<T>;

    fn name(&self) -> &'static str {
        "gaussian_pool"
    }

    fn inputs(&self) -> Names {
        Names::new(&["x"], &["mean", "var"])
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], [mean, var]) = inputs.exactly("gaussian_pool.forward")?;
        let y = super::forward(x, mean, var, &self.window, self.normalize)?;
        Ok((y, mode.keep(|| x.clone())))
    }

    fn backward(
        &self,
        _: &mut (),
        x: &Tensor<T>,
        parameters: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        const OP: &str = "gaussian_pool.backward";
        let [mean, var] = op::exactly(OP, "parameters", parameters)?;
        let ([dx], [dmean, dvar]) = gradients.exactly(OP)?;
        super::backward(x, mean, var, &self.window, self.normalize, dy, dx, dmean, dvar)
    }
}
