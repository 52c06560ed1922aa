use cuda_std::launch::LaunchDims;
use kernels::exp::{BLOCK, ExpBackwardF32, ExpForwardF32, TILE};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Compute, Result};

impl<T: Compute> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "exp.forward";
        let n = self.x.len();
        let (x, y) = (self.x.gpu(OP, "x")?, self.y.gpu_mut(OP, "y")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: both are whole tensors of `n` elements, and the grid covers `n`.
        unsafe { gpu.launch(dims, ExpForwardF32 { x, y, n: n as u64 }) }
    }
}

impl<T: Compute> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "exp.backward";
        let (n, beta) = (self.x.len(), self.dx.beta as f32);
        let (x, y, dy) = (self.x.gpu(OP, "x")?, self.y.gpu(OP, "y")?, self.dy.gpu(OP, "dy")?);
        let dx = self.dx.tensor.gpu_mut(OP, "dx")?;
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: all are whole tensors of `n` elements, checked by `exp::backward`, and the grid covers `n`.
        unsafe { gpu.launch(dims, ExpBackwardF32 { x, y, dy, dx, beta, n: n as u64 }) }
    }
}
