//! Average pooling as a layer.

use super::layer::{describe_window, take};
use super::{Layer, Mode};
use crate::ops::Window;
use crate::ops::avg_pool::{self, Divisor};
use crate::{Compute, Layout, Out, Result, Tensor};

/// [`avg_pool`] as a layer.
#[derive(Clone, Debug)]
pub struct AvgPool {
    window: Window,
    divisor: Divisor,
    /// The input's shape and layout.
    saved: Option<(Vec<usize>, Option<Layout>)>,
}

impl AvgPool {
    /// The average over each window, padding included.
    pub fn new(window: Window) -> Self {
        Self::with_divisor(window, Divisor::default())
    }

    /// The average over each window, over this divisor.
    pub fn with_divisor(window: Window, divisor: Divisor) -> Self {
        Self { window, divisor, saved: None }
    }
}

impl<T: Compute> Layer<T> for AvgPool {
    fn describe(&self) -> String {
        format!("AvgPool({})", describe_window(&self.window))
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        let y = avg_pool::forward(x, &self.window, &self.divisor)?;
        self.saved = mode.keep(|| (x.shape().to_vec(), x.layout()));
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        let (shape, layout) = take(&mut self.saved, "AvgPool")?;
        let mut dx = Tensor::empty_in(dy.device(), &shape, layout.unwrap_or_default())?;
        avg_pool::backward(dy, &self.window, &self.divisor, &shape, Out::write(&mut dx))?;
        Ok(dx)
    }
}
