//! Tensors for, and of, those who hold memory by its address.

use triomphe::Arc;

use super::{Storage, Tensor, elements};
use crate::device::memory::HostMemory;
use crate::device::{Foreign, GpuBuffer, allocator};
use crate::layout::{Dims, is_dense};
use crate::{Device, Element, Error, Result};

/// The number of elements of a dense tensor, which shape and strides are to be of.
fn dense_elements<T>(op: &'static str, shape: &[usize], strides: &[usize]) -> Result<usize> {
    let len = elements::<T>(op, "shape", shape)?;
    if is_dense(shape, strides) {
        return Ok(len);
    }
    Err(Error::Argument {
        op,
        argument: "strides",
        got: format!("{strides:?}"),
        expected: format!("those of a dense tensor of shape {shape:?}; any other has to be copied"),
    })
}

impl<T: Element> Tensor<T> {
    /// A tensor of someone else's memory: nothing is copied, and the memory is not freed here, but its owner dropped, once
    /// no tensor and no graph uses it. Writing to the tensor writes there while it is the memory's only owner; else it gets
    /// memory of its device first, as any tensor that is shared.
    ///
    /// On a GPU the memory begins at a multiple of 16 bytes, unless it is a single element: kernels take 16 bytes at once.
    /// On [`Device::Shapes`] the owner is dropped at once.
    ///
    /// # Errors
    /// [`Error::Argument`] for strides that do not name each of the first places once (a slice, or a dimension that is
    /// repeated), and for an address that is null or not aligned: copy what is in such memory. [`Error::Shape`] for more
    /// elements than memory can have.
    ///
    /// # Safety
    /// Until the owner is dropped, `memory.address` is that of as many elements in the device's memory as the shape has,
    /// which hold values, and may be written if the tensor is. While a tensor has the memory no one else writes to it, and
    /// while one is written no one else reads it: other tensors of the same memory, or of a part of it, included. On a GPU
    /// others do so in the order of the device's stream, where the owner's memory may be used again as soon as it is
    /// dropped.
    pub unsafe fn from_foreign(device: &Device, shape: &[usize], strides: &[usize], memory: Foreign) -> Result<Self> {
        const OP: &str = "Tensor::from_foreign";
        let len = dense_elements::<T>(OP, shape, strides)?;
        let storage = match device {
            // SAFETY: the caller's.
            Device::Cpu(_) => Storage::Cpu(unsafe { HostMemory::foreign(allocator::GIVEN, memory, len)? }),
            // SAFETY: the caller's.
            Device::Gpu(gpu) => Storage::Gpu(unsafe { GpuBuffer::foreign(gpu, allocator::GIVEN, memory, len)? }),
            Device::Shapes => Storage::Nothing,
        };
        Ok(Self::new(device, shape, Dims::from_slice(strides), storage))
    }

    /// The memory of a tensor that is not of the device's own memory, given back to whom it belongs: what
    /// [`Tensor::from_foreign`] was given, or an [`Allocator`](crate::device::Allocator) gave. Its elements are where this
    /// tensor's [`shape`](Self::shape) and [`strides`](Self::strides) say.
    ///
    /// `None`, and the tensor dropped, where the memory is the device's own, or another tensor or a graph has it too.
    pub fn into_foreign(self) -> Option<Foreign> {
        match Arc::try_unwrap(self.held).ok()?.storage {
            Storage::Cpu(memory) => memory.into_foreign(),
            Storage::Gpu(buffer) => buffer.into_foreign(),
            Storage::Nothing => None,
        }
    }

    /// A tensor with a copy of someone else's memory, which may begin anywhere: where [`Tensor::from_foreign`] wants more.
    ///
    /// # Errors
    /// As [`Tensor::from_foreign`], without what that says of addresses.
    ///
    /// # Safety
    /// `address` is that of as many elements in the device's memory as the shape has, which hold values and are not written
    /// meanwhile: until the call returns, and on a GPU until the copy that it queues on the device's stream is done.
    pub unsafe fn copy_of_foreign(device: &Device, shape: &[usize], strides: &[usize], address: u64) -> Result<Self> {
        const OP: &str = "Tensor::copy_of_foreign";
        let len = dense_elements::<T>(OP, shape, strides)?;
        let mut storage = Storage::<T>::empty(device, shape, strides)?;
        if len > 0 {
            match &mut storage {
                Storage::Cpu(memory) => {
                    let from: *const u8 = std::ptr::with_exposed_provenance(address as usize);
                    let to = memory.as_mut_slice();
                    // SAFETY: the caller's of `from`; `to` is new memory for `len` elements, of which any bits are one.
                    unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr().cast(), size_of_val(to)) };
                }
                // SAFETY: the caller's; the buffer is new, and so apart from it.
                Storage::Gpu(buffer) => unsafe { buffer.copy_from_address(address)? },
                Storage::Nothing => {}
            }
        }
        Ok(Self::new(device, shape, Dims::from_slice(strides), storage))
    }

    /// Where the elements begin, for who reads or writes them there while this tensor or a clone of it lives; 0 where there
    /// are none. The memory is this tensor's alone when this returns, as after any other call that writes to it.
    ///
    /// # Errors
    /// The device's own errors, when memory that was shared is copied.
    pub fn address(&mut self) -> Result<u64> {
        if self.is_empty() {
            return Ok(0);
        }
        Ok(match self.storage_mut()? {
            Storage::Cpu(memory) => memory.as_mut_slice().as_mut_ptr().expose_provenance() as u64,
            Storage::Gpu(buffer) => cuda_std::launch::DeviceMemory::<T>::address(buffer),
            Storage::Nothing => 0,
        })
    }
}
