//! A scale and a shift that are set, not trained.

use super::layer::take;
use super::{Layer, Mode, Parameter};
use crate::{Compute, Device, Out, Result, Tensor, ops};

/// [`ops::scale_add`] as a layer: `y = x * scale + shift`, to bring inputs to a range, say.
///
/// Both numbers are fixed parameters: saved and loaded with the model, and left alone by optimisers.
#[derive(Clone, Debug)]
pub struct ScaleAdd<T: Compute> {
    scale: Parameter<T>,
    shift: Parameter<T>,
    /// Whether there was a forward to go back from: backward needs nothing of it.
    saved: Option<()>,
}

impl<T: Compute> ScaleAdd<T> {
    /// The layer with these two numbers.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn new(device: &Device, scale: T, shift: T) -> Result<Self> {
        let fixed = |value| Tensor::full(device, &[1], value).map(Parameter::fixed);
        Ok(Self { scale: fixed(scale)?, shift: fixed(shift)?, saved: None })
    }

    /// Replaces both numbers where they are; passes queued before still use the old ones.
    ///
    /// # Errors
    /// The device's own errors.
    pub fn set(&mut self, scale: T, shift: T) -> Result<()> {
        self.scale.set(&[scale])?;
        self.shift.set(&[shift])
    }
}

impl<T: Compute> Layer<T> for ScaleAdd<T> {
    fn describe(&self) -> String {
        "ScaleAdd".into()
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        let y = ops::scale_add::forward(x, self.scale.value(), self.shift.value())?;
        self.saved = mode.keep(|| ());
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        take(&mut self.saved, "ScaleAdd")?;
        let mut dx = dy.empty_like()?;
        ops::scale_add::backward(dy, self.scale.value(), Out::write(&mut dx))?;
        Ok(dx)
    }

    fn backward_parameters(&mut self, _: &Tensor<T>) -> Result<()> {
        take(&mut self.saved, "ScaleAdd")
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        vec![("scale".into(), &self.scale), ("shift".into(), &self.shift)]
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        vec![("scale".into(), &mut self.scale), ("shift".into(), &mut self.shift)]
    }
}
