//! Launches of the kernels for channels that are last and no whole vectors, and for little: an element a thread, or by lines.

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::few::{FEW_BLOCK, GaussianPoolBackwardFew, GaussianPoolForwardFew, MOST_ELEMENTS, SIZES};
use kernels::gaussian_pool::lines::{GaussianPoolForwardLines, LINES_BLOCK, Lines, Plan as LinesPlan};
use kernels::gaussian_pool::slide::CHANNELS;
use kernels::gaussian_pool::{Axis, Geometry};
use kernels::vectors::overlap;
use kernels::window::{Covering, Nhwc, Tiling, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::patches::{of_planes, window};
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Elements that are little: with as many, blocks that take runs or go down planes take longer.
const LITTLE: u64 = 1 << 18;

/// A launch's window, and how its threads are laid.
pub(super) struct FewPlan {
    window: Window<Nhwc>,
    way: Way,
}

enum Way {
    /// An element a thread.
    Elements(Tiling, LaunchDims),
    /// Forward by lines.
    Lines(LinesPlan),
}

/// The plan of the forward pass, if channels share a Gaussian whose weights are the same everywhere and there is a kernel.
pub(super) fn forward(plan: &Plan, geometry: &Geometry) -> Option<FewPlan> {
    let window = of_one(plan, geometry)?;
    if is_known(&window) {
        return Some(elements(window, window.output));
    }
    let lines = Lines::plan(&window, plan.variances() as u32)?;
    Some(FewPlan { window, way: Way::Lines(lines) })
}

/// The plan of the backward pass for the input's gradient alone; likewise.
pub(super) fn backward(plan: &Plan, geometry: &Geometry) -> Option<FewPlan> {
    backward_of(of_one(plan, geometry)?)
}

/// The same of planes that follow each other and windows that do not overlap, where there is so little that a launch is most of what it
/// takes.
pub(super) fn little(plan: &Plan, geometry: &Geometry) -> Option<FewPlan> {
    let [y, x] = geometry.axes.map(|Axis { cases, .. }| cases);
    let one = (geometry.sets, geometry.kernels, y, x) == (1, 1, 1, 1);
    let of_plane: u64 = geometry.axes.iter().map(|axis| u64::from(axis.image)).product();
    let little = of_plane.saturating_mul(u64::from(geometry.planes)) <= LITTLE;
    if plan.layout != RowMajor || plan.planes() == 0 || !one || !little {
        return None;
    }
    backward_of(of_planes(geometry, [geometry.planes, 1]))
}

fn backward_of(window: Window<Nhwc>) -> Option<FewPlan> {
    is_known(&window).then(|| elements(window, window.input))
}

/// Whether there are kernels for an element a thread.
fn is_known(window: &Window<Nhwc>) -> bool {
    SIZES.contains(&window.size[0]) && window.size[0] == window.size[1] && !overlap(window)
}

/// Whether so many channels are no multiple of what other kernels with the channels last take at once.
pub(super) fn odd(channels: u32) -> bool {
    !channels.is_multiple_of(CHANNELS)
}

fn of_one(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = geometry.axes.map(|Axis { cases, .. }| cases);
    let one = (geometry.sets, geometry.kernels, y, x) == (1, 1, 1, 1);
    if plan.layout != ChannelsLast || plan.planes() == 0 || !one {
        return None;
    }
    let window = window(geometry);
    let of = |[height, width]: [u32; 2]| u64::from(height) * u64::from(width) * u64::from(window.channels);
    (of(window.input).max(of(window.output)) <= MOST_ELEMENTS).then_some(window)
}

fn elements(window: Window<Nhwc>, size: [u32; 2]) -> FewPlan {
    let (tiling, grid, block) = Tiling::of_threads(&window, size, FEW_BLOCK);
    let dims = LaunchDims::new(grid, block);
    FewPlan { window, way: Way::Elements(tiling, dims) }
}

const ELEMENTS: &str = "an element a thread, of a size compiled in, with weights that all channels share: no whole vectors of these, or little";
const LINES: &str = "by lines of elements, with weights that all channels share, which are no whole vectors";

impl<T: Real> Forward<'_, T> {
    pub(super) fn few(self, gpu: &Gpu, geometry: Geometry, launch: FewPlan) -> Result<()> {
        let plan = &self.plan;
        let (op, variances, window) = (plan.op, plan.variances() as u32, launch.window);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            match launch.way {
                Way::Elements(tiling, dims) => {
                    let _why = super::because(plan, ELEMENTS);
                    macro_rules! run {
                        ($size:literal) => {{
                            type Kernel<'a, S> = GaussianPoolForwardFew<'a, S, $size>;
                            let launch = Kernel::<S> { x, mean, var, y, variances, window, tiling };
                            // SAFETY: `x` and `y` have the shapes and the layout that `window` was made of, whose windows are of that
                            // size, and the parameters theirs; the tiling is over its outputs, and the launch its own.
                            unsafe { gpu.launch(dims, launch) }
                        }};
                    }
                    if window.size[0] == 2 { run!(2) } else { run!(3) }
                }
                Way::Lines(LinesPlan { lines, grid, shared_bytes }) => {
                    let _why = super::because(plan, LINES);
                    let dims = LaunchDims::new(grid, LINES_BLOCK).with_shared(shared_bytes);
                    let launch = GaussianPoolForwardLines::<S> { x, mean, var, y, geometry, window, lines };
                    // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, and the
                    // parameters theirs; the lines are the window's, and the launch theirs.
                    unsafe { gpu.launch(dims, launch) }
                }
            }
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn few(self, gpu: &Gpu, launch: FewPlan) -> Result<()> {
        let plan = &self.plan;
        let (op, variances, window) = (plan.op, plan.variances() as u32, launch.window);
        let (Some(out), Way::Elements(tiling, dims)) = (self.dx, launch.way) else { return Ok(()) };
        let _why = super::because(plan, ELEMENTS);
        let (beta, covering) = (out.beta as f32, Covering::new(&window));
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            macro_rules! run {
                ($size:literal) => {{
                    type Kernel<'a, S> = GaussianPoolBackwardFew<'a, S, $size>;
                    let launch = Kernel::<S> { dy, mean, var, dx, beta, variances, window, covering, tiling };
                    // SAFETY: as above, of `dy` and `dx`; the tiling is over the window's inputs, of which one window at most covers each.
                    unsafe { gpu.launch(dims, launch) }
                }};
            }
            if window.size[0] == 2 { run!(2) } else { run!(3) }
        })
    }
}
