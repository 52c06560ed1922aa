use cuda_std::launch::LaunchDims;
use kernels::adam::{AdamAdvanceF32, AdamStepF32, BLOCK, TILE};

use super::{Advance, Step};
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Compute, Result};

impl<T: Compute> OnGpu for Advance<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "adam.advance";
        let settings = self.settings.gpu(OP, "settings")?;
        let (count, rates) = (self.count.gpu_mut(OP, "count")?, self.rates.gpu_mut(OP, "rates")?);
        // SAFETY: the clock made all three in the sizes that the kernel names; one block of one thread.
        unsafe { gpu.launch(LaunchDims::new(1, 1), AdamAdvanceF32 { settings, count, rates }) }
    }
}

impl<T: Compute> OnGpu for Step<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "adam.step";
        let n = self.value.len();
        let (settings, rates) = (self.settings.gpu(OP, "settings")?, self.rates.gpu(OP, "rates")?);
        let (gradient, value) = (self.gradient.gpu(OP, "gradient")?, self.value.gpu_mut(OP, "value")?);
        let (first, second) = (self.first.gpu_mut(OP, "first")?, self.second.gpu_mut(OP, "second")?);
        let step = AdamStepF32 { settings, rates, gradient, value, first, second, n: n as u64 };
        // SAFETY: the clock made settings and rates in the sizes that the kernel names; all else is whole tensors of `n`
        // elements, checked by `adam::step`; the grid covers `n`.
        unsafe { gpu.launch(LaunchDims::new(tiles(n, TILE), BLOCK), step) }
    }
}
