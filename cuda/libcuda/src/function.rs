//! What the driver knows of a compiled kernel.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::null_mut;

use cust::sys::CUfunction;

use crate::codes;
use crate::driver;
use crate::error::DriverError;
use crate::launch::LaunchAttributes;

/// A kernel in a loaded module, with the queries that cust lacks. The module's context must be current on the calling
/// thread ([`with_current`](crate::with_current)).
#[derive(Debug, Clone, Copy)]
pub struct Function<'m> {
    raw: CUfunction,
    module: PhantomData<&'m cust::module::Module>,
}

// SAFETY: a function's handle may be used from any thread, and the driver locks what it must.
unsafe impl Send for Function<'_> {}
// SAFETY: as above.
unsafe impl Sync for Function<'_> {}

impl<'m> From<&cust::function::Function<'m>> for Function<'m> {
    fn from(function: &cust::function::Function<'m>) -> Self {
        Self { raw: function.to_raw(), module: PhantomData }
    }
}

/// What the compiler made of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionAttributes {
    /// The most threads that a block may have: the kernel's launch bound, or what its registers leave room for.
    pub max_threads_per_block: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub static_shared_bytes: u32,
    /// Local memory per thread, in bytes: spilled registers and indexed arrays.
    pub local_bytes: u32,
    /// The most dynamic shared memory that a launch may ask for at present, in bytes.
    pub max_dynamic_shared_bytes: u32,
    /// The architecture that the machine code is for, such as 90.
    pub binary_version: u32,
}

// CUfunction_attribute
const MAX_THREADS_PER_BLOCK: c_int = 0;
const SHARED_SIZE_BYTES: c_int = 1;
const LOCAL_SIZE_BYTES: c_int = 3;
const NUM_REGS: c_int = 4;
const BINARY_VERSION: c_int = 6;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;

impl Function<'_> {
    /// A function from its handle, for callers that keep module and function in one place.
    ///
    /// # Safety
    /// The function's module stays loaded as long as this value, and every copy of it, is used.
    pub unsafe fn from_raw(raw: CUfunction) -> Self {
        Self { raw, module: PhantomData }
    }

    /// The driver's handle, for [`launch`](crate::launch()).
    pub fn raw(self) -> CUfunction {
        self.raw
    }

    /// Loads the code now, where the driver would wait for the first launch (`CUDA_MODULE_LOADING=LAZY`, the default since
    /// CUDA 12.2): a launch that is captured must find it there. Older drivers load it when the function is looked up.
    pub fn load(self) -> Result<(), DriverError> {
        // SAFETY: the function's module is loaded.
        match unsafe { driver::cuFuncLoad(self.raw) } {
            Err(error) if error.code == codes::NOT_FOUND && !driver::has(c"cuFuncLoad") => Ok(()),
            result => result,
        }
    }

    /// Registers, memory and limits.
    pub fn attributes(self) -> Result<FunctionAttributes, DriverError> {
        Ok(FunctionAttributes {
            max_threads_per_block: self.attribute(MAX_THREADS_PER_BLOCK)?,
            registers: self.attribute(NUM_REGS)?,
            static_shared_bytes: self.attribute(SHARED_SIZE_BYTES)?,
            local_bytes: self.attribute(LOCAL_SIZE_BYTES)?,
            max_dynamic_shared_bytes: self.attribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            binary_version: self.attribute(BINARY_VERSION)?,
        })
    }

    fn attribute(self, attribute: c_int) -> Result<u32, DriverError> {
        let mut value = 0;
        // SAFETY: the function is loaded; the result may be written; an unknown attribute is an error.
        unsafe { driver::cuFuncGetAttribute(&mut value, attribute, self.raw) }?;
        Ok(value.try_into().unwrap_or(0))
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory. More than 48 KiB must be allowed in this way, up
    /// to the device's [`max_shared_per_block`](crate::DeviceInfo::max_shared_per_block) less the kernel's static
    /// shared memory.
    pub fn set_max_dynamic_shared(self, bytes: u32) -> Result<(), DriverError> {
        let bytes = bytes.try_into().unwrap_or(c_int::MAX);
        // SAFETY: the function is loaded; a value that is too large is an error.
        unsafe { driver::cuFuncSetAttribute(self.raw, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) }
    }

    /// How many blocks of this many threads, with this much dynamic shared memory each, one multiprocessor runs at a
    /// time.
    pub fn active_blocks_per_multiprocessor(self, threads: u32, shared_bytes: u32) -> Result<u32, DriverError> {
        let mut blocks = 0;
        let threads = threads.try_into().unwrap_or(c_int::MAX);
        // SAFETY: the function is loaded; the result may be written.
        unsafe {
            driver::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.raw, threads, shared_bytes as usize)
        }?;
        Ok(blocks.try_into().unwrap_or(0))
    }

    /// How many clusters of this shape, of blocks of this many threads with this much dynamic shared memory each, the GPU runs at a
    /// time. Not all of its multiprocessors can be in clusters of more than two: that depends on how they are grouped on the chip.
    pub fn active_clusters(self, cluster: [u32; 3], threads: u32, shared_bytes: u32) -> Result<u32, DriverError> {
        let attributes = LaunchAttributes { cluster: Some(cluster), ..Default::default() };
        let (raw, attribute_count) = attributes.to_raw();
        let config = driver::LaunchConfig {
            grid: cluster,
            block: [threads, 1, 1],
            shared_bytes,
            stream: null_mut(),
            attributes: raw.as_ptr(),
            attribute_count,
        };
        let mut clusters = 0;
        // SAFETY: the function is loaded; the configuration and its attributes live until the call returns; the result may be written.
        unsafe { driver::cuOccupancyMaxActiveClusters(&mut clusters, self.raw, &config) }?;
        Ok(clusters.try_into().unwrap_or(0))
    }
}
