//! What the blocks of a grid have to do with the grid before theirs in the stream and with the next: programmatic dependent
//! launch (PTX ISA, Parallel Synchronization and Communication: `griddepcontrol`; CUDA C++ Programming Guide, Programmatic
//! Dependent Launch).
//!
//! A grid that is launched [early](crate::launch::LaunchDims::early) may start while the one before it runs, and waits where it needs
//! that one's results. That hides what a launch costs behind the end of the grid before. GPUs before compute capability 9.0
//! start every grid in order: there, and on the emulated grid, these do nothing.

/// Waits until the grids before this one have ended and all that they wrote is seen. A kernel that may be launched early
/// begins with it, in every thread. PTX: `griddepcontrol.wait`.
#[inline(always)]
pub fn wait_for_predecessor() {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
    // SAFETY: waits; touches no memory of this thread's.
    unsafe {
        core::arch::asm!("griddepcontrol.wait;", options(nostack, preserves_flags));
    }
}

/// Lets the next grid start, if it was launched early, once every block of this one has said so or ended. What it computes
/// with it waits for all the same. PTX: `griddepcontrol.launch_dependents`.
#[inline(always)]
pub fn let_successor_start() {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_90"))]
    // SAFETY: touches no memory.
    unsafe {
        core::arch::asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags));
    }
}
