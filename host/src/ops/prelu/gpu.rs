use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::prelu::{BLOCK, PART, PreluBackwardColumns, PreluBackwardPlanes, PreluForward, ROWS, TILE};

use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, explain, for_storage, tiles};
use crate::ops::sum_parts;
use crate::{Out, Real, Result};

/// Below this a plane keeps too few threads of a block busy, and columns are taken instead.
const SMALL_PLANE: usize = 64;

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "prelu.forward";
        let n = self.y.len();
        let (channels, inner) = (self.layout.channels as u32, self.layout.inner as u64);
        let alpha = self.alpha.gpu::<f32>(OP, "alpha")?;
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        for_storage!(T as S, OP, "x", gpu, {
            let x = self.x.map(|x| x.gpu::<S>(OP, "x")).transpose()?.map(|x| x as &dyn DeviceMemory<S>);
            let y = self.y.gpu_mut::<S>(OP, "y")?;
            // SAFETY: `x` and `y` are whole tensors of `n = outer * channels * inner` elements and `alpha` holds `channels`,
            // checked by `prelu::forward`; the grid covers `n`, and is empty where a size is zero.
            unsafe { gpu.launch(dims, PreluForward { x, alpha, y, channels, inner, n: n as u64 }) }
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "prelu.backward";
        let layout = self.layout;
        let alpha = self.alpha.gpu::<f32>(OP, "alpha")?;
        // Stage 1 leaves its sums as [outer, channels, parts].
        let columns = layout.inner < SMALL_PLANE && layout.channels > 1;
        let (outer, parts) = if columns {
            (layout.outer.div_ceil(ROWS as usize), layout.inner)
        } else {
            (layout.outer, layout.inner.div_ceil(PART as usize))
        };
        let count = outer * layout.channels * parts;
        let mut workspace = gpu.workspace(if self.dalpha.is_some() { count } else { 0 })?;
        let mut sums = workspace.as_slice_mut();
        let sums = self.dalpha.is_some().then_some(&mut sums as &mut dyn DeviceMemory<f32>);
        let (channels, inner) = (layout.channels as u32, layout.inner);
        for_storage!(T as S, OP, "x", gpu, {
            let (x, dy) = (self.x.gpu::<S>(OP, "x")?, self.dy.gpu::<S>(OP, "dy")?);
            let (dx, dx_beta) = Out::gpu::<S>(self.dx, OP, "dx")?;
            if columns {
                let _why = explain::because(|| {
                    format!(
                        "planes of {inner}, less than {SMALL_PLANE}, would leave threads idle: by columns across planes"
                    )
                });
                let dims = LaunchDims::new([outer as u32, tiles(layout.channels * inner, BLOCK), 1], BLOCK);
                let (outer, inner) = (layout.outer as u64, inner as u32);
                let stage = PreluBackwardColumns { x, alpha, dy, dx, dx_beta, sums, outer, channels, inner };
                // SAFETY: shapes were checked by `prelu::backward`; the grid covers columns and rows; `sums` holds one
                // element for each column of each chunk of rows.
                unsafe { gpu.launch(dims, stage) }
            } else {
                let dims = LaunchDims::new(count as u32, BLOCK);
                let (parts, vector) = (parts as u32, u32::from(inner % 4 == 0));
                let _why = explain::because(|| {
                    let loads =
                        if vector == 1 { "a multiple of 4: 4 at a time" } else { "no multiple of 4: one at a time" };
                    format!("planes of {inner}, {loads}, parts of {PART}")
                });
                let inner = inner as u64;
                let stage = PreluBackwardPlanes { x, alpha, dy, dx, dx_beta, sums, channels, inner, parts, vector };
                // SAFETY: shapes were checked by `prelu::backward`; the grid has one block for each part of each plane, and
                // `sums` one element for each block; a plane of a multiple of 4 elements begins at one of 4 elements.
                unsafe { gpu.launch(dims, stage) }
            }
        })?;

        sum_parts(OP, gpu, workspace.as_slice(), [outer, layout.channels, parts], self.dalpha)
    }
}
