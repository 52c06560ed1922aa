//! Steps of the optimisers, several in a row.

use ferrolayer::Tensor;
use ferrolayer::ops::{adam, sgd};
use serde::Deserialize;

use super::Check;
use super::vectors::{Kind, Scalar, Trial};
use crate::support::Outcome;

#[derive(Deserialize)]
pub struct Sgd {
    x: Vec<usize>,
    steps: u64,
    gradient: Kind,
    learning_rate: f64,
    weight_decay: f64,
    momentum: f64,
    nesterov: bool,
}

impl Check for Sgd {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let &Self { learning_rate, weight_decay, momentum, nesterov, .. } = self;
        let settings = sgd::Settings { learning_rate, momentum, weight_decay }.to_tensor(trial.device)?;
        let before = trial.input::<T>(Kind::Plain, 0, &self.x)?;
        let (mut value, mut velocity) = (before.tensor, Tensor::zeros(trial.device, &self.x)?);
        // The magnitudes of what both are made of follow the same formula.
        let mut sizes: Vec<[f64; 2]> = before.host.iter().map(|value| [value.f64().abs(), 0.0]).collect();
        for step in 0..self.steps {
            let gradient = trial.input::<T>(self.gradient, 1 + step, &self.x)?;
            let kept = (momentum > 0.0).then_some(&mut velocity);
            sgd::step(&settings, &gradient.tensor, &mut value, kept, nesterov)?;
            for ([value, velocity], gradient) in sizes.iter_mut().zip(&gradient.host) {
                let g = gradient.f64().abs() + weight_decay * *value;
                *velocity = momentum * *velocity + g;
                *value += learning_rate * if nesterov { g + momentum * *velocity } else { *velocity };
            }
        }
        let terms = 6 * self.steps as usize;
        let [values, velocities] = [0, 1].map(|i| sizes.iter().map(|size| size[i]).collect::<Vec<_>>());
        trial.close("value", &value, terms, &values)?;
        if momentum > 0.0 {
            trial.close("velocity", &velocity, terms, &velocities)?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
pub struct Adam {
    x: Vec<usize>,
    steps: u64,
    gradient: Kind,
    learning_rate: f64,
    weight_decay: f64,
    betas: [f64; 2],
}

impl Check for Adam {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let &Self { learning_rate, weight_decay, betas, .. } = self;
        let settings = adam::Settings { learning_rate, betas, weight_decay, ..adam::Settings::default() };
        let mut clock = adam::Clock::new(trial.device, &settings)?;
        let before = trial.input::<T>(Kind::Plain, 0, &self.x)?;
        let zeros = || Tensor::<T>::zeros(trial.device, &self.x);
        let (mut value, mut first, mut second) = (before.tensor, zeros()?, zeros()?);
        let mut sizes: Vec<Sizes> = before.host.iter().map(|value| Sizes::new(value.f64())).collect();
        for step in 0..self.steps {
            let gradient = trial.input::<T>(self.gradient, 1 + step, &self.x)?;
            clock.advance()?;
            adam::step(&clock, &gradient.tensor, &mut value, &mut first, &mut second)?;
            for (sizes, gradient) in sizes.iter_mut().zip(&gradient.host) {
                sizes.step(&settings, step as i32 + 1, gradient.f64());
            }
        }
        let terms = 6 * self.steps as usize;
        let of = |size: fn(&Sizes) -> f64| sizes.iter().map(size).collect::<Vec<_>>();
        trial.close("first", &first, terms, &of(|sizes| sizes.first.1))?;
        trial.close("second", &second, terms, &of(|sizes| sizes.second.1))?;
        trial.close("value", &value, terms, &of(|sizes| sizes.value.1))
    }
}

/// An element's state as the formula has it, each number with the size that its rounding is relative to.
struct Sizes {
    value: (f64, f64),
    first: (f64, f64),
    second: (f64, f64),
}

impl Sizes {
    fn new(value: f64) -> Self {
        Self { value: (value, value.abs()), first: (0.0, 0.0), second: (0.0, 0.0) }
    }

    fn step(&mut self, settings: &adam::Settings, steps: i32, gradient: f64) {
        let &adam::Settings { learning_rate, betas: [beta1, beta2], epsilon, weight_decay } = settings;
        let (g, g_size) = (gradient + weight_decay * self.value.0, gradient.abs() + weight_decay * self.value.1);
        self.first = (beta1 * self.first.0 + (1.0 - beta1) * g, beta1 * self.first.1 + (1.0 - beta1) * g_size);
        // The square's error is twice that of what is squared, times it.
        let square = 2.0 * g.abs() * g_size;
        self.second = (beta2 * self.second.0 + (1.0 - beta2) * g * g, beta2 * self.second.1 + (1.0 - beta2) * square);
        let (rest1, rest2) = (1.0 - beta1.powi(steps), 1.0 - beta2.powi(steps));
        let root = (self.second.0 / rest2).sqrt();
        let divisor = root + epsilon;
        // The root's error is that of the second moment, divided by twice the root.
        let root_size = if root == 0.0 { 0.0 } else { self.second.1 / rest2 / (2.0 * root) } + divisor;
        let direction = self.first.0 / rest1 / divisor;
        let direction_size = self.first.1 / rest1 / divisor + direction.abs() * root_size / divisor;
        self.value = (self.value.0 - learning_rate * direction, self.value.1 + learning_rate * direction_size);
    }
}
