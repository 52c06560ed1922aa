use cuda_std::launch::LaunchDims;
use kernels::add2::{Add2Backward, Add2Forward, BLOCK, tile};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, for_storage, tiles};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "add2.forward";
        let n = self.a.len();
        for_storage!(T as S, OP, "a", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let (a, b, y) = (self.a.gpu::<S>(OP, "a")?, self.b.gpu::<S>(OP, "b")?, self.y.gpu_mut::<S>(OP, "y")?);
            // SAFETY: all are whole tensors of `n` elements, checked by `add2::forward`, and the grid covers `n`.
            unsafe { gpu.launch(dims, Add2Forward { a, b, y, n: n as u64 }) }
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "add2.backward";
        let (n, beta) = (self.dy.len(), self.dx.beta as f32);
        for_storage!(T as S, OP, "dy", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let (dy, dx) = (self.dy.gpu::<S>(OP, "dy")?, self.dx.tensor.gpu_mut::<S>(OP, "dx")?);
            // SAFETY: both are whole tensors of `n` elements, checked by `add2::backward`, and the grid covers `n`.
            unsafe { gpu.launch(dims, Add2Backward { dy, dx, beta, n: n as u64 }) }
        })
    }
}
