use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::sgd::{BLOCK, SgdStepF32, TILE};

use super::Step;
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Compute, Result};

impl<T: Compute> OnGpu for Step<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "sgd.step";
        let n = self.value.len();
        let (settings, gradient) = (self.settings.gpu(OP, "settings")?, self.gradient.gpu(OP, "gradient")?);
        let value = self.value.gpu_mut(OP, "value")?;
        let velocity = match self.velocity {
            Some(velocity) => Some(velocity.gpu_mut(OP, "velocity")? as &mut dyn DeviceMemory<f32>),
            None => None,
        };
        let step = SgdStepF32 { settings, gradient, value, velocity, nesterov: self.nesterov.into(), n: n as u64 };
        // SAFETY: shapes were checked by `sgd::step`: the settings are as many as the kernel reads, all else is whole
        // tensors of `n` elements; the grid covers `n`.
        unsafe { gpu.launch(LaunchDims::new(tiles(n, TILE), BLOCK), step) }
    }
}
