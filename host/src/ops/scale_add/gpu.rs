use cuda_std::launch::LaunchDims;
use kernels::scale_add::{BLOCK, ScaleAddBackward, ScaleAddForward, tile};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, for_storage, tiles};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "scale_add.forward";
        let n = self.x.len();
        for_storage!(T as S, OP, "x", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            let (s, c) = (self.s.gpu::<f32>(OP, "s")?, self.c.gpu::<f32>(OP, "c")?);
            // SAFETY: `s` and `c` hold one element, `x` and `y` are whole tensors of `n`, checked by
            // `scale_add::forward`, and the grid covers `n`.
            unsafe { gpu.launch(dims, ScaleAddForward { x, s, c, y, n: n as u64 }) }
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "scale_add.backward";
        let (n, beta) = (self.dy.len(), self.dx.beta as f32);
        for_storage!(T as S, OP, "dy", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let (dy, dx) = (self.dy.gpu::<S>(OP, "dy")?, self.dx.tensor.gpu_mut::<S>(OP, "dx")?);
            let s = self.s.gpu::<f32>(OP, "s")?;
            // SAFETY: `s` holds one element, `dy` and `dx` are whole tensors of `n`, checked by `scale_add::backward`, and
            // the grid covers `n`.
            unsafe { gpu.launch(dims, ScaleAddBackward { dy, s, dx, beta, n: n as u64 }) }
        })
    }
}
