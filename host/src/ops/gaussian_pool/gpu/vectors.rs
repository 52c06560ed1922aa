//! Launches of the kernels by vectors of channels, which are last, and by runs of outputs.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::runs::{self, GaussianPoolRunsRows};
use kernels::gaussian_pool::vectors::{
    GaussianPoolBackwardVectors, GaussianPoolForwardVectors, MOST_POSITIONS, Weights,
};
use kernels::gaussian_pool::{Axis, Geometry};
use kernels::vectors::{AHEAD, ENOUGH_RUNS, Plan as VectorsOf, overlap};
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::patches::window;
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, for_half, for_storage};
use crate::ops::window::turned;
use crate::{DType, Real, Result};

/// Windows over an input, at most: with more, sums along each axis are less work than a product for each position.
const MOST_OVER: u32 = 64;

/// Gaussians a map that are worth a launch each, at most: each writes a part of every 32 bytes. Where windows have so many positions,
/// what is written is little beside what is read.
const MOST_MAPS: u32 = 2;
const LARGE: u32 = 64;

/// A launch's window, its weights and its vectors.
pub(super) struct VectorsPlan {
    window: Window<Nhwc>,
    weights: Weights,
    of: VectorsOf,
    dims: LaunchDims,
    way: Way,
}

/// Which kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// For any window.
    Any,
    /// Backward by the forward kernel and the window turned round, which is the plan's.
    Turned,
    /// By runs of outputs of row-major images: the plan's window is of images of one column, with a channel for each column.
    Rows,
}

/// The plan of the forward pass, if the channels are whole vectors, share a Gaussian whose weights are the same everywhere, and few
/// enough windows are over an input; or of row-major images of 16 bits, if there is a kernel.
/// Of several Gaussians a map there are kernels for any window alone, a launch for each.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<VectorsPlan> {
    let (window, bytes) = (of_shared(plan, geometry)?, dtype.size());
    if geometry.kernels > 1 {
        let worth = plan.layout == ChannelsLast && are_worth(geometry.kernels, &window);
        let of = VectorsOf::forward(&window, bytes).filter(|_| worth)?;
        return Some(by_any(plan, window, of, of.shared_bytes(1, bytes)));
    }
    if plan.layout == RowMajor {
        return by_rows(gpu, plan, window, bytes);
    }
    let of = VectorsOf::forward(&window, bytes)?;
    Some(by_any(plan, window, of, of.shared_bytes(1, bytes)))
}

/// The plan of the backward pass for the input's gradient alone; likewise. That which is written, and not added to what is there, of windows one apart is the
/// forward pass of the windows turned round.
pub(super) fn backward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType, writes: bool) -> Option<VectorsPlan> {
    let (window, bytes) = (of_shared(plan, geometry).filter(|_| geometry.kernels == 1)?, dtype.size());
    if plan.layout == RowMajor {
        // Padded by as many, turned round it is the same window.
        return by_rows(gpu, plan, window, bytes);
    }
    if window.stride == [1; 2] && writes {
        let window = turned(window);
        let of = VectorsOf::forward(&window, bytes)?;
        return Some(VectorsPlan { way: Way::Turned, ..by_any(plan, window, of, of.shared_bytes(1, bytes)) });
    }
    Some(by_any(plan, window, VectorsOf::backward(&window, bytes)?, 0))
}

/// Whether so many Gaussians a map are worth a launch each.
pub(super) fn are_worth(gaussians: u32, window: &Window<Nhwc>) -> bool {
    gaussians <= MOST_MAPS || window.size[0].saturating_mul(window.size[1]) >= LARGE
}

/// The same window over images of one column, which have a channel for each column of the row-major images it is of.
pub(super) fn of_columns(window: Window<Nhwc>) -> Option<Window<Nhwc>> {
    let ([height, columns], planes) = (window.input, window.planes.checked_mul(window.channels)?);
    Some(Window { planes, channels: columns, input: [height, 1], output: [height, 1], ..window })
}

/// Runs of outputs that keep a GPU busy. On the emulated grid, for which more threads are not faster, runs are to be long.
pub(super) fn enough_runs(gpu: &Gpu) -> u64 {
    if gpu.is_emulated() { 1 } else { ENOUGH_RUNS }
}

/// The window, of such a pass.
fn of_shared(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [over_y, over_x] = geometry.axes.map(|Axis { size, stride, .. }| size.div_ceil(stride));
    let few = over_y.saturating_mul(over_x) <= MOST_OVER;
    let [y, x] = &geometry.axes;
    let small = y.size.saturating_mul(x.size) <= MOST_POSITIONS;
    let shared = (geometry.sets, y.cases, x.cases) == (1, 1, 1);
    (plan.planes() > 0 && shared && few && small).then(|| window(geometry))
}

fn by_rows(gpu: &Gpu, plan: &Plan, window: Window<Nhwc>, bytes: usize) -> Option<VectorsPlan> {
    if bytes != 2 || (window.size, window.stride, window.padding) != ([runs::SIZE; 2], [1; 2], [1; 2]) {
        return None;
    }
    let window = of_columns(window)?;
    let of = VectorsOf::runs(&window, bytes, enough_runs(gpu))?;
    let dims = LaunchDims::new(of.blocks, of.threads).with_shared(runs::SHARED_BYTES);
    Some(VectorsPlan { window, weights: weights(plan, &window), of, dims, way: Way::Rows })
}

fn by_any(plan: &Plan, window: Window<Nhwc>, of: VectorsOf, shared: u32) -> VectorsPlan {
    let dims = LaunchDims::new(of.blocks, of.threads).with_shared(Weights::shared_bytes(window.size) + shared);
    VectorsPlan { window, weights: weights(plan, &window), of, dims, way: Way::Any }
}

fn weights(plan: &Plan, window: &Window<Nhwc>) -> Weights {
    Weights::new(plan.variances() as u32, window.size[1])
}

/// Why a launch is made by these kernels.
fn why(launch: &VectorsPlan) -> &'static str {
    match launch.way {
        Way::Any | Way::Turned => WHY,
        Way::Rows => ROWS,
    }
}

const WHY: &str =
    "by vectors of 16 bytes of channels, with weights that all channels share; the size has no kernel of its own";

const ROWS: &str =
    "by runs of outputs below each other, of a size compiled in, of 16 bits and rows of a multiple of eight";

/// Launches the kernel by runs of row-major images with these fields.
macro_rules! launch_rows {
    ($gpu:ident, $s:ty, $plan:ident, $geometry:ident, $from:expr, $to:expr, $mean:expr, $var:expr, $beta:expr, $turned:expr) => {{
        let VectorsPlan { window, of: VectorsOf { vectors, .. }, dims, .. } = $plan;
        let (from, to, mean, var, beta, turned, geometry) = ($from, $to, $mean, $var, $beta, $turned, $geometry);
        let variances = $plan.weights.variances();
        type Runs<'a> = GaussianPoolRunsRows<'a, $s, { runs::SIZE as usize }>;
        let launch = Runs { from, mean, var, to, beta, turned, variances, geometry, window, vectors };
        // SAFETY: the tensors have the shapes and the layout that the window was made of, and the parameters theirs; the grid, the
        // block and the shared memory are the plan's, of windows of this size; rows are whole vectors, and memory begins at multiples
        // of 16 bytes.
        unsafe { $gpu.launch(dims, launch) }
    }};
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_vectors(self, gpu: &Gpu, geometry: Geometry, launch: VectorsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, why(&launch));
        let op = plan.op;
        let VectorsPlan { window, weights, of: VectorsOf { vectors, .. }, dims, .. } = launch;
        for_half!(T as S, {
            if launch.way == Way::Rows {
                let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                return launch_rows!(gpu, S, launch, geometry, x, y, mean, var, 0.0, 0);
            }
        });
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for map in 0..geometry.kernels {
                let y = &mut *y;
                let launch = GaussianPoolForwardVectors::<S> {
                    x,
                    mean,
                    var,
                    y,
                    weights,
                    map,
                    turned: 0,
                    geometry,
                    window,
                    vectors,
                };
                // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, and the parameters
                // theirs; the grid, the block and the shared memory are the plan's, and memory begins at multiples of 16 bytes.
                unsafe { gpu.launch(dims, launch)? };
            }
            Ok(())
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_vectors(self, gpu: &Gpu, geometry: Geometry, launch: VectorsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, why(&launch));
        let op = plan.op;
        let Some(out) = self.dx else { return Ok(()) };
        let beta = out.beta as f32;
        let VectorsPlan { window, weights, of: VectorsOf { vectors, .. }, dims, .. } = launch;
        for_half!(T as S, {
            if launch.way == Way::Rows {
                let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                return launch_rows!(gpu, S, launch, geometry, dy, dx, mean, var, beta, 1);
            }
        });
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! launch {
                ($ahead:expr) => {{
                    type Backward<'a, S> = GaussianPoolBackwardVectors<'a, S, { $ahead }>;
                    let launch = Backward { dy, mean, var, dx, beta, weights, geometry, window, vectors };
                    // SAFETY: as above, of `dy` and `dx`; inputs of windows that overlap are one a thread.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            if launch.way == Way::Turned {
                type Turned<'a, S> = GaussianPoolForwardVectors<'a, S>;
                let launch = Turned { x: dy, mean, var, y: dx, weights, map: 0, turned: 1, geometry, window, vectors };
                // SAFETY: as above, of `dy` and `dx`, whose windows are one apart and the window's turned round.
                return unsafe { gpu.launch(dims, launch) };
            }
            if overlap(&window) { launch!(1) } else { launch!(AHEAD) }
        })
    }
}
