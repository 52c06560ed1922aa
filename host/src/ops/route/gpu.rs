use cuda_std::launch::LaunchDims;
use kernels::patch::Patches;
use kernels::route::{RouteBackward, RouteBackwardPatch};
use kernels::window::{Covering, Tiling};

use super::{Backward, Indices, for_indices};
use crate::device::{Gpu, OnGpu, for_storage};
use crate::ops::window::{for_fixed, for_order};
use crate::{Real, Result};

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let (op, beta) = (self.op, self.dx.beta as f32);
        for_storage!(T as S, op, "dy", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, self.dx.tensor.gpu_mut::<S>(op, "dx")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(op)?;
                if let Indices::U8(indices) = self.indices {
                    let indices = indices.gpu::<u8>(op, "indices")?;
                    for_fixed!(window => SIZE, STRIDE, PADDING, {
                        let (patches, grid, block) = Patches::of_inputs(&window);
                        let route = RouteBackwardPatch::<S, L, SIZE, STRIDE, PADDING> { dy, indices, dx, beta, window, patches };
                        // SAFETY: as below; the geometry fits, and memory begins at multiples of 16 bytes.
                        return unsafe { gpu.launch(LaunchDims::new(grid, block), route) };
                    });
                }
                let covering = Covering::new(&window);
                let (tiling, grid, block) = Tiling::new(&window, window.input);
                for_indices!(self.indices, indices as P => {
                    let indices = indices.gpu::<P>(op, "indices")?;
                    let route = RouteBackward::<S, L, P> { dy, indices, dx, beta, window, covering, tiling };
                    // SAFETY: `route::backward` checked that `dx` has the shape of the window's input, `dy` and `indices` that
                    // of its output, and that all have its layout; the tiling is over the input, and the launch its own.
                    unsafe { gpu.launch(LaunchDims::new(grid, block), route) }
                })
            })
        })
    }
}
