use super::{Backward, Forward, LIMIT};
use crate::device::{Cpu, OnCpu};
use crate::{Compute, Result};

impl<T: Compute> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let limit = T::of(f64::from(LIMIT));
        // Comparisons, not `min` and `max`, which would drop a NaN.
        let clamp = |x: T| {
            if x > limit {
                limit
            } else if x < -limit {
                -limit
            } else {
                x
            }
        };
        cpu.map(self.y.host_mut()?, 0.0, [self.x.host()?], |[x]| clamp(x).exp());
        Ok(())
    }
}

impl<T: Compute> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let limit = T::of(f64::from(LIMIT));
        let (out, beta) = (self.dx.tensor.host_mut()?, self.dx.beta);
        let inputs = [self.x.host()?, self.y.host()?, self.dy.host()?];
        cpu.map(out, beta, inputs, |[x, y, dy]| if x.abs() > limit { T::zero() } else { dy * y });
        Ok(())
    }
}
