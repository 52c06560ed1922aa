//! What went wrong, in words for who has arrays: Python's exceptions, without PyTorch's names.

use ferrolayer_torch::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};

/// The exception for an error in an operator.
pub fn raised(operator: &str, error: Error) -> PyErr {
    match error {
        Error::NotReal { argument, got } => PyTypeError::new_err(not_real(operator, argument, &without_torch(got))),
        Error::Argument { operator, argument, got, expected } => {
            let (got, expected) = (without_torch(&got), without_torch(&expected));
            PyTypeError::new_err(format!("{operator}: {argument} is {got}, expected {expected}"))
        }
        Error::Op(error) => of_op(error),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// What to say of a type that is not computed.
pub fn not_real(operator: &str, argument: &str, got: &str) -> String {
    format!(
        "{operator}: {argument} is {got}, expected float32, float64, float16 or bfloat16; convert it, as by \
         .astype(\"float32\")"
    )
}

fn of_op(error: ferrolayer::Error) -> PyErr {
    use ferrolayer::Error;
    match &error {
        Error::DType { op, argument, got, device, .. } => PyTypeError::new_err(format!(
            "{op}: {argument} is {}, which {device} does not compute; convert it to float32, float16 or bfloat16, or use \
             the CPU",
            super::abi::DlType::of(*got)
        )),
        Error::Device { op, argument, got, expected } => PyValueError::new_err(format!(
            "{op}: {argument} is on {got}, expected {expected} like the other arrays; move it there"
        )),
        Error::Shape { .. } | Error::Layout { .. } | Error::Argument { .. } => PyValueError::new_err(error.to_string()),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// PyTorch's words for types and conversions as arrays have them.
fn without_torch(text: &str) -> String {
    text.replace("torch.", "").replace(".to() makes it so", "convert it by .astype()").replace("a tensor", "an array")
}
