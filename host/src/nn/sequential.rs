//! Layers one after another.

use std::fmt::{Display, Formatter};

use super::layer::take;
use super::{Layer, Mode, Parameter};
use crate::{Compute, Result, Tensor};

/// Layers, each of which takes what the one before gives.
///
/// Parameters are named by path, as PyTorch names them: `0.weight` is the first layer's `weight`.
#[derive(Default)]
pub struct Sequential<T: Compute> {
    layers: Vec<Box<dyn Layer<T>>>,
    /// Whether there was a forward to go back from.
    saved: Option<()>,
}

impl<T: Compute> Sequential<T> {
    /// No layers yet: the output is the input.
    pub fn new() -> Self {
        Self { layers: Vec::new(), saved: None }
    }

    /// With one more layer at the end.
    #[must_use]
    pub fn then(mut self, layer: impl Layer<T> + 'static) -> Self {
        self.push(Box::new(layer));
        self
    }

    /// Adds a layer at the end.
    pub fn push(&mut self, layer: Box<dyn Layer<T>>) {
        self.layers.push(layer);
        self.saved = None;
    }

    /// The layers, in order, each on its own.
    pub fn into_layers(self) -> Vec<Box<dyn Layer<T>>> {
        self.layers
    }

    /// The layers, in order.
    pub fn layers(&self) -> &[Box<dyn Layer<T>>] {
        &self.layers
    }
}

impl<T: Compute> Layer<T> for Sequential<T> {
    fn describe(&self) -> String {
        let layers: Vec<String> = self.layers.iter().map(|layer| layer.describe()).collect();
        format!("Sequential({})", layers.join(", "))
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        let mut y = x.clone();
        for layer in &mut self.layers {
            y = layer.forward(&y, mode)?;
        }
        self.saved = mode.keep(|| ());
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        take(&mut self.saved, "Sequential")?;
        let mut d = dy.clone();
        for layer in self.layers.iter_mut().rev() {
            d = layer.backward(&d)?;
        }
        Ok(d)
    }

    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        take(&mut self.saved, "Sequential")?;
        let Some((first, others)) = self.layers.split_first_mut() else {
            return Ok(());
        };
        let mut d = dy.clone();
        for layer in others.iter_mut().rev() {
            d = layer.backward(&d)?;
        }
        first.backward_parameters(&d)
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        let layers = self.layers.iter().enumerate();
        layers
            .flat_map(|(i, layer)| layer.parameters().into_iter().map(move |(name, p)| (format!("{i}.{name}"), p)))
            .collect()
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        let layers = self.layers.iter_mut().enumerate();
        layers
            .flat_map(|(i, layer)| layer.parameters_mut().into_iter().map(move |(name, p)| (format!("{i}.{name}"), p)))
            .collect()
    }
}

/// One layer a line.
impl<T: Compute> Display for Sequential<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (i, layer) in self.layers.iter().enumerate() {
            writeln!(f, "{i}: {}", layer.describe())?;
        }
        Ok(())
    }
}
