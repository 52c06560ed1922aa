//! Scaling and shifting by two numbers in device memory.

use ferrolayer::ops::scale_add;
use ferrolayer::{Element, Out, Real, Tensor};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

/// `y`
pub struct Forward;
/// `dx`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "scale_add(Tensor x, Tensor scale, Tensor constant) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => {
            let scale = number::<<T as Real>::Compute>(arguments)?;
            let constant = number::<<T as Real>::Compute>(arguments)?;
            Ok(scale_add::forward(&x, &scale, &constant)?.into())
        })
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "scale_add_backward(Tensor dy, Tensor scale) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let scale = number::<<T as Real>::Compute>(arguments)?;
            let mut dx = dy.empty_like()?;
            scale_add::backward(&dy, &scale, Out::write(&mut dx))?;
            Ok(dx.into())
        })
    }
}

/// A tensor of one element, of any number of dimensions, as `[1]`.
fn number<T: Element>(arguments: &mut Arguments<'_>) -> Result<Tensor<T>> {
    let number = arguments.tensor::<T>()?;
    Ok(if number.len() == 1 { number.reshape(&[1])? } else { number })
}
