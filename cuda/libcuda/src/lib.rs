//! The CUDA driver, found at run time.
//!
//! # Why
//! `cust` links against `libcuda`, so that a program built with it needs the driver, or a toolkit's stub of it, to be
//! built, and the driver to start. Ferrolayer must build with neither and start without one, to say that there is no
//! GPU or to use the CPU.
//!
//! # How
//! This crate defines the driver functions that `cust` calls, [all of them](symbols). Each is a few instructions that
//! jump to the function of the same name in `libcuda.so.1`, which is opened on the first call. Where there is no
//! driver, `cuInit` returns `CUDA_ERROR_NO_DEVICE` and every other call `CUDA_ERROR_NOT_INITIALIZED`; a function that
//! the driver is too old to have returns `CUDA_ERROR_NOT_FOUND`. `cust` is used as it is published. The symbols are
//! hidden: a shared object built with this crate, such as a Python module, exports none of them.
//!
//! A program must depend on this crate, and name it once (`use ferrolayer_libcuda as _;` will do), for its symbols to
//! be linked. `ferrolayer` does.
//!
//! # What a program outside this workspace must set
//! `cust`'s build script stops when it finds no directory that could be a CUDA toolkit: one with a `lib64` in it.
//! Nothing in it is used, so any will do. On x86-64 every glibc system has `/lib64`; these two lines in
//! `.cargo/config.toml` are enough:
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = "/"
//! ```
//!
//! Where there is no `/lib64` (Debian and Ubuntu on aarch64), name a directory of your own that has an empty `lib64`.
//! With a CUDA toolkit in `/usr/local/cuda` nothing need be set.
//!
//! # Beyond cust
//! What `cust` 0.3.2 lacks is here too, in safe wrappers where that can be: is there a driver and a GPU
//! ([`available`]), non-blocking [streams](Stream) and streams made elsewhere, [events](Event), [launches](launch())
//! with [attributes](LaunchAttributes), what the compiler made of a [function](Function), [tensor maps](TensorMap),
//! [graphs](Graph), stream-ordered memory ([`alloc_async`]) and [pinned](Pinned) host memory.
//!
//! ```
//! match ferrolayer_libcuda::available() {
//!     Ok(()) => println!("{} GPU(s)", ferrolayer_libcuda::device_count()?),
//!     Err(reason) => println!("on the CPU: {reason}"),
//! }
//! # Ok::<(), ferrolayer_libcuda::NoDriver>(())
//! ```
//!
//! # Limits
//! Linux with glibc, on x86-64 and aarch64. Whether there is a driver is found out once per process. Driver codes newer
//! than CUDA 11.4 do not fit into `cust`'s enum; the wrappers here take any. A Rust `dylib` (not `cdylib`) between this
//! crate and `cust`'s callers hides the symbols from them.

mod codes;
mod context;
mod driver;
mod error;
mod event;
mod function;
mod graph;
mod launch;
mod library;
mod memory;
mod pinned;
mod presence;
mod ptx;
mod stream;
mod symbols;
mod tensor_map;
mod trampoline;

pub use context::{Current, primary_context, with_current};
pub use error::DriverError;
pub use event::Event;
pub use function::{Function, FunctionAttributes};
pub use graph::{Graph, GraphExec, KernelNode};
pub use launch::{LaunchAttributes, launch};
pub use memory::{
    MemoryInfo, alloc_async, free_async, mem_info, memcpy_dtod_async, memcpy_dtoh_async, memcpy_htod_async,
    memset_d8_async, memset_d32_async, set_release_threshold, trim_pool,
};
pub use pinned::{Pinned, Plain};
pub use presence::{
    DeviceInfo, DriverVersion, MINIMUM_DRIVER, NoDriver, Presence, available, device_count, devices, driver_version,
    presence,
};
pub use ptx::{NoPtx, PtxFamily};
pub use stream::{CaptureMode, Stream, ThreadCaptureMode};
pub use tensor_map::{L2Promotion, OutOfBounds, Place, Swizzle, TensorMap, TensorMapError, TensorMapType, TiledArray};
pub use trampoline::symbols;
