//! Bulk tensor copies: boxes of a matrix in global memory that [`TensorMap`] describes, to shared memory (PTX ISA, Data
//! Movement: `cp.async.bulk.tensor`). One thread issues a copy of a whole box; what of it is outside the matrix is zeros.

use super::MBarrier;
use crate::element::Element;
use crate::shared::Shared;
use crate::tensor_map::TensorMap;

/// Fetches a tensor map, so that the first copy does not wait for it. PTX: `prefetch.tensormap`.
#[inline(always)]
pub fn prefetch_tensor_map(map: TensorMap) {
    // SAFETY: a hint.
    unsafe {
        core::arch::asm!("prefetch.tensormap [{map}];", map = in(reg64) map.address(),
            options(nostack, preserves_flags));
    }
}

/// Copies the box of a matrix that begins at column `x` of row `y` to shared memory; its bytes count at `barrier`.
/// PTX: `cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes`.
///
/// # Safety
/// There is room for a box, aligned as its swizzle asks for, which nobody uses before the barrier's phase has passed; the
/// barrier expects the bytes; `x` times an element's size is a multiple of 16.
#[inline(always)]
pub unsafe fn copy_box_in<T: Element>(target: Shared<T>, map: TensorMap, [x, y]: [u32; 2], barrier: MBarrier) {
    // SAFETY: as the caller says.
    unsafe {
        core::arch::asm!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
             [{target}], [{map}, {{{x}, {y}}}], [{barrier}];",
            target = in(reg32) target.address(), map = in(reg64) map.address(),
            x = in(reg32) x, y = in(reg32) y, barrier = in(reg32) barrier.address(),
            options(nostack, preserves_flags));
    }
}

/// [`copy_box_in`] to the same place in the shared memory of all blocks of the cluster that `blocks` has a bit for; the bytes
/// count at the barrier of each. PTX: the same with `.multicast::cluster`.
///
/// # Safety
/// As [`copy_box_in`], in each of these blocks, which have all begun.
#[inline(always)]
pub unsafe fn copy_box_in_cluster<T: Element>(
    target: Shared<T>,
    map: TensorMap,
    [x, y]: [u32; 2],
    barrier: MBarrier,
    blocks: u16,
) {
    // SAFETY: as the caller says.
    unsafe {
        core::arch::asm!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster \
             [{target}], [{map}, {{{x}, {y}}}], [{barrier}], {blocks};",
            target = in(reg32) target.address(), map = in(reg64) map.address(),
            x = in(reg32) x, y = in(reg32) y, barrier = in(reg32) barrier.address(), blocks = in(reg16) blocks,
            options(nostack, preserves_flags));
    }
}
