//! Products of f32 on Hopper by FFMA, of operands that bulk copies bring: the product's launch and that which adds pieces.

use std::cell::RefCell;

use cuda_std::element::Storage;
use cuda_std::launch::LaunchDims;
use kernels::dense::ffma::{BLOCK, COLUMNS, DenseFfma, DenseFinishFfma, LANE_ROWS, PIECE, ROWS, operand_box};
use kernels::dense::{IDENTITY, Shape};

use super::super::gpu::{Finish, Memory, MemoryMut, Product};
use super::super::plan::{Plan, Tile};
use super::{ForwardProduct, GradientProduct, Plans, tf32};
use crate::device::Gpu;
use crate::{Result, bf16, f16};

/// The element types, of which f32 alone has these kernels.
pub trait Pieces: Storage {
    /// How a product is cut up; `None` where it is to be made otherwise.
    fn ffma_plan(_: &Gpu, _: Product, _sizes: [usize; 3]) -> Option<Plan> {
        None
    }

    /// Queues the addition of the pieces of shared tiles.
    ///
    /// # Safety
    /// `pieces` holds what the plan says, the other buffers are of the product's shape or its columns'.
    unsafe fn finish_ffma<'a>(_: &Gpu, _: &Plan, _: Finish<'a, Self>, _pieces: Memory<'a>) -> Result<()> {
        unreachable!("this type has no plan with pieces")
    }
}

impl Pieces for f16 {}
impl Pieces for bf16 {}

impl Pieces for f32 {
    fn ffma_plan(gpu: &Gpu, product: Product, sizes: [usize; 3]) -> Option<Plan> {
        gpu.hopper_multiprocessors()?;
        thread_local! {
            static PLANS: Plans<(Product, [usize; 3])> = RefCell::default();
        }
        PLANS.with_borrow_mut(|plans| plans.get((product, sizes), || Plan::ffma(product, sizes)))
    }

    unsafe fn finish_ffma<'a>(gpu: &Gpu, plan: &Plan, finish: Finish<'a, Self>, pieces: Memory<'a>) -> Result<()> {
        let Tile::Ffma { shared, .. } = plan.tile else { unreachable!("{:?} has no pieces", plan.tile) };
        let Finish { out, beta, z, b: bias, alpha, activation } = finish;
        let (work, blocks) = (plan.ffma_work(), plan.ffma_blocks());
        let kernel = DenseFinishFfma { pieces, out, z, bias, alpha, work, blocks, activation, beta };
        // SAFETY: the caller's; the grid is of the shared tiles.
        unsafe { gpu.launch(LaunchDims::new([shared, LANE_ROWS, 1], BLOCK), kernel) }
    }
}

/// Queues the product of `a: [depth, rows]` and `b: [depth, columns]`, rows in memory whole pieces.
///
/// # Safety
/// These are their shapes; `finish`'s buffers are of the product's, `pieces` as the plan says.
unsafe fn product<'a>(
    gpu: &Gpu,
    plan: &Plan,
    [a, b]: [Memory<'a>; 2],
    finish: Finish<'a, f32>,
    pieces: Option<MemoryMut<'a>>,
) -> Result<()> {
    let Finish { out, beta, z, b: bias, alpha, activation } = finish;
    let Shape { rows, columns, depth, .. } = plan.shape;
    let map =
        |matrix, across: u32, side| gpu.tensor_map(matrix, [depth, across.next_multiple_of(PIECE)], operand_box(side));
    let (a_map, b_map) = (map(a, rows, ROWS)?, map(b, columns, COLUMNS)?);
    let work = plan.ffma_work();
    let has_more = z.is_some() || bias.is_some() || activation != IDENTITY || beta != 0.0;
    macro_rules! launch {
        ($plain:literal) => {{
            let kernel =
                DenseFfma::<$plain> { a, b, out, z, bias, alpha, pieces, work, activation, beta, a_map, b_map };
            gpu.launch(plan.ffma_dims(), kernel)
        }};
    }
    // SAFETY: the caller's; the maps are of these buffers; the block has the shared memory.
    unsafe { if has_more || !columns.is_multiple_of(PIECE) { launch!(false) } else { launch!(true) } }
}

/// Queues `y`: of `x` and `w` turned, or, if the plan is tf32's, as that does.
///
/// # Safety
/// [`Products::forward`](super::Products::forward)'s.
pub unsafe fn forward(gpu: &Gpu, plan: &Plan, product: ForwardProduct<'_, f32>) -> Result<()> {
    if !plan.is_ffma() {
        // SAFETY: the caller's.
        return unsafe { tf32::forward(gpu, plan, product) };
    }
    let ForwardProduct { x, w, y: out, z, b, alpha, parts, activation, .. } = product;
    // SAFETY: the caller's.
    unsafe { self::product(gpu, plan, [x, w], Finish { out, beta: 0.0, z, b, alpha, activation }, parts) }
}

/// Queues `dx`: of `dz` turned, or, if the plan is tf32's, as that does.
///
/// # Safety
/// [`Products::dx`](super::Products::dx)'s.
pub unsafe fn dx(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, f32>) -> Result<()> {
    if !plan.is_ffma() {
        // SAFETY: the caller's.
        return unsafe { tf32::dx(gpu, plan, product) };
    }
    let GradientProduct { dz, other: w, out, parts, beta, .. } = product;
    // SAFETY: the caller's.
    unsafe { self::product(gpu, plan, [dz, w], Finish::sum(out, beta), parts) }
}

/// Queues `dw`; if the plan is tf32's, as that does.
///
/// # Safety
/// [`Products::dw`](super::Products::dw)'s.
pub unsafe fn dw(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, f32>) -> Result<()> {
    if !plan.is_ffma() {
        // SAFETY: the caller's.
        return unsafe { tf32::dw(gpu, plan, product) };
    }
    let GradientProduct { dz, other: x, out, parts, beta, .. } = product;
    // SAFETY: the caller's.
    unsafe { self::product(gpu, plan, [dz, x], Finish::sum(out, beta), parts) }
}
