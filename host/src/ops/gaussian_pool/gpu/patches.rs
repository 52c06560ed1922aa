//! Launches of the kernels for small windows two pixels apart, with the channels last.

use std::marker::PhantomData;

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::patches::{GaussianPoolBackwardPatches, GaussianPoolForwardPatches};
use kernels::gaussian_pool::{Axis, Geometry};
use kernels::patch::Patches;
use kernels::window::{Nhwc, Order, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, for_storage};
use crate::{DType, Real, Result};

/// A launch's window, its patches, and their shape.
pub(super) struct PatchesPlan {
    window: Window<Nhwc>,
    patches: Patches,
    dims: LaunchDims,
}

/// The plan of the forward pass, if there is a kernel.
pub(super) fn forward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<PatchesPlan> {
    // Channels in 16 bytes.
    of(plan, geometry, |window| Patches::of_weighted_outputs(window, 16 / dtype.size() as u32))
}

/// The plan of the backward pass for the input's gradient alone, which is written and not added to what is there; likewise.
pub(super) fn backward(plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<PatchesPlan> {
    of(plan, geometry, |window| match dtype {
        DType::F32 => Patches::of_inputs(window),
        _ => Patches::of_input_octets(window),
    })
}

fn of(
    plan: &Plan,
    geometry: &Geometry,
    patches: impl FnOnce(&Window<Nhwc>) -> Option<(Patches, [u32; 3], [u32; 3])>,
) -> Option<PatchesPlan> {
    let [vertical, horizontal] =
        geometry.axes.map(|Axis { size, stride, padding, cases, .. }| (size, stride, padding, cases));
    let known = [(2, 2, 0, 1), (3, 2, 0, 1), (3, 2, 1, 1)].contains(&vertical) && vertical == horizontal;
    let one = (geometry.sets, geometry.kernels) == (1, 1);
    if plan.layout != ChannelsLast || plan.planes() == 0 || !(known && one) {
        return None;
    }
    let window = window(geometry);
    let (patches, grid, block) = patches(&window)?;
    Some(PatchesPlan { window, patches, dims: LaunchDims::new(grid, block) })
}

/// The window as kernels by patches and by vectors take it: their planes are images.
pub(super) fn window(geometry: &Geometry) -> Window<Nhwc> {
    of_planes(geometry, [geometry.planes / geometry.channels, geometry.channels])
}

/// The window over so many planes of so many channels.
pub(super) fn of_planes<L: Order>(geometry: &Geometry, [planes, channels]: [u32; 2]) -> Window<L> {
    let [y, x] = &geometry.axes;
    Window {
        planes,
        channels,
        input: [y.image, x.image],
        output: [y.output, x.output],
        size: [y.size, x.size],
        stride: [y.stride, x.stride],
        padding: [y.padding, x.padding],
        dilation: [1; 2],
        order: PhantomData,
    }
}

/// Runs a block with `$size` and `$padding` as the parameters of these names of the kernels.
macro_rules! for_size {
    ($window:expr, $size:ident: $type:ty, $padding:ident, $body:expr) => {
        for_size!(@ ($window.size[0], $window.padding[0]), $size: $type, $padding, $body; (2, _): (2, 0); (_, 0): (3, 0); (_, _): (3, 1);)
    };
    (@ $case:expr, $size:ident: $type:ty, $padding:ident, $body:expr; $(($s:pat, $p:pat): ($a:literal, $b:literal);)*) => {
        match $case {
            $(($s, $p) => {
                const $size: $type = $a;
                const $padding: u32 = $b;
                $body
            })*
        }
    };
}

pub(super) use for_size;

const WHY: &str = "by patches of 16 bytes of channels, of a size compiled in and weights that all channels share";

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_patches(self, gpu: &Gpu, launch: PatchesPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let PatchesPlan { window, patches, dims } = launch;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_size!(window, SIZE: usize, PADDING, {
                let launch =
                    GaussianPoolForwardPatches::<S, SIZE, PADDING> { x, mean, var, y, variances, window, patches };
                // SAFETY: `x` and `y` have the shapes and the layout that `window` was made of, and the parameters theirs; the
                // grid and the block are the patches', of the window's size and padding.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_patches(self, gpu: &Gpu, launch: PatchesPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, variances) = (plan.op, plan.variances() as u32);
        let PatchesPlan { window, patches, dims } = launch;
        let Some(out) = self.dx else { return Ok(()) };
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_size!(window, SIZE: u32, PADDING, {
                let launch =
                    GaussianPoolBackwardPatches::<S, SIZE, PADDING> { dy, mean, var, dx, variances, window, patches };
                // SAFETY: `dy` and `dx` have the shapes and the layout that `window` was made of, and the parameters theirs; the
                // grid and the block are the patches', of the window's size and padding.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}
