//! Layers that hold parameters and state, losses and optimisers: enough to train.
//!
//! [`Apply`] makes a layer of any op, a user's own among them. A [`Layer`] wraps an op: its forward keeps what backward needs, its backward gives the gradient of the input and adds
//! the gradients of its [`Parameter`]s to what they hold. Nothing here names a device: everything runs where the
//! parameters and inputs are, and nothing waits for a GPU but the functions that read values back.
//!
//! ```
//! use ferrolayer::nn::{Dense, Layer, Mode, Optimiser, Sequential, Sgd, SoftmaxCrossEntropy};
//! use ferrolayer::{Device, Tensor};
//!
//! # fn main() -> ferrolayer::Result<()> {
//! let device = Device::auto();
//! let mut model = Sequential::new()
//!     .then(Dense::builder(2, 8).relu().seed(1).build(&device)?)
//!     .then(Dense::builder(8, 2).seed(2).build(&device)?);
//! let mut loss = SoftmaxCrossEntropy::new();
//! let mut optimiser = Sgd::new(0.5).momentum(0.9);
//! // Exclusive or.
//! let x = Tensor::from_slice(&device, &[4, 2], &[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
//! let labels = Tensor::from_slice(&device, &[4], &[0, 1, 1, 0])?;
//! let mut last = f32::INFINITY;
//! for _ in 0..100 {
//!     model.zero_grad();
//!     let scores = model.forward(&x, Mode::Train)?;
//!     last = loss.forward(&scores, &labels, Mode::Train)?.to_vec()?[0];
//!     model.backward_parameters(&loss.backward()?)?;
//!     optimiser.step(&mut model)?;
//! }
//! assert!(last < 0.05);
//! # Ok(())
//! # }
//! ```

mod activation;
mod apply;
mod avg_pool;
mod dense;
mod file;
mod flatten;
mod gaussian_pool;
mod layer;
mod loss;
mod max_pool;
mod optimiser;
mod parameter;
mod residual;
mod scale_add;
mod sequential;
mod stochastic_pool;
#[cfg(test)]
mod tests;

pub use crate::op::Mode;
pub use activation::{Prelu, Relu};
pub use apply::Apply;
pub use avg_pool::AvgPool;
pub use dense::{Dense, DenseBuilder};
pub use file::{load, save};
pub use flatten::Flatten;
pub use gaussian_pool::{GaussianPool, Gaussians};
pub use layer::Layer;
pub use loss::SoftmaxCrossEntropy;
pub use max_pool::MaxPool;
pub use optimiser::{Adam, Optimiser, Sgd};
pub use parameter::Parameter;
pub use residual::Residual;
pub use scale_add::ScaleAdd;
pub use sequential::Sequential;
pub use stochastic_pool::StochasticPool;
