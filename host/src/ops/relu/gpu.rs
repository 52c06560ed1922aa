use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::relu::{BLOCK, ReluBackward, ReluForward, tile};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, for_storage, tiles};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "relu.forward";
        let n = self.y.len();
        for_storage!(T as S, OP, "x", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let x = self.x.map(|x| x.gpu::<S>(OP, "x")).transpose()?.map(|x| x as &dyn DeviceMemory<S>);
            let y = self.y.gpu_mut::<S>(OP, "y")?;
            // SAFETY: both are whole tensors of `n` elements, and the grid covers `n`.
            unsafe { gpu.launch(dims, ReluForward { x, y, n: n as u64 }) }
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "relu.backward";
        let (n, beta) = (self.y.len(), self.dx.beta as f32);
        for_storage!(T as S, OP, "y", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let (y, dy) = (self.y.gpu::<S>(OP, "y")?, self.dy.gpu::<S>(OP, "dy")?);
            let dx = self.dx.tensor.gpu_mut::<S>(OP, "dx")?;
            // SAFETY: all are whole tensors of `n` elements, checked by `relu::backward`, and the grid covers `n`.
            unsafe { gpu.launch(dims, ReluBackward { y, dy, dx, beta, n: n as u64 }) }
        })
    }
}
