use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::max_pool::{MaxPoolFlatIndices, MaxPoolForward, MaxPoolForwardPatch, MaxPoolForwardSmall};
use kernels::patch::Patches;
use kernels::window::{Covering, Tiling};

use super::{FlatIndices, Forward, Indices};
use crate::device::{Gpu, OnGpu, for_storage};
use crate::ops::route::for_indices;
use crate::ops::window::{for_fixed, for_order};
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.forward";
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(OP)?;
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                let dims = LaunchDims::new(grid, block);
                let indices: Option<&mut dyn DeviceMemory<u8>> = match self.indices {
                    Some(Indices::U16(indices)) => {
                        let indices = Some(indices.gpu_mut::<u16>(OP, "indices")? as &mut dyn DeviceMemory<u16>);
                        // SAFETY: as below.
                        return unsafe {
                            gpu.launch(dims, MaxPoolForward::<S, L, u16> { x, y, indices, window, tiling })
                        };
                    }
                    Some(Indices::U8(indices)) => Some(indices.gpu_mut::<u8>(OP, "indices")?),
                    None => None,
                };
                for_fixed!(window => SIZE, STRIDE, PADDING, {
                    let (patches, grid, block) = Patches::of_outputs(&window);
                    let forward = MaxPoolForwardPatch::<S, L, SIZE, STRIDE, PADDING> { x, y, indices, window, patches };
                    // SAFETY: as below; the geometry fits, and memory begins at multiples of 16 bytes.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), forward) };
                });
                // SAFETY: `max_pool::forward` made `y` and `indices` with the shape that the window gives for `x`'s, in its
                // layout, and the indices in a type for it; the tiling is over the output, and the launch its own; the small
                // windows' kernels get their windows.
                unsafe {
                    match (window.size, window.dilation) {
                        ([2, 2], [1, 1]) => {
                            gpu.launch(dims, MaxPoolForwardSmall::<S, L, 2> { x, y, indices, window, tiling })
                        }
                        ([3, 3], [1, 1]) => {
                            gpu.launch(dims, MaxPoolForwardSmall::<S, L, 3> { x, y, indices, window, tiling })
                        }
                        _ => gpu.launch(dims, MaxPoolForward::<S, L, u8> { x, y, indices, window, tiling }),
                    }
                }
            })
        })
    }
}

impl OnGpu for FlatIndices<'_> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.flat_indices";
        let flat = self.flat.gpu_mut::<u32>(OP, "flat")?;
        for_order!(self.windows.layout => L, {
            let window = self.windows.launch::<L>(OP)?;
            let covering = Covering::new(&window);
            let (tiling, grid, block) = Tiling::new(&window, window.output);
            for_indices!(self.indices, indices as P => {
                let indices = indices.gpu::<P>(OP, "indices")?;
                let flatten = MaxPoolFlatIndices::<L, P> { indices, flat, window, covering, tiling };
                // SAFETY: `max_pool::flat_indices` checked that the indices have the shape of the window's output and its type,
                // and made `flat` of the same shape and layout; the tiling is over the output, and the launch its own.
                unsafe { gpu.launch(LaunchDims::new(grid, block), flatten) }
            })
        })
    }
}
