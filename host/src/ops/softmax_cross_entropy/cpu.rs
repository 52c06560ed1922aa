use rayon::prelude::*;

use super::{Backward, Forward};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Compute, Result};

/// Elements that one task takes.
const CHUNK: usize = 4 * 1024;

/// Rows that make about one chunk; at least one.
fn rows_per_task(classes: usize) -> usize {
    (CHUNK / classes).max(1)
}

impl<T: Compute> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, labels, classes) = (self.x.host()?, self.labels.host()?, self.classes as usize);
        let log_sum = self.log_sum.host_mut()?;
        let rows = rows_per_task(classes);
        log_sum.par_chunks_mut(rows).zip(x.par_chunks(rows * classes)).run(1, |(log_sum, x)| {
            for (log_sum, x) in log_sum.iter_mut().zip(x.chunks(classes)) {
                *log_sum = log_of_sum(x);
            }
        });
        // One addition a row: too little for threads, and always in the same order.
        let rows = log_sum.iter().zip(x.chunks(classes)).zip(labels);
        let total: f64 = rows.map(|((&log_sum, x), &label)| (log_sum - x[label as usize]).f64()).sum();
        self.loss.host_mut()?[0] = T::of(total / labels.len().max(1) as f64);
        Ok(())
    }
}

impl<T: Compute> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, labels, log_sum, classes) =
            (self.x.host()?, self.labels.host()?, self.log_sum.host()?, self.classes as usize);
        let dloss = match self.dloss {
            Some(dloss) => dloss.host()?[0],
            None => T::one(),
        };
        let scale = dloss / T::of(labels.len().max(1) as f64);
        let (dx, beta) = (self.dx.tensor.host_mut()?, T::of(self.dx.beta));
        let rows = rows_per_task(classes);
        let tasks = dx.par_chunks_mut(rows * classes).zip(x.par_chunks(rows * classes));
        tasks.zip(log_sum.par_chunks(rows).zip(labels.par_chunks(rows))).run(1, |((dx, x), (log_sum, labels))| {
            let rows = dx.chunks_mut(classes).zip(x.chunks(classes)).zip(log_sum.iter().zip(labels));
            for ((dx, x), (&log_sum, &label)) in rows {
                for (class, (dx, &x)) in dx.iter_mut().zip(x).enumerate() {
                    let hit = if class == label as usize { T::one() } else { T::zero() };
                    accumulate(dx, ((x - log_sum).exp() - hit) * scale, beta);
                }
            }
        });
        Ok(())
    }
}

/// `log(sum of exp(x))` with the maximum taken out; NaN when any is NaN.
fn log_of_sum<T: Compute>(x: &[T]) -> T {
    let maximum = x.iter().copied().fold(T::neg_infinity(), |m, x| if x > m || x.is_nan() { x } else { m });
    let sum: f64 = x.iter().map(|&x| (x - maximum).exp().f64()).sum();
    maximum + T::of(sum.ln())
}
