//! What the steps of one optimiser share.

use kernels::adam::{rate, setting};

use super::Advance;
use crate::{Compute, Device, Error, Result, Tensor, check};

/// How far and in which manner steps go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The factor of the step; not negative.
    pub learning_rate: f64,
    /// The shares of the first and the second moment that are kept; from 0 to below 1.
    pub betas: [f64; 2],
    /// What is added to the divisor; not negative.
    pub epsilon: f64,
    /// The factor of the value that is added to its gradient; not negative.
    pub weight_decay: f64,
}

/// PyTorch's: 1e-3, (0.9, 0.999), 1e-8, 0.
impl Default for Settings {
    fn default() -> Self {
        Self { learning_rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.0 }
    }
}

impl Settings {
    /// In the order of [`kernels::adam::setting`]. Differences from 1 and logarithms are taken here, in `f64`: `1 - beta`
    /// of a beta that was rounded to `f32` would keep only the first four digits.
    fn values<T: Compute>(&self) -> Result<[T; setting::COUNT]> {
        let wrong = |argument, value: f64, expected: &str| {
            Err(Error::Argument { op: "adam.settings", argument, got: value.to_string(), expected: expected.into() })
        };
        for (argument, value) in
            [("learning_rate", self.learning_rate), ("epsilon", self.epsilon), ("weight_decay", self.weight_decay)]
        {
            if !(value >= 0.0 && value.is_finite()) {
                return wrong(argument, value, "a finite number of at least 0");
            }
        }
        let [beta1, beta2] = self.betas;
        for beta in self.betas {
            if !(0.0..1.0).contains(&beta) {
                return wrong("betas", beta, "at least 0 and less than 1");
            }
        }
        let mut values = [T::zero(); setting::COUNT];
        for (place, value) in [
            (setting::LEARNING_RATE, self.learning_rate),
            (setting::BETA1, beta1),
            (setting::BETA2, beta2),
            (setting::ONE_MINUS_BETA1, 1.0 - beta1),
            (setting::ONE_MINUS_BETA2, 1.0 - beta2),
            (setting::LOG_BETA1, beta1.ln()),
            (setting::LOG_BETA2, beta2.ln()),
            (setting::EPSILON, self.epsilon),
            (setting::WEIGHT_DECAY, self.weight_decay),
        ] {
            values[place] = T::of(value);
        }
        Ok(values)
    }
}

/// Settings, the number of steps, and what follows from both, in device memory.
#[derive(Clone, Debug)]
pub struct Clock<T: Compute> {
    settings: Tensor<T>,
    count: Tensor<u32>,
    rates: Tensor<T>,
    advanced: bool,
}

impl<T: Compute> Clock<T> {
    /// A clock on `device` before its first step.
    ///
    /// # Errors
    /// [`Error::Argument`] for settings out of their ranges; a device's own errors.
    pub fn new(device: &Device, settings: &Settings) -> Result<Self> {
        Ok(Self {
            settings: Tensor::from_slice(device, &[setting::COUNT], &settings.values()?)?,
            count: Tensor::zeros(device, &[1])?,
            rates: Tensor::empty(device, &[rate::COUNT])?,
            advanced: false,
        })
    }

    /// Replaces the settings from the next [`Clock::advance`] on; the count goes on.
    ///
    /// # Errors
    /// As [`Clock::new`].
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        self.settings.copy_from_slice(&settings.values()?)
    }

    /// Counts a step: to be called once before the steps of a model's parameters.
    ///
    /// # Errors
    /// [`Error::DType`] for `f64` on a GPU; the device's own errors.
    pub fn advance(&mut self) -> Result<()> {
        let Self { settings, count, rates, .. } = self;
        settings.device().run(Advance { settings, count, rates })?;
        self.advanced = true;
        Ok(())
    }

    /// The number of steps counted. On a GPU this waits for them.
    ///
    /// # Errors
    /// The device's own errors.
    pub fn steps(&self) -> Result<u32> {
        Ok(self.count.to_vec()?[0])
    }

    /// Settings and rates, when they can be used with `value`.
    pub(super) fn read(&self, op: &'static str, value: &Tensor<T>) -> Result<(&Tensor<T>, &Tensor<T>)> {
        check::device(op, "clock", &self.settings, value)?;
        if !self.advanced {
            let expected = "advanced for this step".into();
            return Err(Error::Argument { op, argument: "clock", got: "never advanced".into(), expected });
        }
        Ok((&self.settings, &self.rates))
    }
}
