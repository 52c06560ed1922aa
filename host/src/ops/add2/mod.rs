//! The sum of two tensors, `y = a + b`. Backward passes `dy` to both.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::{Out, Real, Result, Tensor, check};

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    a: &'a Tensor<T>,
    b: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
}

/// One input's share of a backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    dy: &'a Tensor<T>,
    dx: Out<'a, T>,
}

/// `y = a + b`, both of one shape.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) and [`Error::Device`](crate::Error::Device) when `b` is not like `a`;
/// [`Error::DType`](crate::Error::DType) for `f64` on a GPU; the device's own errors.
pub fn forward<T: Real>(a: &Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
    check::like("add2.forward", "b", b, a)?;
    let mut y = a.empty_like()?;
    a.device().run(Forward { a, b, y: &mut y })?;
    Ok(y)
}

/// `da = dy` and `db = dy`, each where asked for.
///
/// # Errors
/// As [`forward`], for `da` and `db` against `dy`.
pub fn backward<T: Real>(dy: &Tensor<T>, da: Option<Out<'_, T>>, db: Option<Out<'_, T>>) -> Result<()> {
    for (argument, out) in [("da", &da), ("db", &db)] {
        if let Some(out) = out {
            check::like("add2.backward", argument, out.tensor, dy)?;
        }
    }
    for dx in [da, db].into_iter().flatten() {
        dy.device().run(Backward { dy, dx })?;
    }
    Ok(())
}
