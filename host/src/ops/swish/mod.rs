//! Swish, `y = x * sigmoid(beta * x)` (Ramachandran et al., arXiv 1710.05941).
//!
//! `beta` is one number for all, `[1]`, and `f32` also where `x` is of 16 bits. Backward needs `x`. With
//! `s = sigmoid(beta * x)`:
//! - `dx = dy * s * (1 + beta * x * (1 - s))`;
//! - `dbeta = sum of dy * x² * s * (1 - s)`, over all elements.
//!
//! NaN in, NaN out.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::{Out, Real, Result, Tensor, check};

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    x: &'a Tensor<T>,
    beta: &'a Tensor<T::Compute>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    x: &'a Tensor<T>,
    beta: &'a Tensor<T::Compute>,
    dy: &'a Tensor<T>,
    dx: Option<Out<'a, T>>,
    dbeta: Option<Out<'a, T::Compute>>,
}

/// `y = swish(x)`, with `x` of any shape and `beta` of shape `[1]`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) and [`Error::Device`](crate::Error::Device) for tensors that do not go
/// together; [`Error::DType`](crate::Error::DType) for `f64` on a GPU; the device's own errors.
pub fn forward<T: Real>(x: &Tensor<T>, beta: &Tensor<T::Compute>) -> Result<Tensor<T>> {
    check::parameter("swish.forward", "beta", beta, x, &[1])?;
    let mut y = x.empty_like()?;
    x.device().run(Forward { x, beta, y: &mut y })?;
    Ok(y)
}

/// Both gradients, each where asked for; `dx` is of `x`'s shape, `dbeta` of `beta`'s.
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Real>(
    x: &Tensor<T>,
    beta: &Tensor<T::Compute>,
    dy: &Tensor<T>,
    dx: Option<Out<'_, T>>,
    dbeta: Option<Out<'_, T::Compute>>,
) -> Result<()> {
    const OP: &str = "swish.backward";
    check::parameter(OP, "beta", beta, x, &[1])?;
    check::like(OP, "dy", dy, x)?;
    check::gradient(OP, "dx", &dx, x)?;
    check::gradient(OP, "dbeta", &dbeta, beta)?;
    x.device().run(Backward { x, beta, dy, dx, dbeta })
}
