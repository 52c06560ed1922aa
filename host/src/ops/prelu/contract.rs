use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the parameter `alpha`. Backward needs `x`, so that it may be overwritten in
/// [`Mode::Eval`] only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `x`
    type Saved = Tensor<T>;

    fn names(&self) -> Names {
        Names::new("prelu", &["x"], &["alpha"])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], [alpha]) = inputs.exactly("prelu.forward")?;
        Ok((super::forward(x, alpha)?, mode.keep(|| x.clone())))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let (x, dy) = (call.saved, call.dy);
        let ([alpha], [dx], [dalpha]) = call.exactly("prelu.backward")?;
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
