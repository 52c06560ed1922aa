use crate::op::{self, Backward, Inputs, Mode, Names};
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, with the settings `s` and `c`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op;

impl<T: Real> op::Op<T> for Op {
    type State = ();
    type Saved = ();

    fn names(&self) -> Names {
        Names { settings: &["s", "c"], ..Names::new("scale_add", &["x"], &[]) }
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<()>)> {
        let ([x], [s, c]) = inputs.exactly("scale_add.forward")?;
        Ok((super::forward(x, s, c)?, mode.keep(|| ())))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        let dy = call.dy;
        let ([s, _], [dx], []) = call.exactly("scale_add.backward")?;
        dx.map_or(Ok(()), |dx| super::backward(dy, s, dx))
    }
}
