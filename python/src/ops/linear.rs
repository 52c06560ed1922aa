//! The fully connected layer without an activation, of which backward needs nothing but the inputs.

use ferrolayer::Tensor;
use ferrolayer::ops::dense::{self, Activation, Gradients, Saved};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use super::dense::precision;
use crate::layouts::Wanted;

/// `y`
pub struct Forward;
/// `dx`, `dw` and `db`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "linear(Tensor x, Tensor w, Tensor? b, int precision=1) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => {
            let w: Tensor<T> = arguments.tensor()?;
            let b: Option<Tensor<T>> = arguments.optional_tensor()?;
            let precision = precision(arguments)?;
            Ok(dense::forward_inference_in(precision, &x, &w, b.as_ref(), Activation::Identity)?.into())
        })
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "linear_backward(Tensor dy, Tensor x, Tensor w, bool need_dx, bool need_dw, \
                                  bool need_db, int precision=1) -> (Tensor, Tensor, Tensor)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let x: Tensor<T> = arguments.tensor()?;
            let w: Tensor<T> = arguments.tensor()?;
            let device = x.device();
            let mut dx = Wanted::like(arguments.bool()?, &x)?;
            let mut dw = Wanted::like(arguments.bool()?, &w)?;
            let mut db = Wanted::<T>::of_shape(arguments.bool()?, device, &w.shape()[..1])?;
            let gradients = Gradients { dx: dx.out(), dw: dw.out(), db: db.out(), dalpha: None };
            dense::backward_in(precision(arguments)?, &x, &w, Activation::Identity, &Saved::Identity, &dy, gradients)?;
            Ok((dx.or_empty(device)?, dw.or_empty(device)?, db.or_empty(device)?).into())
        })
    }
}
