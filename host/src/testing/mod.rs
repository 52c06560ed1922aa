//! What ops are checked with, users' own too: [`gradcheck`] against central differences, [`compare_devices`] device against
//! device and against the contract of [`Op`], one tolerance.

mod devices;
mod gradcheck;
mod point;
mod tolerance;

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

pub use devices::compare_devices;
#[cfg(feature = "emulator")]
pub use devices::gpus;
pub use gradcheck::{GRADIENT_TOLERANCE, GradientMismatch, gradcheck, gradcheck_fn};
pub use tolerance::{Mismatch, assert_close, summation_error};

#[cfg(doc)]
use crate::op::Op;
use crate::ops::dense::Generator;
use crate::{Device, Error, Real, Result, Tensor};

/// What a check found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A gradient is not the derivative.
    #[error("{op}: {mismatch}")]
    Gradient {
        /// The op.
        op: &'static str,
        /// The input and its worst element.
        mismatch: GradientMismatch,
    },
    /// An input has a kink that no small move leads away from.
    #[error("{op}: {input} is at a kink at {index}, wherever it is moved: the op has no derivative there")]
    Kink {
        /// The op.
        op: &'static str,
        /// The input.
        input: &'static str,
        /// The flat index of the element.
        index: usize,
    },
    /// Two devices disagree by more than rounding.
    #[error("{op}, {devices}: {mismatch}")]
    Devices {
        /// The op.
        op: &'static str,
        /// The two.
        devices: String,
        /// What differs and its worst element.
        mismatch: Mismatch,
    },
    /// A part of the contract does not hold.
    #[error("{op} on {device}: {what}")]
    Contract {
        /// The op.
        op: &'static str,
        /// Where.
        device: String,
        /// What was expected and what was found.
        what: String,
    },
    /// The op failed.
    #[error(transparent)]
    Op(#[from] Error),
}

/// The seed of the output's gradient.
const WEIGHTS_SEED: u64 = 0x5EED;

/// A tensor of normally distributed numbers, the same for the same seed.
///
/// # Errors
/// The device's own errors.
pub fn normal<T: Real>(device: &Device, seed: u64, shape: &[usize]) -> Result<Tensor<T>> {
    let mut generator = Generator::seed_from_u64(seed);
    let values = (0..shape.iter().product()).map(|_| {
        let value: f64 = StandardNormal.sample(&mut generator);
        T::of(value)
    });
    Tensor::from_vec(device, shape, values.collect())
}
