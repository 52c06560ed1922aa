//! Memory of a GPU, freed in stream order when its owner goes.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cuda_std::launch::{DeviceMemory, MemorySpace};

use super::Gpu;
use super::graph::Pool;
use crate::device::allocator::{Foreign, Place};
use crate::{Element, Result};

/// A piece of a GPU's memory, freed in stream order when the last owner goes: a buffer, or a graph that uses it.
#[derive(Debug)]
pub(super) struct Allocation {
    gpu: Gpu,
    address: u64,
    bytes: usize,
    /// Where it goes when it is used no more; nothing once that was taken out.
    origin: Option<Origin>,
}

/// Whose a piece of memory is.
#[derive(Debug)]
pub(super) enum Origin {
    /// The stream's.
    Stream,
    /// A graph's: it was made while that was recorded.
    Pool(Arc<Pool>),
    /// Someone else's.
    Foreign(Foreign),
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.origin.take() {
            Some(Origin::Stream) if self.bytes > 0 => self.gpu.release(self.address, self.bytes),
            Some(Origin::Pool(pool)) if self.bytes > 0 => pool.give_back(self.address, self.bytes),
            // The owner goes, and with it what it keeps.
            Some(_) | None => {}
        }
    }
}

/// What kernels take memory to be a multiple of: they load and store 16 bytes at once.
pub(super) const VECTOR: usize = 16;

/// `len` elements of `T` in a GPU's memory, at a multiple of 16 bytes where there are more than one.
///
/// Belongs to one stream: its allocation, its copies and its release are ordered with the passes queued there.
#[derive(Debug)]
pub struct GpuBuffer<T: Element> {
    allocation: Arc<Allocation>,
    address: u64,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Element> GpuBuffer<T> {
    /// Takes `address`, which is that of `len` elements of `gpu`'s memory.
    pub(super) fn new(gpu: &Gpu, address: u64, len: usize, origin: Origin) -> Self {
        let bytes = len * size_of::<T>();
        let allocation = Arc::new(Allocation { gpu: gpu.clone(), address, bytes, origin: Some(origin) });
        Self { allocation, address, len, elements: PhantomData }
    }

    /// Memory of someone else.
    ///
    /// # Safety
    /// It holds `len` elements of `gpu`'s memory until its owner is dropped, which no one else writes while the buffer lives,
    /// nor reads while it is written, but in the stream's order.
    pub(crate) unsafe fn foreign(gpu: &Gpu, from: Place, memory: Foreign, len: usize) -> Result<Self> {
        // One element is never loaded as a vector.
        memory.check(from, len, if len > 1 { VECTOR.max(align_of::<T>()) } else { align_of::<T>() })?;
        Ok(Self::new(gpu, memory.address, len, Origin::Foreign(memory)))
    }

    /// Someone else's memory, if it is, and no graph uses it.
    pub(crate) fn into_foreign(self) -> Option<Foreign> {
        let mut allocation = Arc::into_inner(self.allocation)?;
        match allocation.origin.take() {
            Some(Origin::Foreign(memory)) => Some(memory),
            // It goes back where it is from, as the allocation is dropped.
            own => {
                allocation.origin = own;
                None
            }
        }
    }

    fn gpu(&self) -> &Gpu {
        &self.allocation.gpu
    }

    /// Has a graph that is being recorded keep this memory as long as it can be replayed.
    pub(crate) fn keep_for_graph(&self) {
        self.gpu().keep_for_graph(&self.allocation);
    }

    /// Whether a graph uses this memory.
    pub(crate) fn is_in_graph(&self) -> bool {
        Arc::strong_count(&self.allocation) > 1
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, once all that was queued before is done.
    ///
    /// # Errors
    /// The driver's errors, a kernel's fault among them.
    pub fn download(&self) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.len];
        // SAFETY: the buffer holds `len` elements, `values` has room for as many, any bit pattern is an element, and
        // the call returns when the copy is done.
        unsafe { self.gpu().copy_to_host(values.as_mut_ptr().cast(), self.address, self.bytes())? };
        Ok(values)
    }

    /// Replaces the elements by `values`, of the same number, in stream order.
    pub(crate) fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        assert_eq!(values.len(), self.len, "checked by the tensor");
        // SAFETY: source and destination hold `len` elements, and the call returns when the source has been read.
        unsafe { self.gpu().copy_from_host(self.address, values.as_ptr().cast(), self.bytes()) }
    }

    /// Replaces the elements by those of another buffer of this stream, of the same number.
    pub(crate) fn copy_from(&mut self, other: &Self) -> Result<()> {
        assert_eq!((self.len, self.gpu()), (other.len, other.gpu()), "of one stream, and as many");
        // SAFETY: both buffers hold `len` elements of the same stream, in whose order the copy runs.
        unsafe { self.gpu().backend().copy_on_device(self.address, other.address, self.bytes()) }
    }

    /// Replaces the elements by as many from `address` on, in stream order.
    ///
    /// # Safety
    /// They are in this GPU's memory, apart from the buffer, until the copy is done.
    pub(crate) unsafe fn copy_from_address(&mut self, address: u64) -> Result<()> {
        // SAFETY: the buffer holds `len` elements, and the rest is the caller's.
        unsafe { self.gpu().backend().copy_on_device(self.address, address, self.bytes()) }
    }

    /// The whole buffer, to be read.
    pub fn as_slice(&self) -> GpuSlice<'_, T> {
        GpuSlice { address: self.address, len: self.len, space: self.space(), borrow: PhantomData }
    }

    /// The whole buffer, to be written.
    pub fn as_slice_mut(&mut self) -> GpuSliceMut<'_, T> {
        GpuSliceMut { address: self.address, len: self.len, space: self.space(), borrow: PhantomData }
    }

    /// The whole buffer as elements of another type, as many as it has bits for, to be read.
    ///
    /// # Panics
    /// When they do not fill it, or it begins where no `U` may be.
    pub(crate) fn bits<U>(&self) -> GpuSlice<'_, U> {
        GpuSlice { address: self.address, len: self.len_in_bits::<U>(), space: self.space(), borrow: PhantomData }
    }

    /// As [`GpuBuffer::bits`], to be written: any bits are an element.
    pub(crate) fn bits_mut<U>(&mut self) -> GpuSliceMut<'_, U> {
        GpuSliceMut { address: self.address, len: self.len_in_bits::<U>(), space: self.space(), borrow: PhantomData }
    }

    fn len_in_bits<U>(&self) -> usize {
        let whole = self.bytes().is_multiple_of(size_of::<U>());
        assert!(whole && self.address.is_multiple_of(align_of::<U>() as u64), "the same bits");
        self.bytes() / size_of::<U>()
    }

    pub(super) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    fn space(&self) -> MemorySpace {
        self.gpu().backend().space()
    }
}

/// A part of a [`GpuBuffer`], to be read.
#[derive(Clone, Copy, Debug)]
pub struct GpuSlice<'a, T> {
    address: u64,
    len: usize,
    space: MemorySpace,
    borrow: PhantomData<&'a T>,
}

/// A part of a [`GpuBuffer`], to be written.
#[derive(Debug)]
pub struct GpuSliceMut<'a, T> {
    address: u64,
    len: usize,
    space: MemorySpace,
    borrow: PhantomData<&'a mut T>,
}

impl<'a, T: Element> GpuSlice<'a, T> {
    /// `len` elements at `address`.
    ///
    /// # Safety
    /// They are in `space`, and stay there for `'a`.
    pub(super) unsafe fn new(address: u64, len: usize, space: MemorySpace) -> Self {
        Self { address, len, space, borrow: PhantomData }
    }

    /// A part of this part.
    ///
    /// # Panics
    /// When `range` is not inside it.
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of a buffer of {}", self.len);
        Self { address: self.address + (range.start * size_of::<T>()) as u64, len: range.len(), ..self }
    }
}

impl<'a, T: Element> GpuSliceMut<'a, T> {
    /// `len` elements at `address`.
    ///
    /// # Safety
    /// They are in `space`, stay there for `'a`, and no one else uses them.
    pub(super) unsafe fn new(address: u64, len: usize, space: MemorySpace) -> Self {
        Self { address, len, space, borrow: PhantomData }
    }

    /// The same memory as elements of another type that is no larger, as many as fit.
    ///
    /// # Panics
    /// When `U` is larger.
    pub(crate) fn cast<U: Element>(self) -> GpuSliceMut<'a, U> {
        assert!(size_of::<U>() <= size_of::<T>(), "no larger elements");
        let len = self.len * size_of::<T>() / size_of::<U>();
        GpuSliceMut { address: self.address, len, space: self.space, borrow: PhantomData }
    }

    /// The same memory, to be read as elements of another type that is no larger, as many as fit.
    ///
    /// # Panics
    /// When `U` is larger.
    pub(crate) fn view<U: Element>(&self) -> GpuSlice<'_, U> {
        assert!(size_of::<U>() <= size_of::<T>(), "no larger elements");
        let len = self.len * size_of::<T>() / size_of::<U>();
        GpuSlice { address: self.address, len, space: self.space, borrow: PhantomData }
    }

    /// The elements before `middle` and those from it on, to be written by one launch.
    ///
    /// # Panics
    /// When `middle` is past the end.
    pub fn split_at(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.len, "split at {middle} of a buffer of {}", self.len);
        let address = self.address + (middle * size_of::<T>()) as u64;
        (Self { len: middle, ..self }, Self { address, len: self.len - middle, space: self.space, borrow: PhantomData })
    }
}

macro_rules! device_memory {
    ($bound:path, $type:ty, $space:expr) => {
        // SAFETY: `address` is that of `len` elements in `space`, which the buffer owns and the borrow keeps.
        unsafe impl<T: $bound> DeviceMemory<T> for $type {
            fn address(&self) -> u64 {
                self.address
            }
            fn len(&self) -> usize {
                self.len
            }
            fn space(&self) -> MemorySpace {
                $space(self)
            }
        }
    };
}

device_memory!(Element, GpuBuffer<T>, GpuBuffer::space);
device_memory!(Send, GpuSlice<'_, T>, |slice: &Self| slice.space);
device_memory!(Send, GpuSliceMut<'_, T>, |slice: &Self| slice.space);
