//! Launches of the kernel that goes down strips of two columns for the gradients of mean and variance, with the channels last.

use kernels::gaussian_pool::parameters_falling::{
    GaussianPoolParametersFalling, parameters_blocks, parameters_shared_bytes,
};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};

use super::super::Backward;
use super::elements::elements;
use super::patches::window;
use super::sum_parameters;
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, HALF, no_kernel};
use crate::ops::window::{Falling, is_much};
use crate::{DType, Real, Result, bf16, f16};

/// A launch, and whether each channel has a Gaussian of its own.
pub(super) struct ParametersPlan {
    falling: Falling,
    apiece: bool,
}

/// Outputs from which on this kernel takes less time than others, measured on an H200 (docs/perf/log.md).
fn enough(window: (u32, u32), apiece: bool, half: bool) -> u64 {
    match (window, apiece, half) {
        ((7, 1), ..) | ((7, _), false, true) => 1 << 17,
        ((5, 1), ..) | ((5, _), false, true) => 1 << 18,
        ((3, _), ..) | (_, false, false) | ((5, _), true, true) => 1 << 19,
        ((7, _), true, _) => 1 << 21,
        _ => 1 << 22,
    }
}

const WHY: &str = "the parameters' gradients by packs of channels down strips of two columns, of a size compiled in; dx, where it is asked for, by itself";

impl<T: Real> Backward<'_, T> {
    /// The plan of the gradients of the parameters, if they are asked for, channels are last and the weights the same everywhere, of windows that there are
    /// kernels for and of so much that these take less time.
    pub(super) fn plan_parameters_falling(&self, gpu: &Gpu, geometry: &Geometry) -> Option<ParametersPlan> {
        let (plan, [y, x]) = (&self.plan, &geometry.axes);
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let one = plan.layout == ChannelsLast && (geometry.kernels, y.cases, x.cases) == (1, 1, 1);
        if !(parameters && one) || geometry.planes == 0 {
            return None;
        }
        let (window, apiece, element) = (window(geometry), geometry.sets > 1, T::DTYPE.size() as u32);
        let [[size, width], [stride, right]] = [window.size, window.stride];
        let half = T::DTYPE != DType::F32;
        let known =
            matches!((size, stride, apiece), (5 | 7, 1 | 2, _)) || (size, stride, apiece, half) == (3, 1, true, true);
        let enough = enough((size, stride), apiece, half);
        if (size, stride) != (width, right) || !known || !is_much(gpu, elements(&window, window.output), enough) {
            return None;
        }
        let most = if apiece { element } else { 4 };
        let blocks = |bytes| parameters_blocks(bytes > element, size as usize, stride as usize);
        let mut falling = Falling::new(gpu, window, element, most, blocks).filter(|falling| falling.bytes == most)?;
        falling.dims = falling.dims.with_shared(parameters_shared_bytes(falling.lanes, apiece));
        Some(ParametersPlan { falling, apiece })
    }

    pub(super) fn parameters_falling(self, gpu: &Gpu, geometry: Geometry, launch: ParametersPlan) -> Result<()> {
        let Self { plan, x, mean, var, dy, dmean, dvar, .. } = self.without_dx(gpu)?;
        let why = super::because(&plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let ParametersPlan { falling: Falling { window, bytes, elements, lanes, rows, dims }, apiece } = launch;
        let [blocks, groups, _] = dims.grid;
        // Each channel's part of a block is a tile's; else all blocks' are those of one Gaussian.
        let geometry = if apiece {
            Geometry { planes: window.channels, tiles: [blocks, 1], ..geometry }
        } else {
            Geometry { planes: blocks * groups, tiles: [1, 1], ..geometry }
        };
        let parts = geometry.planes as usize * geometry.tiles[0] as usize;
        let mut workspace = gpu.workspace(parts * SUMS_PER_GAUSSIAN as usize)?;
        let mut of_blocks = workspace.as_slice_mut();
        let (mean, var) = (mean.gpu::<f32>(op, "mean")?, var.gpu::<f32>(op, "var")?);
        let sums = &mut of_blocks;
        /// Launches the kernel; of a type that there is none of it is an error, as in [`for_storage`](crate::device::for_storage).
        macro_rules! launch_kernel {
            ($(($dtype:ident $storage:ty): $($bytes:literal [$(($size:literal $stride:literal $apiece:literal))*])*;)*) => {
                match (T::DTYPE, (bytes, window.size[0], window.stride[0], apiece)) {
                    $($($((DType::$dtype, ($bytes, $size, $stride, $apiece)) if HALF || DType::$dtype == DType::F32 => {
                        let (x, dy) = (x.gpu::<$storage>(op, "x")?, dy.gpu::<$storage>(op, "dy")?);
                        type Kernel<'a> = GaussianPoolParametersFalling<'a, $storage, $bytes, $size, $stride, $apiece>;
                        let launch = Kernel { x, dy, mean, var, sums, variances, geometry, window, elements, lanes, rows };
                        // SAFETY: the tensors have the shapes and the layout that `window` was made of, whose channels are packs of so many bytes
                        // and whose windows are of that size and so far apart, and the parameters theirs; the elements are a group's pairs of columns
                        // in strips of `rows`, and the launch theirs for each group, with room for its weights and sums; there are four sums for
                        // each block, or for each channel's part of one.
                        unsafe { gpu.launch(dims, launch) }
                    })*)*)*
                    (got, _) => Err(no_kernel(op, "x", got, gpu)),
                }
            };
        }
        launch_kernel!(
            (F32 f32): 4 [(5 1 false) (5 2 false) (7 1 false) (7 2 false) (5 1 true) (5 2 true) (7 1 true) (7 2 true)];
            (F16 f16): 4 [(5 1 false) (5 2 false) (7 1 false) (7 2 false)]
                       2 [(3 1 true) (5 1 true) (5 2 true) (7 1 true) (7 2 true)];
            (Bf16 bf16): 4 [(5 1 false) (5 2 false) (7 1 false) (7 2 false)]
                         2 [(3 1 true) (5 1 true) (5 2 true) (7 1 true) (7 2 true)];
        )?;
        drop(why);
        sum_parameters(gpu, &plan, dmean, dvar, &of_blocks, geometry)
    }
}
