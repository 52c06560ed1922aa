//! Average pooling.

use std::num::NonZero;

use ferrolayer::Out;
use ferrolayer::ops::avg_pool::{self, Divisor};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use super::indices::{gradients_in, input_shape};
use crate::layouts::window;

/// `y`
pub struct Forward;
/// `dx`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "avg_pool(Tensor x, int kh, int kw, int sh, int sw, int ph, int pw, bool ceil_mode, \
                                  bool count_include_pad, int divisor_override) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        let (window, divisor) = (window(arguments, false)?, divisor(arguments)?);
        with_real!(x, T => Ok(avg_pool::forward(&x, &window, &divisor)?.into()))
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "avg_pool_backward(Tensor dy, SymInt h, SymInt w, int kh, int kw, int sh, int sw, int ph, \
                                  int pw, bool ceil_mode, bool count_include_pad, int divisor_override) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        let image = [arguments.size()?, arguments.size()?];
        let (window, divisor) = (window(arguments, false)?, divisor(arguments)?);
        with_real!(dy, T => {
            let shape = input_shape(dy.shape(), image)?;
            let (dy, mut dx) = gradients_in(dy.layout().unwrap_or_default(), dy, image)?;
            avg_pool::backward(&dy, &window, &divisor, &shape, Out::write(&mut dx))?;
            Ok(dx.into())
        })
    }
}

/// `bool count_include_pad, int divisor_override`, of which 0 is none.
fn divisor(arguments: &mut Arguments<'_>) -> Result<Divisor> {
    let count_include_pad = arguments.bool()?;
    Ok(Divisor { count_include_pad, divisor_override: NonZero::new(arguments.int()?) })
}
