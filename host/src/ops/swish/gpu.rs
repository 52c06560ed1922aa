use cuda_std::launch::LaunchDims;
use kernels::swish::{BLOCK, PART, SwishBackward, SwishForward, tile};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, for_storage, tiles};
use crate::ops::sum_parts;
use crate::{Out, Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "swish.forward";
        let n = self.x.len();
        let beta = self.beta.gpu::<f32>(OP, "beta")?;
        for_storage!(T as S, OP, "x", gpu, {
            let dims = LaunchDims::new(tiles(n, tile::<S>()), BLOCK);
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            // SAFETY: both are whole tensors of `n` elements and `beta` holds one, checked by `swish::forward`; the grid
            // covers `n`.
            unsafe { gpu.launch(dims, SwishForward { x, beta, y, n: n as u64 }) }
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "swish.backward";
        let n = self.x.len();
        let beta = self.beta.gpu::<f32>(OP, "beta")?;
        let dims = LaunchDims::new(tiles(n, PART), BLOCK);
        let blocks = dims.grid[0] as usize;
        let mut workspace = gpu.workspace(blocks)?;
        for_storage!(T as S, OP, "x", gpu, {
            let (x, dy) = (self.x.gpu::<S>(OP, "x")?, self.dy.gpu::<S>(OP, "dy")?);
            let (dx, dx_beta) = Out::gpu::<S>(self.dx, OP, "dx")?;
            let parts = &mut workspace.as_slice_mut();
            // SAFETY: all are whole tensors of `n` elements and `beta` holds one, checked by `swish::backward`; the grid
            // covers `n`, and `parts` holds an element for each of its blocks.
            unsafe { gpu.launch(dims, SwishBackward { x, beta, dy, dx, dx_beta, parts, n: n as u64 }) }
        })?;
        sum_parts(OP, gpu, workspace.as_slice(), [1, 1, blocks], self.dbeta)
    }
}
