//! What the blocks of a grid have to do with the grid before theirs in the stream and with the next: programmatic dependent
//! launch (PTX ISA, Parallel Synchronization and Communication: `griddepcontrol`; CUDA C++ Programming Guide, Programmatic
//! Dependent Launch).

/// What [`#[kernel]`](macro@crate::kernel) begins every kernel with, in every thread, unless the kernel `begins = "itself"`:
/// waits until the grids before this one have ended and all that they wrote is seen, then lets the next grid's blocks take
/// their places once every block of this one has its own.
///
/// So any kernel may be launched before the grid before it has ended, which hides what a launch costs behind that grid's
/// end, and none sees the difference. GPUs before compute capability 9.0 start every grid in order: there, and on the
/// emulated grid, this does nothing.
#[inline(always)]
pub fn begin() {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
    // SAFETY: waits, and touches no memory of this thread's. Not `nomem`: no load or store is moved over it.
    unsafe {
        core::arch::asm!(
            "griddepcontrol.wait;",
            "griddepcontrol.launch_dependents;",
            options(nostack, preserves_flags)
        );
    }
}

/// The first half of [`begin`], for kernels that begin themselves: waits until the grids before this one have ended. The next grid's blocks
/// take their places when all of this one have ended.
///
/// Let in earlier, they take what room there is, and where there is room for several on one multiprocessor, the first that is free gets them all:
/// a grid of few large blocks is then uneven for as long as it runs. In front of such grids late is better than early.
#[inline(always)]
pub fn wait() {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
    // SAFETY: waits, and touches no memory of this thread's. Not `nomem`: no load or store is moved over it.
    unsafe {
        core::arch::asm!("griddepcontrol.wait;", options(nostack, preserves_flags));
    }
}
