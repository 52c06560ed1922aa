//! Python functions of C's kind, with a state that lives as long as the process: the least that a call from Python costs.

use std::ffi::CStr;
use std::{ptr, slice};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

/// The name of the capsule that a function's state is in.
const STATE: &CStr = c"ferrolayer_torch.state";

/// What Python calls: with the state's capsule, and arguments by position.
pub(crate) type Called = unsafe extern "C" fn(*mut PyObject, *mut *mut PyObject, ffi::Py_ssize_t) -> *mut PyObject;

/// A function of this name.
pub(crate) fn of<'py, T>(
    py: Python<'py>,
    name: &'static CStr,
    call: Called,
    state: &'static T,
) -> PyResult<Bound<'py, PyCFunction>> {
    let method = Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: call },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: ptr::null(),
    });
    let state = ptr::from_ref(state).cast_mut();
    // SAFETY: Python is attached. The state and the method live as long as the process.
    unsafe {
        let capsule = Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(state.cast(), STATE.as_ptr(), None))?;
        let function = ffi::PyCFunction_NewEx(Box::into_raw(method), capsule.as_ptr(), ptr::null_mut());
        Ok(Bound::from_owned_ptr_or_err(py, function)?.cast_into()?)
    }
}

/// The state that a function is called with.
///
/// # Safety
/// The function was made by [`of`], with a state of this type.
#[inline]
pub(crate) unsafe fn state<T>(capsule: *mut PyObject) -> &'static T {
    // SAFETY: the caller's; it is never freed.
    unsafe { &*ffi::PyCapsule_GetPointer(capsule, STATE.as_ptr()).cast::<T>() }
}

/// The arguments that a function is called with.
///
/// # Safety
/// They are Python's, of a call that is under way.
#[inline]
pub(crate) unsafe fn arguments<'a>(arguments: *mut *mut PyObject, count: ffi::Py_ssize_t) -> &'a [*mut PyObject] {
    match count {
        // Their place may be null.
        0 => &[],
        // SAFETY: the caller's; they live during the call.
        _ => unsafe { slice::from_raw_parts(arguments.cast_const(), count.cast_unsigned()) },
    }
}

/// A new reference to `None`. Python is attached.
#[inline]
pub(crate) fn none() -> *mut PyObject {
    // SAFETY: the one object lives as long as Python.
    unsafe {
        ffi::Py_INCREF(ffi::Py_None());
        ffi::Py_None()
    }
}

/// A new tuple of these objects, or null with an exception set.
///
/// # Safety
/// Python is attached, and these are objects.
#[inline]
pub(crate) unsafe fn tuple(objects: impl ExactSizeIterator<Item = *mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's; a tuple's items are owned by it.
    unsafe {
        let tuple = ffi::PyTuple_New(objects.len().cast_signed());
        if !tuple.is_null() {
            for (index, object) in objects.enumerate() {
                ffi::Py_INCREF(object);
                ffi::PyTuple_SetItem(tuple, index.cast_signed(), object);
            }
        }
        tuple
    }
}

/// What `callable` gives for these arguments, or null with an exception set.
///
/// # Safety
/// Python is attached, and all are objects.
#[inline]
pub(crate) unsafe fn called(callable: *mut PyObject, arguments: &[*mut PyObject]) -> *mut PyObject {
    // SAFETY: the caller's.
    unsafe {
        let tuple = tuple(arguments.iter().copied());
        if tuple.is_null() {
            return tuple;
        }
        let result = ffi::PyObject_CallObject(callable, tuple);
        ffi::Py_DECREF(tuple);
        result
    }
}
