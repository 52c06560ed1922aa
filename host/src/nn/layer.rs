//! What every layer does.

use super::{Mode, Parameter};
use crate::ops::Window;
use crate::{Compute, Error, Result, Tensor};

/// A pass forward and a pass backward, with the parameters and the state between them.
///
/// One backward belongs to the last forward in [`Mode::Train`] and uses up what that saved. Layers may go to another
/// thread.
pub trait Layer<T: Compute>: Send {
    /// What it is, with its settings, on one line: `MaxPool([2, 2])`.
    fn describe(&self) -> String;

    /// The output for `x`.
    ///
    /// # Errors
    /// The op's errors.
    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>>;

    /// The gradient of the input, given that of the output. Those of trainable parameters are added to what they hold.
    ///
    /// # Errors
    /// [`Error::NoForward`] without a forward in [`Mode::Train`] that no backward has used; the op's errors.
    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>>;

    /// As [`Layer::backward`] where no one needs the gradient of the input: for a model's first layer.
    ///
    /// # Errors
    /// As [`Layer::backward`].
    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        self.backward(dy).map(drop)
    }

    /// The parameters with their names, in an order that does not change.
    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        Vec::new()
    }

    /// As [`Layer::parameters`], to be changed.
    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        Vec::new()
    }

    /// Forgets the gradients: the next backward writes them anew instead of adding to them.
    fn zero_grad(&mut self) {
        for (_, parameter) in self.parameters_mut() {
            parameter.zero_grad();
        }
    }
}

/// What a forward in [`Mode::Train`] leaves for backward, taken out.
pub(super) fn take<S>(saved: &mut Option<S>, layer: &str) -> Result<S> {
    saved.take().ok_or_else(|| Error::NoForward { layer: layer.to_owned() })
}

/// What differs from a window's defaults, for [`Layer::describe`].
pub(super) fn describe_window(window: &Window) -> String {
    let Window { size, stride, padding, dilation, ceil_mode } = window;
    let mut text = format!("{size:?}");
    for (what, value, default) in
        [("stride", stride, size), ("padding", padding, &[0, 0]), ("dilation", dilation, &[1, 1])]
    {
        if value != default {
            text += &format!(", {what} {value:?}");
        }
    }
    if *ceil_mode {
        text += ", ceil_mode";
    }
    text
}
