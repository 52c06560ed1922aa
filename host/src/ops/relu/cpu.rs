use super::{Backward, Forward};
use crate::device::{Cpu, OnCpu};
use crate::{Real, Result};

/// Written so that NaN stays.
#[inline(always)]
fn relu<T: Real>(x: T::Compute) -> T::Compute {
    if x <= T::Compute::of(0.0) { T::Compute::of(0.0) } else { x }
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let y = self.y.host_mut()?;
        match self.x {
            Some(x) => cpu.map(y, 0.0, [x.host()?], |[x]| relu::<T>(x)),
            None => cpu.map_in_place(y, |x| relu::<T>(x)),
        }
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        let zero = T::Compute::of(0.0);
        let (out, beta) = (self.dx.tensor.host_mut()?, self.dx.beta);
        cpu.map(out, beta, [self.y.host()?, self.dy.host()?], |[y, dy]| if y <= zero { zero } else { dy });
        Ok(())
    }
}
