//! The fully connected layer with its activation.

use ferrolayer::ops::dense::{self, Activation, Gradients, Precision, Saved};
use ferrolayer::{Real, Tensor};
use ferrolayer_torch::{AnyTensor, Arguments, Error, Operator, Outputs, Result, with_real};

use crate::layouts::Wanted;

/// `y`, and the `z` that PReLU's backward pass needs
pub struct Forward;
/// `dx`, `dw`, `db` and `dalpha`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "dense(Tensor x, Tensor w, Tensor? b, Tensor? alpha, int activation, bool save, \
                                  int precision=1) -> (Tensor y, Tensor saved)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => {
            let w: Tensor<T> = arguments.tensor()?;
            let b: Option<Tensor<T>> = arguments.optional_tensor()?;
            let alpha: Option<Tensor<<T as Real>::Compute>> = arguments.optional_tensor()?;
            let activation = activation::<T>(arguments, alpha.as_ref())?;
            let nothing = || Tensor::<T>::empty(x.device(), &[0]);
            let (save, precision) = (arguments.bool()?, precision(arguments)?);
            // ReLU's backward pass takes the output, which need not be given twice.
            if matches!(activation, Activation::Prelu(_)) && save {
                let output = dense::forward_in(precision, &x, &w, b.as_ref(), activation)?;
                let saved = match output.saved {
                    Saved::Prelu { z } => z,
                    Saved::Identity | Saved::Relu { .. } => nothing()?,
                };
                return Ok((output.y, saved).into());
            }
            Ok((dense::forward_inference_in(precision, &x, &w, b.as_ref(), activation)?, nothing()?).into())
        })
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "dense_backward(Tensor dy, Tensor x, Tensor w, Tensor? alpha, Tensor saved, \
                                  int activation, bool need_dx, bool need_dw, bool need_db, bool need_dalpha, \
                                  int precision=1) -> (Tensor, Tensor, Tensor, Tensor)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let x: Tensor<T> = arguments.tensor()?;
            let w: Tensor<T> = arguments.tensor()?;
            let alpha: Option<Tensor<<T as Real>::Compute>> = arguments.optional_tensor()?;
            let saved = arguments.any()?;
            let activation = activation::<T>(arguments, alpha.as_ref())?;
            let saved = saved_for(activation, saved)?;
            let device = x.device();
            let mut dx = Wanted::like(arguments.bool()?, &x)?;
            let mut dw = Wanted::like(arguments.bool()?, &w)?;
            let mut db = Wanted::<T>::of_shape(arguments.bool()?, device, &w.shape()[..1])?;
            let slopes = alpha.as_ref().map_or(&[0][..], Tensor::shape);
            let mut dalpha = Wanted::<<T as Real>::Compute>::of_shape(arguments.bool()?, device, slopes)?;
            let gradients = Gradients { dx: dx.out(), dw: dw.out(), db: db.out(), dalpha: dalpha.out() };
            dense::backward_in(precision(arguments)?, &x, &w, activation, &saved, &dy, gradients)?;
            Ok((dx.or_empty(device)?, dw.or_empty(device)?, db.or_empty(device)?, dalpha.or_empty(device)?).into())
        })
    }
}

/// `int activation`: 0 for none, 1 for ReLU, 2 for PReLU.
fn activation<'a, T: Real>(
    arguments: &mut Arguments<'_>,
    alpha: Option<&'a Tensor<T::Compute>>,
) -> Result<Activation<'a, T>> {
    match (arguments.int()?, alpha) {
        (0, _) => Ok(Activation::Identity),
        (1, _) => Ok(Activation::Relu),
        (2, Some(alpha)) => Ok(Activation::Prelu(alpha)),
        (number, _) => Err(wrong("activation", number.to_string(), "0 (none), 1 (ReLU) or, with alpha, 2 (PReLU)")),
    }
}

/// `int precision`, of f32's products: 0 for f32 arithmetic, 1 for parts, 2 for tf32.
pub fn precision(arguments: &mut Arguments<'_>) -> Result<Precision> {
    match arguments.int()? {
        0 => Ok(Precision::F32),
        1 => Ok(Precision::F32Split),
        2 => Ok(Precision::Tf32),
        number => Err(wrong("precision", number.to_string(), "0 (f32), 1 (f32_split) or 2 (tf32)")),
    }
}

fn saved_for<T: Real>(activation: Activation<'_, T>, saved: AnyTensor) -> Result<Saved<T>> {
    let got = saved.dtype_name();
    let saved = match activation {
        Activation::Identity => Some(Saved::Identity),
        Activation::Relu => saved.of().map(|y| Saved::Relu { y }),
        Activation::Prelu(_) => saved.of().map(|z| Saved::Prelu { z }),
    };
    saved.ok_or_else(|| wrong("saved", got.into(), "what the forward pass gave: y for ReLU, saved for PReLU"))
}

fn wrong(argument: &'static str, got: String, expected: &str) -> Error {
    Error::Argument { operator: "dense", argument, got, expected: expected.into() }
}
