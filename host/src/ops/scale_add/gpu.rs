use cuda_std::launch::LaunchDims;
use kernels::scale_add::{BLOCK, ScaleAddBackwardF32, ScaleAddForwardF32, TILE};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "scale_add.forward";
        let n = self.x.len();
        let (x, y) = (self.x.gpu(OP, "x")?, self.y.gpu_mut(OP, "y")?);
        let (s, c) = (self.s.gpu(OP, "s")?, self.c.gpu(OP, "c")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: `s` and `c` hold one element, `x` and `y` are whole tensors of `n`, checked by `scale_add::forward`, and
        // the grid covers `n`.
        unsafe { gpu.launch(dims, ScaleAddForwardF32 { x, s, c, y, n: n as u64 }) }
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "scale_add.backward";
        let (n, beta) = (self.dy.len(), self.dx.beta.f64() as f32);
        let (dy, s, dx) = (self.dy.gpu(OP, "dy")?, self.s.gpu(OP, "s")?, self.dx.tensor.gpu_mut(OP, "dx")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: `s` holds one element, `dy` and `dx` are whole tensors of `n`, checked by `scale_add::backward`, and the
        // grid covers `n`.
        unsafe { gpu.launch(dims, ScaleAddBackwardF32 { dy, s, dx, beta, n: n as u64 }) }
    }
}
