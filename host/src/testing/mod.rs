//! What passes are checked with: gradients by central differences, devices against each other, one tolerance.

mod gradcheck;
mod tolerance;

pub use gradcheck::{GradientMismatch, gradcheck};
pub use tolerance::{Mismatch, assert_close, summation_error};
