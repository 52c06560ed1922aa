//! `swish._native`: importing it makes `torch.ops.swish.swish` and `torch.ops.swish.swish_backward`.

mod op;

use ferrolayer::{Real, Tensor};
use ferrolayer_torch::{Backward, Forward, Kept, TorchOp, operators};
use pyo3::prelude::*;

use crate::op::Swish;

impl<T: Real> TorchOp<T> for Swish {
    const FORWARD: &'static str = "swish(Tensor x, Tensor beta) -> Tensor";
    const BACKWARD: &'static str =
        "swish_backward(Tensor dy, Tensor x, Tensor beta, bool need_dx, bool need_dbeta) -> (Tensor, Tensor)";

    fn saved(kept: Kept<'_, T>) -> Tensor<T> {
        kept.inputs.data[0].clone()
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ferrolayer_torch::register(module.py(), "swish", &operators![Forward<Swish>, Backward<Swish>]).map(drop)
}
