//! Any op as a layer.

use std::fmt::Debug;

use super::layer::take;
use super::{Layer, Mode, Parameter};
use crate::op::{Backward, Gradients, Inputs, Op};
use crate::{Compute, Device, Error, Out, Result, Tensor};

/// Any [`Op`] of one data input as a layer, with its parameters and its state.
///
/// Parameters are named as the op names them, and its settings are fixed parameters.
///
/// ```
/// use ferrolayer::nn::{Apply, Layer, Mode, Sequential};
/// use ferrolayer::ops::prelu;
/// use ferrolayer::{Device, Tensor};
///
/// let device = Device::auto();
/// let slope = Tensor::from_slice(&device, &[1], &[0.25])?;
/// let mut model = Sequential::new().then(Apply::new(prelu::Op, vec![slope])?);
/// assert_eq!(model.parameters()[0].0, "0.alpha");
/// let x = Tensor::from_slice(&device, &[3], &[-1.0f32, 0.0, 2.0])?;
/// assert_eq!(model.forward(&x, Mode::Train)?.to_vec()?, [-0.25, 0.0, 2.0]);
/// # Ok::<(), ferrolayer::Error>(())
/// ```
pub struct Apply<T: Compute, O: Op<T>> {
    op: O,
    parameters: Vec<Parameter<T>>,
    state: O::State,
    /// What the op saved, and its input's shape and order in memory.
    saved: Option<(O::Saved, Tensor<T>)>,
}

impl<T: Compute, O: Op<T>> Apply<T, O> {
    /// The layer with these values of the op's parameters and settings, in the order of its names.
    ///
    /// # Errors
    /// [`Error::Argument`] for more or fewer values than the op has names, or an op of more or less than one data input.
    pub fn new(op: O, values: Vec<Tensor<T>>) -> Result<Self> {
        const OP: &str = "Apply::new";
        let names = op.names();
        let wrong = |argument, got: String, expected| Err(Error::Argument { op: OP, argument, got, expected });
        if names.data.len() != 1 {
            return wrong("op", format!("{}, of {:?}", names.op, names.data), "an op of one data input".into());
        }
        let count = names.parameters.len() + names.settings.len();
        if values.len() != count {
            let expected = format!("{count}: {:?}", [names.parameters, names.settings].concat());
            return wrong("values", format!("a list of {}", values.len()), expected);
        }
        let trained = names.parameters.len();
        let parameter = |(i, value)| if i < trained { Parameter::new(value) } else { Parameter::fixed(value) };
        let parameters = values.into_iter().enumerate().map(parameter).collect();
        Ok(Self { op, parameters, state: O::State::default(), saved: None })
    }

    /// The op.
    pub fn op(&self) -> &O {
        &self.op
    }

    fn names(&self) -> impl Iterator<Item = String> + use<T, O> {
        let names = self.op.names();
        names.parameters.iter().chain(names.settings).map(|name| (*name).to_owned())
    }

    fn run(&mut self, dy: &Tensor<T>, input_too: bool) -> Result<Option<Tensor<T>>> {
        let (saved, x) = take(&mut self.saved, self.op.names().op)?;
        let mut dx = if input_too { Some(x.empty_like_on(dy.device())?) } else { None };
        let (mut values, mut gradients) = (Vec::new(), Vec::new());
        for parameter in &mut self.parameters {
            let (value, gradient) = parameter.for_backward()?;
            values.push(value);
            gradients.push(gradient);
        }
        gradients.truncate(self.op.names().parameters.len());
        let gradients = Gradients { data: vec![dx.as_mut().map(Out::write)], parameters: gradients };
        self.op.backward(&mut self.state, Backward { saved: &saved, parameters: &values, dy, gradients })?;
        self.parameters.iter_mut().for_each(Parameter::accumulated);
        Ok(dx)
    }
}

impl<T: Compute, O: Op<T> + Debug + Send> Layer<T> for Apply<T, O> {
    fn describe(&self) -> String {
        format!("{}: {:?}", self.op.names().op, self.op)
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        let parameters: Vec<&Tensor<T>> = self.parameters.iter().map(Parameter::value).collect();
        let inputs = Inputs { data: &[x], parameters: &parameters };
        let (y, saved) = self.op.forward(&mut self.state, inputs, mode)?;
        let shape = x.to(&Device::Shapes)?;
        self.saved = saved.map(|saved| (saved, shape));
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        Ok(self.run(dy, true)?.expect("asked for"))
    }

    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        self.run(dy, false).map(drop)
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        self.names().zip(&self.parameters).collect()
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        let names: Vec<_> = self.names().collect();
        names.into_iter().zip(&mut self.parameters).collect()
    }
}
