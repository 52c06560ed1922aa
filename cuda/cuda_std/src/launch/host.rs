//! The host's side of a launch.

use core::ffi::c_void;

pub use crate::emulator::error::{Collective, EmulationError, Site, Waiting};

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySpace {
    /// In the host's memory: an address is a pointer.
    Host,
    /// In the memory of the device with this ordinal.
    Device(u32),
}

/// A buffer of `T` that a launch can take.
///
/// # Safety
/// [`len`](Self::len) elements are at [`address`](Self::address) in [`space`](Self::space), valid to read while the
/// value is borrowed and valid to write while it is borrowed mutably.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer of `{T}`",
    label = "expected a buffer whose elements are `{T}`"
)]
pub unsafe trait DeviceMemory<T> {
    /// The address of the first element.
    fn address(&self) -> u64;
    /// How many elements there are.
    fn len(&self) -> usize;
    /// Where they are.
    fn space(&self) -> MemorySpace;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! host_memory {
    ($($(#[$attribute:meta])* [$($generics:tt)*] $t:ty;)*) => {$(
        // SAFETY: the elements of a slice, mutable where the value is.
        unsafe impl<$($generics)*> DeviceMemory<T> for $t {
            fn address(&self) -> u64 {
                self.as_ptr() as usize as u64
            }

            fn len(&self) -> usize {
                <[T]>::len(self)
            }

            fn space(&self) -> MemorySpace {
                MemorySpace::Host
            }
        }
    )*};
}
host_memory! {
    [T] Vec<T>;
    [T] Box<[T]>;
    [T] &mut [T];
    [T, const N: usize] [T; N];
}

/// What `#[kernel]` was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// The exact shape of a block.
    pub block: Option<[u32; 3]>,
    /// The most threads of a block.
    pub max_threads: Option<u32>,
    /// Blocks that fit on one multiprocessor.
    pub min_blocks: Option<u32>,
    /// The shape of a cluster.
    pub cluster: Option<[u32; 3]>,
}

/// A number of threads or blocks along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim3(pub [u32; 3]);

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from(sides: [u32; 3]) -> Self {
        Self(sides)
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchDims {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster, where the launch says it and not the kernel. They divide the grid's.
    pub cluster: [u32; 3],
    /// Whether clusters along x are no more than run at once, however many the grid has: for kernels whose blocks take work after work.
    pub resident: bool,
}

impl LaunchDims {
    /// So many blocks of so many threads, without dynamic shared memory, each a cluster of its own.
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Self {
        Self { grid: grid.into().0, block: block.into().0, shared_bytes: 0, cluster: [1; 3], resident: false }
    }

    /// In clusters of such a shape (`sm_90` and later). The emulated grid knows none.
    pub fn with_cluster(self, cluster: impl Into<Dim3>) -> Self {
        Self { cluster: cluster.into().0, ..self }
    }

    /// With so many bytes of dynamic shared memory for each block.
    pub fn with_shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// With no more clusters along x than run at once, which the driver knows. The emulated grid runs all.
    pub fn resident(self) -> Self {
        Self { resident: true, ..self }
    }

    /// Threads of a block, saturating.
    pub fn threads(&self) -> u32 {
        self.block.iter().copied().fold(1, u32::saturating_mul)
    }

    /// Blocks, saturating.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |blocks, &side| u64::saturating_mul(blocks, u64::from(side)))
    }
}

/// One buffer of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferArg {
    /// The kernel's parameter.
    pub name: &'static str,
    /// Where it is.
    pub space: MemorySpace,
    /// Whether the kernel may write it.
    pub writes: bool,
    /// The address of its first byte; 0 for an absent optional buffer.
    pub address: u64,
    /// Its bytes.
    pub bytes: usize,
}

impl BufferArg {
    /// A buffer that the kernel reads.
    pub fn read<T>(name: &'static str, memory: &dyn DeviceMemory<T>) -> Self {
        Self {
            name,
            space: memory.space(),
            writes: false,
            address: memory.address(),
            bytes: memory.len() * size_of::<T>(),
        }
    }

    /// A buffer that the kernel writes.
    pub fn write<T>(name: &'static str, memory: &dyn DeviceMemory<T>) -> Self {
        Self { writes: true, ..Self::read(name, memory) }
    }
}

/// A kernel's arguments, whichever kernel it is: what carries launches out can be compiled once for all of them.
///
/// # Safety
/// [`with_params`](Self::with_params) gives what the entry named in [`kernel`](Self::kernel) takes, in order and size,
/// and [`for_each_buffer`](Self::for_each_buffer) names every buffer among it.
pub unsafe trait LaunchArguments {
    /// What is known of the kernel.
    fn kernel(&self) -> &'static KernelInfo;

    /// Calls `f` with each buffer, in the order of the parameters; not with optional ones that are absent.
    fn for_each_buffer(&self, f: &mut dyn FnMut(BufferArg));

    /// Calls `f` once with pointers to the arguments, in order, as `cuLaunchKernel` takes them. They are valid until `f`
    /// returns.
    fn with_params(&self, f: &mut dyn FnMut(&mut [*mut c_void]));
}

/// A kernel with its arguments: what [`#[kernel]`](macro@crate::kernel) generates.
///
/// # Safety
/// [`LaunchArguments::kernel`] is [`KERNEL`](Self::KERNEL).
pub unsafe trait Launch: LaunchArguments + Sized {
    /// What is known of the kernel.
    const KERNEL: KernelInfo;

    /// Runs the kernel on the emulated grid and returns when all its threads have ended.
    ///
    /// # Errors
    /// Dimensions that the kernel or a device does not take, a buffer that is not in host memory, a barrier that not
    /// all threads reach, a thread that panicked (an index out of bounds among the reasons). The buffers that the
    /// kernel writes then hold whatever was written until then.
    ///
    /// # Safety
    /// What the kernel asks for. Indices are checked; two threads that use one element without a barrier between them
    /// are not.
    unsafe fn emulate(self, dims: LaunchDims) -> Result<(), EmulationError>;
}

#[doc(hidden)]
pub fn check_host_memory(launch: &dyn LaunchArguments) -> Result<(), EmulationError> {
    let mut result = Ok(());
    launch.for_each_buffer(&mut |buffer| {
        if let (Ok(()), MemorySpace::Device(ordinal)) = (&result, buffer.space) {
            let kernel = launch.kernel().name;
            result = Err(EmulationError::NotHostMemory { kernel, argument: buffer.name, ordinal });
        }
    });
    result
}
