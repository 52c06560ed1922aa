use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::softmax_cross_entropy::{
    BLOCK, ROWS, SoftmaxCrossEntropyBackwardF32, SoftmaxCrossEntropyMeanF32, SoftmaxCrossEntropyRowsF32,
};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Compute, Result};

impl<T: Compute> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "softmax_cross_entropy.forward";
        let rows = self.labels.len();
        let (x, labels) = (self.x.gpu(OP, "x")?, self.labels.gpu(OP, "labels")?);
        let (loss, log_sum) = (self.loss.gpu_mut(OP, "loss")?, self.log_sum.gpu_mut(OP, "log_sum")?);
        let mut workspace = gpu.workspace(rows)?;
        let losses = &mut workspace.as_slice_mut();
        let each = LaunchDims::new(tiles(rows, ROWS), BLOCK);
        let (rows, classes) = (rows as u64, self.classes);
        // SAFETY: shapes were checked by `softmax_cross_entropy::forward`; the workspace holds an element for each row; the
        // grid covers the rows.
        unsafe { gpu.launch(each, SoftmaxCrossEntropyRowsF32 { x, labels, losses, log_sum, rows, classes })? };
        let losses = &workspace.as_slice();
        // SAFETY: the first kernel wrote an element for each row; one block.
        unsafe { gpu.launch(LaunchDims::new(1, BLOCK), SoftmaxCrossEntropyMeanF32 { losses, loss, rows }) }
    }
}

impl<T: Compute> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "softmax_cross_entropy.backward";
        let (rows, classes, beta) = (self.labels.len(), self.classes, self.dx.beta as f32);
        let (x, labels) = (self.x.gpu(OP, "x")?, self.labels.gpu(OP, "labels")?);
        let log_sum = self.log_sum.gpu(OP, "log_sum")?;
        let dloss = match self.dloss {
            Some(dloss) => Some(dloss.gpu(OP, "dloss")? as &dyn DeviceMemory<f32>),
            None => None,
        };
        let dx = self.dx.tensor.gpu_mut(OP, "dx")?;
        let dims = LaunchDims::new(tiles(rows, ROWS), BLOCK);
        let rows = rows as u64;
        // SAFETY: shapes were checked by `softmax_cross_entropy::backward`; the grid covers the rows.
        unsafe {
            gpu.launch(dims, SoftmaxCrossEntropyBackwardF32 { x, labels, log_sum, dloss, dx, beta, rows, classes })
        }
    }
}
