//! A layer with a way around it.

use super::layer::take;
use super::{Layer, Mode, Parameter};
use crate::{Compute, Out, Result, Tensor, ops};

/// `y = x + inner(x)` (He et al., CVPR 2016, arXiv 1512.03385): [`ops::add2`] as a layer.
///
/// `inner` gives its input's shape. The parameters are the inner layer's, under their own names.
pub struct Residual<T: Compute> {
    inner: Box<dyn Layer<T>>,
    /// Whether there was a forward to go back from: the sum itself needs nothing of it.
    saved: Option<()>,
}

impl<T: Compute> Residual<T> {
    /// A way around `inner`, a [`Sequential`](super::Sequential) say.
    pub fn new(inner: impl Layer<T> + 'static) -> Self {
        Self { inner: Box::new(inner), saved: None }
    }
}

impl<T: Compute> Layer<T> for Residual<T> {
    fn describe(&self) -> String {
        format!("Residual({})", self.inner.describe())
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        let y = ops::add2::forward(x, &self.inner.forward(x, mode)?)?;
        self.saved = mode.keep(|| ());
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        take(&mut self.saved, "Residual")?;
        let mut dx = self.inner.backward(dy)?;
        ops::add2::backward(dy, Some(Out::add(&mut dx)), None)?;
        Ok(dx)
    }

    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        take(&mut self.saved, "Residual")?;
        self.inner.backward_parameters(dy)
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        self.inner.parameters()
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        self.inner.parameters_mut()
    }
}
