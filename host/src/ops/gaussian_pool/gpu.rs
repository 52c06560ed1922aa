//! The launches: the table of weights first, then the pass, then, for the parameters' gradients, the sum of its parts.

mod all_gradients;
mod along_y;
mod apart;
mod apiece;
mod bands_along_y;
mod channels;
mod choice;
mod correlate;
mod direct;
mod elements;
mod falling_packs;
mod few;
mod flat;
mod global;
mod lanes;
mod large;
mod matrices;
mod meshes;
mod packs;
mod packs_apiece;
mod parameters_falling;
mod patches;
mod planes;
mod positions;
mod row_major;
mod runs_learnt;
mod shares;
mod sizes;
mod slide;
mod spans;
mod staged;
mod strips;
mod sum;
mod taps;
mod vectors;

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::{
    Axis, BLOCK, DERIVATIVES_ENTRY, GaussianPoolBackward, GaussianPoolBackwardParameters, GaussianPoolForward,
    GaussianPoolWeights, Geometry, SUMS_PER_GAUSSIAN, WEIGHTS_BLOCK, WEIGHTS_PER_BLOCK, backward_columns,
    forward_columns,
};

use self::choice::{BackwardBy, ForwardBy};
pub(super) use self::sizes::tiles_of_planes;
use self::sizes::{axes, geometry, grid, lanes};
use super::plan::Plan;
use super::{Backward, Forward};
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::explain::{self, Because};
use crate::device::{Gpu, GpuSliceMut, OnGpu, for_storage};
use crate::{Compute, Real, Result, Tensor};
pub(super) use sum::sum_parameters;

/// Columns of a tile that are worth reading a few parts of its source for, where windows are large.
const FEW_COLUMNS: u32 = 16;
/// The largest second dimension of a grid.
const MAX_GRID_Y: u32 = u16::MAX as u32;
/// Planes and blocks that kernels count, at most.
pub(super) const MAX_COUNT: usize = i32::MAX as usize;

/// Runs a block with `$nhwc` as the kernels' parameter of that name.
macro_rules! for_layout {
    ($layout:expr, $nhwc:ident, $body:expr) => {
        match $layout {
            RowMajor => {
                const $nhwc: bool = false;
                $body
            }
            ChannelsLast => {
                const $nhwc: bool = true;
                $body
            }
        }
    };
}
use for_layout;

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let plan = &self.plan;
        let (nhwc, lanes) = (plan.layout == ChannelsLast, lanes(plan));
        let [_, along_x] = axes(plan)?;
        // The columns that a tile's windows cover fit into shared memory.
        let room = forward_columns(nhwc, lanes);
        let columns = match room.checked_sub(along_x.size) {
            Some(rest) if along_x.size <= room / 2 => rest / along_x.stride + 1,
            rest => (rest.unwrap_or(0) / along_x.stride + 1).max(FEW_COLUMNS),
        };
        let geometry = geometry(plan, plan.axes.map(|axis| axis.output), columns)?;
        match choice::forward(gpu, plan, &geometry, T::DTYPE) {
            ForwardBy::FallingPacks(launch) => self.falling_packs(gpu, launch),
            ForwardBy::Spans(launch) => self.by_spans(gpu, geometry, launch),
            ForwardBy::BandsAlongY(launch) => self.bands_along_y(gpu, geometry, launch),
            ForwardBy::AlongY(launch) => self.along_y(gpu, geometry, launch),
            ForwardBy::Flat(launch) => self.flat(gpu, launch),
            ForwardBy::Packs(launch) => self.by_packs(gpu, launch),
            ForwardBy::Direct(launch) => self.direct(gpu, geometry, launch),
            ForwardBy::Elements(launch) => self.elements(gpu, geometry, launch),
            ForwardBy::Matrices(launch) => self.by_matrices(gpu, geometry, launch),
            ForwardBy::RowMajor(launch) => self.row_major(gpu, launch),
            ForwardBy::PacksApiece(launch) => self.by_packs_apiece(gpu, launch),
            ForwardBy::Apiece(launch) => self.apiece(gpu, geometry, launch),
            ForwardBy::Channels(launch) => self.by_channels(gpu, geometry, launch),
            ForwardBy::Warps(launch) => self.by_warps(gpu, geometry, launch),
            ForwardBy::Apart(launch) => self.apart(gpu, geometry, launch),
            ForwardBy::Patches(launch) => self.by_patches(gpu, launch),
            ForwardBy::Lanes(launch) => self.by_lanes(gpu, geometry, launch),
            ForwardBy::Staged(launch) => self.staged(gpu, geometry, launch),
            ForwardBy::Few(launch) => self.few(gpu, geometry, launch),
            ForwardBy::Taps(launch) => self.by_taps(gpu, launch),
            ForwardBy::Slide(launch) => self.sliding(gpu, geometry, launch),
            ForwardBy::Vectors(launch) => self.by_vectors(gpu, geometry, launch),
            ForwardBy::Columns(launch) => self.by_columns(gpu, geometry, launch),
            ForwardBy::Strips(launch) => self.by_strips(gpu, geometry, launch),
            ForwardBy::Tiles => self.by_tiles(gpu, geometry),
        }
    }
}

impl<T: Real> Forward<'_, T> {
    /// By tiles, which go for any window.
    fn by_tiles(self, gpu: &Gpu, geometry: Geometry) -> Result<()> {
        let (plan, op) = (&self.plan, self.plan.op);
        let [table_y, table_x] = tables(plan, 1);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let mut workspace = gpu.workspace(table_y + table_x)?;
            let (mut weights_y, rest) = workspace.as_slice_mut().split_at(table_y);
            let (mut weights_x, _) = rest.split_at(table_x);
            weights(gpu, plan, [self.mean, self.var], geometry, 1, [&mut weights_y, &mut weights_x])?;
            let dims = LaunchDims::new(grid(&geometry), BLOCK);
            let (weights_y, weights_x) = (&weights_y, &weights_x);
            for_layout!(plan.layout, NHWC, {
                let launch = GaussianPoolForward::<S, NHWC> { x, weights_y, weights_x, y, geometry };
                // SAFETY: `x` and `y` have the shapes and the layout that `geometry` was made of, the tables were just
                // written for it, and the grid has a block for each tile.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let plan = &self.plan;
        let (nhwc, lanes) = (plan.layout == ChannelsLast, lanes(plan));
        let [_, along_x] = axes(plan)?;
        // The windows that cover a tile's columns fit into shared memory.
        let room = backward_columns(nhwc, lanes);
        let windows_of_a_pixel = along_x.size.div_ceil(along_x.stride);
        let columns = room.saturating_mul(along_x.stride).saturating_sub(along_x.size - 1);
        let columns = if windows_of_a_pixel <= room / 2 { columns } else { columns.max(FEW_COLUMNS) };
        let geometry = geometry(plan, plan.axes.map(|axis| axis.image), columns)?;
        if self.dx.is_none() && self.dmean.is_none() && self.dvar.is_none() {
            return Ok(());
        }
        match choice::backward(gpu, &self, &geometry) {
            BackwardBy::FallingPacks(launch) => self.falling_packs(gpu, launch),
            BackwardBy::Spans(launch) => self.by_spans(gpu, geometry, launch),
            BackwardBy::ParametersFalling(launch) => self.parameters_falling(gpu, geometry, launch),
            BackwardBy::Flat(launch) => self.flat(gpu, launch),
            BackwardBy::Packs(launch) => self.by_packs(gpu, launch),
            BackwardBy::Elements(launch) => self.elements(gpu, geometry, launch),
            BackwardBy::Few(launch) => self.few(gpu, launch),
            BackwardBy::Shares(launch) => self.by_shares(gpu, geometry, launch),
            BackwardBy::Patches(launch) => self.by_patches(gpu, launch),
            BackwardBy::Matrices(launch) => self.by_matrices(gpu, geometry, launch),
            BackwardBy::RowMajor(launch) => self.row_major(gpu, launch),
            BackwardBy::Globals(launch) => self.global(gpu, geometry, launch),
            BackwardBy::PacksApiece(launch) => self.by_packs_apiece(gpu, launch),
            BackwardBy::Channels(launch) => self.by_channels(gpu, geometry, launch),
            BackwardBy::AllGradients(launch) => self.by_all_gradients(gpu, geometry, launch),
            BackwardBy::ColumnsOfMeshes(launch) => self.by_columns_of_meshes(gpu, geometry, launch),
            BackwardBy::Meshes(launch) => self.by_meshes(gpu, geometry, launch),
            BackwardBy::Runs(launch) => self.by_runs_learnt(gpu, geometry, launch),
            BackwardBy::Correlate(launch) => self.correlate(gpu, geometry, launch),
            BackwardBy::Lanes(launch) => self.by_lanes(gpu, geometry, launch),
            BackwardBy::Staged(launch) => self.staged(gpu, geometry, launch),
            BackwardBy::Taps(launch) => self.by_taps(gpu, launch),
            BackwardBy::InputFirst => self.without_dx(gpu)?.on_gpu(gpu),
            BackwardBy::Slide(launch) => self.sliding(gpu, geometry, launch),
            BackwardBy::Positions(launch) => self.by_positions(gpu, geometry, launch),
            BackwardBy::Vectors(launch) => self.by_vectors(gpu, geometry, launch),
            BackwardBy::Columns(launch) => self.by_columns(gpu, geometry, launch),
            BackwardBy::Strips(launch) => self.by_strips(gpu, geometry, launch),
            BackwardBy::Tiles => self.by_tiles(gpu, geometry),
        }
    }
}

impl<T: Real> Backward<'_, T> {
    /// By tiles, which go for any window.
    fn by_tiles(self, gpu: &Gpu, geometry: Geometry) -> Result<()> {
        let (plan, op) = (&self.plan, self.plan.op);
        let dims = LaunchDims::new(grid(&geometry), BLOCK);
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let entry = if parameters { DERIVATIVES_ENTRY } else { 1 };
        let [table_y, table_x] = tables(plan, entry);
        let parts = tiles_of_planes(&geometry) * plan.kernels * SUMS_PER_GAUSSIAN as usize;
        let mut workspace = gpu.workspace(table_y + table_x + if parameters { parts } else { 0 })?;
        let (mut weights_y, rest) = workspace.as_slice_mut().split_at(table_y);
        let (mut weights_x, mut sums) = rest.split_at(table_x);
        for_storage!(T as S, op, "x", gpu, {
            let dy = self.dy.gpu::<S>(op, "dy")?;
            let (mut dx, dx_beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            weights(gpu, plan, [self.mean, self.var], geometry, entry, [&mut weights_y, &mut weights_x])?;
            let (weights_y, weights_x) = (&weights_y, &weights_x);
            if !parameters {
                let Some(dx) = dx.take() else { return Ok(()) };
                return for_layout!(plan.layout, NHWC, {
                    let launch = GaussianPoolBackward::<S, NHWC> { dy, weights_y, weights_x, dx, dx_beta, geometry };
                    // SAFETY: `dy` and `dx` have the shapes and the layout that `geometry` was made of, the tables were just
                    // written for it, and the grid has a block for each tile.
                    unsafe { gpu.launch(dims, launch) }
                });
            }
            let (x, sums) = (self.x.gpu::<S>(op, "x")?, &mut sums);
            for_layout!(plan.layout, NHWC, {
                let launch = GaussianPoolBackwardParameters::<S, NHWC> {
                    x,
                    dy,
                    weights_y,
                    weights_x,
                    dx,
                    dx_beta,
                    sums,
                    geometry,
                };
                // SAFETY: as above, for `x` too; the tables have derivatives, and `sums` four elements for each Gaussian of
                // each tile of each plane.
                unsafe { gpu.launch(dims, launch) }
            })
        })?;

        sum_parameters(gpu, plan, self.dmean, self.dvar, &sums, geometry)
    }

    /// Queues the input's gradient by itself, if it is asked for: what is left are the parameters'.
    fn without_dx(mut self, gpu: &Gpu) -> Result<Self> {
        if let Some(dx) = self.dx.take() {
            let Self { x, mean, var, dy, .. } = self;
            let plan = self.plan.clone();
            Backward { plan, x, mean, var, dy, dx: Some(dx), dmean: None, dvar: None }.on_gpu(gpu)?;
        }
        Ok(self)
    }
}

/// Says of launches, until what is returned is dropped, what window they are for and why by these kernels.
fn because(plan: &Plan, why: &'static str) -> Because {
    explain::because(|| {
        let pair = |[a, b]: [usize; 2]| format!("{a}x{b}");
        let layout = if plan.layout == ChannelsLast { "with the channels last" } else { "row-major" };
        let image = pair(plan.axes.map(|axis| axis.image));
        let [size, stride, padding] = [plan.window.size, plan.window.stride, plan.window.padding].map(pair);
        format!("window {size} stride {stride} padding {padding} over {image} {layout}: {why}")
    })
}

/// The window and the image, in words.
pub(super) fn window(geometry: &Geometry) -> String {
    let pair = |of: fn(&Axis) -> u32| geometry.axes.each_ref().map(|axis| of(axis).to_string()).join("x");
    let [size, stride, padding] = [pair(|axis| axis.size), pair(|axis| axis.stride), pair(|axis| axis.padding)];
    let kernels = geometry.kernels;
    format!("window {size} stride {stride} padding {padding} over {}, {kernels} a map", pair(|axis| axis.image))
}

/// Elements of the tables of weights along y and x.
fn tables(plan: &Plan, entry: u32) -> [usize; 2] {
    plan.axes.map(|axis| plan.gaussians() * axis.cases() * axis.size * entry as usize)
}

/// Runs `body` with tables of weights along y and x in entries of so many elements, if any are asked for, and room for so
/// many elements.
fn with_weights<T: Compute>(
    gpu: &Gpu,
    plan: &Plan,
    parameters: [&Tensor<T>; 2],
    geometry: Geometry,
    entry: Option<u32>,
    room: usize,
    body: impl FnOnce([Option<&dyn DeviceMemory<f32>>; 2], GpuSliceMut<'_, f32>) -> Result<()>,
) -> Result<()> {
    let [table_y, table_x] = entry.map_or([0; 2], |entry| tables(plan, entry));
    let mut workspace = gpu.workspace(table_y + table_x + room)?;
    let (mut weights_y, rest) = workspace.as_slice_mut().split_at(table_y);
    let (mut weights_x, room) = rest.split_at(table_x);
    let Some(entry) = entry else { return body([None; 2], room) };
    weights(gpu, plan, parameters, geometry, entry, [&mut weights_y, &mut weights_x])?;
    body([Some(&weights_y), Some(&weights_x)], room)
}

/// Queues the computation of the weights.
fn weights<T: Compute>(
    gpu: &Gpu,
    plan: &Plan,
    [mean, var]: [&Tensor<T>; 2],
    geometry: Geometry,
    entry: u32,
    [weights_y, weights_x]: [&mut dyn DeviceMemory<f32>; 2],
) -> Result<()> {
    let (mean, var) = (mean.gpu::<f32>(plan.op, "mean")?, var.gpu::<f32>(plan.op, "var")?);
    let [y, x] = geometry.axes;
    let nhwc = u32::from(plan.layout == ChannelsLast);
    let vectors = y.cases.max(x.cases).div_ceil(WEIGHTS_PER_BLOCK).min(MAX_GRID_Y);
    let dims = LaunchDims::new([plan.gaussians() as u32, vectors, 2], WEIGHTS_BLOCK);
    let (variances, derivatives) = (plan.variances() as u32, u32::from(entry > 1));
    let launch = GaussianPoolWeights { mean, var, weights_y, weights_x, geometry, variances, derivatives, nhwc };
    // SAFETY: the parameters' shapes were checked to be those of the plan, and the tables are as large as `tables` says.
    unsafe { gpu.launch(dims, launch) }
}
