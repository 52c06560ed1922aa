//! Neural-network layers whose GPU kernels are written in Rust.
//!
//! Each op of [`ops`] has a forward and a backward pass, for the CPU (rayon) and for NVIDIA GPUs (kernels in Rust,
//! compiled to PTX with a stock compiler). Which one runs is decided by where the tensors are: [`Device`]. [`nn`] makes
//! layers, losses and optimisers of them. Every op keeps one contract, [`op::Op`], and a user's own op keeps the same one;
//! [`testing`] checks any op against it.
//!
//! No CUDA toolkit is needed to build and no driver to start.

mod element;
mod error;
mod layout;
mod out;
mod recent;
mod tensor;

pub mod check;
pub mod device;
pub mod nn;
pub mod op;
pub mod ops;
pub mod testing;

pub use device::Device;
pub use element::{Compute, DType, Element, ParameterOf, Real};
pub use error::{Error, Result};
/// The 16-bit element types.
pub use half::{bf16, f16};
pub use layout::Layout;
/// The functions of [`Compute`] types: `exp`, `sqrt` and the like.
pub use num_traits::Float;
pub use out::Out;
pub use tensor::Tensor;

/// The README's example, compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeDocTests;
