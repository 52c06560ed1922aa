//! A layer's tensor with its gradient.

use crate::{Compute, Out, Result, Tensor};

/// A tensor that belongs to a layer, is saved with it, and is trained unless it is fixed.
///
/// Gradients accumulate, as PyTorch's do: each backward adds to what is there, until [`Parameter::zero_grad`]. The
/// gradient's memory is kept for the next one.
#[derive(Clone, Debug)]
pub struct Parameter<T: Compute> {
    value: Tensor<T>,
    gradient: Option<Tensor<T>>,
    accumulated: bool,
    trainable: bool,
}

impl<T: Compute> Parameter<T> {
    /// A parameter to be trained.
    pub fn new(value: Tensor<T>) -> Self {
        Self { value, gradient: None, accumulated: false, trainable: true }
    }

    /// A parameter that stays as it is, and is only saved and loaded.
    pub fn fixed(value: Tensor<T>) -> Self {
        Self { trainable: false, ..Self::new(value) }
    }

    /// The value.
    pub fn value(&self) -> &Tensor<T> {
        &self.value
    }

    /// Replaces the value's elements, in place where no one else holds them.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) when there are not as many as elements; the device's own errors.
    pub fn set(&mut self, values: &[T]) -> Result<()> {
        self.value.copy_from_slice(values)
    }

    /// The sum of the gradients of all backwards since [`Parameter::zero_grad`]; none when there was none.
    pub fn gradient(&self) -> Option<&Tensor<T>> {
        self.gradient.as_ref().filter(|_| self.accumulated)
    }

    /// Whether backward gives it a gradient and an optimiser moves it.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Forgets the gradient: the next backward writes it anew.
    pub fn zero_grad(&mut self) {
        self.accumulated = false;
    }

    /// For a layer's backward: the value, and where its gradient goes unless the parameter is fixed. Once the pass has
    /// succeeded, call [`Parameter::accumulated`].
    ///
    /// # Errors
    /// The device's own errors.
    pub fn for_backward(&mut self) -> Result<(&Tensor<T>, Option<Out<'_, T>>)> {
        let Self { value, gradient, accumulated, trainable } = self;
        if !*trainable {
            return Ok((value, None));
        }
        let gradient = match gradient {
            Some(gradient) => gradient,
            none => none.insert(value.empty_like()?),
        };
        Ok((value, Some(if *accumulated { Out::add(gradient) } else { Out::write(gradient) })))
    }

    /// Says that a pass wrote or added to the gradient that [`Parameter::for_backward`] gave.
    ///
    /// It is said only after the pass, so that one which failed its checks, and wrote nothing, leaves no gradient.
    pub fn accumulated(&mut self) {
        self.accumulated = self.trainable;
    }

    /// For an optimiser: the value to be moved and the gradient, where there is one.
    pub fn for_step(&mut self) -> Option<(&mut Tensor<T>, &Tensor<T>)> {
        let gradient = self.gradient.as_ref().filter(|_| self.accumulated)?;
        Some((&mut self.value, gradient))
    }
}
