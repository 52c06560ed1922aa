//! What a GPU kernel in Rust stands on, on a stock compiler.
//!
//! A kernel is an ordinary Rust function. Built for `nvptx64-nvidia-cuda` it becomes PTX; built for the host it runs
//! on an emulated grid ([`emulator`]), so that tests, a debugger and the sanitizers see the source that the GPU runs.
//!
//! ```
//! use cuda_std::launch::{Launch, LaunchDims};
//! use cuda_std::prelude::*;
//!
//! /// `y[i] = a · x[i] + y[i]`, one thread an element.
//! #[kernel(block = 128)]
//! pub unsafe fn saxpy(x: Global<f32>, y: GlobalMut<f32>, a: f32, n: u64) {
//!     let i = thread::index_1d() as usize;
//!     if (i as u64) < n {
//!         // SAFETY: i < n, the length of both.
//!         unsafe { y.store(i, float::fma(a, x.load(i), y.load(i))) }
//!     }
//! }
//!
//! let x: Vec<f32> = (0..1000).map(|i| i as f32).collect();
//! let mut y = vec![1.0; 1000];
//! let launch = Saxpy { x: &x, y: &mut y, a: 2.0, n: 1000 };
//! // SAFETY: both buffers hold n elements.
//! unsafe { launch.emulate(LaunchDims::new(1000u32.div_ceil(128), 128)) }?;
//! assert_eq!(y[999], 1999.0);
//! # Ok::<(), cuda_std::launch::EmulationError>(())
//! ```
//!
//! # How this relates to rust-cuda
//! The names are those of rust-cuda's `cuda_std`: [`prelude`], [`kernel`], [`thread`], [`warp`], [`shared_array!`].
//! The published `cuda_std` needs a compiler back end of its own and a nightly of 2021; this crate stands on rustc's
//! own NVPTX target. What differs: buffers are [`Global`](global::Global) and [`GlobalMut`](global::GlobalMut) instead
//! of slices and raw pointers, because the launch type is made from them and the emulated grid checks their bounds;
//! shared memory is a typed handle instead of a pointer, because through a generic pointer neither LLVM nor `ptxas`
//! writes `ld.shared`.
//!
//! # Rules for kernels
//! * No `asm!` and no other crate's atomics or locks: the machine is touched through this crate only. Inline assembly
//!   is not convergent for LLVM, which then copies barriers into branches; what must not be copied is an LLVM
//!   intrinsic here.
//! * A barrier, a shuffle or a vote is reached by all threads that it names, or by none. The emulated grid reports a
//!   kernel that breaks this.
//! * Nothing is checked on the device. On the emulated grid a wrong index ends the launch with an error that names
//!   file and line.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        abi_unadjusted,
        asm_experimental_arch,
        core_intrinsics,
        f16,
        link_llvm_intrinsics,
        repr_simd,
        stdarch_nvptx
    )
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

pub mod arch;
#[cfg(target_arch = "nvptx64")]
mod device;
pub mod element;
#[cfg(not(target_arch = "nvptx64"))]
pub mod emulator;
pub mod float;
pub mod global;
pub mod grid;
pub mod integer;
pub mod launch;
pub mod shared;
pub mod tensor_map;
pub mod thread;
pub mod vector;
pub mod warp;

pub use cuda_std_macros::{device_inline, kernel, shared_array};
pub use half;

/// The method of what `#[kernel]` writes that runs a kernel's instance on the emulated grid.
#[cfg(feature = "precompiled")]
#[doc(hidden)]
#[macro_export]
macro_rules! emulates {
    ($($method:tt)*) => { $($method)* };
}

/// The method of what `#[kernel]` writes that runs a kernel's instance on the emulated grid: compiled by the crates that call it.
#[cfg(not(feature = "precompiled"))]
#[doc(hidden)]
#[macro_export]
macro_rules! emulates {
    ($($method:tt)*) => { #[inline] $($method)* };
}

// The two machines, under one name: each gives the same functions.
#[cfg(target_arch = "nvptx64")]
use device as machine;
#[cfg(not(target_arch = "nvptx64"))]
use emulator::machine;

/// Everything that a kernel needs: `use cuda_std::prelude::*;`.
pub mod prelude {
    pub use crate::arch;
    pub use crate::element::{Element, Storage, Vector2, Vector4};
    pub use crate::float;
    pub use crate::global::{Global, GlobalMut};
    pub use crate::integer;
    pub use crate::launch::KernelParam;
    pub use crate::shared::{Shared, SharedArray, dynamic_shared};
    pub use crate::tensor_map::TensorMap;
    pub use crate::thread;
    pub use crate::vector::{Vec2, Vec3, Vec4};
    pub use crate::warp;
    pub use crate::{device_inline, kernel, shared_array};
    pub use half::{bf16, f16};
}

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the kernel with an error at the next synchronisation; there is nobody to unwind to.
    unsafe { core::arch::nvptx::trap() }
}
