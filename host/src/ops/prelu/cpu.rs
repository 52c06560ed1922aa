use rayon::prelude::*;

use super::{Backward, Forward, Layout};
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Out, Real, Result};

/// Elements that one task takes; also the unit of the fixed order in which `dalpha` is summed.
const CHUNK: usize = 16 * 1024;

impl Layout {
    /// Whole images that make about one chunk; at least one.
    fn images_per_task(&self) -> usize {
        (CHUNK / (self.channels * self.inner).max(1)).max(1)
    }
}

#[inline(always)]
fn slope<T: Real>(x: T, alpha: T) -> T {
    if x > T::zero() { T::one() } else { alpha }
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let (x, alpha) = (self.x.host()?, self.alpha.host()?);
        let y = self.y.host_mut()?;
        if let [alpha] = *alpha {
            cpu.map(y, T::zero(), [x], |[x]| slope(x, alpha) * x);
            return Ok(());
        }
        let image = self.layout.channels * self.layout.inner;
        let task = self.layout.images_per_task() * image;
        y.par_chunks_mut(task).zip(x.par_chunks(task)).for_each(|(y, x)| {
            for (plane, (y, x)) in y.chunks_mut(self.layout.inner).zip(x.chunks(self.layout.inner)).enumerate() {
                let alpha = alpha[plane % self.layout.channels];
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = slope(x, alpha) * x;
                }
            }
        });
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let (x, alpha, dy) = (self.x.host()?, self.alpha.host()?, self.dy.host()?);
        if let Some(dx) = self.dx {
            input_gradient(self.layout, cpu, x, alpha, dy, dx)?;
        }
        if let Some(dalpha) = self.dalpha {
            let sums = slope_gradient(self.layout, x, dy);
            for (out, sum) in dalpha.tensor.host_mut()?.iter_mut().zip(sums) {
                accumulate(out, T::of(sum), dalpha.beta);
            }
        }
        Ok(())
    }
}

fn input_gradient<T: Real>(layout: Layout, cpu: &Cpu, x: &[T], alpha: &[T], dy: &[T], dx: Out<'_, T>) -> Result<()> {
    let (dx, beta) = (dx.tensor.host_mut()?, dx.beta);
    if let [alpha] = *alpha {
        cpu.map(dx, beta, [x, dy], |[x, dy]| slope(x, alpha) * dy);
        return Ok(());
    }
    let task = layout.images_per_task() * layout.channels * layout.inner;
    dx.par_chunks_mut(task).zip(x.par_chunks(task).zip(dy.par_chunks(task))).for_each(|(dx, (x, dy))| {
        let planes = dx.chunks_mut(layout.inner).zip(x.chunks(layout.inner).zip(dy.chunks(layout.inner)));
        for (plane, (dx, (x, dy))) in planes.enumerate() {
            let alpha = alpha[plane % layout.channels];
            for (dx, (&x, &dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
                accumulate(dx, slope(x, alpha) * dy, beta);
            }
        }
    });
    Ok(())
}

/// `sum of x * dy where x <= 0` per channel, in f64 and in an order that does not depend on the number of threads.
fn slope_gradient<T: Real>(layout: Layout, x: &[T], dy: &[T]) -> Vec<f64> {
    let mut sums = vec![0.0; layout.channels];
    if layout.channels == 1 && layout.outer == 1 {
        let parts: Vec<f64> =
            x.par_chunks(CHUNK).zip(dy.par_chunks(CHUNK)).map(|(x, dy)| negative_part(x, dy)).collect();
        sums[0] = parts.iter().sum();
        return sums;
    }
    let task = layout.images_per_task() * layout.channels * layout.inner;
    let parts: Vec<Vec<f64>> = x
        .par_chunks(task)
        .zip(dy.par_chunks(task))
        .map(|(x, dy)| {
            let mut part = vec![0.0; layout.channels];
            for (plane, (x, dy)) in x.chunks(layout.inner).zip(dy.chunks(layout.inner)).enumerate() {
                part[plane % layout.channels] += negative_part(x, dy);
            }
            part
        })
        .collect();
    for part in parts {
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum += part;
        }
    }
    sums
}

/// NaN counts as not positive, so that it comes out as NaN.
fn negative_part<T: Real>(x: &[T], dy: &[T]) -> f64 {
    let terms = x.iter().zip(dy).map(|(&x, &dy)| if x > T::zero() { 0.0 } else { x.f64() * dy.f64() });
    terms.sum()
}
