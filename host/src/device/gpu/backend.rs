//! The driver or the emulator, behind one set of calls.

use std::fmt::{Display, Formatter};
use std::time::Instant;

use cuda_std::launch::{Launch, LaunchDims, MemorySpace};

use super::KernelModule;
use super::driver::Driver;
use super::emulated::{Emulated, pointer};
use crate::Result;

pub enum Backend {
    Driver(Box<Driver>),
    #[cfg_attr(not(any(feature = "emulator", test)), expect(dead_code, reason = "there is none"))]
    Emulated(Emulated),
}

impl Backend {
    pub fn driver(ordinal: u32) -> Result<Self> {
        Ok(Self::Driver(Box::new(Driver::open(ordinal)?)))
    }

    /// # Safety
    /// The stream is one of this GPU's primary context and outlives the backend.
    pub unsafe fn driver_on_stream(ordinal: u32, stream: *mut core::ffi::c_void) -> Result<Self> {
        // SAFETY: the caller's.
        Ok(Self::Driver(Box::new(unsafe { Driver::open_on_stream(ordinal, stream)? })))
    }

    #[cfg(any(feature = "emulator", test))]
    pub fn emulated() -> Self {
        Self::Emulated(Emulated {})
    }

    pub fn space(&self) -> MemorySpace {
        match self {
            Self::Driver(driver) => MemorySpace::Device(driver.ordinal()),
            Self::Emulated(_) => MemorySpace::Host,
        }
    }

    /// `bytes`, not zero, in stream order.
    /// The most shared memory that a block may ask for, in bytes: the emulated grid takes what any kernel asks for.
    pub fn max_shared(&self) -> u32 {
        match self {
            Self::Driver(driver) => driver.max_shared(),
            Self::Emulated(_) => u32::MAX,
        }
    }

    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        match self {
            Self::Driver(driver) => driver.allocate(bytes),
            Self::Emulated(emulated) => emulated.allocate(bytes),
        }
    }

    /// Frees in stream order. A failure is not told: it is a kernel's fault, which the next checked call tells.
    ///
    /// # Safety
    /// `address` came from [`Backend::allocate`] with this size and is not used again.
    pub unsafe fn free(&self, address: u64, bytes: usize) {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Driver(driver) => driver.free(address, bytes),
                Self::Emulated(emulated) => emulated.free(address, bytes),
            }
        }
    }

    /// Sets every byte, in stream order.
    ///
    /// # Safety
    /// `bytes` at `address` are allocated.
    pub unsafe fn fill(&self, address: u64, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Driver(driver) => driver.fill(address, value, bytes),
                Self::Emulated(emulated) => {
                    emulated.fill(address, value, bytes);
                    Ok(())
                }
            }
        }
    }

    /// Copies to host memory and waits for it.
    ///
    /// # Safety
    /// `bytes` at both are allocated.
    pub unsafe fn copy_to_host(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Driver(driver) => driver.copy_to_host(to, from, bytes),
                Self::Emulated(emulated) => {
                    emulated.copy(to, pointer(from), bytes);
                    Ok(())
                }
            }
        }
    }

    /// Copies from host memory, which may change once the call returns.
    ///
    /// # Safety
    /// `bytes` at both are allocated.
    pub unsafe fn copy_from_host(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Driver(driver) => driver.copy_from_host(to, from, bytes),
                Self::Emulated(emulated) => {
                    emulated.copy(pointer(to), from, bytes);
                    Ok(())
                }
            }
        }
    }

    /// Copies within the device, in stream order.
    ///
    /// # Safety
    /// `bytes` at both are allocated and do not overlap.
    pub unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Driver(driver) => driver.copy_on_device(to, from, bytes),
                Self::Emulated(emulated) => {
                    emulated.copy(pointer(to), pointer(from), bytes);
                    Ok(())
                }
            }
        }
    }

    /// # Safety
    /// The kernel's contract, and its buffers are in [`Backend::space`].
    pub unsafe fn launch<K: Launch>(&self, module: &'static KernelModule, dims: LaunchDims, kernel: K) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Driver(driver) => driver.launch(module, dims, &kernel),
                Self::Emulated(emulated) => emulated.launch(dims, kernel),
            }
        }
    }

    /// Seconds that each of the pieces takes that `work` queues.
    pub fn time_each(&self, count: usize, mut work: impl FnMut(usize) -> Result<()>) -> Result<Vec<f64>> {
        match self {
            Self::Driver(driver) => driver.time_each(count, work),
            Self::Emulated(_) => (0..count)
                .map(|piece| {
                    let start = Instant::now();
                    work(piece)?;
                    Ok(start.elapsed().as_secs_f64())
                })
                .collect(),
        }
    }

    pub fn synchronize(&self) -> Result<()> {
        match self {
            Self::Driver(driver) => driver.synchronize(),
            Self::Emulated(_) => Ok(()),
        }
    }

    pub fn trim(&self) -> Result<()> {
        match self {
            Self::Driver(driver) => driver.trim(),
            Self::Emulated(_) => Ok(()),
        }
    }
}

impl Display for Backend {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Driver(driver) => driver.fmt(f),
            Self::Emulated(_) => f.write_str("the emulated GPU"),
        }
    }
}
