//! A capsule that was taken: someone else's array, and the duty to say when it is used no more.

use std::ptr::NonNull;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::abi::{DlTensor, ManagedTensor, ManagedTensorVersioned, PLAIN, VERSION, VERSIONED};

/// The array in a capsule. Its deleter is called once, when this is dropped.
pub struct Capsule(Managed);

enum Managed {
    Plain(NonNull<ManagedTensor>),
    Versioned(NonNull<ManagedTensorVersioned>),
}

// SAFETY: the structure is not written by anyone until its deleter is called, which DLPack lets any thread do; it is done
// with Python's lock in hand, for those deleters that forget to take it.
unsafe impl Send for Capsule {}
// SAFETY: as above: it is only read.
unsafe impl Sync for Capsule {}

impl Drop for Capsule {
    fn drop(&mut self) {
        // Once Python is gone, so are the arrays.
        Python::try_attach(|_| match self.0 {
            // SAFETY: `take` made this the structure's only owner, and it is dropped once.
            Managed::Plain(raw) => unsafe {
                if let Some(delete) = (*raw.as_ptr()).deleter {
                    delete(raw.as_ptr());
                }
            },
            // SAFETY: as above.
            Managed::Versioned(raw) => unsafe {
                if let Some(delete) = (*raw.as_ptr()).deleter {
                    delete(raw.as_ptr());
                }
            },
        });
    }
}

impl Capsule {
    /// Takes what `__dlpack__` gave.
    pub fn take(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = object.cast::<PyCapsule>()?;
        // SAFETY: a capsule; the names live for ever. A capsule of this name holds what DLPack says, and the one that renames
        // it owns that. Python's lock keeps others from it between the calls.
        unsafe {
            for (name, used) in [VERSIONED, PLAIN] {
                if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 1 {
                    continue;
                }
                let Some(raw) = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr())) else {
                    return Err(PyErr::fetch(object.py()));
                };
                if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
                    return Err(PyErr::fetch(object.py()));
                }
                if name == PLAIN.0 {
                    return Ok(Self(Managed::Plain(raw.cast())));
                }
                let taken = Self(Managed::Versioned(raw.cast()));
                let major = (*raw.cast::<ManagedTensorVersioned>().as_ptr()).version.major;
                if major != VERSION.major {
                    // What follows the version may be anything, but the deleter is where it always is.
                    let text = format!("an array by DLPack {major}, where {} was asked for", VERSION.major);
                    return Err(PyBufferError::new_err(text));
                }
                return Ok(taken);
            }
        }
        Err(PyBufferError::new_err("__dlpack__ gave a capsule that was taken before, or none of DLPack's"))
    }

    /// What the array is.
    pub fn tensor(&self) -> &DlTensor {
        // SAFETY: the structure lives until the deleter is called, and no one writes to it.
        unsafe {
            match self.0 {
                Managed::Plain(raw) => &(*raw.as_ptr()).tensor,
                Managed::Versioned(raw) => &(*raw.as_ptr()).tensor,
            }
        }
    }
}
