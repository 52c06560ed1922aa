//! Rectified linear unit: `y = x` where `x > 0`, else 0 (Nair & Hinton, ICML 2010). NaN stays NaN.
//!
//! Backward needs only `y`: `dx = dy` where `y > 0` or NaN, else 0.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::{Out, Real, Result, Tensor, check};

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    /// Without it, what `y` holds.
    x: Option<&'a Tensor<T>>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    y: &'a Tensor<T>,
    dy: &'a Tensor<T>,
    dx: Out<'a, T>,
}

/// `y = relu(x)`, of any shape.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for `f64` on a GPU; the device's own errors.
pub fn forward<T: Real>(x: &Tensor<T>) -> Result<Tensor<T>> {
    let mut y = x.empty_like()?;
    x.device().run(Forward { x: Some(x), y: &mut y })?;
    Ok(y)
}

/// `x = relu(x)`: no memory is taken, unless `x` is shared with another tensor, which keeps what it holds.
///
/// Backward needs no more than this: [`backward`] takes the output.
///
/// # Errors
/// As [`forward`].
pub fn forward_in_place<T: Real>(x: &mut Tensor<T>) -> Result<()> {
    let device = x.device().clone();
    device.run(Forward { x: None, y: x })
}

/// `dx = dy` where `y > 0`, else 0; `y` is what [`forward`] gave, and `dy`, `dx` are of its shape.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) and [`Error::Device`](crate::Error::Device) for tensors that do not go
/// together; else as [`forward`].
pub fn backward<T: Real>(y: &Tensor<T>, dy: &Tensor<T>, dx: Out<'_, T>) -> Result<()> {
    const OP: &str = "relu.backward";
    check::like(OP, "dy", dy, y)?;
    check::like(OP, "dx", dx.tensor, y)?;
    y.device().run(Backward { y, dy, dx })
}
