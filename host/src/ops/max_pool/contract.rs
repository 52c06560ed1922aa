use super::{Indices, Output};
use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::ops::Window;
use crate::{Compute, Device, Result, Tensor};

/// The op as [`op::Op`]: of `x`. Backward needs indices, of one byte or two, and no input.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What the maxima are taken over.
    pub window: Window,
}

impl<T: Compute> op::Op<T> for Op {
    type State = ();
    /// The indices and the input's shape.
    type Saved = (Indices, Vec<usize>);

    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn inputs(&self) -> Names {
        Names::new(&["x"], &[])
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("max_pool.forward")?;
        if mode == Mode::Eval {
            return Ok((super::forward_inference(x, &self.window)?, None));
        }
        let Output { y, indices } = super::forward(x, &self.window)?;
        Ok((y, Some((indices, x.shape().to_vec()))))
    }

    fn backward(
        &self,
        _: &mut (),
        (indices, shape): &Self::Saved,
        _: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        let ([dx], []) = gradients.exactly("max_pool.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(dy, indices, &self.window, shape, dx))
    }
}
