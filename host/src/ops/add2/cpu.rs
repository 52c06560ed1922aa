use super::{Backward, Forward};
use crate::device::{Cpu, OnCpu};
use crate::{Real, Result};

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        cpu.map(self.y.host_mut()?, 0.0, [self.a.host()?, self.b.host()?], |[a, b]| a + b);
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        cpu.map(self.dx.tensor.host_mut()?, self.dx.beta, [self.dy.host()?], |[dy]| dy);
        Ok(())
    }
}
