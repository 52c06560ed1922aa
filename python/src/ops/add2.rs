//! The sum of two tensors; the gradient of each is the sum's.

use ferrolayer::Tensor;
use ferrolayer::ops::add2;
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use crate::layouts::ordered_like;

/// `y`
pub struct Forward;

impl Operator for Forward {
    const SCHEMA: &'static str = "add2(Tensor a, Tensor b) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let a = arguments.any()?;
        with_real!(a, T => {
            let b: Tensor<T> = arguments.tensor()?;
            Ok(add2::forward(&a, &ordered_like(b, &a)?)?.into())
        })
    }
}
