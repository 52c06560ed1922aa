use super::{Backward, Forward};
use crate::device::{Cpu, OnCpu};
use crate::{Real, Result};

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let (s, c) = (self.s.host()?[0], self.c.host()?[0]);
        cpu.map(self.y.host_mut()?, 0.0, [self.x.host()?], |[x]| x * s + c);
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let s = self.s.host()?[0];
        cpu.map(self.dx.tensor.host_mut()?, self.dx.beta, [self.dy.host()?], |[dy]| dy * s);
        Ok(())
    }
}
