use cuda_std::launch::LaunchDims;
use kernels::avg_pool::{AvgPoolBackwardF32, AvgPoolForward2x2F32, AvgPoolForward3x3F32, AvgPoolForwardF32, Divisor};
use kernels::window::{Covering, Layout, Window};

use super::{Averages, Backward, Forward};
use crate::device::{Gpu, OnGpu};
use crate::{Compute, Result};

impl Averages {
    fn launch(&self, window: &Window) -> Divisor {
        let ([height, width], [above, left]) = (window.input, window.padding);
        let (begin, end) = match self.divisor.count_include_pad {
            true => ([0, 0], [height + 2 * above, width + 2 * left]),
            false => ([above, left], [height + above, width + left]),
        };
        let given = self.divisor.divisor_override.map_or(0.0, |divisor| divisor.get() as f32);
        Divisor { begin, end, given }
    }
}

impl<T: Compute> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "avg_pool.forward";
        let window = self.averages.windows.launch(OP)?;
        let divisor = self.averages.launch(&window);
        let (layout, grid, block) = Layout::new(window.planes, window.output);
        let dims = LaunchDims::new(grid, block);
        let (x, y) = (self.x.gpu(OP, "x")?, self.y.gpu_mut(OP, "y")?);
        // SAFETY: `avg_pool::forward` made `y` with the shape that the window, which has no dilation, gives for `x`'s; the
        // layout is over the output, and the launch its own; the small windows' kernels get their windows.
        unsafe {
            match window.size {
                [2, 2] => gpu.launch(dims, AvgPoolForward2x2F32 { x, y, window, divisor, layout }),
                [3, 3] => gpu.launch(dims, AvgPoolForward3x3F32 { x, y, window, divisor, layout }),
                _ => gpu.launch(dims, AvgPoolForwardF32 { x, y, window, divisor, layout }),
            }
        }
    }
}

impl<T: Compute> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "avg_pool.backward";
        let window = self.averages.windows.launch(OP)?;
        let (divisor, covering) = (self.averages.launch(&window), Covering::new(&window));
        let (layout, grid, block) = Layout::new(window.planes, window.input);
        let dims = LaunchDims::new(grid, block);
        let (dy, dx, beta) = (self.dy.gpu(OP, "dy")?, self.dx.tensor.gpu_mut(OP, "dx")?, self.dx.beta as f32);
        // SAFETY: `avg_pool::backward` checked that `dx` has the shape of the window's input and `dy` that of its output; the
        // window has no dilation; the layout is over the input, and the launch its own.
        unsafe { gpu.launch(dims, AvgPoolBackwardF32 { dy, dx, beta, window, covering, divisor, layout }) }
    }
}
