//! The Rust half of the Python package `ferrolayer`: its module `ferrolayer._native`.
//!
//! Importing it needs neither torch nor a driver. The Python half is in `python/ferrolayer`.

mod arrays;
mod doctor;
mod layouts;
mod ops;

use pyo3::prelude::*;

/// What `import ferrolayer` loads.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(register, module)?)?;
    module.add_class::<arrays::Array>()?;
    module.add_function(wrap_pyfunction!(arrays::array_functions, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::doctor, module)?)
}

/// Makes the operators known to PyTorch, in the namespace `ferrolayer`; imports torch. A second call does nothing.
///
/// Returns by which way PyTorch calls them: "c", libtorch's C functions, or "fallback", Python.
#[pyfunction]
fn register(py: Python<'_>) -> PyResult<&'static str> {
    Ok(ferrolayer_torch::register(py, "ferrolayer", &ops::ALL)?.name())
}
