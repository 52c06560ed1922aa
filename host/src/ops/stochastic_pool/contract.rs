use super::{Indices, Output, Random};
use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::ops::Window;
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`. Backward needs indices, of one byte or two, and no input.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What is drawn from.
    pub window: Window,
    /// Of the first draws with a new state.
    pub seed: u64,
}

impl<T: Real> op::Op<T> for Op {
    /// Made by the first forward in [`Mode::Train`], where its input is.
    type State = Option<Random>;
    /// The indices and the input's shape.
    type Saved = (Indices, Vec<usize>);

    fn names(&self) -> Names {
        Names::new("stochastic_pool", &["x"], &[])
    }

    fn forward(
        &self,
        state: &mut Self::State,
        inputs: Inputs<'_, T>,
        mode: Mode,
    ) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        let ([x], []) = inputs.exactly("stochastic_pool.forward")?;
        if mode == Mode::Eval {
            return Ok((super::forward_inference(x, &self.window)?, None));
        }
        let random = match state {
            Some(random) => random,
            none => none.insert(Random::new(x.device(), self.seed)?),
        };
        let Output { y, indices } = super::forward(x, &self.window, random)?;
        Ok((y, Some((indices, x.shape().to_vec()))))
    }

    fn backward(&self, _: &mut Self::State, call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let ((indices, shape), dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly("stochastic_pool.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(dy, indices, &self.window, shape, dx))
    }
}
