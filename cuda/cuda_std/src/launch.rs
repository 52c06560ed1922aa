//! A launch: what the type that [`#[kernel]`](macro@crate::kernel) generates promises, and who carries it out.
//!
//! The host library hands [`LaunchArguments::with_params`] to the driver; [`Launch::emulate`] runs the kernel here.

#[cfg(not(target_arch = "nvptx64"))]
mod host;

#[cfg(not(target_arch = "nvptx64"))]
pub use host::*;

/// A type that goes to a kernel by value.
///
/// # Safety
/// Any bytes of the type's size mean the same on the host and on the device: integers, floats, and `#[repr(C)]`
/// structures of these, aligned to at most 16 bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a kernel",
    label = "neither a buffer nor a `KernelParam`",
    note = "buffers are `Global<T>`, `GlobalMut<T>` and `Option`s of these; for a `#[repr(C)]` structure of plain \
            values write `unsafe impl KernelParam`"
)]
pub unsafe trait KernelParam: Copy + Send + Sync + 'static {}

macro_rules! params {
    ($($t:ty)*) => {$(
        // SAFETY: plain bits of one layout everywhere.
        unsafe impl KernelParam for $t {}
    )*};
}
params!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 half::f16 half::bf16);

#[doc(hidden)]
pub fn assert_kernel_param<T: KernelParam>() {}
