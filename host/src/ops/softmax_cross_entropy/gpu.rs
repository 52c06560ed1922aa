use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::softmax_cross_entropy::{
    BLOCK, LONG, ROWS, SoftmaxCrossEntropyBackwardF32, SoftmaxCrossEntropyLongRowsF32, SoftmaxCrossEntropyMeanF32,
    SoftmaxCrossEntropyRowsF32,
};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, explain, tiles};
use crate::{Compute, Result};

/// From so many classes on a row has enough for all threads of a block, each of four vectors of four; where rows are few one vector is
/// enough.
const LONG_ROW: u32 = 16 * LONG;
/// Fewer rows than this leave a GPU with a warp for each idle.
const FEW_ROWS: usize = 4096;
/// Classes of a row's part backward, where rows are few: four vectors a lane, four times.
const PART: u32 = 2048;

impl<T: Compute> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "softmax_cross_entropy.forward";
        let rows = self.labels.len();
        let (x, labels) = (self.x.gpu(OP, "x")?, self.labels.gpu(OP, "labels")?);
        let (loss, log_sum) = (self.loss.gpu_mut(OP, "loss")?, self.log_sum.gpu_mut(OP, "log_sum")?);
        let mut workspace = gpu.workspace(rows)?;
        let losses = &mut workspace.as_slice_mut();
        let classes = self.classes;
        if classes >= LONG_ROW || (rows < FEW_ROWS && classes >= LONG_ROW / 4) {
            let _why = explain::because(|| format!("{rows} rows of {classes}: a block a row"));
            let each = LaunchDims::new(tiles(rows, 1), LONG);
            // SAFETY: shapes were checked by `softmax_cross_entropy::forward`; the workspace holds an element for each row; there
            // is a block for each.
            unsafe { gpu.launch(each, SoftmaxCrossEntropyLongRowsF32 { x, labels, losses, log_sum, classes })? };
        } else {
            let _why = explain::because(|| format!("{rows} rows of {classes}: a warp a row"));
            let each = LaunchDims::new(tiles(rows, ROWS), BLOCK);
            let rows = rows as u64;
            // SAFETY: as above; the grid covers the rows.
            unsafe { gpu.launch(each, SoftmaxCrossEntropyRowsF32 { x, labels, losses, log_sum, rows, classes })? };
        }
        let rows = rows as u64;
        let losses = &workspace.as_slice();
        // SAFETY: the first kernel wrote an element for each row; one block.
        unsafe { gpu.launch(LaunchDims::new(1, LONG), SoftmaxCrossEntropyMeanF32 { losses, loss, rows }) }
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
        // Parts for rows that are few, so that there are warps enough.
        let parts = if rows < FEW_ROWS { classes.div_ceil(PART) } else { 1 };
        let part = if parts > 1 { PART / 4 } else { classes };
        let _why = explain::because(|| format!("{rows} rows of {classes}: {parts} warps a row"));
        let dims = LaunchDims::new(tiles(rows * parts as usize, ROWS), BLOCK);
        let rows = rows as u64;
        let backward =
            SoftmaxCrossEntropyBackwardF32 { x, labels, log_sum, dloss, dx, beta, rows, classes, parts, part };
        // SAFETY: shapes were checked by `softmax_cross_entropy::backward`; the grid covers the rows' parts, which cover the rows.
        unsafe { gpu.launch(dims, backward) }
    }
}
