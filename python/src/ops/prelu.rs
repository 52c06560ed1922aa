//! Parametric rectified linear unit.

use ferrolayer::ops::prelu;
use ferrolayer::{Real, Tensor};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use crate::layouts::{Wanted, ordered_like};

/// `y`
pub struct Forward;
/// `dx` and `dalpha`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "prelu(Tensor x, Tensor alpha) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => {
            let alpha: Tensor<<T as Real>::Compute> = arguments.tensor()?;
            Ok(prelu::forward(&x, &alpha)?.into())
        })
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str =
        "prelu_backward(Tensor dy, Tensor x, Tensor alpha, bool need_dx, bool need_dalpha) -> (Tensor, Tensor)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let x: Tensor<T> = arguments.tensor()?;
            let alpha: Tensor<<T as Real>::Compute> = arguments.tensor()?;
            let dy = ordered_like(dy, &x)?;
            let mut dx = Wanted::like(arguments.bool()?, &x)?;
            let mut dalpha = Wanted::like(arguments.bool()?, &alpha)?;
            prelu::backward(&x, &alpha, &dy, dx.out(), dalpha.out())?;
            Ok((dx.or_empty(x.device())?, dalpha.or_empty(x.device())?).into())
        })
    }
}
