use super::{Indices, Output};
use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::ops::Window;
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`. Backward needs indices, of one byte or two, and no input.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What the maxima are taken over.
    pub window: Window,
}

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// The indices and the input's shape.
    type Saved = (Indices, Vec<usize>);

    fn names(&self) -> Names {
        Names::new("max_pool", &["x"], &[])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("max_pool.forward")?;
        if mode == Mode::Eval {
            return Ok((super::forward_inference(x, &self.window)?, None));
        }
        let Output { y, indices } = super::forward(x, &self.window)?;
        Ok((y, Some((indices, x.shape().to_vec()))))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let ((indices, shape), dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly("max_pool.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(dy, indices, &self.window, shape, dx))
    }
}
