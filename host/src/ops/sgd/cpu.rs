use kernels::sgd::setting;
use rayon::prelude::*;

use super::Step;
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::{Compute, Result};

/// Elements that one task takes.
const CHUNK: usize = 16 * 1024;

impl<T: Compute> OnCpu for Step<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let settings = self.settings.host()?;
        let (rate, momentum, decay) =
            (settings[setting::LEARNING_RATE], settings[setting::MOMENTUM], settings[setting::WEIGHT_DECAY]);
        let chunks = self.value.host_mut()?.par_chunks_mut(CHUNK).zip(self.gradient.host()?.par_chunks(CHUNK));
        let Some(velocity) = self.velocity else {
            chunks.run(1, |(value, gradient)| {
                for (value, &gradient) in value.iter_mut().zip(gradient) {
                    *value -= rate * (gradient + decay * *value);
                }
            });
            return Ok(());
        };
        let nesterov = self.nesterov;
        chunks.zip(velocity.host_mut()?.par_chunks_mut(CHUNK)).run(1, |((value, gradient), velocity)| {
            for ((value, &gradient), velocity) in value.iter_mut().zip(gradient).zip(velocity) {
                let gradient = gradient + decay * *value;
                *velocity = momentum * *velocity + gradient;
                *value -= rate * if nesterov { gradient + momentum * *velocity } else { *velocity };
            }
        });
        Ok(())
    }
}
