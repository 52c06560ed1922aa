use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::dense::sums::{self, DenseSlopeF32, DenseSumAllF32, DenseSumColumnsF32, Rows, STRIP};
use kernels::dense::{
    DenseDwF32T64, DenseDwF32T128, DenseDxF32T64, DenseDxF32T128, DenseFinishF32, DenseForwardF32T64,
    DenseForwardF32T128, FINISH_BLOCK, FINISH_COLUMNS, FINISH_ROWS, IDENTITY, PRELU_EACH, PRELU_SHARED, RELU,
};

use super::plan::{MAX_COLUMNS, Plan, Tile};
use super::{Activation, Backward, Forward, Sizes, Slope};
use crate::device::{Gpu, GpuBuffer, GpuSliceMut, OnGpu, tiles};
use crate::{Compute, Error, Out, Result};

/// Blocks that the sums over the batch are spread over: what a large GPU runs at once.
const SUM_BLOCKS: usize = 1024;
/// Rows below which a block of such a sum is not worth its start.
const LEAST_ROWS: usize = 32;

type Memory<'a> = &'a dyn DeviceMemory<f32>;
type MemoryMut<'a> = &'a mut dyn DeviceMemory<f32>;

impl Sizes {
    /// How the product of these sizes is cut up.
    fn plan(self, op: &'static str, rows: usize, columns: usize, depth: usize) -> Result<Plan> {
        Plan::new(rows, columns, depth).ok_or_else(|| Error::Argument {
            op,
            argument: "x and w",
            got: format!("[{}, {}] and [{}, {}]", self.batch, self.inputs, self.outputs, self.inputs),
            expected: format!("sizes below 2³¹, and at most {MAX_COLUMNS} inputs and outputs, on a GPU"),
        })
    }
}

/// What a kernel is told about the activation.
fn activation_code<T: Compute>(activation: Activation<'_, T>) -> u32 {
    match activation {
        Activation::Identity => IDENTITY,
        Activation::Relu => RELU,
        Activation::Prelu(alpha) if alpha.len() == 1 => PRELU_SHARED,
        Activation::Prelu(_) => PRELU_EACH,
    }
}

/// What is done with the sums of a product.
struct Finish<'a> {
    out: MemoryMut<'a>,
    beta: f32,
    z: Option<MemoryMut<'a>>,
    b: Option<Memory<'a>>,
    alpha: Option<Memory<'a>>,
    activation: u32,
}

impl<'a> Finish<'a> {
    /// Queues the addition of a split product's parts.
    fn launch(self, gpu: &Gpu, plan: &Plan, parts: Memory<'a>) -> Result<()> {
        let Plan { shape, splits, .. } = *plan;
        let Self { out, beta, z, b, alpha, activation } = self;
        let grid = [tiles(shape.rows as usize, FINISH_ROWS), tiles(shape.columns as usize, FINISH_COLUMNS), 1];
        let kernel = DenseFinishF32 { parts, out, z, b, alpha, shape, splits, activation, beta };
        // SAFETY: `parts` holds what the plan says, the other buffers are of the product's shape or its columns', checked
        // by the op; the grid covers the product.
        unsafe { gpu.launch(LaunchDims::new(grid, FINISH_BLOCK), kernel) }
    }
}

impl<T: Compute> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "dense.forward";
        let Sizes { batch, inputs, outputs } = self.sizes;
        let (x, w) = (self.x.gpu::<f32>(OP, "x")?, self.w.gpu::<f32>(OP, "w")?);
        let b = self.b.map(|b| b.gpu::<f32>(OP, "b")).transpose()?.map(|b| b as Memory<'_>);
        let alpha = match self.activation {
            Activation::Prelu(alpha) => Some(alpha.gpu::<f32>(OP, "alpha")? as Memory<'_>),
            Activation::Identity | Activation::Relu => None,
        };
        let activation = activation_code(self.activation);
        let y = self.y.gpu_mut::<f32>(OP, "y")?;
        let z = self.z.map(|z| z.gpu_mut::<f32>(OP, "z")).transpose()?.map(|z| z as MemoryMut<'_>);

        let plan = self.sizes.plan(OP, batch, outputs, inputs)?;
        let finish = Finish { out: y, beta: 0.0, z, b, alpha, activation };
        if plan.splits == 1 {
            return forward_product(gpu, &plan, x, w, finish);
        }
        let mut parts = gpu.workspace(plan.parts())?;
        let only_sum =
            Finish { out: &mut parts.as_slice_mut(), beta: 0.0, z: None, b: None, alpha: None, activation: IDENTITY };
        forward_product(gpu, &plan, x, w, only_sum)?;
        finish.launch(gpu, &plan, &parts.as_slice())
    }
}

fn forward_product<'a>(
    gpu: &Gpu,
    plan: &Plan,
    x: &'a GpuBuffer<f32>,
    w: &'a GpuBuffer<f32>,
    finish: Finish<'a>,
) -> Result<()> {
    let shape = plan.shape;
    let Finish { out: y, z, b, alpha, activation, .. } = finish;
    // SAFETY: the buffers are of the shapes that `dense::forward` checked, `y` of the plan's parts where it is split;
    // whole tensors and the workspace begin at multiples of 256 bytes; the plan's grid covers the product.
    unsafe {
        match plan.tile {
            Tile::Large => gpu.launch(plan.dims(), DenseForwardF32T128 { x, w, y, z, b, alpha, shape, activation }),
            Tile::Small => gpu.launch(plan.dims(), DenseForwardF32T64 { x, w, y, z, b, alpha, shape, activation }),
        }
    }
}

/// How the batch is cut for its sums: strips of columns, chunks of rows.
#[derive(Clone, Copy)]
struct Sums {
    strips: usize,
    chunks: usize,
    rows: Rows,
}

impl Sums {
    fn new(sizes: Sizes, activation: u32) -> Self {
        let strips = sizes.outputs.div_ceil(STRIP as usize);
        let chunks = (SUM_BLOCKS / strips).max(1).min(sizes.batch.div_ceil(LEAST_ROWS));
        let chunk = sizes.batch.div_ceil(chunks.max(1)).max(1);
        let rows = Rows { rows: sizes.batch as u32, columns: sizes.outputs as u32, chunk: chunk as u32, activation };
        Self { strips, chunks: sizes.batch.div_ceil(chunk), rows }
    }
}

/// Room for `len` elements of the workspace, so that what comes after is aligned too.
fn aligned(len: usize) -> usize {
    len.next_multiple_of(64)
}

/// A gradient's memory and its factor.
fn gradient<'a, T: Compute>(
    out: Option<Out<'a, T>>,
    op: &'static str,
    argument: &'static str,
) -> Result<Option<(&'a mut GpuBuffer<f32>, f32)>> {
    out.map(|out| Ok((out.tensor.gpu_mut::<f32>(op, argument)?, out.beta as f32))).transpose()
}

impl<T: Compute> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "dense.backward";
        let sizes = self.sizes;
        let Sizes { batch, inputs, outputs } = sizes;
        let (x, w) = (self.x.gpu::<f32>(OP, "x")?, self.w.gpu::<f32>(OP, "w")?);
        let dy = self.dy.gpu::<f32>(OP, "dy")?;
        let (saved, alpha, activation) = match self.slope {
            Slope::One => (None, None, IDENTITY),
            Slope::Relu { y } => (Some(y.gpu::<f32>(OP, "saved")? as Memory<'_>), None, RELU),
            Slope::Prelu { z, alpha } => {
                let code = activation_code(Activation::Prelu(alpha));
                (
                    Some(z.gpu::<f32>(OP, "saved")? as Memory<'_>),
                    Some(alpha.gpu::<f32>(OP, "alpha")? as Memory<'_>),
                    code,
                )
            }
        };
        let dx = gradient(self.gradients.dx, OP, "dx")?;
        let dw = gradient(self.gradients.dw, OP, "dw")?;
        let db = gradient(self.gradients.db, OP, "db")?;
        let dalpha = gradient(self.gradients.dalpha, OP, "dalpha")?;
        let (dx_plan, dw_plan) = (sizes.plan(OP, batch, inputs, outputs)?, sizes.plan(OP, outputs, inputs, batch)?);
        let sums = Sums::new(sizes, activation);

        // The workspace: dz, the chunks' sums for db and for dalpha, and the parts of split products.
        let makes_dz = saved.is_some() && (dx.is_some() || dw.is_some());
        let each = if activation == PRELU_SHARED { sums.strips } else { outputs };
        let room = [
            if makes_dz { batch * outputs } else { 0 },
            if db.is_some() { sums.chunks * outputs } else { 0 },
            if dalpha.is_some() { sums.chunks * each } else { 0 },
            dx.as_ref().map_or(0, |_| dx_plan.parts()).max(dw.as_ref().map_or(0, |_| dw_plan.parts())),
        ]
        .map(aligned);
        let mut workspace = gpu.workspace(room.iter().sum())?;
        let (mut dz, rest) = workspace.as_slice_mut().split_at(room[0]);
        let (mut db_sums, rest) = rest.split_at(room[1]);
        let (mut dalpha_sums, mut parts) = rest.split_at(room[2]);

        if makes_dz || db.is_some() || dalpha.is_some() {
            let kernel = DenseSlopeF32 {
                dy,
                saved,
                alpha,
                dz: makes_dz.then_some(&mut dz as MemoryMut<'_>),
                db: db.is_some().then_some(&mut db_sums as MemoryMut<'_>),
                dalpha: dalpha.is_some().then_some(&mut dalpha_sums as MemoryMut<'_>),
                sizes: sums.rows,
            };
            let dims = LaunchDims::new([sums.strips as u32, sums.chunks as u32, 1], sums::BLOCK);
            // SAFETY: `dy` and `saved` are `[N, O]` and `alpha` fits, checked by `dense::backward`; the workspace's parts
            // have the room that the kernel's layouts take; the grid covers the matrix.
            unsafe { gpu.launch(dims, kernel)? };
        }
        if let Some((db, beta)) = db {
            sum_columns(gpu, &sums, &db_sums, db, beta)?;
        }
        if let Some((dalpha, beta)) = dalpha {
            if activation == PRELU_SHARED {
                let n = (sums.chunks * sums.strips) as u64;
                let kernel = DenseSumAllF32 { parts: &dalpha_sums, out: dalpha, n, beta };
                // SAFETY: the slope's kernel wrote one element for each strip of each chunk.
                unsafe { gpu.launch(LaunchDims::new(1, sums::BLOCK), kernel)? };
            } else {
                sum_columns(gpu, &sums, &dalpha_sums, dalpha, beta)?;
            }
        }

        let dz: Memory<'_> = if makes_dz { &dz } else { dy };
        if let Some((dx, beta)) = dx {
            product(gpu, &dx_plan, &mut parts, dx, beta, |dx, beta| {
                let (dims, shape) = (dx_plan.dims(), dx_plan.shape);
                // SAFETY: `dz` is `[N, O]`, `w` `[O, I]`, and `dx` `[N, I]` or the plan's parts; all begin at multiples of
                // 256 bytes; the plan's grid covers the product.
                unsafe {
                    match dx_plan.tile {
                        Tile::Large => gpu.launch(dims, DenseDxF32T128 { dz, w, dx, shape, beta }),
                        Tile::Small => gpu.launch(dims, DenseDxF32T64 { dz, w, dx, shape, beta }),
                    }
                }
            })?;
        }
        if let Some((dw, beta)) = dw {
            product(gpu, &dw_plan, &mut parts, dw, beta, |dw, beta| {
                let (dims, shape) = (dw_plan.dims(), dw_plan.shape);
                // SAFETY: as above, with `x` `[N, I]` and `dw` `[O, I]`.
                unsafe {
                    match dw_plan.tile {
                        Tile::Large => gpu.launch(dims, DenseDwF32T128 { dz, x, dw, shape, beta }),
                        Tile::Small => gpu.launch(dims, DenseDwF32T64 { dz, x, dw, shape, beta }),
                    }
                }
            })?;
        }
        Ok(())
    }
}

fn sum_columns(
    gpu: &Gpu,
    sums: &Sums,
    parts: &GpuSliceMut<'_, f32>,
    out: &mut GpuBuffer<f32>,
    beta: f32,
) -> Result<()> {
    let (rows, columns) = (sums.chunks as u32, sums.rows.columns);
    let dims = LaunchDims::new(sums.strips as u32, sums::BLOCK);
    // SAFETY: the slope's kernel wrote `[chunks, O]`, and `out` is `[O]`.
    unsafe { gpu.launch(dims, DenseSumColumnsF32 { parts, out, rows, columns, beta }) }
}

/// Queues a product that is `launch`ed into `out`, or into `parts` and then added up.
fn product(
    gpu: &Gpu,
    plan: &Plan,
    parts: &mut GpuSliceMut<'_, f32>,
    out: &mut GpuBuffer<f32>,
    beta: f32,
    launch: impl FnOnce(MemoryMut<'_>, f32) -> Result<()>,
) -> Result<()> {
    if plan.splits == 1 {
        return launch(out, beta);
    }
    launch(parts, 0.0)?;
    Finish { out, beta, z: None, b: None, alpha: None, activation: IDENTITY }.launch(gpu, plan, parts)
}
