//! Memory of this machine: a tensor's own, or someone else's.

use std::ptr;

use super::allocator::{ALLOCATED, Allocator, Foreign, Place, Request};
use crate::{Element, Error, Result};

/// The elements of a tensor on the CPU.
#[derive(Debug)]
pub(crate) enum HostMemory<T> {
    Own(Vec<T>),
    /// Checked: of so many elements, aligned.
    Foreign(Foreign, usize),
}

impl<T: Element> HostMemory<T> {
    /// What holds any values.
    pub fn of_allocator(allocator: &dyn Allocator, shape: &[usize], strides: &[usize]) -> Result<Self> {
        let request = Request { dtype: T::DTYPE, shape, strides };
        let memory = allocator.allocate(&request)?;
        // SAFETY: an allocator's promise: it is as large as asked for, and no one else's.
        unsafe { Self::foreign(ALLOCATED, memory, request.elements()) }
    }

    /// # Safety
    /// `memory` holds `len` elements that no one else writes while this lives, nor reads while this is written.
    pub unsafe fn foreign(from: Place, memory: Foreign, len: usize) -> Result<Self> {
        memory.check(from, len, align_of::<T>())?;
        Ok(Self::Foreign(memory, len))
    }

    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::Own(values) => values,
            Self::Foreign(_, 0) => &[],
            // SAFETY: `foreign` was promised as many elements there, and checked the alignment; any bits are an element.
            Self::Foreign(memory, len) => unsafe { std::slice::from_raw_parts(pointer(memory), *len) },
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Own(values) => values,
            Self::Foreign(_, 0) => &mut [],
            // SAFETY: as above, and this is borrowed mutably.
            Self::Foreign(memory, len) => unsafe { std::slice::from_raw_parts_mut(pointer(memory), *len) },
        }
    }

    pub fn into_foreign(self) -> Option<Foreign> {
        match self {
            Self::Own(_) => None,
            Self::Foreign(memory, _) => Some(memory),
        }
    }
}

fn pointer<T>(memory: &Foreign) -> *mut T {
    ptr::with_exposed_provenance_mut(memory.address as usize)
}

/// `vec![value; len]`, but an error where there is no memory for it.
pub(crate) fn vec_of<T: Element>(value: T, len: usize) -> Result<Vec<T>> {
    // Asks first: `vec!` aborts. It alone knows how to get zeros that the system makes only when they are touched.
    let asked = Vec::<T>::new().try_reserve_exact(len);
    match asked {
        Ok(()) => Ok(vec![value; len]),
        Err(_) => Err(Error::OutOfMemory { device: "the CPU".into(), bytes: len * size_of::<T>(), free: None }),
    }
}
