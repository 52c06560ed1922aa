//! The emulated grid and what kernels call, tested by running kernels.

mod divergence;
mod faults;
mod float;
mod grid;
mod launch;
mod matrices;
mod memory;
mod warps;

use cuda_std::launch::{EmulationError, Launch, LaunchDims};

/// Runs a launch of a kernel of these tests.
fn run(launch: impl Launch, dims: LaunchDims) -> Result<(), EmulationError> {
    // SAFETY: the kernels here ask for nothing but what the emulated grid checks; those that would race do not run.
    unsafe { launch.emulate(dims) }
}
