//! The launches of products on Hopper's tensor cores: the kernels by their tiles, and the maps of their matrices.

use cuda_std::arch::sm_80::Half;
use cuda_std::launch::Launch;
use cuda_std::tensor_map::TensorMap;
use kernels::dense::wgmma::{edge, operand_box};
use kernels::dense::{DenseDwWgmma, DenseDxWgmma, DenseDxWidths, DenseForwardWgmma, Shape};

use super::super::gpu::Memory;
use super::super::plan::{Plan, Tile};
use super::{ForwardProduct, GradientProduct};
use crate::device::Gpu;
use crate::{Element, Result};

/// The maps of the operands `a: [rows, depth]` and `b: [depth, columns]` of a plan, each with whether its depth is innermost: for whole
/// boxes of what a block brings, and for those at the matrix's edge.
fn maps<T: Element>(
    gpu: &Gpu,
    plan: &Plan,
    (a, a_depth_inner): (Memory<'_, T>, bool),
    (b, b_depth_inner): (Memory<'_, T>, bool),
) -> Result<[[TensorMap; 2]; 2]> {
    let Shape { rows, columns, depth, .. } = plan.shape;
    let Tile::Hopper { sharing: [down, beside], .. } = plan.tile else {
        unreachable!("{:?} is no tile of Hopper's", plan.tile)
    };
    let operand = |memory, across: u32, depth_inner: bool, side, blocks| -> Result<[TensorMap; 2]> {
        if !depth_inner {
            return Ok([gpu.tensor_map(memory, [depth, across], operand_box(side, false, blocks))?; 2]);
        }
        let map = |side| gpu.tensor_map(memory, [across, depth], operand_box(side, true, 1));
        Ok([map(side / blocks)?, map(edge(across, side / blocks))?])
    };
    let [side_of_a, side_of_b] = [plan.tile.rows(), plan.tile.columns()];
    let of_a = operand(a, rows, a_depth_inner, side_of_a, beside)?;
    Ok([of_a, operand(b, columns, b_depth_inner, side_of_b, down)?])
}

/// Launches the kernel of the plan's tile, of those that are listed; what another one means, a function of the launch and the tile says.
macro_rules! launch {
    (
        $gpu:expr, $plan:expr, $kernel:ident, $fields:tt, [$(($columns:literal, $height:literal, $together:literal))*],
        $otherwise:expr
    ) => {{
        let multiprocessors = $gpu.hopper_multiprocessors().unwrap_or(1);
        let dims = $plan.hopper_dims(multiprocessors);
        let Tile::Hopper { columns, height, together, .. } = $plan.tile else {
            unreachable!("{:?} is no tile of Hopper's", $plan.tile)
        };
        match (columns, height, together) {
            $(($columns, $height, $together) => {
                $gpu.launch(dims, $kernel::<T, $columns, $height, $together> $fields)
            })*
            tile => ($otherwise)(dims, tile),
        }
    }};
    ($gpu:expr, $plan:expr, $kernel:ident, $fields:tt) => {
        launch!($gpu, $plan, $kernel, $fields, [
            (64, 1, 1) (64, 1, 2) (64, 1, 4) (64, 2, 1) (64, 2, 2) (64, 2, 4) (96, 2, 1) (128, 2, 1) (128, 2, 2)
            (128, 2, 4) (144, 2, 1) (168, 2, 1) (192, 2, 1) (224, 2, 1) (256, 2, 1) (128, 3, 1) (192, 3, 1)
        ], |_, tile| unreachable!("there is no kernel for tiles of {tile:?}"))
    };
}

/// Queues `y`.
///
/// # Safety
/// [`Products::forward`](super::Products::forward)'s.
pub unsafe fn forward<'a, T>(gpu: &Gpu, plan: &Plan, product: ForwardProduct<'a, T>) -> Result<()>
where
    T: Half + Element,
    DenseForwardWgmma<'a, T, 256, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 192, 3, 1>: Launch,
    DenseForwardWgmma<'a, T, 128, 3, 1>: Launch,
    DenseForwardWgmma<'a, T, 224, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 192, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 168, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 144, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 96, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 128, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 128, 2, 2>: Launch,
    DenseForwardWgmma<'a, T, 128, 2, 4>: Launch,
    DenseForwardWgmma<'a, T, 64, 2, 1>: Launch,
    DenseForwardWgmma<'a, T, 64, 2, 2>: Launch,
    DenseForwardWgmma<'a, T, 64, 2, 4>: Launch,
    DenseForwardWgmma<'a, T, 64, 1, 1>: Launch,
    DenseForwardWgmma<'a, T, 64, 1, 2>: Launch,
    DenseForwardWgmma<'a, T, 64, 1, 4>: Launch,
{
    let ForwardProduct { x, w, y, z, b, alpha, parts, activation, .. } = product;
    let [[x_map, x_edge], [w_map, w_edge]] = maps(gpu, plan, (x, true), (w, true))?;
    let (shape, splits) = (plan.shape, plan.splits);
    // SAFETY: the caller's; the maps are of these buffers, as the plan's tile asks for; its block has the shared memory.
    unsafe {
        launch!(gpu, plan, DenseForwardWgmma, {
            x, w, y, z, b, alpha, parts, shape, splits, activation, x_map, x_edge, w_map, w_edge
        })
    }
}

/// Queues `dx`.
///
/// # Safety
/// [`Products::dx`](super::Products::dx)'s.
pub unsafe fn dx<'a, T>(gpu: &Gpu, plan: &Plan, product: GradientProduct<'a, T>) -> Result<()>
where
    T: Half + Element,
    DenseDxWidths<'a, T, 256, 2>: Launch,
    DenseDxWidths<'a, T, 200, 3>: Launch,
    DenseDxWgmma<'a, T, 256, 2, 1>: Launch,
    DenseDxWgmma<'a, T, 192, 3, 1>: Launch,
    DenseDxWgmma<'a, T, 128, 3, 1>: Launch,
    DenseDxWgmma<'a, T, 224, 2, 1>: Launch,
    DenseDxWgmma<'a, T, 192, 2, 1>: Launch,
    DenseDxWgmma<'a, T, 96, 2, 1>: Launch,
    DenseDxWgmma<'a, T, 128, 2, 1>: Launch,
    DenseDxWgmma<'a, T, 128, 2, 2>: Launch,
    DenseDxWgmma<'a, T, 128, 2, 4>: Launch,
    DenseDxWgmma<'a, T, 64, 2, 1>: Launch,
    DenseDxWgmma<'a, T, 64, 2, 2>: Launch,
    DenseDxWgmma<'a, T, 64, 2, 4>: Launch,
    DenseDxWgmma<'a, T, 64, 1, 1>: Launch,
    DenseDxWgmma<'a, T, 64, 1, 2>: Launch,
    DenseDxWgmma<'a, T, 64, 1, 4>: Launch,
{
    let GradientProduct { dz, other: w, out: dx, parts, beta, .. } = product;
    let [[dz_map, dz_edge], [w_map, _]] = maps(gpu, plan, (dz, true), (w, false))?;
    let (shape, splits) = (plan.shape, plan.splits);
    // SAFETY: as for `forward`.
    unsafe {
        launch!(gpu, plan, DenseDxWgmma, { dz, w, dx, parts, shape, splits, beta, dz_map, dz_edge, w_map }, [
            (64, 1, 1) (64, 1, 2) (64, 1, 4) (64, 2, 1) (64, 2, 2) (64, 2, 4) (96, 2, 1) (128, 2, 1) (128, 2, 2)
            (128, 2, 4) (192, 2, 1) (224, 2, 1) (256, 2, 1) (128, 3, 1) (192, 3, 1)
        ], |dims, (width, height, together)| match (height, together) {
            (2, 1) => gpu.launch(dims, DenseDxWidths::<T, 256, 2> {
                dz, w, dx, parts, shape, splits, width, beta, dz_map, dz_edge, w_map
            }),
            (3, 1) => gpu.launch(dims, DenseDxWidths::<T, 200, 3> {
                dz, w, dx, parts, shape, splits, width, beta, dz_map, dz_edge, w_map
            }),
            _ => unreachable!("there is no kernel for tiles of {width} columns, {height} high, {together} together"),
        })
    }
}

/// Queues `dw`.
///
/// # Safety
/// [`Products::dw`](super::Products::dw)'s.
pub unsafe fn dw<'a, T>(gpu: &Gpu, plan: &Plan, product: GradientProduct<'a, T>) -> Result<()>
where
    T: Half + Element,
    DenseDwWgmma<'a, T, 256, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 192, 3, 1>: Launch,
    DenseDwWgmma<'a, T, 128, 3, 1>: Launch,
    DenseDwWgmma<'a, T, 224, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 192, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 168, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 144, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 96, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 128, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 128, 2, 2>: Launch,
    DenseDwWgmma<'a, T, 128, 2, 4>: Launch,
    DenseDwWgmma<'a, T, 64, 2, 1>: Launch,
    DenseDwWgmma<'a, T, 64, 2, 2>: Launch,
    DenseDwWgmma<'a, T, 64, 2, 4>: Launch,
    DenseDwWgmma<'a, T, 64, 1, 1>: Launch,
    DenseDwWgmma<'a, T, 64, 1, 2>: Launch,
    DenseDwWgmma<'a, T, 64, 1, 4>: Launch,
{
    let GradientProduct { dz, other: x, out: dw, parts, beta, .. } = product;
    let [[dz_map, _], [x_map, _]] = maps(gpu, plan, (dz, false), (x, false))?;
    let (shape, splits) = (plan.shape, plan.splits);
    // SAFETY: as for `forward`.
    unsafe { launch!(gpu, plan, DenseDwWgmma, { dz, x, dw, parts, shape, splits, beta, dz_map, x_map }) }
}
