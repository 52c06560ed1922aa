//! Launches of the kernel that goes down runs of inputs for all gradients.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::runs_learnt::{GaussianPoolRunsLearnt, SHARED_BYTES, SIZE};
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};
use kernels::vectors::Plan as VectorsOf;
use kernels::window::{Nhwc, Window};

use super::super::Backward;
use super::patches::window;
use super::sum_parameters;
use super::vectors::{enough_runs, of_columns};
use crate::Layout::RowMajor;
use crate::device::{Gpu, for_storage};
use crate::ops::window::turned;
use crate::{Real, Result};

/// A launch's window, turned round, and its runs.
#[derive(Clone, Copy)]
pub(super) struct RunsPlan {
    window: Window<Nhwc>,
    of: VectorsOf,
    rows: bool,
}

/// Bytes of a row of few vectors.
const FEW_VECTORS: u32 = 128;

impl RunsPlan {
    /// Whether these are row-major images of so short rows that no other kernel is faster.
    pub(super) fn has_short_rows<T: Real>(&self) -> bool {
        self.rows && self.window.channels * T::DTYPE.size() as u32 <= FEW_VECTORS
    }
}

const WHY: &str =
    "all gradients by runs of inputs below each other, of a size compiled in and 16 bytes of channels or columns";

impl<T: Real> Backward<'_, T> {
    /// The plan, if gradients of the parameters are asked for, one Gaussian is shared by all, and windows are 3×3 and one apart, with
    /// channels that are last and whole vectors, or over padded rows that are.
    pub(super) fn plan_runs_learnt(&self, gpu: &Gpu, geometry: &Geometry) -> Option<RunsPlan> {
        let plan = &self.plan;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let [y, x] = &geometry.axes;
        let one = (geometry.sets, geometry.kernels, y.cases, x.cases) == (1, 1, 1, 1);
        let known = [y, x].map(|axis| (axis.size as usize, axis.stride)) == [(SIZE, 1); 2];
        if !(parameters && one && known) || plan.planes() == 0 {
            return None;
        }
        let (window, rows) = (turned(window(geometry)), plan.layout == RowMajor);
        let window = match (rows, window.padding) {
            (false, _) => window,
            (true, [1, 1]) => of_columns(window)?,
            (true, _) => return None,
        };
        Some(RunsPlan { window, of: VectorsOf::runs(&window, T::DTYPE.size(), enough_runs(gpu))?, rows })
    }

    pub(super) fn by_runs_learnt(self, gpu: &Gpu, geometry: Geometry, launch: RunsPlan) -> Result<()> {
        let plan = &self.plan;
        let why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let RunsPlan { window, of: VectorsOf { vectors, blocks, threads, .. }, rows } = launch;
        let dims = LaunchDims::new(blocks, threads).with_shared(SHARED_BYTES);
        let mut workspace = gpu.workspace(blocks as usize * SUMS_PER_GAUSSIAN as usize)?;
        let mut of_blocks = workspace.as_slice_mut();
        for_storage!(T as S, op, "x", gpu, {
            let (x, dy) = (self.x.gpu::<S>(op, "x")?, self.dy.gpu::<S>(op, "dy")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let (dx, beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            let sums = &mut of_blocks;
            macro_rules! run {
                ($rows:literal) => {{
                    type Kernel<'a, S> = GaussianPoolRunsLearnt<'a, S, $rows>;
                    let launch = Kernel::<S> { x, dy, mean, var, dx, beta, sums, variances, geometry, window, vectors };
                    // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that `geometry` and `window` were made of, whose windows
                    // are of that size and one apart, and the parameters theirs; there are four sums for each block; the vectors are of
                    // runs of the inputs, and memory begins at multiples of 16 bytes.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            if rows { run!(true) } else { run!(false) }
        })?;
        drop(why);
        // All blocks' sums are those of one Gaussian.
        let geometry = Geometry { planes: blocks, tiles: [1, 1], ..geometry };
        sum_parameters(gpu, plan, self.dmean, self.dvar, &of_blocks, geometry)
    }
}
