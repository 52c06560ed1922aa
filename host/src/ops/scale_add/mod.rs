//! Scaling and shifting by two numbers that live in device memory, `y = x * s + c`.
//!
//! `s` and `c` are tensors of one element, `f32` also where `x` is of 16 bits. The kernel reads them when it runs: a new value needs neither a rebuild nor
//! a new launch. They are settings, not parameters: backward gives `dx = dy * s` only.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::{Out, Real, Result, Tensor, check};

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    x: &'a Tensor<T>,
    s: &'a Tensor<T::Compute>,
    c: &'a Tensor<T::Compute>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    dy: &'a Tensor<T>,
    s: &'a Tensor<T::Compute>,
    dx: Out<'a, T>,
}

/// `y = x * s + c`, with `x` of any shape, `s` and `c` of shape `[1]`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) and [`Error::Device`](crate::Error::Device) for tensors that do not go
/// together; [`Error::DType`](crate::Error::DType) for `f64` on a GPU; the device's own errors.
pub fn forward<T: Real>(x: &Tensor<T>, s: &Tensor<T::Compute>, c: &Tensor<T::Compute>) -> Result<Tensor<T>> {
    const OP: &str = "scale_add.forward";
    for (argument, tensor) in [("s", s), ("c", c)] {
        check::device(OP, argument, tensor, x)?;
        check::shape(OP, argument, tensor, &[1])?;
    }
    let mut y = x.empty_like()?;
    x.device().run(Forward { x, s, c, y: &mut y })?;
    Ok(y)
}

/// `dx = dy * s`.
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Real>(dy: &Tensor<T>, s: &Tensor<T::Compute>, dx: Out<'_, T>) -> Result<()> {
    const OP: &str = "scale_add.backward";
    check::device(OP, "s", s, dy)?;
    check::shape(OP, "s", s, &[1])?;
    check::like(OP, "dx", dx.tensor, dy)?;
    dy.device().run(Backward { dy, s, dx })
}
