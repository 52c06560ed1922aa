//! Stochastic pooling.

use ferrolayer::ops::stochastic_pool;
use ferrolayer::{Out, Tensor};
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use super::indices::{self, gradients, input_shape};
use crate::layouts::window;

/// `y` drawn by the seed and the offset in `state`, which stays as it is, and where each element was
pub struct Forward;
/// The mean by the draws' probabilities
pub struct Inference;
/// `dx`
pub struct Backward;

impl Operator for Forward {
    const SCHEMA: &'static str = "stochastic_pool(Tensor x, Tensor state, int kh, int kw, int sh, int sw, int ph, int pw, \
                                  bool ceil_mode) -> (Tensor y, Tensor indices)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        let state: Tensor<u64> = arguments.tensor()?;
        let window = window(arguments, false)?;
        with_real!(x, T => {
            let output = stochastic_pool::forward_at(&x, &window, &state)?;
            Ok((output.y, indices::give(output.indices)).into())
        })
    }
}

impl Operator for Inference {
    const SCHEMA: &'static str = "stochastic_pool_inference(Tensor x, int kh, int kw, int sh, int sw, int ph, int pw, \
                                  bool ceil_mode) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        let window = window(arguments, false)?;
        with_real!(x, T => Ok(stochastic_pool::forward_inference(&x, &window)?.into()))
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "stochastic_pool_backward(Tensor dy, Tensor indices, SymInt h, SymInt w, int kh, int kw, \
                                  int sh, int sw, int ph, int pw, bool ceil_mode) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        let indices = indices::take(arguments)?;
        let image = [arguments.size()?, arguments.size()?];
        let window = window(arguments, false)?;
        with_real!(dy, T => {
            let shape = input_shape(dy.shape(), image)?;
            let (dy, mut dx) = gradients(dy, &indices, image)?;
            stochastic_pool::backward(&dy, &indices, &window, &shape, Out::write(&mut dx))?;
            Ok(dx.into())
        })
    }
}
