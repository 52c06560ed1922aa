//! The launches of the three products, on tensor cores or not: which kernel a plan and an element type mean.

pub(super) mod ffma;
mod hopper;
pub(super) mod split;
pub(super) mod tf32;

use std::cell::RefCell;

use kernels::dense::mma::{PIECE, WIDE};
use kernels::dense::{
    DenseDw, DenseDwMma, DenseDx, DenseDxMma, DenseForward, DenseForwardMma, LARGE, SLICED, SMALL, Sizes,
};

use super::gpu::{Memory, MemoryMut, Product};
use super::plan::{Plan, Tile};
use crate::device::Gpu;
use crate::recent::Recent;
use crate::{Result, bf16, f16};

/// Plans that a thread remembers, a network's of some dozens of layers at a few batches: ranking takes some tens of µs, longer than many a
/// product; to look through all of these takes less than 1.
type Plans<K> = RefCell<Recent<K, Option<Plan>, 256>>;

/// A matrix' sizes as kernels have them.
fn sizes([rows, columns]: [usize; 2]) -> Sizes {
    Sizes { rows: rows as u32, columns: columns as u32 }
}

/// What a forward product takes, as the kernels name it.
pub(super) struct ForwardProduct<'a, S> {
    pub x: Memory<'a, S>,
    pub w: Memory<'a, S>,
    pub y: MemoryMut<'a, S>,
    pub z: Option<MemoryMut<'a, S>>,
    pub b: Option<Memory<'a, S>>,
    pub alpha: Option<Memory<'a>>,
    pub parts: Option<MemoryMut<'a>>,
    /// Where it is given and holds 0, the product was made of parts already; for products of f32 alone.
    pub refused: Option<Memory<'a, u32>>,
    pub activation: u32,
}

/// What `dx` and `dw` take: `dz`, `w` or `x`, and where the sums go.
pub(super) struct GradientProduct<'a, S> {
    pub dz: Memory<'a, S>,
    pub other: Memory<'a, S>,
    pub out: MemoryMut<'a, S>,
    pub parts: Option<MemoryMut<'a>>,
    /// As [`ForwardProduct::refused`].
    pub refused: Option<Memory<'a, u32>>,
    pub beta: f32,
}

/// The kernels of an element type.
pub(super) trait Products: split::Splits + tf32::Turns + ffma::Pieces {
    /// Whether there are some for tensor cores.
    const TENSOR: bool;

    /// How a product is cut up: for tensor cores, if this type has kernels for them, and rows of its operands, which have these
    /// `lengths`, are whole pieces. For Hopper's where `hopper`, if the results' rows are whole pieces too.
    fn plan(product: Product, sizes: [usize; 3], lengths: [usize; 2], hopper: bool) -> Option<Plan> {
        let [rows, columns, depth] = sizes;
        let by_tensor_cores = Self::TENSOR && lengths.iter().all(|length| length.is_multiple_of(PIECE as usize));
        type Key = (Product, [usize; 3], [usize; 2], [bool; 2]);
        thread_local! {
            // Of all types.
            static PLANS: Plans<Key> = RefCell::default();
        }
        PLANS.with_borrow_mut(|plans| {
            plans.get((product, sizes, lengths, [hopper, by_tensor_cores]), || {
                if !by_tensor_cores {
                    return Plan::new(product, sizes);
                }
                let hopper = if hopper { Plan::hopper(product, sizes, lengths) } else { None };
                hopper.or_else(|| Plan::tensor(rows, columns, depth))
            })
        })
    }

    /// Queues `y`.
    ///
    /// # Safety
    /// The buffers are of the plan's shapes, and begin at multiples of 16 bytes; so for the others.
    unsafe fn forward(gpu: &Gpu, plan: &Plan, product: ForwardProduct<'_, Self>) -> Result<()>;

    /// Queues `dx`.
    ///
    /// # Safety
    /// As [`Products::forward`].
    unsafe fn dx(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, Self>) -> Result<()>;

    /// Queues `dw`.
    ///
    /// # Safety
    /// As [`Products::forward`].
    unsafe fn dw(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, Self>) -> Result<()>;
}

/// Launches the kernel of a plan's tile: `$cores`, or `$tensor` where there is one.
macro_rules! launch {
    ($gpu:expr, $plan:expr, $cores:ident [$t:ty] $fields:tt) => {
        match $plan.tile {
            Tile::Large => $gpu.launch($plan.dims(), $cores::<$t, LARGE> $fields),
            Tile::Small => $gpu.launch($plan.dims(), $cores::<$t, SMALL> $fields),
            Tile::Sliced => $gpu.launch($plan.dims(), $cores::<$t, SLICED> $fields),
            tile => unreachable!("{tile:?}: `Products::plan` gives this type and layout no such tile"),
        }
    };
    ($gpu:expr, $plan:expr, $cores:ident [$t:ty] $fields:tt, $tensor:ident [$half:ty] $of_tensor:tt) => {
        match $plan.tile {
            Tile::Large => $gpu.launch($plan.dims(), $cores::<$t, LARGE> $fields),
            Tile::Small => $gpu.launch($plan.dims(), $cores::<$t, SMALL> $fields),
            Tile::Sliced => $gpu.launch($plan.dims(), $cores::<$t, SLICED> $fields),
            Tile::TensorWide => $gpu.launch($plan.dims(), $tensor::<$half, WIDE> $of_tensor),
            Tile::TensorLarge => $gpu.launch($plan.dims(), $tensor::<$half, LARGE> $of_tensor),
            Tile::TensorSmall => $gpu.launch($plan.dims(), $tensor::<$half, SMALL> $of_tensor),
            tile => unreachable!("{tile:?} has launches of its own"),
        }
    };
}

macro_rules! products {
    ($($t:ty, $has_tensor:literal, $hopper:ident, [$($forward:ident $dx:ident $dw:ident [$half:ty])?];)*) => {$(
        impl Products for $t {
            const TENSOR: bool = $has_tensor;

            unsafe fn forward(gpu: &Gpu, plan: &Plan, product: ForwardProduct<'_, Self>) -> Result<()> {
                if plan.tile.is_hopper() {
                    // SAFETY: the caller's.
                    return unsafe { $hopper::forward(gpu, plan, product) };
                }
                let ForwardProduct { x, w, y, z, b, alpha, parts, refused, activation } = product;
                let shape = plan.shape;
                // SAFETY: the caller's; the plan's grid covers the product, and its block has the shared memory.
                unsafe {
                    launch!(gpu, plan,
                        DenseForward [$t] { x, w, y, z, b, alpha, parts, refused, shape, activation }
                        $(, $forward [$half] { x, w, y, z, b, alpha, parts, shape, activation })?
                    )
                }
            }

            unsafe fn dx(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, Self>) -> Result<()> {
                if plan.tile.is_hopper() {
                    // SAFETY: the caller's.
                    return unsafe { $hopper::dx(gpu, plan, product) };
                }
                let GradientProduct { dz, other: w, out: dx, parts, refused, beta } = product;
                let shape = plan.shape;
                // SAFETY: as for `forward`.
                unsafe {
                    launch!(gpu, plan,
                        DenseDx [$t] { dz, w, dx, parts, refused, shape, beta }
                        $(, $dx [$half] { dz, w, dx, parts, shape, beta })?
                    )
                }
            }

            unsafe fn dw(gpu: &Gpu, plan: &Plan, product: GradientProduct<'_, Self>) -> Result<()> {
                if plan.tile.is_hopper() {
                    // SAFETY: the caller's.
                    return unsafe { $hopper::dw(gpu, plan, product) };
                }
                let GradientProduct { dz, other: x, out: dw, parts, refused, beta } = product;
                let shape = plan.shape;
                // SAFETY: as for `forward`.
                unsafe {
                    launch!(gpu, plan,
                        DenseDw [$t] { dz, x, dw, parts, refused, shape, beta }
                        $(, $dw [$half] { dz, x, dw, parts, shape, beta })?
                    )
                }
            }
        }
    )*};
}
products! {
    f32, false, ffma, [];
    f16, true, hopper, [DenseForwardMma DenseDxMma DenseDwMma [f16]];
    bf16, true, hopper, [DenseForwardMma DenseDxMma DenseDwMma [bf16]];
}
