//! The launches: the table of weights first, then the pass, then, for the parameters' gradients, the sum of its parts.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::gaussian_pool::{
    Axis, BACKWARD_COLUMNS, BLOCK, DERIVATIVES_ENTRY, FORWARD_COLUMNS, GaussianPoolBackward,
    GaussianPoolBackwardParameters, GaussianPoolForward, GaussianPoolSumParameters, GaussianPoolWeights, Geometry,
    MAX_TILE_COLUMNS, SUM_BLOCK, SUMS_PER_GAUSSIAN, TILE_ROWS, WEIGHTS_BLOCK, WEIGHTS_PER_BLOCK,
};

use super::plan::{self, Plan};
use super::{Backward, Forward};
use crate::device::{Gpu, OnGpu, for_storage, tiles};
use crate::{Compute, Error, Real, Result, Tensor};

/// Columns of a tile that are worth reading a few parts of its source for, where windows are large.
const FEW_COLUMNS: u32 = 16;
/// The largest second dimension of a grid.
const MAX_GRID_Y: u32 = u16::MAX as u32;

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let Plan { op, ref axes, .. } = self.plan;
        let [_, along_x] = geometry(&self.plan)?.axes;
        // The columns that a tile's windows cover fit into shared memory.
        let columns = match FORWARD_COLUMNS.checked_sub(along_x.size) {
            Some(room) if along_x.size <= FORWARD_COLUMNS / 2 => room / along_x.stride + 1,
            room => (room.unwrap_or(0) / along_x.stride + 1).max(FEW_COLUMNS),
        };
        let geometry = with_tiles(geometry(&self.plan)?, axes.map(|axis| axis.output), columns);
        let [table_y, table_x] = tables(&self.plan, 1);
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let mut workspace = gpu.workspace(table_y + table_x)?;
            let (mut weights_y, rest) = workspace.as_slice_mut().split_at(table_y);
            let (mut weights_x, _) = rest.split_at(table_x);
            weights(gpu, &self.plan, [self.mean, self.var], geometry, 1, [&mut weights_y, &mut weights_x])?;
            let dims = LaunchDims::new(grid(&geometry), BLOCK);
            let launch = GaussianPoolForward { x, weights_y: &weights_y, weights_x: &weights_x, y, geometry };
            // SAFETY: `x` and `y` have the shapes that `geometry` was made of, the tables were just written for it, and the
            // grid has a block for each tile.
            unsafe { gpu.launch(dims, launch) }
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let Plan { op, ref axes, kernels, .. } = self.plan;
        let [_, along_x] = geometry(&self.plan)?.axes;
        // The windows that cover a tile's columns fit into shared memory.
        let windows_of_a_pixel = along_x.size.div_ceil(along_x.stride);
        let columns = BACKWARD_COLUMNS.saturating_mul(along_x.stride).saturating_sub(along_x.size - 1);
        let columns = if windows_of_a_pixel <= BACKWARD_COLUMNS / 2 { columns } else { columns.max(FEW_COLUMNS) };
        let geometry = with_tiles(geometry(&self.plan)?, axes.map(|axis| axis.image), columns);
        let dims = LaunchDims::new(grid(&geometry), BLOCK);
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        if !parameters && self.dx.is_none() {
            return Ok(());
        }
        let entry = if parameters { DERIVATIVES_ENTRY } else { 1 };
        let [table_y, table_x] = tables(&self.plan, entry);
        let parts = grid(&geometry) as usize * kernels * SUMS_PER_GAUSSIAN as usize;
        let mut workspace = gpu.workspace(table_y + table_x + if parameters { parts } else { 0 })?;
        let (mut weights_y, rest) = workspace.as_slice_mut().split_at(table_y);
        let (mut weights_x, mut sums) = rest.split_at(table_x);
        for_storage!(T as S, op, "x", gpu, {
            let dy = self.dy.gpu::<S>(op, "dy")?;
            let (mut dx, dx_beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            weights(gpu, &self.plan, [self.mean, self.var], geometry, entry, [&mut weights_y, &mut weights_x])?;
            let (weights_y, weights_x) = (&weights_y, &weights_x);
            if !parameters {
                let Some(dx) = dx.take() else { return Ok(()) };
                let launch = GaussianPoolBackward { dy, weights_y, weights_x, dx, dx_beta, geometry };
                // SAFETY: `dy` and `dx` have the shapes that `geometry` was made of, the tables were just written for it,
                // and the grid has a block for each tile.
                return unsafe { gpu.launch(dims, launch) };
            }
            let (x, sums) = (self.x.gpu::<S>(op, "x")?, &mut sums);
            let launch = GaussianPoolBackwardParameters { x, dy, weights_y, weights_x, dx, dx_beta, sums, geometry };
            // SAFETY: as above, for `x` too; the tables have derivatives, and `sums` four elements for each Gaussian of
            // each block.
            unsafe { gpu.launch(dims, launch) }
        })?;

        let (dmean, dmean_beta) = match self.dmean {
            Some(out) => (Some(out.tensor.gpu_mut::<f32>(op, "dmean")? as &mut dyn DeviceMemory<f32>), out.beta as f32),
            None => (None, 0.0),
        };
        let (dvar, dvar_beta) = match self.dvar {
            Some(out) => (Some(out.tensor.gpu_mut::<f32>(op, "dvar")? as &mut dyn DeviceMemory<f32>), out.beta as f32),
            None => (None, 0.0),
        };
        let (sums, variances) = (&sums, self.plan.variances() as u32);
        let dims = LaunchDims::new(self.plan.gaussians() as u32, SUM_BLOCK);
        let launch = GaussianPoolSumParameters { sums, dmean, dmean_beta, dvar, dvar_beta, variances, geometry };
        // SAFETY: the pass wrote four sums for each Gaussian of each of its blocks, which `geometry` counts; the outputs have
        // the parameters' shapes; the grid has a block for each Gaussian.
        unsafe { gpu.launch(dims, launch) }
    }
}

/// Elements of the tables of weights along y and x.
fn tables(plan: &Plan, entry: u32) -> [usize; 2] {
    plan.axes.map(|axis| plan.gaussians() * axis.cases() * axis.size * entry as usize)
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
    let vectors = y.cases.max(x.cases).div_ceil(WEIGHTS_PER_BLOCK).min(MAX_GRID_Y);
    let dims = LaunchDims::new([plan.gaussians() as u32, vectors, 2], WEIGHTS_BLOCK);
    let (variances, derivatives) = (plan.variances() as u32, u32::from(entry > 1));
    let launch = GaussianPoolWeights { mean, var, weights_y, weights_x, geometry, variances, derivatives };
    // SAFETY: the parameters' shapes were checked to be those of the plan, and the tables are as large as `tables` says.
    unsafe { gpu.launch(dims, launch) }
}

/// The sizes, for kernels that count in 32 bits; without tiles.
fn geometry(plan: &Plan) -> Result<Geometry> {
    let image = plan.axes.map(|axis| axis.image);
    // Checks each size by itself, and the planes.
    plan.window.launch(plan.op, plan.planes().max(plan.gaussians()), image)?;
    let fits = |axis: &plan::Axis| {
        let reach = axis.image + 2 * axis.padding + axis.size;
        let vectors = axis.cases() * axis.size * DERIVATIVES_ENTRY as usize;
        reach.max(vectors).max(axis.stride) < 1 << 31
    };
    if !plan.axes.iter().all(fits) {
        return Err(Error::Argument {
            op: plan.op,
            argument: "window",
            got: format!("{:?} on an image of {image:?}", plan.window),
            expected:
                "fewer than 2^31 pixels along the padded image and the window, as many in the stride, and fewer than \
                       2^29 weights for all ways in which windows are cut off"
                    .into(),
        });
    }
    let axes = [0, 1].map(|i| {
        let axis = &plan.axes[i];
        let shared = axis.shared();
        Axis {
            image: axis.image as u32,
            output: axis.output as u32,
            size: axis.size as u32,
            stride: axis.stride as u32,
            padding: axis.padding as u32,
            shared_begin: shared.start as u32,
            shared_end: shared.end as u32,
            cases: axis.cases() as u32,
        }
    });
    Ok(Geometry {
        planes: plan.planes() as u32,
        channels: plan.channels as u32,
        kernels: plan.kernels as u32,
        sets: plan.sets as u32,
        axes,
        tile_columns: 1,
        tile_columns_reciprocal: 0,
        tiles: [0, 0],
    })
}

/// Adds tiles of at most so many columns, all of about one width, for planes of this height and width.
fn with_tiles(geometry: Geometry, [height, width]: [usize; 2], columns: u32) -> Geometry {
    let across = width.div_ceil(columns.clamp(1, MAX_TILE_COLUMNS) as usize);
    let tile_columns = width.div_ceil(across) as u32;
    Geometry {
        tile_columns,
        tile_columns_reciprocal: (1u32 << 16).div_ceil(tile_columns),
        tiles: [tiles(height, TILE_ROWS), tiles(width, tile_columns)],
        ..geometry
    }
}

/// Blocks: one for each tile of each plane.
fn grid(geometry: &Geometry) -> u32 {
    tiles(geometry.planes as usize * geometry.tiles[0] as usize * geometry.tiles[1] as usize, 1)
}
