//! The launches: the table of weights first, then the pass, then, for the parameters' gradients, the sum of its parts.

mod all_gradients;
mod along_y;
mod apart;
mod apiece;
mod bands_along_y;
mod channels;
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
mod staged;
mod strips;
mod sum;
mod vectors;

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::slide::Slide;
use kernels::gaussian_pool::strips::Strips;
use kernels::gaussian_pool::strips::walk::WalkPlan;
use kernels::gaussian_pool::{
    Axis, BLOCK, DERIVATIVES_ENTRY, GaussianPoolBackward, GaussianPoolBackwardParameters, GaussianPoolForward,
    GaussianPoolWeights, Geometry, SUMS_PER_GAUSSIAN, WEIGHTS_BLOCK, WEIGHTS_PER_BLOCK, backward_columns,
    forward_columns,
};

use self::row_major::RowMajorPlan;
use self::runs_learnt::RunsPlan;
pub(super) use self::sizes::tiles_of_planes;
use self::sizes::{axes, geometry, grid, lanes};
use super::plan::Plan;
use super::{Backward, Forward, columns};
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
        let (op, nhwc, lanes) = (plan.op, plan.layout == ChannelsLast, lanes(plan));
        let [_, along_x] = axes(plan)?;
        // The columns that a tile's windows cover fit into shared memory.
        let room = forward_columns(nhwc, lanes);
        let columns = match room.checked_sub(along_x.size) {
            Some(rest) if along_x.size <= room / 2 => rest / along_x.stride + 1,
            rest => (rest.unwrap_or(0) / along_x.stride + 1).max(FEW_COLUMNS),
        };
        let geometry = geometry(plan, plan.axes.map(|axis| axis.output), columns)?;
        if let Some(falling) = falling_packs::forward(gpu, plan, &geometry, T::DTYPE) {
            return self.falling_packs(gpu, falling);
        }
        let row_major = row_major::forward(gpu, plan, &geometry, T::DTYPE);
        let direct = direct::plan(plan, &geometry);
        if let Some(by_bands) = bands_along_y::plan(gpu, plan, &geometry, T::DTYPE) {
            return self.bands_along_y(gpu, geometry, by_bands);
        }
        if let Some(along_y) = along_y::plan(gpu, plan, &geometry, T::DTYPE, direct.is_some()) {
            return self.along_y(gpu, geometry, along_y);
        }
        if !row_major.as_ref().is_some_and(RowMajorPlan::is_much) {
            if let Some(flat) = flat::forward(gpu, plan, &geometry, T::DTYPE) {
                return self.flat(gpu, flat);
            }
            if let Some(by_packs) = packs::forward(gpu, plan, &geometry, T::DTYPE) {
                return self.by_packs(gpu, by_packs);
            }
            // Of channels' own Gaussians others make a table of weights first.
            if geometry.sets > 1
                && let Some(direct) = direct
            {
                return self.direct(gpu, geometry, direct);
            }
            if direct.is_none()
                && let Some(elements) = elements::forward(plan, &geometry, T::DTYPE)
            {
                return self.elements(gpu, geometry, elements);
            }
        }
        if let Some(by_matrices) = matrices::forward(gpu, plan, &geometry, T::DTYPE) {
            return self.by_matrices(gpu, geometry, by_matrices);
        }
        if let Some(row_major) = row_major {
            return self.row_major(gpu, row_major);
        }
        if let Some(by_packs) = packs_apiece::forward(plan, &geometry, T::DTYPE) {
            return self.by_packs_apiece(gpu, by_packs);
        }
        let channels = channels::forward(plan, &geometry);
        if direct.is_none()
            && let Some(apiece) = apiece::forward(gpu, plan, &geometry, channels.is_some())
        {
            return self.apiece(gpu, geometry, apiece);
        }
        if let Some(channels) = channels {
            return self.by_channels(gpu, geometry, channels);
        }
        if let Some(direct) = direct {
            return self.direct(gpu, geometry, direct);
        }
        if let Some(huge) = large::of_huge(plan, &geometry) {
            return self.by_warps(gpu, geometry, huge);
        }
        if let Some(apart) = apart::plan(plan, &geometry) {
            return self.apart(gpu, geometry, apart);
        }
        if let Some(by_warps) = large::plan(plan, &geometry) {
            return self.by_warps(gpu, geometry, by_warps);
        }
        let (variances, bytes) = (plan.variances() as u32, T::DTYPE.size() as u32);
        if let Some(by_patches) = patches::forward(plan, &geometry, T::DTYPE) {
            return self.by_patches(gpu, by_patches);
        }
        if let Some(by_lanes) = lanes::forward(plan, &geometry, T::DTYPE) {
            return self.by_lanes(gpu, geometry, by_lanes);
        }
        if let Some(staged) = staged::forward(gpu, plan, &geometry, T::DTYPE) {
            return self.staged(gpu, geometry, staged);
        }
        if few::odd(geometry.channels)
            && let Some(few) = few::forward(plan, &geometry)
        {
            return self.few(gpu, geometry, few);
        }
        if let Some(sliding) = slide::plan(plan, &geometry, || Slide::forward(&geometry, variances, bytes)) {
            return self.sliding(gpu, geometry, sliding);
        }
        if let Some(by_vectors) = vectors::forward(gpu, plan, &geometry, T::DTYPE) {
            return self.by_vectors(gpu, geometry, by_vectors);
        }
        if let Some(few) = few::forward(plan, &geometry) {
            return self.few(gpu, geometry, few);
        }
        if let Some(walk) = columns::launch(plan, WalkPlan::forward(&geometry, variances)) {
            return self.by_columns(gpu, geometry, walk);
        }
        if let Some(by_strips) = strips::plan(plan, Strips::forward(&geometry, variances, strips::least(gpu))) {
            return self.by_strips(gpu, geometry, by_strips);
        }
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
        let (op, nhwc, lanes) = (plan.op, plan.layout == ChannelsLast, lanes(plan));
        let [_, along_x] = axes(plan)?;
        // The windows that cover a tile's columns fit into shared memory.
        let room = backward_columns(nhwc, lanes);
        let windows_of_a_pixel = along_x.size.div_ceil(along_x.stride);
        let columns = room.saturating_mul(along_x.stride).saturating_sub(along_x.size - 1);
        let columns = if windows_of_a_pixel <= room / 2 { columns } else { columns.max(FEW_COLUMNS) };
        let geometry = geometry(plan, plan.axes.map(|axis| axis.image), columns)?;
        let dims = LaunchDims::new(grid(&geometry), BLOCK);
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        if !parameters && self.dx.is_none() {
            return Ok(());
        }
        let each = if parameters { 3 } else { 1 };
        let (variances, bytes) = (plan.variances() as u32, T::DTYPE.size() as u32);
        let writes = !parameters && self.dx.as_ref().is_some_and(|out| out.beta == 0.0);
        let row_major = if parameters { None } else { row_major::backward(gpu, plan, &geometry, T::DTYPE, writes) };
        if writes && let Some(falling) = falling_packs::backward(gpu, plan, &geometry, T::DTYPE) {
            return self.falling_packs(gpu, falling);
        }
        if let Some(parameters_falling) = self.plan_parameters_falling(gpu, &geometry) {
            return self.parameters_falling(gpu, geometry, parameters_falling);
        }
        if !parameters && !row_major.as_ref().is_some_and(RowMajorPlan::is_much) {
            if let Some(flat) = flat::backward(gpu, plan, &geometry, T::DTYPE) {
                return self.flat(gpu, flat);
            }
            if let Some(by_packs) = packs::backward(gpu, plan, &geometry, T::DTYPE) {
                return self.by_packs(gpu, by_packs);
            }
            if let Some(elements) = elements::backward(plan, &geometry, T::DTYPE) {
                return self.elements(gpu, geometry, elements);
            }
        }
        if !parameters && shares::are_apart(&geometry) {
            if let Some(few) = few::little(plan, &geometry) {
                return self.few(gpu, few);
            }
            if let Some(by_shares) = shares::plan(gpu, plan, &geometry) {
                return self.by_shares(gpu, geometry, by_shares);
            }
        }
        if writes && let Some(by_patches) = patches::backward(plan, &geometry, T::DTYPE) {
            return self.by_patches(gpu, by_patches);
        }
        if writes && let Some(by_matrices) = matrices::backward(gpu, plan, &geometry, T::DTYPE) {
            return self.by_matrices(gpu, geometry, by_matrices);
        }
        if let Some(row_major) = row_major {
            return self.row_major(gpu, row_major);
        }
        if !parameters && let Some(few) = few::little(plan, &geometry) {
            return self.few(gpu, few);
        }
        if !parameters && let Some(globals) = global::plan(plan, &geometry, T::DTYPE) {
            return self.global(gpu, geometry, globals);
        }
        if !parameters && let Some(by_packs) = packs_apiece::backward(gpu, plan, &geometry, T::DTYPE) {
            return self.by_packs_apiece(gpu, by_packs);
        }
        if let Some(channels) = channels::backward(plan, &geometry, T::DTYPE, parameters) {
            return self.by_channels(gpu, geometry, channels);
        }
        let runs = self.plan_runs_learnt(gpu, &geometry);
        if !runs.as_ref().is_some_and(RunsPlan::has_short_rows::<T>)
            && let Some(all_gradients) = self.plan_all_gradients(gpu, &geometry)
        {
            return self.by_all_gradients(gpu, geometry, all_gradients);
        }
        if let Some(columns) = self.plan_columns(&geometry) {
            return self.by_columns_of_meshes(gpu, geometry, columns);
        }
        if !parameters && let Some(by_meshes) = meshes::backward(plan, &geometry, T::DTYPE) {
            return self.by_meshes(gpu, geometry, by_meshes);
        }
        if let Some(runs) = runs {
            return self.by_runs_learnt(gpu, geometry, runs);
        }
        if let Some(correlate) = self.plan_correlate(gpu, &geometry) {
            return self.correlate(gpu, geometry, correlate);
        }
        if let Some(by_lanes) = lanes::backward(plan, &geometry, T::DTYPE, parameters) {
            return self.by_lanes(gpu, geometry, by_lanes);
        }
        if writes && let Some(staged) = staged::backward(gpu, plan, &geometry, T::DTYPE) {
            return self.staged(gpu, geometry, staged);
        }
        if !parameters
            && few::odd(geometry.channels)
            && let Some(few) = few::backward(plan, &geometry)
        {
            return self.few(gpu, few);
        }
        if let Some(sliding) = slide::plan(plan, &geometry, || Slide::backward(&geometry, variances, bytes, parameters))
        {
            return self.sliding(gpu, geometry, sliding);
        }
        if let Some(positions) = self.plan_positions(&geometry) {
            return self.by_positions(gpu, geometry, positions);
        }
        if !parameters && let Some(by_vectors) = vectors::backward(gpu, plan, &geometry, T::DTYPE) {
            return self.by_vectors(gpu, geometry, by_vectors);
        }
        if !parameters
            && shares::are_few(&geometry)
            && let Some(by_shares) = shares::plan(gpu, plan, &geometry)
        {
            return self.by_shares(gpu, geometry, by_shares);
        }
        if let Some(walk) = columns::launch(plan, WalkPlan::backward(&geometry, variances, each)) {
            return self.by_columns(gpu, geometry, walk);
        }
        let of_strips = Strips::backward(&geometry, variances, each, strips::least(gpu));
        if let Some(by_strips) = strips::plan(plan, of_strips) {
            return self.by_strips(gpu, geometry, by_strips);
        }
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
}

impl<T: Real> Backward<'_, T> {
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
