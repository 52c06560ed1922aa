//! The emulated grid: a kernel on the host, without a GPU.
//!
//! Blocks run one after another; the threads of a block are fibres, or under AddressSanitizer threads of the operating
//! system, made once for a launch.
//! What is exact: indices, barriers, shuffles, votes, how the elements of a warp's matrices
//! are spread, shared memory (which holds bytes 0xFF when a block starts),
//! asynchronous copies (which arrive as late as is allowed). What is checked: every index, the alignment of vector
//! accesses, the lanes that a shuffle names, and that all threads reach a barrier. When no thread of a block can go on,
//! the launch ends with an error that names the barrier and the threads that are missing: nothing waits for a time to
//! pass, and nothing hangs. (A kernel that itself waits in a loop for another thread's store can.)
//!
//! # ThreadSanitizer
//! A kernel that lacks a barrier computes garbage only sometimes; ThreadSanitizer reports it always, because it looks
//! for an order between two accesses and not for a wrong result. So that it sees what a GPU would guarantee and no
//! more, this module synchronises in two ways. [`thread::sync_threads`](crate::thread::sync_threads) and
//! [`warp::sync_warp`](crate::warp::sync_warp) order memory on the device: here they release and acquire atomics
//! (`edges` in the source). Shuffles, votes, and the counters that find a deadlock order nothing on the device: here
//! they are relaxed atomics with fences, which order the hardware and which ThreadSanitizer does not see.
//!
//! Between blocks there is an order here that a device does not give: a race of two blocks is not reported.

pub(crate) mod block;
pub(crate) mod context;
pub(crate) mod copies;
pub(crate) mod error;
pub(crate) mod fault;
#[cfg(not(address_sanitizer))]
mod fibres;
mod lock;
pub(crate) mod machine;
pub(crate) mod matrix;
pub(crate) mod shared;
#[cfg(thread_sanitizer)]
mod thread_sanitizer;
#[cfg(address_sanitizer)]
mod threads;
mod warp;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::launch::{KernelInfo, LaunchDims};
use block::Block;
use context::Context;
use error::EmulationError;
#[cfg(not(address_sanitizer))]
use fibres::Crew;
#[cfg(address_sanitizer)]
use threads::Crew;

/// Whether this is built under a sanitizer, which makes a launch take up to a second.
#[doc(hidden)]
pub const SANITIZED: bool = cfg!(sanitizer);

/// The most threads of a block.
const MAX_THREADS: u32 = 1024;
/// The most shared memory of a block, static and dynamic: sm_90's 227 KiB.
pub(crate) const MAX_SHARED_BYTES: u32 = 227 * 1024;
/// A kernel's frames are small; a launch may have 1024 threads.
const STACK_BYTES: usize = 512 * 1024;

/// Runs `kernel` once for each thread of the grid. For the launch types: [`Launch::emulate`](crate::launch::Launch).
#[doc(hidden)]
pub fn run(info: &KernelInfo, dims: LaunchDims, kernel: &(dyn Fn() + Sync)) -> Result<(), EmulationError> {
    check_dims(info, dims)?;
    fault::install_hook();
    #[cfg(thread_sanitizer)]
    thread_sanitizer::link();
    let block = Block::new(info, dims);
    block.run(&|thread| work(&block, thread, kernel))?;
    block.into_result()
}

/// One thread of the block, block after block.
fn work(block: &Block<'_>, thread: u32, kernel: &(dyn Fn() + Sync)) {
    let context = Context::new(block, thread);
    let _running = context.enter();
    for number in 0..block.dims().blocks() {
        context.enter_block(number);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(kernel)) {
            if let Some(fault) = fault::take(payload) {
                block.stop(EmulationError::Fault {
                    kernel: block.info().name,
                    block: context.block_idx(),
                    thread: context.thread_idx(),
                    message: fault.message,
                    site: fault.site,
                });
            }
            return;
        }
        if !block.end(thread) {
            return;
        }
    }
}

fn check_dims(info: &KernelInfo, dims: LaunchDims) -> Result<(), EmulationError> {
    let refuse = |what: &'static str, got: [u32; 3], expected: String| {
        Err(EmulationError::Dims { kernel: info.name, what, got, expected })
    };
    let within = |got: [u32; 3], limit: [u32; 3]| got.iter().zip(limit).all(|(&got, limit)| (1..=limit).contains(&got));
    let grid_limit = [i32::MAX.cast_unsigned(), 65_535, 65_535];
    if !within(dims.grid, grid_limit) {
        return refuse("grid", dims.grid, format!("1 to {grid_limit:?}"));
    }
    let block_limit = [1024, 1024, 64];
    if !within(dims.block, block_limit) {
        return refuse("block", dims.block, format!("1 to {block_limit:?}"));
    }
    if let Some(expected) = info.block
        && expected != dims.block
    {
        return refuse("block", dims.block, format!("exactly {expected:?}"));
    }
    let threads = info.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS);
    if dims.threads() > threads {
        return refuse("block", dims.block, format!("at most {threads} threads"));
    }
    if let Some(cluster) = info.cluster
        && (0..3).any(|axis| !dims.grid[axis].is_multiple_of(cluster[axis]))
    {
        return refuse("grid", dims.grid, format!("a multiple of the cluster {cluster:?}"));
    }
    if dims.shared_bytes > MAX_SHARED_BYTES {
        return Err(EmulationError::SharedMemory {
            kernel: info.name,
            bytes: dims.shared_bytes,
            limit: MAX_SHARED_BYTES,
        });
    }
    Ok(())
}
