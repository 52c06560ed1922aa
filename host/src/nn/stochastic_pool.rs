//! Stochastic pooling as a layer.

use super::layer::{describe_window, take};
use super::{Layer, Mode};
use crate::ops::Window;
use crate::ops::stochastic_pool::{self, Random};
use crate::{Compute, Device, Layout, Out, Result, Tensor};

/// [`stochastic_pool`] as a layer: draws in training, means in inference.
///
/// Its random state is no parameter: it is not saved with the model.
#[derive(Clone, Debug)]
pub struct StochasticPool {
    window: Window,
    random: Random,
    /// The indices, and the input's shape and layout.
    saved: Option<(stochastic_pool::Indices, Vec<usize>, Option<Layout>)>,
}

impl StochasticPool {
    /// A draw from each window. Give each layer its own seed: with the same one two layers draw alike.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn new(device: &Device, window: Window, seed: u64) -> Result<Self> {
        Ok(Self::with_random(window, Random::new(device, seed)?))
    }

    /// A draw from each window, going on from this state.
    pub fn with_random(window: Window, random: Random) -> Self {
        Self { window, random, saved: None }
    }

    /// What the next forward in [`Mode::Train`] draws with.
    pub fn random(&self) -> &Random {
        &self.random
    }
}

impl<T: Compute> Layer<T> for StochasticPool {
    fn describe(&self) -> String {
        format!("StochasticPool({})", describe_window(&self.window))
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        match mode {
            Mode::Eval => stochastic_pool::forward_inference(x, &self.window),
            Mode::Train => {
                let stochastic_pool::Output { y, indices } =
                    stochastic_pool::forward(x, &self.window, &mut self.random)?;
                self.saved = Some((indices, x.shape().to_vec(), x.layout()));
                Ok(y)
            }
        }
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        let (indices, shape, layout) = take(&mut self.saved, "StochasticPool")?;
        let mut dx = Tensor::empty_in(dy.device(), &shape, layout.unwrap_or_default())?;
        stochastic_pool::backward(dy, &indices, &self.window, &shape, Out::write(&mut dx))?;
        Ok(dx)
    }
}
