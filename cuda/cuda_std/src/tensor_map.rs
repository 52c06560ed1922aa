//! Tensor maps as parameters of kernels: what Hopper's bulk copies know of an array in global memory.

/// A tensor map (`CUtensorMap`) that the host made of an array: on the device its place among the kernel's parameters.
///
/// A kernel takes it by value. It holds the array's address and keeps nothing alive: the kernel takes the array as a buffer
/// too, so that the launch is checked and the array is there.
#[cfg(target_arch = "nvptx64")]
#[derive(Clone, Copy)]
pub struct TensorMap {
    address: u64,
}

/// A tensor map (`CUtensorMap`) that the host made of an array, to be passed to a kernel by value. It holds the array's
/// address and keeps nothing alive: the kernel takes the array as a buffer too, so that the launch is checked and the array
/// is there.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap {
    words: [u64; 16],
}

#[cfg(target_arch = "nvptx64")]
impl TensorMap {
    /// The map at an address among the parameters.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn from_address(address: u64) -> Self {
        Self { address }
    }

    /// The address, for instructions that take one.
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.address
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl TensorMap {
    /// The map with these bits, as the driver made it.
    pub const fn from_words(words: [u64; 16]) -> Self {
        Self { words }
    }
}

/// How an entry declares one: rustc passes no structure that is aligned to more; `cuda_builder` writes the alignment.
#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
#[repr(C, align(16))]
pub struct Parameter([u64; 16]);
