//! The procedural macros of `cuda_std`: [`macro@kernel`], [`macro@device_inline`] and [`shared_array!`]. Use them through
//! `cuda_std`, which re-exports them; the code that they generate names it.
//!
//! `kernel` has the name that rust-cuda's macro has; what it writes is for rustc's own `nvptx64-nvidia-cuda` target
//! and, on any other target, for `cuda_std`'s emulated grid.

mod arguments;
mod inline;
mod instances;
mod kernel;
mod launch_type;
mod shared;

use proc_macro::TokenStream;

/// Makes an `unsafe fn` a GPU kernel.
///
/// On the device it becomes an entry point with the function's own name. On the host the function stays what it is,
/// and beside it stands its launch type: the name in CamelCase, one field for each parameter.
///
/// | parameter | field of the launch type |
/// | --- | --- |
/// | `x: Global<T>` | `x: &'a dyn DeviceMemory<T>` |
/// | `y: GlobalMut<T>` | `y: &'a mut dyn DeviceMemory<T>` |
/// | `Option<Global<T>>`, `Option<GlobalMut<T>>` | `Option` of these |
/// | `map: TensorMap` | `map: TensorMap` |
/// | `n: T`, with `T: KernelParam` | `n: T` |
///
/// A doc comment on a parameter becomes the documentation of its field.
///
/// Keys of the attribute, all optional; values are constant expressions of type `u32`:
///
/// | key | meaning | directive in the PTX |
/// | --- | --- | --- |
/// | `block = n` or `(x, y, z)` | the exact shape of a block | `.reqntid` |
/// | `max_threads = n` | no block has more threads | `.maxntid` |
/// | `min_blocks = n` | blocks that must fit on a multiprocessor | `.minnctapersm` |
/// | `cluster = n` or `(x, y, z)` | the shape of a cluster | `.reqnctapercluster` |
/// | `barriers = n` | barriers to expect in the PTX, where a loop around them is unrolled | none |
/// | `begins = "itself"` | the kernel calls `grid::begin` itself, in every thread, after what needs none of the grid before | none |
/// | `only = "sm_90a"` | the kernel is in PTX for this architecture alone; the emulated grid refuses it, and the host does not compile its body | none |
///
/// A generic kernel is one entry for each combination of what its parameters stand for, types or numbers, which
/// `instances(T = [f32, f16], N = [2, 3])` says. Its launch type is as generic; an entry's name is the function's with
/// the instance's: `fill_f32_2`, `fill_f32_3`, `fill_f16_2` and `fill_f16_3`. Parameters of which only some combinations are
/// wanted stand together: `instances((T, U) = [(f32, f32), (f32, f16)])`. The other keys' values may name them:
/// `block = 32 * N`.
///
/// ```
/// use cuda_std::launch::{Launch, LaunchDims};
/// use cuda_std::prelude::*;
///
/// /// Sets all to `value`.
/// #[kernel(block = N, instances((T, V) = [(f32, f32), (f32, u8)], N = [2, 4]))]
/// pub unsafe fn fill<T: Element + From<V>, V: KernelParam, const N: u32>(y: GlobalMut<T>, value: V) {
///     // SAFETY: one thread for each element.
///     unsafe { y.store(thread::index_1d() as usize, value.into()) }
/// }
///
/// let mut y = [0.0; 4];
/// // SAFETY: four threads for four elements.
/// unsafe { Fill::<f32, u8, 4> { y: &mut y, value: 7 }.emulate(LaunchDims::new(1, 4)) }?;
/// assert_eq!((y, Fill::<f32, u8, 4>::KERNEL.name), ([7.0; 4], "fill_f32_u8_4"));
/// assert_eq!(Fill::<f32, f32, 2>::KERNEL.block, Some([2, 1, 1]));
/// # Ok::<(), cuda_std::launch::EmulationError>(())
/// ```
///
/// ```
/// use cuda_std::launch::{Launch, LaunchDims};
/// use cuda_std::prelude::*;
///
/// const ROW: u32 = 64;
///
/// /// Reverses each row.
/// #[kernel(block = ROW)]
/// pub unsafe fn reverse_rows(
///     /// As many rows as the grid has blocks.
///     rows: GlobalMut<f32>,
/// ) {
///     let row = shared_array![f32; ROW as usize];
///     let (i, t) = (thread::index_1d() as usize, thread::thread_idx_x());
///     // SAFETY: a barrier between the stores and the loads.
///     unsafe {
///         row.store(t, rows.load(i));
///         thread::sync_threads();
///         rows.store(i, row.load(ROW - 1 - t));
///     }
/// }
///
/// let mut rows: Vec<f32> = (0..128).map(|i| i as f32).collect();
/// assert_eq!(ReverseRows::KERNEL.block, Some([64, 1, 1]));
/// // SAFETY: two rows for two blocks.
/// unsafe { ReverseRows { rows: &mut rows }.emulate(LaunchDims::new(2, ROW)) }?;
/// assert_eq!((rows[0], rows[64]), (63.0, 127.0));
/// # Ok::<(), cuda_std::launch::EmulationError>(())
/// ```
#[proc_macro_attribute]
pub fn kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(attribute.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// `shared_array![T; N]`: an array in the shared memory of the block, as a `SharedArray<T, N>`.
///
/// Each place in the source is one array, however often it is reached and from however many kernels. `N` is a constant
/// expression of the module around it: neither a constant of the function around it nor a const generic.
#[proc_macro]
pub fn shared_array(input: TokenStream) -> TokenStream {
    shared::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Copies a function into each place on the device that calls it, as `#[inline(always)]` does: a call there costs registers,
/// and what is not known to be constant where it is compiled costs local memory. On the host, where the copies would be most of
/// what is compiled, it is a function like any other: one that the CPU's own loops call stays `#[inline(always)]`.
///
/// ```
/// use cuda_std::prelude::*;
///
/// /// `x * x`, of a kernel's own.
/// #[device_inline]
/// fn square(x: f32) -> f32 {
///     x * x
/// }
///
/// assert_eq!(square(3.0), 9.0);
/// ```
#[proc_macro_attribute]
pub fn device_inline(attribute: TokenStream, item: TokenStream) -> TokenStream {
    inline::expand(attribute.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
