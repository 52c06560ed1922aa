//! Neural-network layers whose GPU kernels are written in Rust.
//!
//! Each op of [`ops`] has a forward and a backward pass, for the CPU (rayon) and for NVIDIA GPUs (kernels in Rust,
//! compiled to PTX with a stock compiler). Which one runs is decided by where the tensors are: [`Device`]. [`nn`] makes
//! layers, losses and optimisers of them; [`testing`] holds what the passes are checked with, for users' own ops too.
//!
//! No CUDA toolkit is needed to build and no driver to start.

mod check;
mod element;
mod error;
mod tensor;

pub mod device;
pub mod nn;
pub mod ops;
pub mod testing;

pub use device::Device;
pub use element::{Compute, DType, Element, Real};
pub use error::{Error, Result};
/// The 16-bit element types.
pub use half::{bf16, f16};
pub use tensor::{Layout, Out, Tensor};

/// The README's example, compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeDocTests;
