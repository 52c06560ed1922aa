//! A fully connected layer.

use std::marker::PhantomData;

use rand::SeedableRng;

use super::layer::take;
use super::{Layer, Mode, Parameter};
use crate::ops::dense::{self, Generator, Gradients, Init, Precision, Saved};
use crate::{Compute, Device, Error, Out, Result, Tensor};

/// What is applied to the product and the bias.
#[derive(Clone, Debug)]
enum Activation<T: Compute> {
    Identity,
    Relu,
    Prelu(Box<Parameter<T>>),
}

/// [`dense`] as a layer, activation included. Parameters: `weight: [O, I]`, `bias: [O]` if any, and `alpha`, the slopes
/// of PReLU, with that activation.
#[derive(Clone, Debug)]
pub struct Dense<T: Compute> {
    weight: Parameter<T>,
    bias: Option<Parameter<T>>,
    activation: Activation<T>,
    precision: Precision,
    saved: Option<(Tensor<T>, Saved<T>)>,
}

impl<T: Compute> Dense<T> {
    /// A layer from `inputs` to `outputs` features: with a bias, without activation, drawn as PyTorch's `Linear` draws
    /// it, unless the builder is told otherwise.
    pub fn builder(inputs: usize, outputs: usize) -> DenseBuilder<T> {
        // Uniform within 1 / sqrt(inputs).
        let init = Init::KaimingUniform { a: 5f64.sqrt() };
        DenseBuilder {
            inputs,
            outputs,
            weight: init,
            bias: Some(init),
            kind: Kind::Identity,
            precision: Precision::default(),
            seed: 0,
            element: PhantomData,
        }
    }

    fn run(&mut self, dy: &Tensor<T>, input_too: bool) -> Result<Option<Tensor<T>>> {
        let (x, saved) = take(&mut self.saved, "Dense")?;
        let mut dx = if input_too { Some(x.empty_like()?) } else { None };
        let (weight, dw) = self.weight.for_backward()?;
        let db = match &mut self.bias {
            Some(bias) => bias.for_backward()?.1,
            None => None,
        };
        let (activation, dalpha) = match &mut self.activation {
            Activation::Identity => (dense::Activation::Identity, None),
            Activation::Relu => (dense::Activation::Relu, None),
            Activation::Prelu(alpha) => {
                let (alpha, dalpha) = alpha.for_backward()?;
                (dense::Activation::Prelu(alpha), dalpha)
            }
        };
        let gradients = Gradients { dx: dx.as_mut().map(Out::write), dw, db, dalpha };
        dense::backward_in(self.precision, &x, weight, activation, &saved, dy, gradients)?;
        for (_, parameter) in self.parameters_mut() {
            parameter.accumulated();
        }
        Ok(dx)
    }
}

impl<T: Compute> Layer<T> for Dense<T> {
    fn describe(&self) -> String {
        let &[outputs, inputs] = self.weight.value().shape() else { unreachable!("made by the builder") };
        let bias = if self.bias.is_none() { ", no bias" } else { "" };
        let activation = match &self.activation {
            Activation::Identity => String::new(),
            Activation::Relu => ", relu".into(),
            Activation::Prelu(alpha) => format!(", prelu({})", alpha.value().len()),
        };
        format!("Dense({inputs} -> {outputs}{bias}{activation})")
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        let (weight, bias) = (self.weight.value(), self.bias.as_ref().map(Parameter::value));
        let activation = match &self.activation {
            Activation::Identity => dense::Activation::Identity,
            Activation::Relu => dense::Activation::Relu,
            Activation::Prelu(alpha) => dense::Activation::Prelu(alpha.value()),
        };
        match mode {
            Mode::Eval => dense::forward_inference_in(self.precision, x, weight, bias, activation),
            Mode::Train => {
                let dense::Output { y, saved } = dense::forward_in(self.precision, x, weight, bias, activation)?;
                self.saved = Some((x.clone(), saved));
                Ok(y)
            }
        }
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        Ok(self.run(dy, true)?.expect("asked for"))
    }

    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        self.run(dy, false).map(drop)
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        let mut parameters = vec![("weight".into(), &self.weight)];
        parameters.extend(self.bias.as_ref().map(|bias| ("bias".into(), bias)));
        if let Activation::Prelu(alpha) = &self.activation {
            parameters.push(("alpha".into(), &**alpha));
        }
        parameters
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        let mut parameters = vec![("weight".into(), &mut self.weight)];
        parameters.extend(self.bias.as_mut().map(|bias| ("bias".into(), bias)));
        if let Activation::Prelu(alpha) = &mut self.activation {
            parameters.push(("alpha".into(), &mut **alpha));
        }
        parameters
    }
}

/// A [`Dense`] layer in the making.
#[derive(Clone, Debug)]
#[must_use]
pub struct DenseBuilder<T: Compute> {
    inputs: usize,
    outputs: usize,
    weight: Init,
    bias: Option<Init>,
    kind: Kind,
    precision: Precision,
    seed: u64,
    element: PhantomData<T>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Identity,
    Relu,
    Prelu { per_output: bool, initial: f64 },
}

impl<T: Compute> DenseBuilder<T> {
    /// Draws the weights so.
    pub fn init(mut self, weight: Init) -> Self {
        self.weight = weight;
        self
    }

    /// Draws the bias so.
    pub fn bias(mut self, bias: Init) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Without a bias.
    pub fn no_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// With ReLU after it.
    pub fn relu(mut self) -> Self {
        self.kind = Kind::Relu;
        self
    }

    /// With PReLU after it: one slope for all outputs, which begins as `initial` (PyTorch's is 0.25).
    pub fn prelu(mut self, initial: f64) -> Self {
        self.kind = Kind::Prelu { per_output: false, initial };
        self
    }

    /// With PReLU after it: a slope for each output, which begins as `initial`.
    pub fn prelu_per_output(mut self, initial: f64) -> Self {
        self.kind = Kind::Prelu { per_output: true, initial };
        self
    }

    /// With products of f32 made so, forward and backward.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Draws from this seed, 0 where none is given: the same weights on every device. Two layers of one seed and one
    /// shape begin alike.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The layer, on `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] for no inputs or outputs, or numbers that an [`Init`] cannot draw from; the device's own
    /// errors.
    pub fn build(self, device: &Device) -> Result<Dense<T>> {
        let Self { inputs, outputs, precision, seed, .. } = self;
        for (argument, got) in [("inputs", inputs), ("outputs", outputs)] {
            if got == 0 {
                let expected = "at least 1".into();
                return Err(Error::Argument { op: "Dense::builder", argument, got: "0".into(), expected });
            }
        }
        let mut generator = Generator::seed_from_u64(seed);
        let weight = Parameter::new(self.weight.weights(device, outputs, inputs, &mut generator)?);
        let bias = match self.bias {
            Some(init) => {
                let values = init.draw(outputs, inputs, outputs, &mut generator)?;
                Some(Parameter::new(Tensor::from_vec(device, &[outputs], values)?))
            }
            None => None,
        };
        let activation = match self.kind {
            Kind::Identity => Activation::Identity,
            Kind::Relu => Activation::Relu,
            Kind::Prelu { per_output, initial } => {
                let slopes = if per_output { outputs } else { 1 };
                Activation::Prelu(Box::new(Parameter::new(Tensor::full(device, &[slopes], T::of(initial))?)))
            }
        };
        Ok(Dense { weight, bias, activation, precision, saved: None })
    }
}
