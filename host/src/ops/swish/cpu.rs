use super::{Backward, Forward};
use crate::device::{Cpu, OnCpu};
use crate::{Compute, Real, Result};

#[inline(always)]
fn sigmoid<C: Compute>(x: C) -> C {
    (C::one() + (-x).exp()).recip()
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let beta = self.beta.host()?[0];
        cpu.map(self.y.host_mut()?, 0.0, [self.x.host()?], |[x]| x * sigmoid(beta * x));
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let (x, dy, beta, one) = (self.x.host()?, self.dy.host()?, self.beta.host()?[0], T::Compute::of(1.0));
        cpu.map_into(self.dx, [x, dy], |[x, dy]| {
            let s = sigmoid(beta * x);
            dy * s * (one + beta * x * (one - s))
        })?;
        cpu.sum_into(self.dbeta, [x, dy], |[x, dy]| {
            let s = sigmoid(beta * x);
            dy * (x * s) * (x * (one - s))
        })
    }
}
