use cuda_std::launch::LaunchDims;
use kernels::stochastic_pool::{StochasticPoolAdvance, StochasticPoolForward, StochasticPoolInference};
use kernels::window::Tiling;

use super::{Advance, Forward, Inference};
use crate::device::{Gpu, OnGpu, for_storage};
use crate::ops::route::for_indices;
use crate::ops::window::for_order;
use crate::{Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "stochastic_pool.forward";
        if self.y.is_empty() {
            return Ok(());
        }
        let state = self.state.gpu::<u64>(OP, "state")?;
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(OP)?;
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                for_indices!(self.indices, indices as P => {
                    let indices = indices.gpu_mut::<P>(OP, "indices")?;
                    let draw = StochasticPoolForward::<S, L, P> { x, y, indices, state, window, tiling };
                    // SAFETY: `stochastic_pool::forward` made `y` and `indices` with the shape that the window, which has no
                    // dilation, gives for `x`'s, in its layout, and the indices in a type for it; the state was checked; the
                    // tiling is over the output, and the launch its own.
                    unsafe { gpu.launch(LaunchDims::new(grid, block), draw) }
                })
            })
        })
    }
}

impl OnGpu for Advance<'_> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let state = self.state.gpu_mut::<u64>("stochastic_pool.forward", "random")?;
        // SAFETY: `Random` made the state; one block of one thread.
        unsafe { gpu.launch(LaunchDims::new(1, 1), StochasticPoolAdvance { state }) }
    }
}

impl<T: Real> OnGpu for Inference<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "stochastic_pool.forward_inference";
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(OP)?;
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                let mean = StochasticPoolInference::<S, L> { x, y, window, tiling };
                // SAFETY: `stochastic_pool::forward_inference` made `y` with the shape that the window, which has no dilation,
                // gives for `x`'s, in its layout; the tiling is over the output, and the launch its own.
                unsafe { gpu.launch(LaunchDims::new(grid, block), mean) }
            })
        })
    }
}
