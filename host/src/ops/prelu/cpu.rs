use rayon::prelude::*;

use super::{Backward, Forward, Layout};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Compute, Out, Real, Result};

/// Elements that one task takes; also the unit of the fixed order in which `dalpha` is summed.
const CHUNK: usize = 16 * 1024;

impl Layout {
    /// Whole images that make about one chunk; at least one.
    fn images_per_task(&self) -> usize {
        (CHUNK / (self.channels * self.inner).max(1)).max(1)
    }
}

#[inline(always)]
fn slope<C: Compute>(x: C, alpha: C) -> C {
    if x > C::zero() { C::one() } else { alpha }
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let alpha = self.alpha.host()?;
        let y = self.y.host_mut()?;
        let x = self.x.map(|x| x.host()).transpose()?;
        if let [alpha] = *alpha {
            let prelu = |x| slope(x, alpha) * x;
            match x {
                Some(x) => cpu.map(y, 0.0, [x], |[x]| prelu(x)),
                None => cpu.map_in_place(y, prelu),
            }
            return Ok(());
        }
        let Layout { channels, inner, .. } = self.layout;
        let task = self.layout.images_per_task() * channels * inner;
        let of_plane = |plane: usize| {
            let alpha = alpha[plane % channels];
            move |x: T| T::narrow(slope(x.widen(), alpha) * x.widen())
        };
        match x {
            Some(x) => y.par_chunks_mut(task).zip(x.par_chunks(task)).run(1, |(y, x)| {
                for (plane, (y, x)) in y.chunks_mut(inner).zip(x.chunks(inner)).enumerate() {
                    let prelu = of_plane(plane);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = prelu(x));
                }
            }),
            None => y.par_chunks_mut(task).run(1, |y| {
                for (plane, y) in y.chunks_mut(inner).enumerate() {
                    let prelu = of_plane(plane);
                    y.iter_mut().for_each(|y| *y = prelu(*y));
                }
            }),
        }
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
            let beta = T::Compute::of(dalpha.beta);
            let sums = slope_gradient(self.layout, x, dy);
            for (out, sum) in dalpha.tensor.host_mut()?.iter_mut().zip(sums) {
                accumulate(out, T::Compute::of(sum), beta);
            }
        }
        Ok(())
    }
}

fn input_gradient<T: Real>(
    layout: Layout,
    cpu: &Cpu,
    x: &[T],
    alpha: &[T::Compute],
    dy: &[T],
    dx: Out<'_, T>,
) -> Result<()> {
    let (dx, beta) = (dx.tensor.host_mut()?, dx.beta);
    if let [alpha] = *alpha {
        cpu.map(dx, beta, [x, dy], |[x, dy]| slope(x, alpha) * dy);
        return Ok(());
    }
    let beta = T::Compute::of(beta);
    let task = layout.images_per_task() * layout.channels * layout.inner;
    dx.par_chunks_mut(task).zip(x.par_chunks(task).zip(dy.par_chunks(task))).run(1, |(dx, (x, dy))| {
        let planes = dx.chunks_mut(layout.inner).zip(x.chunks(layout.inner).zip(dy.chunks(layout.inner)));
        for (plane, (dx, (x, dy))) in planes.enumerate() {
            let alpha = alpha[plane % layout.channels];
            for (dx, (&x, &dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
                accumulate(dx, slope(x.widen(), alpha) * dy.widen(), beta);
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
            x.par_chunks(CHUNK).zip(dy.par_chunks(CHUNK)).map(|(x, dy)| negative_part(x, dy)).gather(1);
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
        .gather(1);
    for part in parts {
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum += part;
        }
    }
    sums
}

/// NaN counts as not positive, so that it comes out as NaN.
fn negative_part<T: Real>(x: &[T], dy: &[T]) -> f64 {
    let terms = x.iter().zip(dy).map(|(&x, &dy)| if x.f64() > 0.0 { 0.0 } else { x.f64() * dy.f64() });
    terms.sum()
}
