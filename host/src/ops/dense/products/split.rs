//! Products of f32 on Hopper's tensor cores: the launches that take operands apart, and those that multiply the parts.

use std::cell::RefCell;

use cuda_std::element::Storage;
use cuda_std::launch::{DeviceMemory, LaunchDims};
use cuda_std::tensor_map::TensorMap;
use kernels::dense::Sizes;
use kernels::dense::split::{BLOCK, BLOCKS, COLUMNS, DenseDwSplit, DenseDxSplit, DenseForwardSplit, DenseSplit, PARTS};
use kernels::dense::wgmma::{ROWS, operand_box};

use super::super::Precision;
use super::super::gpu::{Memory, MemoryMut, Product};
use super::super::plan::Plan;
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
        gpu.tensor_map(&self.parts.view::<bf16>(), [PARTS * rows, columns], operand_box(side, depth_inner))
    }
}

/// What the split's blocks say, and what the product's kernel makes of it: one word.
pub struct Refusals<'a> {
    each: GpuSliceMut<'a, u32>,
    any: GpuSliceMut<'a, u32>,
}

impl<'a> Refusals<'a> {
    /// Elements of a workspace that they take.
    pub const ROOM: usize = BLOCKS as usize + 1;

    /// In such room; in none, where nothing is split.
    pub fn new(room: GpuSliceMut<'a, f32>) -> Self {
        let room = room.cast();
        let each = room.len().min(BLOCKS as usize);
        let (each, any) = room.split_at(each);
        Self { each, any }
    }

    /// 1 where the product of parts was not made, else 0.
    pub fn any(&self) -> Memory<'_, u32> {
        &self.any
    }
}

/// The element types, of which only f32 is split.
pub trait Splits: Storage {
    /// How a product is cut up whose operands are split; `None` where it is to be made otherwise.
    fn split_plan(_gpu: &Gpu, _precision: Precision, _sizes: [usize; 3]) -> Option<Plan> {
        None
    }

    /// Queues the parts of up to three operands: `x` and `w`, or `dz`, `w` and `x`, each in its place.
    ///
    /// # Safety
    /// They and their rooms are of the shapes they were made with, and begin at multiples of 16 bytes.
    unsafe fn split(_: &Gpu, _: [Option<&mut Operand<'_, Self>>; 3], _: &mut Refusals<'_>) -> Result<()> {
        unreachable!("{NEVER}")
    }

    /// Queues `y`, of the parts of `x` and `w`.
    ///
    /// # Safety
    /// As [`Products::forward`](super::Products::forward); the operands were split.
    unsafe fn forward_split<'a>(
        _: &Gpu,
        _: &Plan,
        _: [&'a Operand<'_, Self>; 2],
        _: &'a mut Refusals<'_>,
        _: ForwardProduct<'a, Self>,
    ) -> Result<()> {
        unreachable!("{NEVER}")
    }

    /// Queues `dx`, of the parts of `dz` and `w`, or `dw`, of those of `dz` and `x`.
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
    fn split_plan(gpu: &Gpu, precision: Precision, [rows, columns, depth]: [usize; 3]) -> Option<Plan> {
        match precision {
            Precision::F32Split | Precision::Tf32 if gpu.hopper_multiprocessors().is_some() => {
                thread_local! {
                    static PLANS: Plans<[usize; 3]> = RefCell::default();
                }
                let sizes = [rows, columns, depth];
                PLANS.with_borrow_mut(|plans| plans.get(sizes, || Plan::split(rows, columns, depth)))
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
        let refused = &mut refusals.each;
        let kernel = DenseSplit { a, b, c, a_parts, b_parts, c_parts, refused, a_sizes, b_sizes, c_sizes };
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
        let ForwardProduct { y, z, b, alpha, parts, activation, .. } = product;
        let Maps { dims, maps: [x_map, w_map] } = Maps::new(gpu, plan, (x, true), (w, true))?;
        let (x, w, refused, refusals) = (&x.parts, &w.parts, &mut refusals.any, &refusals.each);
        let (shape, splits) = (plan.shape, plan.splits);
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
        let GradientProduct { out, parts, beta, .. } = product;
        let of_dx = gradient == Product::Dx;
        let Maps { dims, maps: [dz_map, other_map] } = Maps::new(gpu, plan, (dz, of_dx), (other, false))?;
        let (dz, other, refused, refusals) = (&dz.parts, &other.parts, &mut refusals.any, &refusals.each);
        let (shape, splits) = (plan.shape, plan.splits);
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
