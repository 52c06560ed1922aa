//! Launches of the kernels by a thread a channel, for channels that are last.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::channels::{
    CHANNELS_BLOCK, GaussianPoolBackwardChannels, GaussianPoolForwardChannels, GaussianPoolLearntChannels, Workers,
    blocks_at_once,
};
use kernels::gaussian_pool::{DERIVATIVES_ENTRY, Geometry, SUMS_PER_GAUSSIAN};
use kernels::window::{Nhwc, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::patches::window;
use super::{sum_parameters, tables, weights};
use crate::Layout::ChannelsLast;
use crate::device::{Gpu, for_storage};
use crate::ops::window::{elements, turned};
use crate::{DType, Real, Result};

/// A launch's window, and how its threads are laid over it.
#[derive(Clone, Copy)]
pub(super) struct ChannelsPlan {
    window: Window<Nhwc>,
    workers: Workers,
}

/// Elements of all channels from which on sliding is faster where it can be.
const MANY: u64 = 1 << 25;

const WHY: &str = "by a thread a channel, for windows of a size compiled in and weights that are the same everywhere";

/// The window, if channels are last and the weights of each Gaussian the same everywhere.
fn of(plan: &Plan, geometry: &Geometry) -> Option<Window<Nhwc>> {
    let [y, x] = &geometry.axes;
    let fits = plan.layout == ChannelsLast && plan.planes() > 0 && (y.cases, x.cases) == (1, 1);
    fits.then(|| window(geometry))
}

/// The plan of the forward pass, if there is a kernel for the windows that is faster than others: there are several Gaussians.
pub(super) fn forward(plan: &Plan, geometry: &Geometry) -> Option<ChannelsPlan> {
    let several = geometry.sets > 1 || geometry.kernels > 1;
    let window = of(plan, geometry).filter(|_| several)?;
    let workers = Workers::forward(&window, geometry.sets, geometry.kernels)?;
    Some(ChannelsPlan { window, workers })
}

/// The plan of the backward pass, likewise, with one Gaussian a map: where channels have theirs, or share one and windows are large and the parameters'
/// gradients are asked for.
pub(super) fn backward(plan: &Plan, geometry: &Geometry, dtype: DType, learnt: bool) -> Option<ChannelsPlan> {
    let window = of(plan, geometry).filter(|_| geometry.kernels == 1)?;
    // Of many elements of f32 these windows are faster by sliding.
    let slide = (window.size[0], window.stride[0]) == (3, 2) && dtype == DType::F32;
    let slides = learnt && slide && elements(&window, window.input) >= MANY;
    let faster = if geometry.sets > 1 { !slides } else { learnt && window.size[0] > 3 };
    if !faster {
        return None;
    }
    if !learnt && window.stride == [1; 2] {
        // Pooling of `dy` by the window turned round.
        let window = turned(window);
        let workers = Workers::forward(&window, geometry.sets, 1)?;
        return Some(ChannelsPlan { window, workers });
    }
    let workers = Workers::backward(&window, geometry.sets)?;
    Some(ChannelsPlan { window, workers })
}

/// Launches [`GaussianPoolForwardChannels`] of windows of this size and distance with these fields.
macro_rules! launch_forward {
    // There is no kernel for two channels a thread.
    ($gpu:ident, $s:ty, $workers:ident, (3, 1), $fields:tt) => {
        launch_forward!(@ $gpu, $s, $workers, (3, 1, 1), $fields)
    };
    ($gpu:ident, $s:ty, $workers:ident, ($size:literal, $stride:literal), $fields:tt) => {
        if $workers.each() == 2 {
            launch_forward!(@ $gpu, $s, $workers, ($size, $stride, 2), $fields)
        } else {
            launch_forward!(@ $gpu, $s, $workers, ($size, $stride, 1), $fields)
        }
    };
    (@ $gpu:ident, $s:ty, $workers:ident, ($size:literal, $stride:literal, $each:literal), { $($fields:tt)* }) => {{
        let launch = GaussianPoolForwardChannels::<$s, $size, $stride, $each> { $($fields)* };
        // SAFETY: the tensors have the shapes and the layout that the window was made of, which is such; the tables were just written for it,
        // and have one case; the blocks are the workers', of its outputs and as many channels a thread. Memory begins at multiples of 16
        // bytes.
        unsafe { $gpu.launch(LaunchDims::new($workers.blocks(), CHANNELS_BLOCK), launch) }
    }};
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn by_channels(self, gpu: &Gpu, geometry: Geometry, launch: ChannelsPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, WHY);
        let (op, ChannelsPlan { window, workers }) = (plan.op, launch);
        let [table_y, table_x] = tables(plan, 1);
        let mut workspace = gpu.workspace(table_y + table_x)?;
        let (mut weights_y, mut weights_x) = workspace.as_slice_mut().split_at(table_y);
        weights(gpu, plan, [self.mean, self.var], geometry, 1, [&mut weights_y, &mut weights_x])?;
        let (weights_y, weights_x) = (&weights_y, &weights_x);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            macro_rules! run {
                ($size:tt, $stride:tt) => {
                    launch_forward!(gpu, S, workers, ($size, $stride), {
                        from: x, weights_y, weights_x, to: y, beta: 0.0, turned: 0, window, workers
                    })
                };
            }
            match (window.size[0], window.stride[0]) {
                (2, _) => run!(2, 2),
                (3, 1) => run!(3, 1),
                (3, _) => run!(3, 3),
                (4, _) => run!(4, 4),
                (5, 1) => run!(5, 1),
                (5, _) => run!(5, 2),
                _ => run!(7, 2),
            }
        })
    }
}

/// Runs `$run` with a window's size, its stride and what is left of its padding by that, or `$apart` with the size of windows that are one apart.
macro_rules! for_cells {
    ($window:ident, $run:ident, $apart:ident) => {
        match ($window.size[0], $window.stride[0], $window.padding[0] % $window.stride[0]) {
            (2, ..) => $run!(2, 2, 0),
            (3, 1, _) => $apart!(3),
            (3, 2, 0) => $run!(3, 2, 0),
            (3, 2, _) => $run!(3, 2, 1),
            (3, ..) => $run!(3, 3, 0),
            (4, ..) => $run!(4, 4, 0),
            (5, 1, _) => $apart!(5),
            (5, ..) => $run!(5, 2, 0),
            _ => $run!(7, 2, 1),
        }
    };
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn by_channels(self, gpu: &Gpu, geometry: Geometry, launch: ChannelsPlan) -> Result<()> {
        let plan = &self.plan;
        let why = super::because(plan, WHY);
        let (op, ChannelsPlan { window, workers }) = (plan.op, launch);
        let learnt = self.dmean.is_some() || self.dvar.is_some();
        let entry = if learnt { DERIVATIVES_ENTRY } else { 1 };
        let [table_y, table_x] = tables(plan, entry);
        let of_multiprocessor = blocks_at_once(window.size[0] as usize, window.stride[0] as usize, true);
        let blocks = if learnt { workers.blocks_that_stay(gpu.at_once(of_multiprocessor)) } else { workers.blocks() };
        // Sums of one Gaussian, which is all there is, of each block; or of the channels', of each block of a group of channels.
        let parts = if plan.sets == 1 { blocks } else { blocks / workers.groups() * geometry.sets };
        let room = if learnt { parts as usize * SUMS_PER_GAUSSIAN as usize } else { 0 };
        let mut workspace = gpu.workspace(table_y + table_x + room)?;
        let (mut weights_y, rest) = workspace.as_slice_mut().split_at(table_y);
        let (mut weights_x, mut sums) = rest.split_at(table_x);
        weights(gpu, plan, [self.mean, self.var], geometry, entry, [&mut weights_y, &mut weights_x])?;
        let (weights_y, weights_x) = (&weights_y, &weights_x);
        let dims = LaunchDims::new(blocks, CHANNELS_BLOCK);
        for_storage!(T as S, op, "x", gpu, {
            let (x, dy) = (self.x.gpu::<S>(op, "x")?, self.dy.gpu::<S>(op, "dy")?);
            let (dx, beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            if learnt {
                let sums = &mut sums;
                macro_rules! run {
                    ($size:literal, $stride:literal, $phase:literal) => {{
                        type Kernel<'a, S> = GaussianPoolLearntChannels<'a, S, $size, $stride, $phase>;
                        let launch = Kernel::<S> { x, dy, weights_y, weights_x, dx, beta, sums, window, workers };
                        // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that the window was made of, which is such; the tables were
                        // just written for it, with derivatives, and have one case; there are four sums for each part, and as many blocks
                        // for each group of the workers' channels.
                        unsafe { gpu.launch(dims, launch) }
                    }};
                }
                macro_rules! apart {
                    ($size:literal) => {
                        run!($size, 1, 0)
                    };
                }
                for_cells!(window, run, apart)
            } else if let Some(dx) = dx {
                macro_rules! run {
                    ($size:literal, $stride:literal, $phase:literal) => {{
                        type Kernel<'a, S> = GaussianPoolBackwardChannels<'a, S, $size, $stride, $phase>;
                        let launch = Kernel::<S> { dy, weights_y, weights_x, dx, beta, window, workers };
                        // SAFETY: as above, without sums; the blocks are the workers', of the cells of the inputs.
                        unsafe { gpu.launch(dims, launch) }
                    }};
                }
                macro_rules! apart {
                    ($size:tt) => {
                        launch_forward!(gpu, S, workers, ($size, 1), {
                            from: dy, weights_y, weights_x, to: dx, beta, turned: 1, window, workers
                        })
                    };
                }
                for_cells!(window, run, apart)
            } else {
                Ok(())
            }
        })?;
        drop(why);
        if !learnt {
            return Ok(());
        }
        let geometry = Geometry { planes: parts, tiles: [1, 1], ..geometry };
        sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry)
    }
}
