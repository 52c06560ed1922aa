//! Tensors for, and of, those who hold memory by its address.

use super::{Storage, Tensor, elements};
use crate::layout::{Dims, is_dense};
use crate::{Device, Element, Error, Result};

impl<T: Element> Tensor<T> {
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
        let len = elements::<T>(OP, "shape", shape)?;
        if !is_dense(shape, strides) {
            return Err(Error::Argument {
                op: OP,
                argument: "strides",
                got: format!("{strides:?}"),
                expected: format!("those of a dense tensor of shape {shape:?}"),
            });
        }
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
