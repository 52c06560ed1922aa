//! Max pooling as a layer.

use super::layer::{describe_window, take};
use super::{Layer, Mode};
use crate::ops::{Window, max_pool};
use crate::{Compute, Layout, Out, Result, Tensor};

/// [`max_pool`] as a layer.
#[derive(Clone, Debug)]
pub struct MaxPool {
    window: Window,
    /// The indices, and the input's shape and layout.
    saved: Option<(max_pool::Indices, Vec<usize>, Option<Layout>)>,
}

impl MaxPool {
    /// The maximum over each window.
    pub fn new(window: Window) -> Self {
        Self { window, saved: None }
    }
}

impl<T: Compute> Layer<T> for MaxPool {
    fn describe(&self) -> String {
        format!("MaxPool({})", describe_window(&self.window))
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        match mode {
            Mode::Eval => max_pool::forward_inference(x, &self.window),
            Mode::Train => {
                let max_pool::Output { y, indices } = max_pool::forward(x, &self.window)?;
                self.saved = Some((indices, x.shape().to_vec(), x.layout()));
                Ok(y)
            }
        }
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        let (indices, shape, layout) = take(&mut self.saved, "MaxPool")?;
        let mut dx = Tensor::empty_in(dy.device(), &shape, layout.unwrap_or_default())?;
        max_pool::backward(dy, &indices, &self.window, &shape, Out::write(&mut dx))?;
        Ok(dx)
    }
}
