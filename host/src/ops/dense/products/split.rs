//! Products of f32 on Hopper's tensor cores: the launches that take operands apart, and those that multiply the parts.

use std::cell::RefCell;

use cuda_std::element::Storage;
use cuda_std::launch::{DeviceMemory, LaunchDims};
use cuda_std::tensor_map::TensorMap;
use kernels::dense::Sizes;
use kernels::dense::split::{
    BLOCK, BLOCKS, COLUMNS, DenseDwSplit, DenseDxSplit, DenseForwardSplit, DenseForwardSplitRegisters,
    DenseGradientSplitRegisters, DenseSplit, LEFT_BOX, PARTS,
};
use kernels::dense::wgmma::{ROWS, operand_box};

use super::super::Precision;
use super::super::gpu::{Memory, MemoryMut, Product};
use super::super::plan::{Plan, Tile};
use super::{ForwardProduct, GradientProduct, Plans, sizes};
use crate::device::{Gpu, GpuSliceMut};
use crate::{Result, bf16, f16};

/// A matrix and room for its parts.
pub struct Operand<'a, S> {
    matrix: Memory<'a, S>,
    sizes: Sizes,
    /// Two bf16 in a word.
    parts: GpuSliceMut<'a, u32>,
}

/// Elements of a workspace that the parts of a matrix take.
pub fn room([rows, columns]: [usize; 2]) -> usize {
    let padded = sizes([rows, columns]).padded() as usize;
    (PARTS as usize * padded * size_of::<bf16>()).div_ceil(size_of::<f32>())
}

impl<'a, S: Storage> Operand<'a, S> {
    /// Of `matrix: [rows, columns]`, in [`room`] of a workspace.
    pub fn new(matrix: Memory<'a, S>, shape: [usize; 2], room: GpuSliceMut<'a, f32>) -> Self {
        Self { matrix, sizes: sizes(shape), parts: room.cast() }
    }

    /// The map of all parts as one matrix, for tiles of so many rows or columns.
    fn map(&self, gpu: &Gpu, side: u32, depth_inner: bool) -> Result<TensorMap> {
        let [rows, columns] = self.sizes.padded_each();
        gpu.tensor_map(&self.parts.view::<bf16>(), [PARTS * rows, columns], operand_box(side, depth_inner, 1))
    }
}

/// What the split's blocks say, and what the products' kernels make of it: one word each.
pub struct Refusals<'a> {
    each: GpuSliceMut<'a, u32>,
    /// Of `y` or `dx`, and of `dw`.
    any: [GpuSliceMut<'a, u32>; 2],
}

impl<'a> Refusals<'a> {
    /// Elements of a workspace that they take.
    pub const ROOM: usize = BLOCKS as usize + 2;

    /// In such room; in none, where nothing is split.
    pub fn new(room: GpuSliceMut<'a, f32>) -> Self {
        let room = room.cast();
        let each = room.len().min(BLOCKS as usize);
        let (each, any) = room.split_at(each);
        let one = any.len().min(1);
        Self { each, any: any.split_at(one).into() }
    }

    /// 1 where the product of parts was not made, or is not to be used, else 0.
    pub fn any(&self, product: Product) -> Memory<'_, u32> {
        &self.any[usize::from(product == Product::Dw)]
    }
}

/// The element types, of which only f32 is split.
pub trait Splits: Storage {
    /// How a product is cut up whose operands are split; `None` where it is to be made otherwise.
    fn split_plan(
        _gpu: &Gpu,
        _precision: Precision,
        _product: Product,
        _sizes: [usize; 3],
        _accumulates: bool,
    ) -> Option<Plan> {
        None
    }

    /// Queues the parts of up to three operands: `x` and `w`, or `dz`, `w` and `x`, each in its place. Before any product that has a plan by
    /// parts.
    ///
    /// # Safety
    /// They and their rooms are of the shapes they were made with, and begin at multiples of 16 bytes.
    unsafe fn split(_: &Gpu, _: [Option<&mut Operand<'_, Self>>; 3], _: &mut Refusals<'_>) -> Result<()> {
        unreachable!("{NEVER}")
    }

    /// Queues `y`, of the parts of `x` and `w`, or of the parts of `x` and of `w`.
    ///
    /// # Safety
    /// As [`Products::forward`](super::Products::forward); the operands were split that the plan takes in parts.
    unsafe fn forward_split<'a>(
        _: &Gpu,
        _: &Plan,
        _: [&'a Operand<'_, Self>; 2],
        _: &'a mut Refusals<'_>,
        _: ForwardProduct<'a, Self>,
    ) -> Result<()> {
        unreachable!("{NEVER}")
    }

    /// Queues `dx`, of the parts of `dz` and of `w` or its parts, or `dw`, of `x` in place of `w`.
    ///
    /// # Safety
    /// As [`Splits::forward_split`].
    unsafe fn gradient_split<'a>(
        _: &Gpu,
        _: &Plan,
        _: Product,
        _: [&'a Operand<'_, Self>; 2],
        _: &'a mut Refusals<'_>,
        _: GradientProduct<'a, Self>,
    ) -> Result<()> {
        unreachable!("{NEVER}")
    }
}

const NEVER: &str = "this type has no plan to be split by";

impl Splits for f16 {}
impl Splits for bf16 {}

impl Splits for f32 {
    fn split_plan(
        gpu: &Gpu,
        precision: Precision,
        product: Product,
        sizes: [usize; 3],
        accumulates: bool,
    ) -> Option<Plan> {
        match precision {
            Precision::F32Split | Precision::Tf32 if gpu.hopper_multiprocessors().is_some() => {
                thread_local! {
                    static PLANS: Plans<(Product, [usize; 3], bool)> = RefCell::default();
                }
                let key = (product, sizes, accumulates);
                PLANS.with_borrow_mut(|plans| plans.get(key, || Plan::split(product, sizes, accumulates)))
            }
            Precision::F32 | Precision::F32Split | Precision::Tf32 => None,
        }
    }

    unsafe fn split(
        gpu: &Gpu,
        operands: [Option<&mut Operand<'_, Self>>; 3],
        refusals: &mut Refusals<'_>,
    ) -> Result<()> {
        let [a, b, c] = operands.map(|operand| match operand {
            Some(Operand { matrix, sizes, parts }) => (Some(*matrix), Some(parts as MemoryMut<'_, u32>), *sizes),
            None => (None, None, Sizes::default()),
        });
        let ((a, a_parts, a_sizes), (b, b_parts, b_sizes), (c, c_parts, c_sizes)) = (a, b, c);
        let (Some(a), Some(a_parts)) = (a, a_parts) else { return Ok(()) };
        let Refusals { each: refused, any: [first, second] } = refusals;
        let kernel =
            DenseSplit { a, b, c, a_parts, b_parts, c_parts, refused, first, second, a_sizes, b_sizes, c_sizes };
        // SAFETY: the caller's; `Plan::split` refuses matrices that are too large.
        unsafe { gpu.launch(LaunchDims::new(BLOCKS, BLOCK), kernel) }
    }

    unsafe fn forward_split<'a>(
        gpu: &Gpu,
        plan: &Plan,
        [x, w]: [&'a Operand<'_, Self>; 2],
        refusals: &'a mut Refusals<'_>,
        product: ForwardProduct<'a, Self>,
    ) -> Result<()> {
        let ForwardProduct { w: matrix, y, z, b, alpha, parts, activation, .. } = product;
        let (shape, splits) = (plan.shape, plan.splits);
        let Refusals { each: refusals, any: [refused, _] } = refusals;
        let refusals = &*refusals;
        if let Tile::SplitRegisters { rows } = plan.tile {
            let x_map = x.map(gpu, rows, true)?;
            let w_map = gpu.tensor_map(matrix, [shape.columns, shape.depth], LEFT_BOX)?;
            let (x, w, dims) = (&x.parts, matrix, plan.split_dims(gpu.hopper_multiprocessors().unwrap_or(1)));
            macro_rules! launch {
                ($($columns:literal)*) => {
                    match rows {
                        $($columns => gpu.launch(dims, DenseForwardSplitRegisters::<$columns> {
                            x, w, refusals, refused, y, z, b, alpha, parts, shape, splits, activation, x_map, w_map
                        }),)*
                        rows => unreachable!("there is no kernel for tiles of {rows} rows"),
                    }
                };
            }
            // SAFETY: as below; rows of `w` are whole pieces, and nothing is accumulated: the plan says so.
            return unsafe { launch!(64 128) };
        }
        let Maps { dims, maps: [x_map, w_map] } = Maps::new(gpu, plan, (x, true), (w, true))?;
        let (x, w) = (&x.parts, &w.parts);
        let kernel = DenseForwardSplit {
            x,
            w,
            refusals,
            refused,
            y,
            z,
            b,
            alpha,
            parts,
            shape,
            splits,
            activation,
            x_map,
            w_map,
        };
        // SAFETY: the caller's; the maps are of these buffers, as the kernel's tiles ask for.
        unsafe { gpu.launch(dims, kernel) }
    }

    unsafe fn gradient_split<'a>(
        gpu: &Gpu,
        plan: &Plan,
        gradient: Product,
        [dz, other]: [&'a Operand<'_, Self>; 2],
        refusals: &'a mut Refusals<'_>,
        product: GradientProduct<'a, Self>,
    ) -> Result<()> {
        let GradientProduct { other: matrix, out, parts, beta, .. } = product;
        let of_dx = gradient == Product::Dx;
        let (shape, splits) = (plan.shape, plan.splits);
        let Refusals { each: refusals, any: [of_others, of_dw] } = refusals;
        let (refusals, refused) = (&*refusals, if of_dx { of_others } else { of_dw });
        if let Tile::SplitRegisters { rows } = plan.tile {
            let dz_map = dz.map(gpu, rows, of_dx)?;
            let other_map = gpu.tensor_map(matrix, [shape.depth, shape.columns], LEFT_BOX)?;
            let (dz, other, dims) = (&dz.parts, matrix, plan.split_dims(gpu.hopper_multiprocessors().unwrap_or(1)));
            macro_rules! launch {
                ($($columns:literal $of_dx:literal,)*) => {
                    match (rows, of_dx) {
                        $(($columns, $of_dx) => gpu.launch(dims, DenseGradientSplitRegisters::<$columns, $of_dx> {
                            dz, other, refusals, refused, out, parts, shape, splits, beta, dz_map, other_map
                        }),)*
                        tile => unreachable!("there is no kernel for tiles of {tile:?}"),
                    }
                };
            }
            // SAFETY: as for `forward_split`.
            return unsafe { launch!(64 true, 64 false, 128 true, 128 false,) };
        }
        let Maps { dims, maps: [dz_map, other_map] } = Maps::new(gpu, plan, (dz, of_dx), (other, false))?;
        let (dz, other) = (&dz.parts, &other.parts);
        // SAFETY: as for `forward_split`.
        unsafe {
            if of_dx {
                let (w, dx, w_map) = (other, out, other_map);
                let kernel = DenseDxSplit { dz, w, refusals, refused, dx, parts, shape, splits, beta, dz_map, w_map };
                gpu.launch(dims, kernel)
            } else {
                let (x, dw, x_map) = (other, out, other_map);
                let kernel = DenseDwSplit { dz, x, refusals, refused, dw, parts, shape, splits, beta, dz_map, x_map };
                gpu.launch(dims, kernel)
            }
        }
    }
}

/// What a launch of a product of parts takes besides buffers and sizes.
struct Maps {
    dims: LaunchDims,
    maps: [TensorMap; 2],
}

impl Maps {
    /// Of both operands, each with whether its depth is innermost.
    fn new(
        gpu: &Gpu,
        plan: &Plan,
        (a, a_depth_inner): (&Operand<'_, f32>, bool),
        (b, b_depth_inner): (&Operand<'_, f32>, bool),
    ) -> Result<Self> {
        let dims = plan.split_dims(gpu.hopper_multiprocessors().unwrap_or(1));
        let maps = [a.map(gpu, ROWS, a_depth_inner)?, b.map(gpu, COLUMNS, b_depth_inner)?];
        Ok(Self { dims, maps })
    }
}
