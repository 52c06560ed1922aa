//! Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980): one parameter's step, by PyTorch's formula (`torch.optim.Adam`).
//!
//! ```text
//! g = gradient + weight_decay * value
//! first = beta1 * first + (1 - beta1) * g
//! second = beta2 * second + (1 - beta2) * g²
//! value = value - rate * first / (sqrt(second) * correction + epsilon)
//! ```
//! with `rate = learning_rate / (1 - beta1^t)` and `correction = 1 / sqrt(1 - beta2^t)` in step `t = 1, 2, ..`. Both
//! moments begin as zeros.
//!
//! All that changes from step to step is the [`Clock`]'s, in device memory: [`Clock::advance`] counts a step and renews
//! `rate` and `correction` there, once for all parameters, so a captured graph counts on with each replay.

mod clock;
mod cpu;
mod gpu;

pub use clock::{Clock, Settings};

use crate::{Compute, Result, Tensor, check};

/// A count whose arguments have been checked.
struct Advance<'a, T: Compute> {
    settings: &'a Tensor<T>,
    count: &'a mut Tensor<u32>,
    rates: &'a mut Tensor<T>,
}

/// A step whose arguments have been checked.
struct Step<'a, T: Compute> {
    settings: &'a Tensor<T>,
    rates: &'a Tensor<T>,
    gradient: &'a Tensor<T>,
    value: &'a mut Tensor<T>,
    first: &'a mut Tensor<T>,
    second: &'a mut Tensor<T>,
}

/// Moves `value` by one step against `gradient`, and renews both moments; all four are of one shape. The clock has been
/// advanced for this step.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) and [`Error::Device`](crate::Error::Device) for tensors that do not go
/// together; [`Error::Argument`](crate::Error::Argument) for a clock that was never advanced;
/// [`Error::DType`](crate::Error::DType) for `f64` on a GPU; the device's own errors.
pub fn step<T: Compute>(
    clock: &Clock<T>,
    gradient: &Tensor<T>,
    value: &mut Tensor<T>,
    first: &mut Tensor<T>,
    second: &mut Tensor<T>,
) -> Result<()> {
    const OP: &str = "adam.step";
    check::like(OP, "gradient", gradient, value)?;
    check::like(OP, "first", first, value)?;
    check::like(OP, "second", second, value)?;
    let (settings, rates) = clock.read(OP, value)?;
    gradient.device().run(Step { settings, rates, gradient, value, first, second })
}
