//! Products of f32 as tf32 on Hopper's tensor cores: the launch that turns an operand of `dw`, and the products'.

use std::cell::RefCell;

use cuda_std::element::Storage;
use cuda_std::launch::LaunchDims;
use cuda_std::tensor_map::TensorMap;
use kernels::dense::Shape;
use kernels::dense::tf32::{BLOCK, BLOCKS, DenseTf32, DenseTf32Turn, DenseTf32Turning, operand_box};
use kernels::dense::wgmma::{ROWS, edge};

use super::super::Precision;
use super::super::gpu::{Memory, MemoryMut, Product};
use super::super::plan::{Plan, Tile, tf32_sharing};
use super::{ForwardProduct, GradientProduct, Plans, sizes};
use crate::device::Gpu;
use crate::{Result, bf16, f16};

/// Elements of a workspace that a turned matrix takes.
pub fn room(shape: [usize; 2]) -> usize {
    sizes(shape).room() as usize
}

/// The element types, of which only f32 is multiplied as another.
pub trait Turns: Storage {
    /// How a product is cut up that is made as tf32; `None` where it is to be made otherwise.
    fn tf32_plan(_gpu: &Gpu, _precision: Precision, _product: Product, _sizes: [usize; 3]) -> Option<Plan> {
        None
    }

    /// Queues `matrix`, of this shape, turned: columns as rows, of whole pieces.
    ///
    /// # Safety
    /// `matrix` has the shape, `turned` the [`room`]; both begin at multiples of 16 bytes.
    unsafe fn turn<'a>(_: &Gpu, _: Memory<'a, Self>, _: [usize; 2], _: MemoryMut<'a, Self>) -> Result<()> {
        unreachable!("this type has no plan to be turned by")
    }
}

impl Turns for f16 {}
impl Turns for bf16 {}

impl Turns for f32 {
    fn tf32_plan(gpu: &Gpu, precision: Precision, product: Product, sizes: [usize; 3]) -> Option<Plan> {
        match precision {
            Precision::Tf32 if gpu.hopper_multiprocessors().is_some() => {
                thread_local! {
                    static PLANS: Plans<(Product, [usize; 3])> = RefCell::default();
                }
                PLANS.with_borrow_mut(|plans| plans.get((product, sizes), || Plan::tf32(product, sizes)))
            }
            Precision::F32 | Precision::F32Split | Precision::Tf32 => None,
        }
    }

    unsafe fn turn<'a>(gpu: &Gpu, matrix: Memory<'a>, shape: [usize; 2], turned: MemoryMut<'a>) -> Result<()> {
        let kernel = DenseTf32Turn { matrix, turned, sizes: sizes(shape) };
        // SAFETY: the caller's; `Plan::tf32` refuses matrices that are too large.
        unsafe { gpu.launch(LaunchDims::new(BLOCKS, BLOCK), kernel) }
    }
}

/// The maps of an operand with its depth innermost, `[across, depth]`: for whole boxes of a side that so many blocks bring together, and
/// for those at its edge.
fn maps(
    gpu: &Gpu,
    matrix: Memory<'_>,
    sizes @ [across, _]: [u32; 2],
    side: u32,
    blocks: u32,
) -> Result<[TensorMap; 2]> {
    let map = |side| gpu.tensor_map_as_tf32(matrix, sizes, operand_box(side, true, 1));
    Ok([map(side / blocks)?, map(edge(across, side / blocks))?])
}

/// Queues `y`.
///
/// # Safety
/// [`Products::forward`](super::Products::forward)'s.
pub unsafe fn forward(gpu: &Gpu, plan: &Plan, product: ForwardProduct<'_, f32>) -> Result<()> {
    let ForwardProduct { x: a, w: b, y: out, z, b: bias, alpha, parts, activation, .. } = product;
    let (shape @ Shape { rows, columns, depth, .. }, splits) = (plan.shape, plan.splits);
    let Tile::Tf32 { side, together, .. } = plan.tile else { unreachable!("{:?} is not of tf32", plan.tile) };
    let [a_map, a_edge] = maps(gpu, a, [rows, depth], ROWS, 1)?;
    let [b_map, b_edge] = maps(gpu, b, [columns, depth], side, tf32_sharing(side, together))?;
    let dims = plan.tf32_dims(gpu.hopper_multiprocessors().unwrap_or(1));
    macro_rules! launch {
        ($($columns:literal by $together:literal,)*) => {
            match (side, together) {
                $(($columns, $together) => {
                    let kernel = DenseTf32::<$columns, $together> {
                        a, b, out, z, bias, alpha, parts, shape, splits, activation, a_map, a_edge, b_map, b_edge
                    };
                    gpu.launch(dims, kernel)
                })*
                tile => unreachable!("there is no kernel for tiles of {tile:?}"),
            }
        };
    }
    // SAFETY: the caller's; the maps are of these buffers, as the plan's tile asks for; its block has the shared memory.
    unsafe { launch!(64 by 1, 64 by 2, 64 by 4, 128 by 1, 128 by 2, 128 by 4, 192 by 1, 256 by 1,) }
}

/// Queues `dx`.
///
/// # Safety
/// [`Products::dx`](super::Products::dx)'s.
pub unsafe fn dx(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, f32>) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { gradient(gpu, plan, product) }
}

/// Queues `dw`, of `dz` turned where the plan's way is the right operand's, or else of `x` turned; or of both as they are, where the
/// kernel turns one itself.
///
/// # Safety
/// [`Products::dw`](super::Products::dw)'s.
pub unsafe fn dw(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, f32>) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { gradient(gpu, plan, product) }
}

/// Queues the product of `dz` and of the other operand, one of which has its depth outermost, as the plan's way says.
///
/// # Safety
/// [`Products::dx`](super::Products::dx)'s, of these operands.
unsafe fn gradient(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, f32>) -> Result<()> {
    let GradientProduct { dz, other, out, parts, beta, .. } = product;
    let Tile::Tf32 { side, way, .. } = plan.tile else { unreachable!("{:?} is not of tf32", plan.tile) };
    let (a, b) = if way.is_right() { (other, dz) } else { (dz, other) };
    let (shape @ Shape { rows, columns, depth, .. }, splits) = (plan.tf32_shape(), plan.splits);
    // Of what was not turned there may be fewer rows than the depth: it lies whole in memory.
    let in_memory = |matrix: Memory<'_>, across: u32| [(matrix.len() / across as usize) as u32, across];
    let a_map = gpu.tensor_map_as_tf32(a, in_memory(a, rows), operand_box(ROWS, false, 1))?;
    let [b_map, b_edge] = if way.is_within() {
        [gpu.tensor_map_as_tf32(b, in_memory(b, columns), operand_box(side, false, tf32_sharing(side, 1)))?; 2]
    } else {
        maps(gpu, b, [columns, depth], side, tf32_sharing(side, 1))?
    };
    let dims = plan.tf32_dims(gpu.hopper_multiprocessors().unwrap_or(1));
    macro_rules! launch {
        ($($side:literal $turned:literal $both:literal,)*) => {
            match (side, way.is_right(), way.is_within()) {
                $(($side, $turned, $both) => {
                    let kernel = DenseTf32Turning::<$side, $turned, $both> {
                        a, b, out, beta, parts, shape, splits, a_map, b_map, b_edge
                    };
                    gpu.launch(dims, kernel)
                })*
                tile => unreachable!("there is no kernel for tiles of {tile:?}"),
            }
        };
    }
    // SAFETY: as for `forward`.
    unsafe {
        launch!(64 true false, 128 true false, 192 true false, 256 true false, 64 false false, 128 false false,
            192 false false, 256 false false, 64 true true, 128 true true, 64 false true, 128 false true,)
    }
}
