//! The exponential function kept within bounds, `y = exp(min(max(x, -40), 40))`: what makes a positive number of an
//! unbounded parameter.
//!
//! `y` is finite and positive for every `x` but NaN, and so are `1 / y`, `y²` and `1 / y²` in `f32`: e⁴⁰ is 2.4e17.
//! Backward needs `x` and `y`: `dx = dy * y` where `-40 <= x <= 40`, else 0. NaN in, NaN out.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::{Compute, Out, Result, Tensor, check};

pub use kernels::exp::LIMIT;

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Compute> {
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Compute> {
    x: &'a Tensor<T>,
    y: &'a Tensor<T>,
    dy: &'a Tensor<T>,
    dx: Out<'a, T>,
}

/// `y = exp(x)` within the bounds, of any shape.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for `f64` on a GPU; the device's own errors.
pub fn forward<T: Compute>(x: &Tensor<T>) -> Result<Tensor<T>> {
    let mut y = x.empty_like()?;
    x.device().run(Forward { x, y: &mut y })?;
    Ok(y)
}

/// `dx = dy * y` within the bounds, else 0; `y` is what [`forward`] gave for `x`, and all are of its shape.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) and [`Error::Device`](crate::Error::Device) for tensors that do not go
/// together; else as [`forward`].
pub fn backward<T: Compute>(x: &Tensor<T>, y: &Tensor<T>, dy: &Tensor<T>, dx: Out<'_, T>) -> Result<()> {
    const OP: &str = "exp.backward";
    check::like(OP, "y", y, x)?;
    check::like(OP, "dy", dy, x)?;
    check::like(OP, "dx", dx.tensor, x)?;
    x.device().run(Backward { x, y, dy, dx })
}
