//! What the ops are given, and what they give.

use ferrolayer::ops::dense::Generator;
use ferrolayer::{Device, Real, Result, Tensor};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// One result of an op.
pub struct Output {
    pub name: &'static str,
    /// How many terms each element sums.
    pub terms: usize,
    pub values: Vec<f64>,
    /// The result's type: [`Real::EPSILON`] and [`Real::MIN_POSITIVE`].
    pub epsilon: f64,
    pub min_positive: f64,
}

/// What a tensor holds, as a result.
pub fn output<E: Real>(name: &'static str, terms: usize, tensor: &Tensor<E>) -> Result<Output> {
    let (epsilon, min_positive) = (E::EPSILON, E::MIN_POSITIVE);
    Ok(Output { name, terms, values: values(tensor)?, epsilon, min_positive })
}

/// The elements as f64.
pub fn values<E: Real>(tensor: &Tensor<E>) -> Result<Vec<f64>> {
    Ok(tensor.to_vec()?.into_iter().map(E::f64).collect())
}

/// Inputs, the same for every type but for the rounding to the one that is measured.
///
/// An op runs twice in f64: the second time with the magnitudes of those inputs that terms are linear in, which gives the
/// sums of the terms' magnitudes (signs of whole results aside).
pub struct Draw<'a> {
    pub device: &'a Device,
    /// To the type that is measured.
    pub round: fn(f64) -> f64,
    /// Whether this is the second run.
    pub magnitudes: bool,
}

impl Draw<'_> {
    /// Normally distributed; the same signs in both runs.
    pub fn fixed<E: Real>(&self, seed: u64, shape: &[usize]) -> Result<Tensor<E>> {
        self.tensor(seed, shape, self.round)
    }

    /// The same values; in the second run their magnitudes.
    pub fn linear<E: Real>(&self, seed: u64, shape: &[usize]) -> Result<Tensor<E>> {
        let tensor = self.fixed::<E>(seed, shape)?;
        if !self.magnitudes {
            return Ok(tensor);
        }
        Tensor::from_vec(self.device, shape, values(&tensor)?.into_iter().map(|v| E::of(v.abs())).collect())
    }

    /// A parameter, which is f32 whatever the elements are: between a half and one and a half.
    pub fn parameter<E: Real>(&self, seed: u64, shape: &[usize]) -> Result<Tensor<E>> {
        self.tensor(seed, shape, |v| f64::from((1.0 + 0.5 * v.tanh()) as f32))
    }

    fn tensor<E: Real>(&self, seed: u64, shape: &[usize], f: impl Fn(f64) -> f64) -> Result<Tensor<E>> {
        let mut rng = Generator::seed_from_u64(seed);
        let draw = |_| E::of(f(StandardNormal.sample(&mut rng)));
        Tensor::from_vec(self.device, shape, (0..shape.iter().product()).map(draw).collect())
    }
}
