use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::max_pool::{
    MaxPoolBackwardU8F32, MaxPoolBackwardU16F32, MaxPoolFlatIndicesU8, MaxPoolFlatIndicesU16, MaxPoolForward2x2F32,
    MaxPoolForward3x3F32, MaxPoolForwardU8F32, MaxPoolForwardU16F32,
};
use kernels::window::{Covering, Layout};

use super::{Backward, FlatIndices, Forward, Indices};
use crate::device::{Gpu, OnGpu};
use crate::{Compute, Result};

impl<T: Compute> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.forward";
        let window = self.windows.launch(OP)?;
        let (layout, grid, block) = Layout::new(window.planes, window.output);
        let dims = LaunchDims::new(grid, block);
        let (x, y) = (self.x.gpu(OP, "x")?, self.y.gpu_mut(OP, "y")?);
        let indices: Option<&mut dyn DeviceMemory<u8>> = match self.indices {
            Some(Indices::U16(indices)) => {
                let indices = Some(indices.gpu_mut(OP, "indices")? as &mut dyn DeviceMemory<u16>);
                // SAFETY: as below.
                return unsafe { gpu.launch(dims, MaxPoolForwardU16F32 { x, y, indices, window, layout }) };
            }
            Some(Indices::U8(indices)) => Some(indices.gpu_mut(OP, "indices")?),
            None => None,
        };
        // SAFETY: `max_pool::forward` made `y` and `indices` with the shape that the window gives for `x`'s; the layout is
        // over the output, and the launch its own; the small windows' kernels get their windows.
        unsafe {
            match (window.size, window.dilation) {
                ([2, 2], [1, 1]) => gpu.launch(dims, MaxPoolForward2x2F32 { x, y, indices, window, layout }),
                ([3, 3], [1, 1]) => gpu.launch(dims, MaxPoolForward3x3F32 { x, y, indices, window, layout }),
                _ => gpu.launch(dims, MaxPoolForwardU8F32 { x, y, indices, window, layout }),
            }
        }
    }
}

impl<T: Compute> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.backward";
        let window = self.windows.launch(OP)?;
        let covering = Covering::new(&window);
        let (layout, grid, block) = Layout::new(window.planes, window.input);
        let dims = LaunchDims::new(grid, block);
        let (dy, dx, beta) = (self.dy.gpu(OP, "dy")?, self.dx.tensor.gpu_mut(OP, "dx")?, self.dx.beta as f32);
        // SAFETY: `max_pool::backward` checked that `dx` has the shape of the window's input, `dy` and `indices` that of its
        // output, and that the indices' type is the window's; the layout is over the input, and the launch its own.
        unsafe {
            match self.indices {
                Indices::U8(indices) => {
                    let indices = indices.gpu(OP, "indices")?;
                    gpu.launch(dims, MaxPoolBackwardU8F32 { dy, indices, dx, beta, window, covering, layout })
                }
                Indices::U16(indices) => {
                    let indices = indices.gpu(OP, "indices")?;
                    gpu.launch(dims, MaxPoolBackwardU16F32 { dy, indices, dx, beta, window, covering, layout })
                }
            }
        }
    }
}

impl OnGpu for FlatIndices<'_> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.flat_indices";
        let window = self.windows.launch(OP)?;
        let covering = Covering::new(&window);
        let (layout, grid, block) = Layout::new(window.planes, window.output);
        let dims = LaunchDims::new(grid, block);
        let flat = self.flat.gpu_mut(OP, "flat")?;
        // SAFETY: `max_pool::flat_indices` checked that the indices have the shape of the window's output and its type, and
        // made `flat` of the same shape; the layout is over the output, and the launch its own.
        unsafe {
            match self.indices {
                Indices::U8(indices) => {
                    let indices = indices.gpu(OP, "indices")?;
                    gpu.launch(dims, MaxPoolFlatIndicesU8 { indices, flat, window, covering, layout })
                }
                Indices::U16(indices) => {
                    let indices = indices.gpu(OP, "indices")?;
                    gpu.launch(dims, MaxPoolFlatIndicesU16 { indices, flat, window, covering, layout })
                }
            }
        }
    }
}
