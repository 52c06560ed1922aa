//! PyTorch operators from Rust, without C++.
//!
//! An [`Operator`] is a schema and a function of [`ferrolayer`] tensors. [`register`] makes PyTorch know a list of them; a
//! Python extension module (PyO3) does that in one line. PyTorch's tensors become [`ferrolayer::Tensor`]s and back without
//! a copy, results come from PyTorch's own allocators, and work on a GPU is queued on PyTorch's current stream.
//!
//! Nothing is linked against PyTorch or Python: libtorch's C functions are found in the process when operators are
//! registered, so that one built module serves every version that has them (2.8 and later). For versions before, and with
//! `FERROLAYER_TORCH_FALLBACK=1`, the same operators are Python functions; a call by the dispatcher then takes longer
//! ([`Door`]).
//!
//! ```ignore
//! use ferrolayer_torch::{Arguments, Operator, Outputs, Result, operators, with_real};
//! use pyo3::prelude::*;
//!
//! struct Add;
//!
//! impl Operator for Add {
//!     const SCHEMA: &'static str = "add(Tensor a, Tensor b) -> Tensor";
//!
//!     fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
//!         let a = arguments.any()?;
//!         with_real!(a, T => Ok(ferrolayer::ops::add2::forward(&a, &arguments.tensor::<T>()?)?.into()))
//!     }
//! }
//!
//! #[pymodule]
//! fn my_ops(module: &Bound<'_, PyModule>) -> PyResult<()> {
//!     ferrolayer_torch::register(module.py(), "my_ops", &operators![Add]).map(drop)
//! }
//! ```
//!
//! An op that keeps the contract of [`ferrolayer::op::Op`] needs not even that: see [`TorchOp`].
//!
//! Then, in Python:
//!
//! ```python
//! import torch, my_ops
//! torch.ops.my_ops.add(torch.ones(3), torch.ones(3))
//! ```
//!
//! The module's crate is a `cdylib` with `panic = "unwind"`, cargo's default: an error becomes an exception, which unwinds.

mod arguments;
mod builtin;
mod devices;
mod direct;
mod error;
mod floor;
mod gradients;
mod handle;
mod layout;
mod library;
mod loan;
mod op;
mod operator;
mod python;
mod python_symbols;
mod recorded;
mod schema;
mod stack;
mod symbols;
mod threads;
mod value;

pub use arguments::{Arguments, TypedParameter};
pub use error::{Error, Result};
/// The library whose tensors operators take.
pub use ferrolayer;
pub use gradients::{Wanted, ordered_like};
pub use library::{Door, register};
pub use op::{Backward, Forward, Kept, TorchOp, TorchOps};
pub use operator::{Entry, Operator, Outputs};
pub use value::{AnyTensor, Value};
