use super::Normalize;
use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::ops::Window;
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the parameters `mean` and `var`.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What is averaged over.
    pub window: Window,
    /// Which positions the weights are normalised over.
    pub normalize: Normalize,
}

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `x`
    type Saved = Tensor<T>;

    fn names(&self) -> Names {
        Names::new("gaussian_pool", &["x"], &["mean", "var"])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], [mean, var]) = inputs.exactly("gaussian_pool.forward")?;
        let y = super::forward(x, mean, var, &self.window, self.normalize)?;
        Ok((y, mode.keep(|| x.clone())))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let (x, dy) = (call.saved, call.dy);
        let ([mean, var], [dx], [dmean, dvar]) = call.exactly("gaussian_pool.backward")?;
        super::backward(x, mean, var, &self.window, self.normalize, dy, dx, dmean, dvar)
    }
}
