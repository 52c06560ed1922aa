//! A tensor of libtorch that Rust owns, and memory from libtorch's allocators.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ferrolayer::device::{Allocator, Foreign, Request};

use crate::symbols::{RawTensor, Symbols};
use crate::{Error, Result};

/// An owned `torch::Tensor`.
#[derive(Debug)]
pub(crate) struct Handle(NonNull<c_void>);

// SAFETY: libtorch counts a tensor's references atomically, and nothing of it is changed through a handle.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let symbols = Symbols::get().expect("what made the handle was found there");
        // SAFETY: it is owned, and not used again. It cannot fail.
        unsafe { (symbols.delete_tensor)(self.0.as_ptr()) };
    }
}

/// The place on C++'s heap where an owned `torch::Tensor` is.
///
/// Of no size, so that a box of it is no more than that address.
#[derive(Debug)]
pub(crate) struct TensorCell;

impl Drop for TensorCell {
    fn drop(&mut self) {
        drop(Handle(NonNull::from(self).cast()));
    }
}

impl Handle {
    /// # Safety
    /// `raw` is null, or a tensor's handle that no one else owns.
    pub unsafe fn from_raw(raw: RawTensor) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// The handle, for a new owner.
    pub fn into_raw(self) -> RawTensor {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// As the owner of memory. The box has the tensor's own address: no memory is taken for it.
    #[inline]
    pub fn into_owner(self) -> Box<TensorCell> {
        let raw: *mut TensorCell = self.into_raw().cast();
        // SAFETY: a box of a type of no size may be at any address that is not null.
        unsafe { Box::from_raw(raw) }
    }

    /// The tensor of such a box.
    #[inline]
    pub fn from_owner(owner: Box<TensorCell>) -> Self {
        // Not dropped, but owned by the handle from now on.
        Self(NonNull::from(Box::leak(owner)).cast())
    }

    pub fn as_raw(&self) -> RawTensor {
        self.0.as_ptr()
    }

    /// A new tensor, to be written before it is read.
    pub fn empty(
        symbols: &Symbols,
        shape: &[usize],
        strides: &[usize],
        dtype: i32,
        (device_type, device_index): (i32, i32),
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: `usize` and `i64` are of one size here (checked below), and sizes in memory fit both.
        let status = unsafe {
            (symbols.empty_strided)(
                shape.len() as i64,
                shape.as_ptr().cast(),
                strides.as_ptr().cast(),
                dtype,
                device_type,
                device_index,
                &mut raw,
            )
        };
        // SAFETY: on success it is a new tensor, ours.
        let handle = if status == 0 { unsafe { Self::from_raw(raw) } } else { None };
        handle.ok_or_else(|| Error::Torch { during: "making a tensor", what: symbols.last_error() })
    }

    /// The same memory with other sizes and strides.
    pub fn view(&self, symbols: &Symbols, shape: &[usize], strides: &[usize]) -> Result<Self> {
        let mut raw = ptr::null_mut();
        let (sizes, distances) = (shape.as_ptr().cast(), strides.as_ptr().cast());
        // SAFETY: as above.
        let status = unsafe { (symbols.view)(self.as_raw(), shape.len() as i64, sizes, distances, 0, &mut raw) };
        // SAFETY: on success it is a new tensor, ours.
        let handle = if status == 0 { unsafe { Self::from_raw(raw) } } else { None };
        handle.ok_or_else(|| Error::Torch { during: "viewing a tensor", what: symbols.last_error() })
    }

    /// Where the elements begin.
    #[inline]
    pub fn address(&self, symbols: &Symbols) -> Result<u64> {
        let mut address = ptr::null_mut();
        // SAFETY: the tensor lives, and the result may be written.
        match unsafe { (symbols.data_ptr)(self.as_raw(), &mut address) } {
            0 => Ok(address.expose_provenance() as u64),
            _ => Err(Error::Torch { during: "asking for a tensor's memory", what: symbols.last_error() }),
        }
    }

    /// Copies the elements of `from`, of the same shape, to this tensor. No gradient is recorded.
    pub fn copy_from(&self, symbols: &Symbols, from: &Self) -> Result<()> {
        // SAFETY: both tensors live. The mode is this thread's own.
        let status = unsafe {
            let grad = (symbols.grad_mode)();
            (symbols.set_grad_mode)(false);
            let status = (symbols.copy)(self.as_raw(), from.as_raw(), 0);
            (symbols.set_grad_mode)(grad);
            status
        };
        match status {
            0 => Ok(()),
            _ => Err(Error::Torch { during: "copying a tensor", what: symbols.last_error() }),
        }
    }
}

const _: () = assert!(size_of::<usize>() == size_of::<i64>(), "libtorch's sizes are Rust's");

/// libtorch's own memory of one device: each allocation is a tensor.
pub(crate) struct TorchMemory {
    symbols: &'static Symbols,
    /// Type and index, by libtorch's numbers.
    device: (i32, i32),
}

impl TorchMemory {
    pub fn of(symbols: &'static Symbols, device: (i32, i32)) -> Arc<dyn Allocator> {
        Arc::new(Self { symbols, device })
    }
}

// SAFETY: libtorch gives a new tensor's memory to no one else while the tensor lives, aligned to 64 bytes and more. On a GPU
// it is of the stream that was current, which is the one that the device was opened on.
unsafe impl Allocator for TorchMemory {
    #[inline]
    fn allocate(&self, request: &Request<'_>) -> ferrolayer::Result<Foreign> {
        let dtype = self.symbols.code_of(request.dtype);
        let allocated = Handle::empty(self.symbols, request.shape, request.strides, dtype, self.device)
            .and_then(|handle| Ok((handle.address(self.symbols)?, handle)));
        match allocated {
            Ok((address, handle)) => Ok(Foreign { address, owner: handle.into_owner() }),
            Err(error) => Err(ferrolayer::Error::Allocator(Box::new(error))),
        }
    }
}
