//! A GPU without a GPU: memory of this machine, launches on the emulated grid.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

use cuda_std::launch::{Launch, LaunchDims};

use crate::{Error, Result};

/// What the driver aligns allocations to.
const ALIGNMENT: usize = 256;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGNMENT).expect("a tensor that fits in memory")
}

/// Every call is done when it returns. There is none without the feature `emulator`.
#[derive(Debug)]
pub struct Emulated {
    #[cfg(not(any(feature = "emulator", test)))]
    never: std::convert::Infallible,
}

impl Emulated {
    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        assert!(bytes > 0, "nothing is allocated for nothing");
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok();
        // SAFETY: the size is not zero.
        let pointer = layout.map_or(ptr::null_mut(), |layout| unsafe { alloc_zeroed(layout) });
        if pointer.is_null() {
            return Err(Error::OutOfMemory { device: "the emulated GPU".into(), bytes, free: None });
        }
        Ok(pointer.expose_provenance() as u64)
    }

    /// # Safety
    /// `address` came from [`Emulated::allocate`] with this size and is not used again.
    pub unsafe fn free(&self, address: u64, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { dealloc(pointer(address), layout(bytes)) };
    }

    /// # Safety
    /// `bytes` at `address` are allocated.
    pub unsafe fn fill(&self, address: u64, value: u8, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { ptr::write_bytes(pointer(address), value, bytes) };
    }

    /// # Safety
    /// `bytes` at both are allocated and do not overlap.
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    }

    /// # Safety
    /// The kernel's contract.
    pub unsafe fn launch<K: Launch>(&self, dims: LaunchDims, kernel: K) -> Result<()> {
        #[cfg(all(feature = "emulator", not(test)))]
        // SAFETY: the caller's.
        return unsafe { kernel.emulate(dims) }.map_err(|source| Error::Emulation { kernel: K::KERNEL.name, source });
        // The library's unit tests launch nothing: for them all kernels would be compiled once more.
        #[cfg(test)]
        unimplemented!("{} by {dims:?} and {} bytes", K::KERNEL.name, size_of_val(&kernel));
        #[cfg(not(any(feature = "emulator", test)))]
        match (self.never, dims, kernel) {}
    }
}

/// The memory at an address that [`Emulated::allocate`] gave.
pub fn pointer(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}
