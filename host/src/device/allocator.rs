//! Memory that a device does not make itself: a framework's.

use std::any::Any;
use std::sync::Arc;

use crate::{DType, Error, Result};

/// Where tensors' memory comes from instead of the device's own: [`Cpu::with_allocator`](super::Cpu::with_allocator),
/// [`GpuOptions::allocator`](super::GpuOptions::allocator).
///
/// A framework's gives tensors of its own, so that what ops return is the framework's tensor without a copy:
/// [`Tensor::into_foreign`](crate::Tensor::into_foreign). Requests for nothing, of a shape with a zero, come here too.
///
/// # Safety
/// What it gives is valid memory for as many elements as asked for, to be read (whatever it holds) and written, and no one
/// else's, until the owner is dropped: in the device's address space, and aligned for the element type. On a GPU it is
/// ordered with the device's stream: work that is queued there before the owner is dropped still has it, and the memory may
/// be used by work queued afterwards; and it begins at a multiple of 16 bytes.
pub unsafe trait Allocator: Send + Sync {
    /// Memory for a tensor, or for a pass's workspace. It may come from any thread.
    ///
    /// # Errors
    /// Why there is none: [`Error::OutOfMemory`], or [`Error::Allocator`] with what the framework said. The op that asked
    /// returns it as it is.
    fn allocate(&self, request: &Request<'_>) -> Result<Foreign>;
}

/// What is asked of an [`Allocator`]: a dense tensor. A workspace is `[len]` of `f32`.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The element type.
    pub dtype: DType,
    /// The size of each dimension.
    pub shape: &'a [usize],
    /// The distance between neighbours along each dimension, in elements.
    pub strides: &'a [usize],
}

impl Request<'_> {
    /// How many elements that is.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }
}

/// Memory that belongs to someone else, and what keeps it.
#[derive(Debug)]
pub struct Foreign {
    /// Where it begins. Of no elements it may be anything.
    pub address: u64,
    /// Dropped when the memory is used no more.
    pub owner: Box<dyn Any + Send + Sync>,
}

impl Foreign {
    /// Fails unless `len` elements of `size` bytes can be where this is, at a multiple of `alignment` bytes.
    pub(crate) fn check(&self, at: Place, len: usize, alignment: usize) -> Result<()> {
        let aligned = self.address != 0 && self.address.is_multiple_of(alignment as u64);
        // `usize` is what a pointer on the CPU is made of.
        if len == 0 || aligned && usize::try_from(self.address).is_ok() {
            return Ok(());
        }
        Err(Error::Argument {
            op: at.op,
            argument: at.argument,
            got: format!("{:#x}", self.address),
            expected: format!("a multiple of {alignment} bytes; what begins elsewhere has to be copied"),
        })
    }
}

/// Who gave an address, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub op: &'static str,
    pub argument: &'static str,
}

/// An address that an allocator gave.
pub(crate) const ALLOCATED: Place = Place { op: "Allocator::allocate", argument: "address" };
/// An address that a tensor was made of.
pub(crate) const GIVEN: Place = Place { op: "Tensor::from_foreign", argument: "memory.address" };

/// An allocator, where there is one, as devices hold it.
#[derive(Clone, Default)]
pub(crate) enum Allocation {
    /// The device's own memory.
    #[default]
    Own,
    /// Of who lives as long as one device does.
    Shared(Arc<dyn Allocator>),
    /// Of who lives as long as the process: cloning it, as each tensor does with its device, counts nothing.
    Static(&'static dyn Allocator),
}

impl Allocation {
    #[inline]
    pub fn get(&self) -> Option<&dyn Allocator> {
        match self {
            Self::Own => None,
            Self::Shared(allocator) => Some(&**allocator),
            Self::Static(allocator) => Some(*allocator),
        }
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Own => "the device's own",
            Self::Shared(_) | Self::Static(_) => "an allocator",
        })
    }
}
