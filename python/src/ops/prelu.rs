//! Parametric rectified linear unit. Slopes are of the elements' type, or of what that is computed in.

use ferrolayer::Tensor;
use ferrolayer::ops::prelu;
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, TypedParameter, with_real};

use crate::layouts::{Wanted, ordered_like};

/// `y`
pub struct Forward;
/// `dx` and `dalpha`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "prelu(Tensor x, Tensor alpha) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => Ok(match arguments.parameter_of::<T>()? {
            TypedParameter::Same(alpha) => prelu::forward(&x, &alpha)?,
            TypedParameter::Wide(alpha) => prelu::forward(&x, &alpha)?,
        }.into()))
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str =
        "prelu_backward(Tensor dy, Tensor x, Tensor alpha, bool need_dx, bool need_dalpha) -> (Tensor, Tensor)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let x: Tensor<T> = arguments.tensor()?;
            let alpha = arguments.parameter_of::<T>()?;
            let dy = ordered_like(dy, &x)?;
            let mut dx = Wanted::like(arguments.bool()?, &x)?;
            let need_dalpha = arguments.bool()?;
            macro_rules! backward {
                ($alpha:ident) => {{
                    let mut dalpha = Wanted::like(need_dalpha, &$alpha)?;
                    prelu::backward(&x, &$alpha, &dy, dx.out(), dalpha.out())?;
                    Ok((dx.or_empty(x.device())?, dalpha.or_empty(x.device())?).into())
                }};
            }
            match alpha {
                TypedParameter::Same(alpha) => backward!(alpha),
                TypedParameter::Wide(alpha) => backward!(alpha),
            }
        })
    }
}
