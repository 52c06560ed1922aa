//! Rectifiers as layers of their own.

use super::layer::take;
use super::{Layer, Mode, Parameter};
use crate::{Compute, Device, Error, Out, Result, Tensor, ops};

/// [`ops::relu`] as a layer.
#[derive(Clone, Debug, Default)]
pub struct Relu<T: Compute> {
    saved: Option<Tensor<T>>,
}

impl<T: Compute> Relu<T> {
    /// The layer.
    pub fn new() -> Self {
        Self { saved: None }
    }
}

impl<T: Compute> Layer<T> for Relu<T> {
    fn describe(&self) -> String {
        "Relu".into()
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        let y = ops::relu::forward(x)?;
        self.saved = mode.keep(|| y.clone());
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        let y = take(&mut self.saved, "Relu")?;
        let mut dx = y.empty_like()?;
        ops::relu::backward(&y, dy, Out::write(&mut dx))?;
        Ok(dx)
    }
}

/// [`ops::prelu`] as a layer. Its parameter is `weight`, as in PyTorch: the slope below zero, one for all or one per
/// channel.
#[derive(Clone, Debug)]
pub struct Prelu<T: Compute> {
    weight: Parameter<T>,
    saved: Option<Tensor<T>>,
}

impl<T: Compute> Prelu<T> {
    /// `slopes` slopes that begin as `initial` (PyTorch's is 0.25): one for all channels, or as many as channels.
    ///
    /// # Errors
    /// [`Error::Argument`] for no slopes; a device's own errors.
    pub fn new(device: &Device, slopes: usize, initial: f64) -> Result<Self> {
        if slopes == 0 {
            let expected = "at least 1".into();
            return Err(Error::Argument { op: "Prelu::new", argument: "slopes", got: "0".into(), expected });
        }
        Ok(Self { weight: Parameter::new(Tensor::full(device, &[slopes], T::of(initial))?), saved: None })
    }

    fn run(&mut self, dy: &Tensor<T>, input_too: bool) -> Result<Option<Tensor<T>>> {
        let x = take(&mut self.saved, "Prelu")?;
        let mut dx = if input_too { Some(x.empty_like()?) } else { None };
        let (weight, dweight) = self.weight.for_backward()?;
        ops::prelu::backward(&x, weight, dy, dx.as_mut().map(Out::write), dweight)?;
        self.weight.accumulated();
        Ok(dx)
    }
}

impl<T: Compute> Layer<T> for Prelu<T> {
    fn describe(&self) -> String {
        format!("Prelu({})", self.weight.value().len())
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        let y = ops::prelu::forward(x, self.weight.value())?;
        self.saved = mode.keep(|| x.clone());
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        Ok(self.run(dy, true)?.expect("asked for"))
    }

    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        self.run(dy, false).map(drop)
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        vec![("weight".into(), &self.weight)]
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        vec![("weight".into(), &mut self.weight)]
    }
}
