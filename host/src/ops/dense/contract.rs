use super::{Activation, Output, Saved};
use crate::op::{self, Backward, Gradients, Inputs, Mode, Names};
use crate::{Real, Result, Tensor};

/// The op as [`op::Op`]: of `x`, `w` and, if there is one, `b`; with PReLU, of the parameter `alpha`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op {
    /// Whether there is a bias.
    pub bias: bool,
    /// What is applied.
    pub activation: Kind,
}

/// An [`Activation`] without its slopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// [`Activation::Identity`]
    #[default]
    Identity,
    /// [`Activation::Relu`]
    Relu,
    /// [`Activation::Prelu`]
    Prelu,
}

impl Op {
    fn activation<'a, T: Real>(
        &self,
        op: &'static str,
        parameters: &[&'a Tensor<T::Compute>],
    ) -> Result<Activation<'a, T>> {
        Ok(match self.activation {
            Kind::Identity => op::exactly(op, "parameters", parameters).map(|[]: [_; 0]| Activation::Identity)?,
            Kind::Relu => op::exactly(op, "parameters", parameters).map(|[]: [_; 0]| Activation::Relu)?,
            Kind::Prelu => op::exactly(op, "parameters", parameters).map(|[alpha]| Activation::Prelu(alpha))?,
        })
    }
}

impl<T: Real> op::Op<T> for Op {
    type State = ();
    /// `x`, `w` and what the activation needs.
    type Saved = (Tensor<T>, Tensor<T>, Saved<T>);

    fn names(&self) -> Names {
        let parameters: &[_] = if self.activation == Kind::Prelu { &["alpha"] } else { &[] };
        Names::new("dense", if self.bias { &["x", "w", "b"] } else { &["x", "w"] }, parameters)
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Self::Saved>)> {
        const OP: &str = "dense.forward";
        let (x, w, b) = match self.bias {
            true => op::exactly(OP, "inputs", inputs.data).map(|[x, w, b]| (x, w, Some(b)))?,
            false => op::exactly(OP, "inputs", inputs.data).map(|[x, w]| (x, w, None))?,
        };
        let activation = self.activation(OP, inputs.parameters)?;
        if mode == Mode::Eval {
            return Ok((super::forward_inference(x, w, b, activation)?, None));
        }
        let Output { y, saved } = super::forward(x, w, b, activation)?;
        Ok((y, Some((x.clone(), w.clone(), saved))))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Self::Saved>) -> Result<()> {
        const OP: &str = "dense.backward";
        let ((x, w, saved), dy) = (call.saved, call.dy);
        let activation = self.activation(OP, call.parameters)?;
        let Gradients { mut data, mut parameters } = call.gradients;
        // An input that there is not has no gradient.
        if !self.bias {
            data.push(None);
        }
        if self.activation != Kind::Prelu {
            parameters.push(None);
        }
        let call = Backward { gradients: Gradients { data, parameters }, parameters: &[], ..call };
        let ([], [dx, dw, db], [dalpha]) = call.exactly(OP)?;
        super::backward(x, w, activation, saved, dy, super::Gradients { dx, dw, db, dalpha })
    }
}
