use super::{Backward, Forward};
use crate::device::{Cpu, OnCpu};
use crate::{Real, Result};

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let zero = T::zero();
        cpu.map(self.y.host_mut()?, T::zero(), [self.x.host()?], |[x]| if x <= zero { zero } else { x });
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let zero = T::zero();
        let (out, beta) = (self.dx.tensor.host_mut()?, self.dx.beta);
        cpu.map(out, beta, [self.y.host()?, self.dy.host()?], |[y, dy]| if y <= zero { zero } else { dy });
        Ok(())
    }
}
