//! One folder per op: `mod.rs` says what it computes and checks the arguments, `cpu.rs` and `gpu.rs` compute it.
//!
//! Every pass comes the same way: a function of the op's module checks shapes and devices once, makes a struct of what
//! the pass needs, and hands it to the device of its first input ([`Device::run`](crate::Device::run)). `contract.rs` makes
//! an [`Op`](crate::op::Op) of the functions.

mod parts;
mod pixels;
mod planes;
mod route;
mod rows;
mod window;

pub mod adam;
pub mod add2;
pub mod avg_pool;
pub mod dense;
pub mod exp;
pub mod gaussian_pool;
pub mod max_pool;
pub mod permute;
pub mod prelu;
pub mod relu;
pub mod scale_add;
pub mod sgd;
pub mod softmax_cross_entropy;
pub mod stochastic_pool;
pub mod swish;

pub use parts::sum_parts;
pub use window::Window;
