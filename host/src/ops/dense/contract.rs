use super::{Activation, Output, Saved};
use crate::op::{self, Gradients, Inputs, Mode, Names};
use crate::{Compute, Device, Out, Result, Tensor};

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
    fn activation<'a, T: Compute>(&self, op: &'static str, parameters: &[&'a Tensor<T>]) -> Result<Activation<'a, T>> {
        Ok(match self.activation {
            Kind::Identity => op::exactly(op, "parameters", parameters).map(|[]: [_; 0]| Activation::Identity)?,
            Kind::Relu => op::exactly(op, "parameters", parameters).map(|[]: [_; 0]| Activation::Relu)?,
            Kind::Prelu => op::exactly(op, "parameters", parameters).map(|[alpha]| Activation::Prelu(alpha))?,
        })
    }
}

impl<T: Compute> op::Op<T> for Op {
    type State = ();
    /// `x`, `w` and what the activation needs.
    type Saved = (Tensor<T>, Tensor<T>, Saved<T>);

    fn name(&self) -> &'static str {
        "dense"
    }

    fn inputs(&self) -> Names {
        let parameters: &[_] = if self.activation == Kind::Prelu { &["alpha"] } else { &[] };
        Names::new(if self.bias { &["x", "w", "b"] } else { &["x", "w"] }, parameters)
    }

    fn state(&self, _: &Device) -> Result<()> {
        Ok(())
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

    fn backward(
        &self,
        _: &mut (),
        (x, w, saved): &Self::Saved,
        parameters: &[&Tensor<T::Compute>],
        dy: &Tensor<T>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        const OP: &str = "dense.backward";
        let activation = self.activation(OP, parameters)?;
        let mut data = gradients.data;
        if !self.bias {
            data.push(None);
        }
        let mut parameters = gradients.parameters;
        if self.activation != Kind::Prelu {
            parameters.push(None);
        }
        let ([dx, dw, db], [dalpha]): ([Option<Out<'_, T>>; 3], _) = Gradients { data, parameters }.exactly(OP)?;
        super::backward(x, w, activation, saved, dy, super::Gradients { dx, dw, db, dalpha })
    }
}
