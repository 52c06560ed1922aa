use super::Divisor;
use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::ops::Window;
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`. Backward needs its shape only.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What is averaged over.
    pub window: Window,
    /// What the sums are divided by.
    pub divisor: Divisor,
}

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// The input's shape.
    type Saved = Vec<usize>;

    fn names(&self) -> Names {
        Names::new("avg_pool", &["x"], &[])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("avg_pool.forward")?;
        Ok((super::forward(x, &self.window, &self.divisor)?, mode.keep(|| x.shape().to_vec())))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let (shape, dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly("avg_pool.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(dy, &self.window, &self.divisor, shape, dx))
    }
}
