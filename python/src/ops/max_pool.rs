//! Maximum pooling.

use ferrolayer::Out;
use ferrolayer::ops::max_pool;
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};

use super::indices::{self, gradients, input_shape};
use crate::layouts::window;

/// `y`, and where each maximum was
pub struct Forward;
/// `y` alone
pub struct Inference;
/// `dx`
pub struct Backward;
/// PyTorch's indices, `h * W + w` of each maximum, in 32 bits
pub struct FlatIndices;

impl Operator for Forward {
    const SCHEMA: &'static str = "max_pool(Tensor x, int kh, int kw, int sh, int sw, int ph, int pw, int dh, int dw, \
                                  bool ceil_mode) -> (Tensor y, Tensor indices)";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        let window = window(arguments, true)?;
        with_real!(x, T => {
            let output = max_pool::forward(&x, &window)?;
            Ok((output.y, indices::give(output.indices)).into())
        })
    }
}

impl Operator for Inference {
    const SCHEMA: &'static str = "max_pool_inference(Tensor x, int kh, int kw, int sh, int sw, int ph, int pw, int dh, \
                                  int dw, bool ceil_mode) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        let window = window(arguments, true)?;
        with_real!(x, T => Ok(max_pool::forward_inference(&x, &window)?.into()))
    }
}

impl Operator for Backward {
    const SCHEMA: &'static str = "max_pool_backward(Tensor dy, Tensor indices, SymInt h, SymInt w, int kh, int kw, int sh, \
                                  int sw, int ph, int pw, int dh, int dw, bool ceil_mode) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        let indices = indices::take(arguments)?;
        let image = [arguments.size()?, arguments.size()?];
        let window = window(arguments, true)?;
        with_real!(dy, T => {
            let shape = input_shape(dy.shape(), image)?;
            let (dy, mut dx) = gradients(dy, &indices, image)?;
            max_pool::backward(&dy, &indices, &window, &shape, Out::write(&mut dx))?;
            Ok(dx.into())
        })
    }
}

impl Operator for FlatIndices {
    const SCHEMA: &'static str = "max_pool_flat_indices(Tensor indices, SymInt h, SymInt w, int kh, int kw, int sh, int sw, \
                                  int ph, int pw, int dh, int dw, bool ceil_mode) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let indices = indices::take(arguments)?;
        let image = [arguments.size()?, arguments.size()?];
        let window = window(arguments, true)?;
        let shape = input_shape(indices.shape(), image)?;
        Ok(max_pool::flat_indices(&indices, &window, &shape)?.into())
    }
}
