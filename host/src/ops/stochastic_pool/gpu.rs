use cuda_std::launch::LaunchDims;
use kernels::band::Block;
use kernels::band::any::Lines;
use kernels::patch::Patches;
use kernels::stochastic_pool::{
    StochasticPoolAdvance, StochasticPoolForward, StochasticPoolForwardAny, StochasticPoolForwardBand,
    StochasticPoolForwardPairs, StochasticPoolForwardPatch, StochasticPoolInference, StochasticPoolInferenceAny,
    sums_of_rows,
};
use kernels::window::Tiling;

use super::{Advance, Forward, Inference};
use crate::device::{Gpu, OnGpu, for_storage};
use crate::ops::route::{Indices, for_indices};
use crate::ops::window::{Choice, Kernels, band_dims, channels_last, for_order, for_padded, for_slide, row_major};
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
                if let Some(window) = row_major(&window)
                    && let Indices::U8(indices) = self.indices
                {
                    let indices = indices.gpu_mut::<u8>(OP, "indices")?;
                    for_padded!(window, Choice::DrawnPairs.of(&window, &[size_of::<S>()]) => SIZE: usize, PADDING, (bands, launch), {
                        let _why = Kernels::Pairs.because(&window);
                        let draw =
                            StochasticPoolForwardPairs::<S, SIZE, PADDING> { x, y, indices, state, window, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    });
                    for_slide!(window, size_of::<S>() => SIZE, STRIDE, (bands, launch), {
                        let _why = Kernels::Bands.because(&window);
                        let draw = StochasticPoolForwardBand::<S, SIZE, STRIDE> { x, y, indices, state, window, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    });
                }
                if let Some(window) = channels_last(&window)
                    && let Indices::U8(indices) = self.indices
                {
                    let indices = indices.gpu_mut::<u8>(OP, "indices")?;
                    for_padded!(window, Patches::of_drawn_outputs(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                        let _why = Kernels::Patches.because(&window);
                        let draw =
                            StochasticPoolForwardPatch::<S, SIZE, PADDING> { x, y, indices, state, window, patches };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(grid, block), draw) };
                    });
                }
                for_indices!(self.indices, indices as P => {
                    let indices = indices.gpu_mut::<P>(OP, "indices")?;
                    if let Some(window) = row_major(&window)
                        && let Some((block, launch)) =
                            Block::of_outputs(&window, size_of::<S>(), sums_of_rows(&window))
                    {
                        let outputs = Lines::new(window.output);
                        let _why = Kernels::AnyBands.because(&window);
                        let draw = StochasticPoolForwardAny::<S, P> { x, y, indices, state, window, block, outputs };
                        // SAFETY: as below; the block and the lines are the window's, and the launch the block's.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    }
                    let (tiling, grid, block) = Tiling::new(&window, window.output);
                    let _why = Kernels::General.because(&window);
                    let draw = StochasticPoolForward::<S, L, P> { x, y, indices, state, window, tiling };
                    // SAFETY: `stochastic_pool::forward` made `y` and `indices` with the shape that the window, which has no
                    // dilation, gives for `x`'s, in its layout, and the indices in a type for it; the state was checked; the
                    // tiling is over the output, and the launch its own. Memory begins at multiples of 16 bytes.
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
                if let Some(window) = row_major(&window)
                    && let Some((block, launch)) = Block::of_outputs(&window, size_of::<S>(), 0)
                {
                    let outputs = Lines::new(window.output);
                    let _why = Kernels::AnyBands.because(&window);
                    let mean = StochasticPoolInferenceAny::<S> { x, y, window, block, outputs };
                    // SAFETY: as below; the block and the lines are the window's, and the launch the block's.
                    return unsafe { gpu.launch(band_dims(launch), mean) };
                }
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                let _why = Kernels::General.because(&window);
                let mean = StochasticPoolInference::<S, L> { x, y, window, tiling };
                // SAFETY: `stochastic_pool::forward_inference` made `y` with the shape that the window, which has no dilation,
                // gives for `x`'s, in its layout; the tiling is over the output, and the launch its own. Memory begins at multiples
                // of 16 bytes.
                unsafe { gpu.launch(LaunchDims::new(grid, block), mean) }
            })
        })
    }
}
