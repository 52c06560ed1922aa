use cuda_std::launch::LaunchDims;
use kernels::relu::{BLOCK, ReluBackwardF32, ReluForwardF32, TILE};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "relu.forward";
        let n = self.x.len();
        let (x, y) = (self.x.gpu(OP, "x")?, self.y.gpu_mut(OP, "y")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: both are whole tensors of `n` elements, and the grid covers `n`.
        unsafe { gpu.launch(dims, ReluForwardF32 { x, y, n: n as u64 }) }
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "relu.backward";
        let (n, beta) = (self.y.len(), self.dx.beta.f64() as f32);
        let (y, dy, dx) = (self.y.gpu(OP, "y")?, self.dy.gpu(OP, "dy")?, self.dx.tensor.gpu_mut(OP, "dx")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: all are whole tensors of `n` elements, checked by `relu::backward`, and the grid covers `n`.
        unsafe { gpu.launch(dims, ReluBackwardF32 { y, dy, dx, beta, n: n as u64 }) }
    }
}
