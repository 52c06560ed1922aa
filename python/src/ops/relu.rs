//! Rectified linear unit.

use ferrolayer::ops::relu;
use ferrolayer::{Out, Tensor};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use crate::layouts::ordered_like;

/// `y`
pub struct Forward;
/// `x = relu(x)`
pub struct InPlace;
/// `dx`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "relu(Tensor x) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => Ok(relu::forward(&x)?.into()))
    }
}

impl Operator for InPlace {
    const SCHEMA: &'static str = "relu_(Tensor(a!) x) -> ()";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => {
            let mut x = x;
            Ok(relu::forward_in_place(&mut x)?.into())
        })
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "relu_backward(Tensor dy, Tensor y) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let y: Tensor<T> = arguments.tensor()?;
            let dy = ordered_like(dy, &y)?;
            let mut dx = y.empty_like()?;
            relu::backward(&y, &dy, Out::write(&mut dx))?;
            Ok(dx.into())
        })
    }
}
