use cuda_std::launch::LaunchDims;
use kernels::add2::{Add2BackwardF32, Add2ForwardF32, BLOCK, TILE};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "add2.forward";
        let n = self.a.len();
        let (a, b, y) = (self.a.gpu(OP, "a")?, self.b.gpu(OP, "b")?, self.y.gpu_mut(OP, "y")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: all are whole tensors of `n` elements, checked by `add2::forward`, and the grid covers `n`.
        unsafe { gpu.launch(dims, Add2ForwardF32 { a, b, y, n: n as u64 }) }
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "add2.backward";
        let (n, beta) = (self.dy.len(), self.dx.beta.f64() as f32);
        let (dy, dx) = (self.dy.gpu(OP, "dy")?, self.dx.tensor.gpu_mut(OP, "dx")?);
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        // SAFETY: both are whole tensors of `n` elements, checked by `add2::backward`, and the grid covers `n`.
        unsafe { gpu.launch(dims, Add2BackwardF32 { dy, dx, beta, n: n as u64 }) }
    }
}
