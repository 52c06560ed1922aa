//! Stochastic gradient descent with momentum: one parameter's step, by PyTorch's formula (`torch.optim.SGD`).
//!
//! ```text
//! g = gradient + weight_decay * value
//! velocity = momentum * velocity + g
//! value = value - learning_rate * velocity
//! ```
//! With Nesterov's momentum the last line takes `g + momentum * velocity` instead, and without a velocity `g`. A
//! velocity begins as zeros, which makes the first step PyTorch's too.
//!
//! The [`Settings`] are a tensor: a kernel reads them when it runs, so a new learning rate needs no new launch.

mod cpu;
mod gpu;

use crate::{Compute, Device, Error, Result, Tensor, check};

/// How far and in which manner a step goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The factor of the step; not negative.
    pub learning_rate: f64,
    /// The share of the last velocity that is kept; not negative.
    pub momentum: f64,
    /// The factor of the value that is added to its gradient; not negative.
    pub weight_decay: f64,
}

impl Settings {
    /// As [`step`] takes them, on `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a number that is negative or not finite; a device's own errors.
    pub fn to_tensor<T: Compute>(&self, device: &Device) -> Result<Tensor<T>> {
        let values = self.values()?;
        Tensor::from_slice(device, &[values.len()], &values)
    }

    /// Replaces what [`Settings::to_tensor`] gave by these, in stream order.
    ///
    /// # Errors
    /// As [`Settings::to_tensor`].
    pub fn write_to<T: Compute>(&self, tensor: &mut Tensor<T>) -> Result<()> {
        tensor.copy_from_slice(&self.values()?)
    }

    /// In the order of [`kernels::sgd::setting`].
    fn values<T: Compute>(&self) -> Result<[T; kernels::sgd::setting::COUNT]> {
        let named =
            [("learning_rate", self.learning_rate), ("momentum", self.momentum), ("weight_decay", self.weight_decay)];
        for (argument, value) in named {
            if !(value >= 0.0 && value.is_finite()) {
                let (got, expected) = (value.to_string(), "a finite number of at least 0".into());
                return Err(Error::Argument { op: "sgd.settings", argument, got, expected });
            }
        }
        Ok(named.map(|(_, value)| T::of(value)))
    }
}

/// A step whose arguments have been checked.
struct Step<'a, T: Compute> {
    settings: &'a Tensor<T>,
    gradient: &'a Tensor<T>,
    value: &'a mut Tensor<T>,
    velocity: Option<&'a mut Tensor<T>>,
    nesterov: bool,
}

/// Moves `value` by one step against `gradient`, and renews `velocity`, both of its shape; `settings` come from
/// [`Settings::to_tensor`].
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for tensors that do not go together; [`Error::DType`] for `f64` on a GPU; the
/// device's own errors.
pub fn step<T: Compute>(
    settings: &Tensor<T>,
    gradient: &Tensor<T>,
    value: &mut Tensor<T>,
    velocity: Option<&mut Tensor<T>>,
    nesterov: bool,
) -> Result<()> {
    const OP: &str = "sgd.step";
    check::like(OP, "gradient", gradient, value)?;
    check::device(OP, "settings", settings, value)?;
    check::shape(OP, "settings", settings, &[kernels::sgd::setting::COUNT])?;
    if let Some(velocity) = &velocity {
        check::like(OP, "velocity", velocity, value)?;
    }
    gradient.device().run(Step { settings, gradient, value, velocity, nesterov })
}
