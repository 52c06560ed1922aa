//! Bulk tensor copies: boxes of a matrix in global memory that [`TensorMap`] describes, to shared memory (PTX ISA, Data
//! Movement: `cp.async.bulk.tensor`). One thread issues a copy of a whole box; what of it is outside the matrix is zeros.
//! And bulk copies from the shared memory of one block to another's (`cp.async.bulk`).

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

/// Makes this thread's stores to shared memory visible to bulk copies and matrix products. PTX: `fence.proxy.async.shared::cta` (PTX ISA, Parallel
/// Synchronization and Communication: `fence.proxy`).
#[inline(always)]
pub fn fence_async_shared() {
    // SAFETY: orders memory.
    unsafe {
        core::arch::asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags));
    }
}

/// Copies `bytes`, a multiple of 16, to the same or another place in the shared memory of another block of the cluster; they
/// count at that block's `barrier`. PTX: `cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes`.
///
/// # Safety
/// Both stretches are in the array and aligned to 16 bytes. A [`fence_async_shared`] came after the stores to `source`; nobody
/// uses `target` before the barrier's phase has passed there, nor writes to `source`, and neither block ends before.
#[inline(always)]
pub unsafe fn copy_to_block<T: Element>(
    target: Shared<T>,
    block: u32,
    source: Shared<T>,
    bytes: u32,
    barrier: MBarrier,
) {
    // SAFETY: as the caller says.
    unsafe {
        core::arch::asm!(
            "{{ .reg .b32 there, bell; mapa.shared::cluster.u32 there, {target}, {block};",
            "mapa.shared::cluster.u32 bell, {barrier}, {block};",
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [{source}], {bytes}, [bell]; }}",
            target = in(reg32) target.address(), block = in(reg32) block, source = in(reg32) source.address(),
            bytes = in(reg32) bytes, barrier = in(reg32) barrier.address(), options(nostack, preserves_flags));
    }
}
