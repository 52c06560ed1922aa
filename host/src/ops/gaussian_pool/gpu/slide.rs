//! Launches of the kernels that slide, with the channels last.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::slide::{
    GaussianPoolBackwardParametersSlide, GaussianPoolBackwardSlide, GaussianPoolForwardSlide, Plan as SlidePlan,
};
use kernels::gaussian_pool::{DERIVATIVES_ENTRY, Geometry, SUMS_PER_GAUSSIAN};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::{MAX_COUNT, sum_parameters, with_weights};
use crate::Layout::ChannelsLast;
use crate::device::explain::Because;
use crate::device::{Gpu, for_storage};
use crate::{Real, Result};

/// Runs a block with the parameters of these names of the kernels that slide, for windows and numbers of Gaussians that these
/// have.
macro_rules! for_slide {
    ($axes:expr, up to 1 of $maps:expr, $size:ident, $stride:ident, $kernels:ident, $body:expr) => {
        for_slide!(
            @ ($axes[0].size, $maps), $size, $stride, $kernels, $body;
            (3, 1): (3, 2, 1); (3, _): (3, 2, 0); (_, 1): (11, 2, 1); (_, _): (11, 2, 0);
        )
    };
    ($axes:expr, up to 3 of $maps:expr, $size:ident, $stride:ident, $kernels:ident, $body:expr) => {
        for_slide!(
            @ ($axes[0].size, $maps), $size, $stride, $kernels, $body;
            (3, 1): (3, 2, 1); (3, _): (3, 2, 0); (_, 1): (11, 2, 1); (_, 3): (11, 2, 3); (_, _): (11, 2, 0);
        )
    };
    (@ $case:expr, $size:ident, $stride:ident, $kernels:ident, $body:expr;
     $(($s:pat, $k:pat): ($a:literal, $b:literal, $c:literal);)*) => {
        match $case {
            $(($s, $k) => {
                const $size: u32 = $a;
                const $stride: u32 = $b;
                const $kernels: u32 = $c;
                $body
            })*
        }
    };
}

/// Says why launches are made by these kernels.
fn because(plan: &Plan, launch: &SlidePlan) -> Because {
    super::because(
        plan,
        match launch.kernels {
            0 => "by windows that slide down in registers, of a size compiled in, with weights for each channel",
            _ => "by windows that slide down in registers, of a size compiled in, with weights that all channels share",
        },
    )
}

/// The plan of kernels that slide, if there are such for the window and the layout, they can and the grid has as many blocks.
pub(super) fn plan(plan: &Plan, geometry: &Geometry, launch: impl FnOnce() -> Option<SlidePlan>) -> Option<SlidePlan> {
    let window = geometry.axes.map(|axis| (axis.size, axis.stride));
    let can = plan.layout == ChannelsLast && plan.planes() > 0 && [[(3, 2); 2], [(11, 2); 2]].contains(&window);
    if can { launch().filter(|launch| launch.blocks <= MAX_COUNT as u64) } else { None }
}

/// The shape of a launch of kernels that slide.
fn dims(launch: SlidePlan) -> LaunchDims {
    LaunchDims::new(launch.blocks as u32, launch.threads).with_shared(launch.shared_bytes)
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn sliding(self, gpu: &Gpu, geometry: Geometry, launch: SlidePlan) -> Result<()> {
        let plan = &self.plan;
        let _why = because(plan, &launch);
        let (op, slide) = (plan.op, launch.slide);
        let (dims, entry) = (dims(launch), (launch.kernels == 0).then_some(1));
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            with_weights(gpu, plan, [self.mean, self.var], geometry, entry, 0, |[weights_y, weights_x], _| {
                for_slide!(geometry.axes, up to 3 of launch.kernels, SIZE, STRIDE, KERNELS, {
                    let launch = GaussianPoolForwardSlide::<S, SIZE, STRIDE, KERNELS> {
                        x,
                        mean,
                        var,
                        weights_y,
                        weights_x,
                        y,
                        geometry,
                        slide,
                    };
                    // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, and the parameters
                    // theirs; the tables are there where channels vary; the grid and the shared memory are the plan's.
                    unsafe { gpu.launch(dims, launch) }
                })
            })
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn sliding(self, gpu: &Gpu, geometry: Geometry, launch: SlidePlan) -> Result<()> {
        let plan = &self.plan;
        let _why = because(plan, &launch);
        let (op, slide) = (plan.op, launch.slide);
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let entry = if parameters { DERIVATIVES_ENTRY } else { 1 };
        // A block's sums, of each of its channels where these vary.
        let tiles = slide.across * slide.down;
        let varied = launch.kernels == 0;
        let parts = match varied {
            _ if !parameters => 0,
            true => plan.planes() * tiles as usize,
            false => launch.blocks as usize,
        };
        let dims = dims(launch);
        let of_varied = varied.then_some(entry);
        let (parameters_of, parts) = ([self.mean, self.var], parts * SUMS_PER_GAUSSIAN as usize);
        with_weights(gpu, plan, parameters_of, geometry, of_varied, parts, |[weights_y, weights_x], mut sums| {
            for_storage!(T as S, op, "x", gpu, {
                let dy = self.dy.gpu::<S>(op, "dy")?;
                let (mut dx, dx_beta) = match self.dx {
                    Some(out) => {
                        (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32)
                    }
                    None => (None, 0.0),
                };
                let x = self.x.gpu::<S>(op, "x")?;
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                if parameters {
                    let sums = &mut sums;
                    for_slide!(geometry.axes, up to 1 of launch.kernels, SIZE, STRIDE, KERNELS, {
                        let launch = GaussianPoolBackwardParametersSlide::<S, SIZE, STRIDE, KERNELS> {
                            x,
                            dy,
                            mean,
                            var,
                            weights_y,
                            weights_x,
                            dx,
                            dx_beta,
                            sums,
                            geometry,
                            slide,
                        };
                        // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that `geometry` was made of, and the
                        // parameters theirs; the tables are there where channels vary, with derivatives; `sums` has four
                        // elements for each block, or for each block of each plane; the grid and the shared memory are the
                        // plan's.
                        unsafe { gpu.launch(dims, launch) }
                    })
                } else {
                    let Some(dx) = dx.take() else { return Ok(()) };
                    for_slide!(geometry.axes, up to 3 of launch.kernels, SIZE, STRIDE, KERNELS, {
                        let launch = GaussianPoolBackwardSlide::<S, SIZE, STRIDE, KERNELS> {
                            dy,
                            mean,
                            var,
                            weights_y,
                            weights_x,
                            dx,
                            dx_beta,
                            geometry,
                            slide,
                        };
                        // SAFETY: as above.
                        unsafe { gpu.launch(dims, launch) }
                    })
                }
            })?;
            if !parameters {
                return Ok(());
            }
            // Where channels do not vary, all blocks' sums are those of one Gaussian.
            let geometry = match varied {
                true => Geometry { tiles: [tiles, 1], ..geometry },
                false => Geometry { planes: launch.blocks as u32, tiles: [1, 1], ..geometry },
            };
            sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry)
        })
    }
}
