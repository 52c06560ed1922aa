use cuda_std::launch::{DeviceMemory, Launch, LaunchDims};
use kernels::dense::sums::{self, DenseSlope, DenseSumAll, DenseSumColumns, Rows, STRIP};
use kernels::dense::{
    DenseFinish, DenseFinishLate, FINISH_BLOCK, FINISH_COLUMNS, FINISH_ROWS, IDENTITY, PRELU_EACH, PRELU_SHARED, RELU,
};

use super::plan::{Choice, Plan, Question, Tile, Way};
use super::products::split::{self, Operand, Refusals, Splits};
use super::products::tf32::{self, Turns};
use super::products::{ForwardProduct, GradientProduct, Products};
pub(super) use super::tune::Product;
use super::tune::in_use;
use super::{Activation, Backward, Forward, Precision, Sizes, Slope};
use crate::device::{Gpu, GpuBuffer, OnGpu, explain, for_storage, tiles};
use crate::{DType, Element, Error, Out, Real, Result};

/// Blocks that the sums over the batch are spread over: what a large GPU runs at once.
const SUM_BLOCKS: usize = 1024;
/// Rows below which a block of such a sum is not worth its start.
const LEAST_ROWS: usize = 32;

pub(super) type Memory<'a, S = f32> = &'a dyn DeviceMemory<S>;
pub(super) type MemoryMut<'a, S = f32> = &'a mut dyn DeviceMemory<S>;

impl Sizes {
    /// The product's rows, columns and depth.
    fn of(self, product: Product) -> [usize; 3] {
        let Self { batch, inputs, outputs } = self;
        match product {
            Product::Forward => [batch, outputs, inputs],
            Product::Dx => [batch, inputs, outputs],
            Product::Dw => [outputs, inputs, batch],
        }
    }

    /// What the ways to make a product depend on.
    pub fn question(self, hopper: bool, dtype: DType, precision: Precision, product: Product) -> Question {
        let Self { inputs, outputs, .. } = self;
        let lengths = if product == Product::Forward { [inputs, inputs] } else { [outputs, inputs] };
        // Of others there is one.
        let precision = if dtype == DType::F32 { precision } else { Precision::default() };
        Question { hopper, dtype, precision, product, sizes: self.of(product), lengths }
    }

    /// How a product is made: as a table of tuned ones says, where one is in use that has it, or else as the model does. What it
    /// `accumulates` to is still needed where a product of parts turns out to be none.
    fn choice<S: Products + Element>(
        self,
        gpu: &Gpu,
        op: &'static str,
        precision: Precision,
        product: Product,
        accumulates: bool,
    ) -> Result<Choice> {
        let Self { batch, inputs, outputs } = self;
        let question = self.question(gpu.hopper_multiprocessors().is_some(), S::DTYPE, precision, product);
        let tuned = in_use::find(gpu, &question).filter(|choice| !accumulates || choice.may_accumulate());
        match tuned {
            Some(choice) => Ok(choice),
            None => question.model::<S>(gpu, accumulates).ok_or_else(|| Error::Argument {
                op,
                argument: "x and w",
                got: format!("[{batch}, {inputs}] and [{outputs}, {inputs}]"),
                expected: "sizes below 2³¹ on a GPU".into(),
            }),
        }
    }
}

impl Question {
    /// The model's way: as tf32 if so asked for and there is one, or else by `Splits::split_plan`, `Pieces::ffma_plan` and
    /// [`Products::plan`]; `None` where sizes are too large.
    pub fn model<S: Products>(&self, gpu: &Gpu, accumulates: bool) -> Option<Choice> {
        let &Self { hopper, precision, product, sizes, lengths, .. } = self;
        if let Some(plan) = S::tf32_plan(gpu, precision, product, sizes) {
            return Some(Choice::new(plan, None));
        }
        let split = S::split_plan(gpu, precision, product, sizes, accumulates);
        // Where a product of parts is refused, whose plan has no pieces.
        if split.is_none()
            && let Some(plan) = S::ffma_plan(gpu, product, sizes)
        {
            return Some(Choice::new(plan, None));
        }
        S::plan(product, sizes, lengths, hopper).map(|plan| Choice::new(plan, split))
    }
}

/// What a kernel is told about the activation.
fn activation_code<T: Real>(activation: Activation<'_, T>) -> u32 {
    match activation {
        Activation::Identity => IDENTITY,
        Activation::Relu => RELU,
        Activation::Prelu(alpha) if alpha.len() == 1 => PRELU_SHARED,
        Activation::Prelu(_) => PRELU_EACH,
    }
}

/// What is done with the sums of a product.
pub(super) struct Finish<'a, S> {
    pub out: MemoryMut<'a, S>,
    pub beta: f32,
    pub z: Option<MemoryMut<'a, S>>,
    pub b: Option<Memory<'a, S>>,
    pub alpha: Option<Memory<'a>>,
    pub activation: u32,
}

impl<'a, S: Products> Finish<'a, S> {
    /// `out = sum + beta * out`.
    pub fn sum(out: MemoryMut<'a, S>, beta: f32) -> Self {
        Self { out, beta, z: None, b: None, alpha: None, activation: IDENTITY }
    }

    /// Queues the addition of a split product's parts, where it was split: as `plan` says, or, of the product of operands' parts
    /// that was not refused, as its plan does.
    fn launch(self, gpu: &Gpu, plan: &Plan, of_parts: Option<(&Plan, Memory<'a, u32>)>, parts: Memory<'a>) -> Result<()>
    where
        DenseFinish<'a, S>: Launch,
        DenseFinishLate<'a, S>: Launch,
    {
        if !plan.is_split() && !of_parts.is_some_and(|(plan, _)| plan.is_split()) {
            return Ok(());
        }
        if plan.is_ffma() {
            // SAFETY: as below.
            return unsafe { S::finish_ffma(gpu, plan, self, parts) };
        }
        let (shape, splits_if_refused) = (plan.shape, plan.splits);
        let (splits, refused) = match of_parts {
            Some((plan, refused)) => (plan.splits, Some(refused)),
            None => (plan.splits, None),
        };
        let Self { out, beta, z, b, alpha, activation } = self;
        let grid = [tiles(shape.rows as usize, FINISH_ROWS), tiles(shape.columns as usize, FINISH_COLUMNS), 1];
        let dims = LaunchDims::new(grid, FINISH_BLOCK);
        macro_rules! launch {
            ($kernel:ident) => {{
                let kernel =
                    $kernel { parts, out, z, b, alpha, refused, shape, splits, splits_if_refused, activation, beta };
                gpu.launch(dims, kernel)
            }};
        }
        // SAFETY: `parts` holds what the plan says, the other buffers are of the product's shape or its columns', checked
        // by the op; the grid covers the product.
        unsafe { if refused.is_none() && plan.is_by_cores() { launch!(DenseFinishLate) } else { launch!(DenseFinish) } }
    }
}

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "dense.forward";
        let Sizes { batch, inputs, outputs } = self.sizes;
        let activation = activation_code(self.activation);
        for_storage!(T as S, OP, "x", gpu, {
            let (x, w) = (self.x.gpu::<S>(OP, "x")?, self.w.gpu::<S>(OP, "w")?);
            let b = self.b.map(|b| b.gpu::<S>(OP, "b")).transpose()?.map(|b| b as Memory<'_, S>);
            let alpha = match self.activation {
                Activation::Prelu(alpha) => Some(alpha.gpu::<f32>(OP, "alpha")? as Memory<'_>),
                Activation::Identity | Activation::Relu => None,
            };
            let y = self.y.gpu_mut::<S>(OP, "y")?;
            let mut z = self.z.map(|z| z.gpu_mut::<S>(OP, "z")).transpose()?.map(|z| z as MemoryMut<'_, S>);

            let choice @ Choice { plan, split, .. } =
                self.sizes.choice::<S>(gpu, OP, self.precision, Product::Forward, false)?;
            let _why = explain::because(|| choice.why(|| in_use::source(gpu)));

            // The workspace: the operands' parts, what their split refuses, turned operands, and the parts of split products.
            let (of_x, of_w) = ([batch, inputs], [outputs, inputs]);
            let takes_both = split.as_ref().is_some_and(Plan::takes_both);
            let w_room = if takes_both { split::room(of_w) } else { 0 };
            let [x_room, w_room, refusals] =
                if split.is_some() { [split::room(of_x), w_room, Refusals::ROOM] } else { [0; 3] }.map(aligned);
            let turns = plan.is_ffma();
            let [turned_x, turned_w] = if turns { [of_x, of_w].map(tf32::room) } else { [0; 2] }.map(aligned);
            let parts = parts_of(&plan, &split);
            let mut workspace = gpu.workspace(x_room + w_room + refusals + turned_x + turned_w + parts)?;
            let (x_room, rest) = workspace.as_slice_mut().split_at(x_room);
            let (w_room, rest) = rest.split_at(w_room);
            let (refusals, rest) = rest.split_at(refusals);
            let (turned_x, rest) = rest.split_at(turned_x);
            let (turned_w, mut room) = rest.split_at(turned_w);

            let (mut x_parts, mut w_parts) = (Operand::new(x, of_x, x_room), Operand::new(w, of_w, w_room));
            let mut refusals = Refusals::new(refusals);
            if let Some(split) = &split {
                let parts = split.is_split().then_some(&mut room as MemoryMut<'_>);
                let z = z.as_mut().map(|z| &mut **z as MemoryMut<'_, S>);
                let product = ForwardProduct { x, w, y: &mut *y, z, b, alpha, parts, refused: None, activation };
                // SAFETY: the buffers are of the shapes that `dense::forward` checked, the workspace has the operands' parts
                // and those of the plan where it is split; whole tensors and the workspace begin at multiples of 16 bytes.
                unsafe {
                    let both = takes_both.then_some(&mut w_parts);
                    S::split(gpu, [Some(&mut x_parts), both, None], &mut refusals)?;
                    S::forward_split(gpu, split, [&x_parts, &w_parts], &mut refusals, product)?;
                }
            }
            let split = split.as_ref().map(|split| (split, refusals.any(Product::Forward)));
            let (mut turned_x, mut turned_w) = (turned_x.cast::<S>(), turned_w.cast::<S>());
            if turns {
                // SAFETY: the matrices are of these shapes, and the workspace has the room.
                unsafe {
                    S::turn(gpu, x, of_x, &mut turned_x)?;
                    S::turn(gpu, w, of_w, &mut turned_w)?;
                }
            }
            let (x, w): (Memory<'_, S>, Memory<'_, S>) = if turns { (&turned_x, &turned_w) } else { (x, w) };
            let parts = plan.is_split().then_some(&mut room as MemoryMut<'_>);
            let into_z = z.as_mut().map(|z| &mut **z as MemoryMut<'_, S>);
            let refused = split.map(|(_, refused)| refused);
            let product = ForwardProduct { x, w, y: &mut *y, z: into_z, b, alpha, parts, refused, activation };
            // SAFETY: as above.
            unsafe { S::forward(gpu, &plan, product)? };
            Finish { out: y, beta: 0.0, z, b, alpha, activation }.launch(gpu, &plan, split, &room)
        })
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

/// Elements of a product's parts by either of its plans.
fn parts_of(plan: &Plan, split: &Option<Plan>) -> usize {
    plan.parts().max(split.as_ref().map_or(0, Plan::parts))
}

/// A gradient's memory and its factor.
fn gradient<'a, T: Real, S: Element>(
    out: Option<Out<'a, T>>,
    op: &'static str,
    argument: &'static str,
) -> Result<Option<(&'a mut GpuBuffer<S>, f32)>> {
    out.map(|out| Ok((out.tensor.gpu_mut::<S>(op, argument)?, out.beta as f32))).transpose()
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "dense.backward";
        let sizes = self.sizes;
        let Sizes { batch, inputs, outputs } = sizes;
        for_storage!(T as S, OP, "x", gpu, {
            let (x, w) = (self.x.gpu::<S>(OP, "x")?, self.w.gpu::<S>(OP, "w")?);
            let dy = self.dy.gpu::<S>(OP, "dy")?;
            let (mut saved, mut alpha, mut activation) = (None, None, IDENTITY);
            match self.slope {
                Slope::One => {}
                Slope::Relu { y } => (saved, activation) = (Some(y.gpu::<S>(OP, "saved")? as Memory<'_, S>), RELU),
                Slope::Prelu { z, alpha: slopes } => {
                    saved = Some(z.gpu::<S>(OP, "saved")? as Memory<'_, S>);
                    alpha = Some(slopes.gpu::<f32>(OP, "alpha")? as Memory<'_>);
                    activation = activation_code::<T>(Activation::Prelu(slopes));
                }
            }
            let dx = gradient::<_, S>(self.gradients.dx, OP, "dx")?;
            let dw = gradient::<_, S>(self.gradients.dw, OP, "dw")?;
            let db = gradient::<_, S>(self.gradients.db, OP, "db")?;
            let dalpha = gradient::<_, f32>(self.gradients.dalpha, OP, "dalpha")?;
            let accumulates = [&dx, &dw].map(|out| out.as_ref().is_some_and(|&(_, beta)| beta != 0.0));
            let dx_choice = sizes.choice::<S>(gpu, OP, self.precision, Product::Dx, accumulates[0])?;
            let dw_choice = sizes.choice::<S>(gpu, OP, self.precision, Product::Dw, accumulates[1])?;
            let (dx_plan, dw_plan) = (dx_choice.plan, dw_choice.plan);
            let (dx_split, dw_split) =
                (dx_choice.split.filter(|_| dx.is_some()), dw_choice.split.filter(|_| dw.is_some()));
            let [takes_w, takes_x] = [&dx_split, &dw_split].map(|split| split.as_ref().is_some_and(Plan::takes_both));
            // Which operand of `dw` is turned, and whether `dx`'s is, one after the other in the same room.
            let turns = match dw_plan.tile {
                Tile::Tf32 { way: way @ (Way::Left | Way::Right), .. } if dw.is_some() => Some(way),
                _ => None,
            };
            let dx_turns = dx.is_some() && dx_plan.is_ffma();
            let of_turned = [batch, if turns == Some(Way::Left) { inputs } else { outputs }];
            let sums = Sums::new(sizes, activation);

            // The workspace: dz, the chunks' sums for db and for dalpha, the operands' parts and what their split refuses, a
            // turned operand, and the parts of split products.
            let makes_dz = activation != IDENTITY && (dx.is_some() || dw.is_some());
            let each = if activation == PRELU_SHARED { sums.strips } else { outputs };
            let room = [
                if makes_dz { (batch * outputs * size_of::<S>()).div_ceil(size_of::<f32>()) } else { 0 },
                if db.is_some() { sums.chunks * outputs } else { 0 },
                if dalpha.is_some() { sums.chunks * each } else { 0 },
                if dx_split.is_some() || dw_split.is_some() { split::room([batch, outputs]) } else { 0 },
                if takes_w { split::room([outputs, inputs]) } else { 0 },
                if takes_x { split::room([batch, inputs]) } else { 0 },
                if dx_split.is_some() || dw_split.is_some() { Refusals::ROOM } else { 0 },
                if turns.is_some() { tf32::room(of_turned) } else { 0 }.max(if dx_turns {
                    tf32::room([batch, outputs])
                } else {
                    0
                }),
                dx.as_ref()
                    .map_or(0, |_| parts_of(&dx_plan, &dx_split))
                    .max(dw.as_ref().map_or(0, |_| parts_of(&dw_plan, &dw_split))),
            ]
            .map(aligned);
            let mut workspace = gpu.workspace(room.iter().sum())?;
            let (dz, rest) = workspace.as_slice_mut().split_at(room[0]);
            let (mut db_sums, rest) = rest.split_at(room[1]);
            let (mut dalpha_sums, rest) = rest.split_at(room[2]);
            let (dz_room, rest) = rest.split_at(room[3]);
            let (w_room, rest) = rest.split_at(room[4]);
            let (x_room, rest) = rest.split_at(room[5]);
            let (refusals, rest) = rest.split_at(room[6]);
            let (turned, mut parts) = rest.split_at(room[7]);
            let mut turned = turned.cast::<S>();

            let mut dz = dz.cast::<S>();
            if makes_dz || db.is_some() || dalpha.is_some() {
                let into_dz = makes_dz.then_some(&mut dz as MemoryMut<'_, S>);
                let into_db = db.is_some().then_some(&mut db_sums as MemoryMut<'_>);
                let into_dalpha = dalpha.is_some().then_some(&mut dalpha_sums as MemoryMut<'_>);
                let (db, dalpha, sizes) = (into_db, into_dalpha, sums.rows);
                let dims = LaunchDims::new([sums.strips as u32, sums.chunks as u32, 1], sums::BLOCK);
                // SAFETY: `dy` and what was saved are `[N, O]` and `alpha` fits, checked by `dense::backward`; the workspace's
                // parts have the room that the kernel's layouts take; the grid covers the matrix.
                unsafe { gpu.launch(dims, DenseSlope { dy, saved, alpha, dz: into_dz, db, dalpha, sizes })? };
            }
            let dz: Memory<'_, S> = if makes_dz { &dz } else { dy };
            let columns = sums.rows.columns;
            let (rows, dims) = (sums.chunks as u32, LaunchDims::new(sums.strips as u32, sums::BLOCK));
            if let Some((out, beta)) = db {
                // SAFETY: the slope's kernel wrote `[chunks, O]`, and `db` is `[O]`.
                unsafe { gpu.launch(dims, DenseSumColumns { parts: &db_sums, out, rows, columns, beta })? };
            }
            match dalpha {
                None => {}
                Some((out, beta)) if activation == PRELU_SHARED => {
                    let n = (sums.chunks * sums.strips) as u64;
                    let kernel = DenseSumAll { parts: &dalpha_sums, out, n, beta };
                    // SAFETY: the slope's kernel wrote one element for each strip of each chunk.
                    unsafe { gpu.launch(LaunchDims::new(1, sums::BLOCK), kernel)? };
                }
                Some((out, beta)) => {
                    // SAFETY: as for `db`; there is a slope for each column.
                    unsafe { gpu.launch(dims, DenseSumColumns { parts: &dalpha_sums, out, rows, columns, beta })? };
                }
            }

            let mut dz_parts = Operand::new(dz, [batch, outputs], dz_room);
            let mut w_parts = Operand::new(w, [outputs, inputs], w_room);
            let mut x_parts = Operand::new(x, [batch, inputs], x_room);
            let mut refusals = Refusals::new(refusals);
            if dx_split.is_some() || dw_split.is_some() {
                let (w, x) = (takes_w.then_some(&mut w_parts), takes_x.then_some(&mut x_parts));
                // SAFETY: `dz` and `dy` are `[N, O]`, `w` `[O, I]` and `x` `[N, I]`; the workspace has room for the parts.
                unsafe { S::split(gpu, [Some(&mut dz_parts), w, x], &mut refusals)? };
            }
            if let Some((dx, beta)) = dx {
                let _why = explain::because(|| dx_choice.why(|| in_use::source(gpu)));
                if let Some(split) = &dx_split {
                    let into = split.is_split().then_some(&mut parts as MemoryMut<'_>);
                    let product = GradientProduct { dz, other: w, out: &mut *dx, parts: into, refused: None, beta };
                    // SAFETY: as below; `dz` was split, and `w` where the plan takes both.
                    unsafe {
                        S::gradient_split(gpu, split, Product::Dx, [&dz_parts, &w_parts], &mut refusals, product)?
                    };
                }
                let split = dx_split.as_ref().map(|split| (split, refusals.any(Product::Dx)));
                let refused = split.map(|(_, refused)| refused);
                let into = dx_plan.is_split().then_some(&mut parts as MemoryMut<'_>);
                if dx_turns {
                    // SAFETY: `dz` is `[N, O]`, and the workspace has the room.
                    unsafe { S::turn(gpu, dz, [batch, outputs], &mut turned)? };
                }
                let dz: Memory<'_, S> = if dx_turns { &turned } else { dz };
                let product = GradientProduct { dz, other: w, out: &mut *dx, parts: into, refused, beta };
                // SAFETY: `dz` and `dy` are `[N, O]`, `w` `[O, I]`, `dx` `[N, I]`, and the workspace holds the plans' parts;
                // all begin at multiples of 16 bytes.
                unsafe { S::dx(gpu, &dx_plan, product)? };
                Finish::sum(dx, beta).launch(gpu, &dx_plan, split, &parts)?;
            }
            if let Some((dw, beta)) = dw {
                let _why = explain::because(|| dw_choice.why(|| in_use::source(gpu)));
                if let Some(split) = &dw_split {
                    let into = split.is_split().then_some(&mut parts as MemoryMut<'_>);
                    let product = GradientProduct { dz, other: x, out: &mut *dw, parts: into, refused: None, beta };
                    // SAFETY: as below; `dz` was split, and `x` where the plan takes both.
                    unsafe {
                        S::gradient_split(gpu, split, Product::Dw, [&dz_parts, &x_parts], &mut refusals, product)?
                    };
                }
                let split = dw_split.as_ref().map(|split| (split, refusals.any(Product::Dw)));
                let refused = split.map(|(_, refused)| refused);
                let into = dw_plan.is_split().then_some(&mut parts as MemoryMut<'_>);
                if let Some(way) = turns {
                    let matrix = if way == Way::Left { x } else { dz };
                    // SAFETY: `dz` is `[N, O]`, `x` `[N, I]`, and the workspace has the room.
                    unsafe { S::turn(gpu, matrix, of_turned, &mut turned)? };
                }
                let (dz, other): (Memory<'_, S>, Memory<'_, S>) = match turns {
                    Some(Way::Left) => (dz, &turned),
                    Some(_) => (&turned, x),
                    None => (dz, x),
                };
                let product = GradientProduct { dz, other, out: &mut *dw, parts: into, refused, beta };
                // SAFETY: as above, with `x` `[N, I]` and `dw` `[O, I]`.
                unsafe { S::dw(gpu, &dw_plan, product)? };
                Finish::sum(dw, beta).launch(gpu, &dw_plan, split, &parts)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here, where it takes no memory.
    #[test]
    fn refuses_sizes_that_32_bits_do_not_count() {
        let sizes = Sizes { batch: 1 << 31, inputs: 3, outputs: 2 };
        assert_eq!(
            sizes
                .choice::<f32>(&Gpu::emulated(), "dense.forward", Precision::default(), Product::Forward, false)
                .unwrap_err()
                .to_string(),
            "dense.forward: x and w is [2147483648, 3] and [2, 3], expected sizes below 2³¹ on a GPU"
        );
    }
}
