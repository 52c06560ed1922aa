//! Softmax and cross entropy.

use ferrolayer::ops::softmax_cross_entropy::{self, Output};
use ferrolayer::{Out, Tensor};
use serde::Deserialize;

use super::Check;
use super::vectors::{Kind, Scalar, Trial};
use crate::support::Outcome;

#[derive(Deserialize)]
pub struct SoftmaxCrossEntropy {
    x: [usize; 2],
    values: Kind,
}

impl Check for SoftmaxCrossEntropy {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let [rows, classes] = self.x;
        let x = trial.input::<T>(self.values, 0, &self.x)?;
        let dloss = trial.input::<T>(Kind::Plain, 1, &[1])?;
        let right = trial.labels(2, rows, classes);
        let labels = Tensor::from_slice(trial.device, &[rows], &right)?;
        let Output { loss, log_sum } = softmax_cross_entropy::forward(&x.tensor, &labels)?;
        let mut dx = x.tensor.empty_like()?;
        softmax_cross_entropy::backward(&x.tensor, &labels, &log_sum, Some(&dloss.tensor), Out::write(&mut dx))?;

        // An error of a sum of exponentials, relative to it, is its logarithm's absolute one; a score's rounding when the
        // maximum is taken from it is the relative one of its exponential.
        let log_sums = trial.expected::<T>("log_sum")?;
        let log_sizes: Vec<f64> = log_sums.iter().map(|log_sum| 1.0 + 2.0 * log_sum.f64().abs()).collect();
        // Loss and gradient of a row with an infinite sum are NaN, in PyTorch too: here the sum says so already.
        let expected: Vec<T> = log_sums.iter().map(|&sum| if sum.is_infinite() { T::nan() } else { sum }).collect();
        trial.close_to("log_sum", &log_sum, &expected, classes, &log_sizes)?;
        let score = |row: usize, class: usize| x.host[row * classes + class].f64();
        let loss_size = (0..rows).map(|row| log_sizes[row] + score(row, right[row] as usize).abs()).sum::<f64>();
        trial.close("loss", &loss, rows + classes, &[loss_size / rows as f64])?;
        let dx_sizes: Vec<f64> = (0..rows * classes)
            .map(|i| {
                let (row, class) = (i / classes, i % classes);
                let probability = (score(row, class) - log_sums[row].f64()).exp();
                let hit = if right[row] as usize == class { 1.0 } else { 0.0 };
                let exponent = log_sizes[row] + score(row, class).abs();
                // A class that is ruled out has the probability 0 exactly.
                let size = if probability == 0.0 { 0.0 } else { probability * exponent };
                (size + hit) * dloss.host[0].f64().abs() / rows as f64
            })
            .collect();
        trial.close("dx", &dx, classes, &dx_sizes)
    }
}
