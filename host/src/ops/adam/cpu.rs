use kernels::adam::{rate, setting};
use rayon::prelude::*;

use super::{Advance, Step};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::{Compute, Result};

/// Elements that one task takes.
const CHUNK: usize = 16 * 1024;

impl<T: Compute> OnCpu for Advance<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let settings = self.settings.host()?;
        let count = &mut self.count.host_mut()?[0];
        *count += 1;
        let steps = T::of(f64::from(*count));
        // 1 - beta^t, without the cancellation that this form has for a beta near 1.
        let rest = |log_beta: usize| -(steps * settings[log_beta]).exp_m1();
        let rates = self.rates.host_mut()?;
        rates[rate::STEP] = settings[setting::LEARNING_RATE] / rest(setting::LOG_BETA1);
        rates[rate::CORRECTION] = rest(setting::LOG_BETA2).sqrt().recip();
        Ok(())
    }
}

impl<T: Compute> OnCpu for Step<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (settings, rates) = (self.settings.host()?, self.rates.host()?);
        let (beta1, beta2) = (settings[setting::BETA1], settings[setting::BETA2]);
        let (share1, share2) = (settings[setting::ONE_MINUS_BETA1], settings[setting::ONE_MINUS_BETA2]);
        let (epsilon, decay) = (settings[setting::EPSILON], settings[setting::WEIGHT_DECAY]);
        let (rate, correction) = (rates[rate::STEP], rates[rate::CORRECTION]);
        let values = self.value.host_mut()?.par_chunks_mut(CHUNK).zip(self.gradient.host()?.par_chunks(CHUNK));
        let moments = self.first.host_mut()?.par_chunks_mut(CHUNK).zip(self.second.host_mut()?.par_chunks_mut(CHUNK));
        values.zip(moments).run(1, |((value, gradient), (first, second))| {
            for ((value, &gradient), (first, second)) in
                value.iter_mut().zip(gradient).zip(first.iter_mut().zip(second))
            {
                let gradient = gradient + decay * *value;
                *first = beta1 * *first + share1 * gradient;
                *second = beta2 * *second + share2 * (gradient * gradient);
                *value -= rate * *first / (second.sqrt() * correction + epsilon);
            }
        });
        Ok(())
    }
}
