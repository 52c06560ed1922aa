//! Gaussian pooling.

use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::{Real, Tensor};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use crate::layouts::{Wanted, ordered_like, window};

/// `y`
pub struct Forward;
/// `dx`, `dmean` and `dvar`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "gaussian_pool(Tensor x, Tensor mean, Tensor var, int kh, int kw, int sh, int sw, int ph, \
                                  int pw, bool ceil_mode, bool valid) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => {
            let mean: Tensor<<T as Real>::Compute> = arguments.tensor()?;
            let var: Tensor<<T as Real>::Compute> = arguments.tensor()?;
            let (window, normalize) = (window(arguments, false)?, normalize(arguments)?);
            Ok(gaussian_pool::forward(&x, &mean, &var, &window, normalize)?.into())
        })
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "gaussian_pool_backward(Tensor dy, Tensor x, Tensor mean, Tensor var, int kh, int kw, \
                                  int sh, int sw, int ph, int pw, bool ceil_mode, bool valid, bool need_dx, \
                                  bool need_dmean, bool need_dvar) -> (Tensor, Tensor, Tensor)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => {
            let x: Tensor<T> = arguments.tensor()?;
            let mean: Tensor<<T as Real>::Compute> = arguments.tensor()?;
            let var: Tensor<<T as Real>::Compute> = arguments.tensor()?;
            let (window, normalize) = (window(arguments, false)?, normalize(arguments)?);
            let dy = ordered_like(dy, &x)?;
            let mut dx = Wanted::like(arguments.bool()?, &x)?;
            let mut dmean = Wanted::like(arguments.bool()?, &mean)?;
            let mut dvar = Wanted::like(arguments.bool()?, &var)?;
            let (out, out_mean, out_var) = (dx.out(), dmean.out(), dvar.out());
            gaussian_pool::backward(&x, &mean, &var, &window, normalize, &dy, out, out_mean, out_var)?;
            let device = x.device();
            Ok((dx.or_empty(device)?, dmean.or_empty(device)?, dvar.or_empty(device)?).into())
        })
    }
}

/// `bool valid`
fn normalize(arguments: &mut Arguments<'_>) -> Result<Normalize> {
    Ok(if arguments.bool()? { Normalize::Valid } else { Normalize::Window })
}
