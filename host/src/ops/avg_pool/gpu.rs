use cuda_std::launch::LaunchDims;
use kernels::avg_pool::{
    AvgPoolBackward, AvgPoolBackwardPatch, AvgPoolForward, AvgPoolForwardPatch, AvgPoolForwardSmall, Divisor,
};
use kernels::patch::Patches;
use kernels::window::{Covering, Order, Tiling, Window};

use super::{Averages, Backward, Forward};
use crate::device::{Gpu, OnGpu, for_storage};
use crate::ops::window::{for_fixed, for_order};
use crate::{Real, Result};

impl Averages {
    fn launch<L: Order>(&self, window: &Window<L>) -> Divisor {
        let ([height, width], [above, left]) = (window.input, window.padding);
        let (begin, end) = match self.divisor.count_include_pad {
            true => ([0, 0], [height + 2 * above, width + 2 * left]),
            false => ([above, left], [height + above, width + left]),
        };
        // Windows of which every position counts have the same divisor, and no thread counts.
        let all_count = (0..2).all(|axis| {
            let last = (window.output[axis] - 1) * window.stride[axis] + window.size[axis];
            begin[axis] == 0 && last <= end[axis]
        });
        let [rows, columns] = window.size.map(|size| size as f32);
        let size = if all_count { rows * columns } else { 0.0 };
        let given = self.divisor.divisor_override.map_or(size, |divisor| divisor.get() as f32);
        Divisor { begin, end, given }
    }
}

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "avg_pool.forward";
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.averages.windows.layout => L, {
                let window = self.averages.windows.launch::<L>(OP)?;
                let divisor = self.averages.launch(&window);
                for_fixed!(window => SIZE, STRIDE, PADDING, {
                    let (patches, grid, block) = Patches::of_outputs(&window);
                    let forward = AvgPoolForwardPatch::<S, L, SIZE, STRIDE, PADDING> { x, y, window, divisor, patches };
                    // SAFETY: as below; the geometry fits, and memory begins at multiples of 16 bytes.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), forward) };
                });
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                let dims = LaunchDims::new(grid, block);
                // SAFETY: `avg_pool::forward` made `y` with the shape that the window, which has no dilation, gives for `x`'s,
                // in its layout; the tiling is over the output, and the launch its own; the small windows' kernels get their
                // windows.
                unsafe {
                    match window.size {
                        [2, 2] => gpu.launch(dims, AvgPoolForwardSmall::<S, L, 2> { x, y, window, divisor, tiling }),
                        [3, 3] => gpu.launch(dims, AvgPoolForwardSmall::<S, L, 3> { x, y, window, divisor, tiling }),
                        _ => gpu.launch(dims, AvgPoolForward::<S, L> { x, y, window, divisor, tiling }),
                    }
                }
            })
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "avg_pool.backward";
        let beta = self.dx.beta as f32;
        for_storage!(T as S, OP, "dy", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(OP, "dy")?, self.dx.tensor.gpu_mut::<S>(OP, "dx")?);
            for_order!(self.averages.windows.layout => L, {
                let window = self.averages.windows.launch::<L>(OP)?;
                let divisor = self.averages.launch(&window);
                for_fixed!(window => SIZE, STRIDE, PADDING, {
                    let (patches, grid, block) = Patches::of_inputs(&window);
                    let backward =
                        AvgPoolBackwardPatch::<S, L, SIZE, STRIDE, PADDING> { dy, dx, beta, window, divisor, patches };
                    // SAFETY: as below; the geometry fits, and memory begins at multiples of 16 bytes.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), backward) };
                });
                let covering = Covering::new(&window);
                let (tiling, grid, block) = Tiling::new(&window, window.input);
                let backward = AvgPoolBackward::<S, L> { dy, dx, beta, window, covering, divisor, tiling };
                // SAFETY: `avg_pool::backward` checked that `dx` has the shape of the window's input and `dy` that of its
                // output, both in its layout; the window has no dilation; the tiling is over the input, and the launch its
                // own.
                unsafe { gpu.launch(LaunchDims::new(grid, block), backward) }
            })
        })
    }
}
