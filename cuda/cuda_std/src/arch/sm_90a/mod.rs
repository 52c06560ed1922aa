//! Hopper: barriers in shared memory that count arrivals and bytes, registers moved between warpgroups, matrix products by
//! a warpgroup ([`matrix`]) and their order, copies of boxes of a matrix ([`copies`]).
//!
//! Only in PTX compiled for `sm_90a`; a kernel that calls these is not run on the emulated grid.
//!
//! What all threads of a warp or warpgroup must execute together is an LLVM intrinsic, which LLVM does not copy into
//! divergent branches; what each thread does alone is inline assembly.

pub mod copies;
pub mod matrix;

pub use copies::{copy_box_in, copy_box_in_cluster, copy_to_block, fence_async_shared, prefetch_tensor_map};
pub use matrix::{
    Matrix, Sums, pack, stmatrix_x4, wgmma, wgmma_finish, wgmma_of, wgmma_settle, wgmma_tf32, wgmma_tf32_of,
};

use crate::shared::Shared;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"]
    fn setmaxnreg_inc(registers: u32);
    #[link_name = "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32"]
    fn setmaxnreg_dec(registers: u32);
    #[link_name = "llvm.nvvm.wgmma.fence.sync.aligned"]
    fn fence();
    #[link_name = "llvm.nvvm.wgmma.commit_group.sync.aligned"]
    fn commit_group();
    #[link_name = "llvm.nvvm.wgmma.wait_group.sync.aligned"]
    fn wait_group(pending: u64);
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"]
    fn cluster_arrive_relaxed();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn cluster_wait();
}

/// Raises the registers of each thread of the warpgroup to `N` (24 to 256, a multiple of 8), waiting until they are
/// free. Ignored by `ptxas` unless the kernel gives `block` or `max_threads`. PTX: `setmaxnreg.inc.sync.aligned.u32`
/// (PTX ISA, Miscellaneous Instructions).
///
/// # Safety
/// All threads of the warpgroup execute it together, after the last change everywhere is done.
#[inline(always)]
pub unsafe fn set_max_registers_up<const N: u32>() {
    // SAFETY: as the caller says.
    unsafe { setmaxnreg_inc(N) }
}

/// Lowers the registers of each thread of the warpgroup to `N`. PTX: `setmaxnreg.dec.sync.aligned.u32`.
///
/// # Safety
/// As [`set_max_registers_up`].
#[inline(always)]
pub unsafe fn set_max_registers_down<const N: u32>() {
    // SAFETY: as the caller says.
    unsafe { setmaxnreg_dec(N) }
}

/// Orders the warpgroup's accesses to registers and shared memory before the `wgmma.mma_async` that follow.
/// PTX: `wgmma.fence.sync.aligned` (PTX ISA, Asynchronous Warpgroup Level Matrix Instructions).
///
/// # Safety
/// All threads of the warpgroup execute it together.
#[inline(always)]
pub unsafe fn wgmma_fence() {
    // SAFETY: as the caller says.
    unsafe { fence() }
}

/// Closes the group of the warpgroup's `wgmma.mma_async` so far. PTX: `wgmma.commit_group.sync.aligned`.
///
/// # Safety
/// All threads of the warpgroup execute it together.
#[inline(always)]
pub unsafe fn wgmma_commit() {
    // SAFETY: as the caller says.
    unsafe { commit_group() }
}

/// Waits until at most `N` of the warpgroup's groups are under way. PTX: `wgmma.wait_group.sync.aligned`.
///
/// # Safety
/// All threads of the warpgroup execute it together.
#[inline(always)]
pub unsafe fn wgmma_wait<const N: u64>() {
    // SAFETY: as the caller says.
    unsafe { wait_group(N) }
}

/// Waits for all threads of all blocks of the cluster. It orders no memory but what fences did before, [`fence_barrier_init`]
/// among them. PTX: `barrier.cluster.arrive.relaxed.aligned` and `.wait.aligned` (PTX ISA, Parallel Synchronization and
/// Communication).
///
/// # Safety
/// All threads of the cluster execute it together.
#[inline(always)]
pub unsafe fn meet_cluster() {
    // SAFETY: as the caller says.
    unsafe {
        arrive_at_cluster();
        wait_for_cluster();
    }
}

/// The first half of [`meet_cluster`]: says that this thread has come so far. PTX: `barrier.cluster.arrive.relaxed.aligned`.
///
/// # Safety
/// As [`meet_cluster`]; a [`wait_for_cluster`] follows.
#[inline(always)]
pub unsafe fn arrive_at_cluster() {
    // SAFETY: as the caller says.
    unsafe { cluster_arrive_relaxed() }
}

/// The second half of [`meet_cluster`]: waits until all threads of the cluster have said so. PTX:
/// `barrier.cluster.wait.aligned`.
///
/// # Safety
/// As [`meet_cluster`]; an [`arrive_at_cluster`] came before.
#[inline(always)]
pub unsafe fn wait_for_cluster() {
    // SAFETY: as the caller says.
    unsafe { cluster_wait() }
}

/// The block's number in its cluster. PTX: `%cluster_ctarank` (PTX ISA, Special Registers).
#[inline(always)]
pub fn rank_in_cluster() -> u32 {
    let rank: u32;
    // SAFETY: reads a special register.
    unsafe {
        core::arch::asm!("mov.u32 {rank}, %cluster_ctarank;", rank = out(reg32) rank,
            options(pure, nomem, nostack, preserves_flags));
    }
    rank
}

/// Blocks of a cluster along x and y; of a launch without clusters 1 each. PTX: `%cluster_nctaid` (PTX ISA, Special Registers).
#[inline(always)]
pub fn cluster_shape() -> [u32; 2] {
    let (x, y): (u32, u32);
    // SAFETY: reads special registers.
    unsafe {
        core::arch::asm!("mov.u32 {x}, %cluster_nctaid.x;", "mov.u32 {y}, %cluster_nctaid.y;",
            x = out(reg32) x, y = out(reg32) y, options(pure, nomem, nostack, preserves_flags));
    }
    [x, y]
}

/// A barrier in shared memory (PTX ISA, Parallel Synchronization and Communication: `mbarrier`): a 64-bit word that
/// turns a phase when so many threads have arrived and so many bytes have come.
#[derive(Clone, Copy)]
pub struct MBarrier(Shared<u64>);

impl MBarrier {
    /// The barrier in a word of shared memory.
    #[inline(always)]
    pub fn at(word: Shared<u64>) -> Self {
        Self(word)
    }

    /// The word's address, for instructions that take one.
    #[inline(always)]
    pub fn address(self) -> u32 {
        self.0.address()
    }

    /// Makes it wait for `arrivals` a phase. One thread does this; a [`fence_barrier_init`] and a barrier of the block
    /// follow. PTX: `mbarrier.init.shared::cta.b64`.
    ///
    /// # Safety
    /// The word is the barrier's alone.
    #[inline(always)]
    pub unsafe fn init(self, arrivals: u32) {
        // SAFETY: as the caller says.
        unsafe {
            core::arch::asm!("mbarrier.init.shared::cta.b64 [{a}], {n};",
                a = in(reg32) self.address(), n = in(reg32) arrivals, options(nostack, preserves_flags));
        }
    }

    /// Arrives once. PTX: `mbarrier.arrive.shared::cta.b64`.
    ///
    /// # Safety
    /// It was initialised.
    #[inline(always)]
    pub unsafe fn arrive(self) {
        // SAFETY: as the caller says.
        unsafe {
            core::arch::asm!("{{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [{a}]; }}",
                a = in(reg32) self.address(), options(nostack, preserves_flags));
        }
    }

    /// Arrives once at the barrier in the same place of another block of the cluster, or of this one. PTX:
    /// `mapa.shared::cluster.u32` and `mbarrier.arrive.shared::cluster.b64`.
    ///
    /// # Safety
    /// It was initialised there, and that block does not end before.
    #[inline(always)]
    pub unsafe fn arrive_in(self, block: u32) {
        // SAFETY: as the caller says.
        unsafe {
            core::arch::asm!(
                "{{ .reg .b32 there; mapa.shared::cluster.u32 there, {a}, {block};",
                "mbarrier.arrive.shared::cluster.b64 _, [there]; }}",
                a = in(reg32) self.address(), block = in(reg32) block, options(nostack, preserves_flags));
        }
    }

    /// Arrives once and lets the phase wait for so many bytes more. PTX: `mbarrier.arrive.expect_tx.shared::cta.b64`.
    ///
    /// # Safety
    /// It was initialised, and asynchronous copies of as many bytes name it.
    #[inline(always)]
    pub unsafe fn arrive_expecting(self, bytes: u32) {
        // SAFETY: as the caller says.
        unsafe {
            core::arch::asm!("{{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [{a}], {n}; }}",
                a = in(reg32) self.address(), n = in(reg32) bytes, options(nostack, preserves_flags));
        }
    }

    /// Whether the phase of this parity has passed, after waiting a time that the system chooses.
    /// PTX: `mbarrier.try_wait.parity.shared::cta.b64`.
    ///
    /// # Safety
    /// It was initialised, and at most one phase has passed that the thread has not seen.
    #[inline(always)]
    pub unsafe fn try_wait(self, parity: u32) -> bool {
        let passed: u32;
        // SAFETY: as the caller says.
        unsafe {
            core::arch::asm!(
                "{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{a}], {parity}; selp.u32 {passed}, 1, 0, p; }}",
                a = in(reg32) self.address(), parity = in(reg32) parity, passed = out(reg32) passed,
                options(nostack, preserves_flags));
        }
        passed != 0
    }

    /// Waits until the phase of this parity has passed.
    ///
    /// # Safety
    /// As [`try_wait`](Self::try_wait).
    #[inline(always)]
    pub unsafe fn wait(self, parity: u32) {
        // SAFETY: as the caller says.
        while unsafe { !self.try_wait(parity) } {}
    }
}

/// Makes [`MBarrier::init`] visible to asynchronous copies. PTX: `fence.mbarrier_init.release.cluster` (PTX ISA,
/// Parallel Synchronization and Communication: `fence`).
#[inline(always)]
pub fn fence_barrier_init() {
    // SAFETY: a fence.
    unsafe {
        core::arch::asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags));
    }
}
