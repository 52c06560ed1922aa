//! The least that a call of an operator costs an extension, for the bench to compare with.

use std::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString};

use crate::builtin;
use crate::direct::{Direct, no_memory};
use crate::handle::Handle;
use crate::symbols::RawTensor;

/// A function of any objects that takes those that are tensors from Python, asks PyTorch for memory like the first's (the same
/// shape, strides, type and device), and gives that as a new tensor. It checks nothing, and computes nothing.
pub(crate) fn function<'py>(py: Python<'py>, direct: &'static Direct) -> PyResult<Bound<'py, PyCFunction>> {
    builtin::of(py, c"least", least, direct)
}

/// The same, which keeps the new tensor in its first argument's `to_save`, as `save_for_backward` does.
pub(crate) fn keeping<'py>(py: Python<'py>, direct: &'static Direct) -> PyResult<Bound<'py, PyCFunction>> {
    let state = Box::leak(Box::new(Keeping { direct, to_save: PyString::intern(py, "to_save").unbind() }));
    builtin::of(py, c"least_keeping", least_keeping, state)
}

struct Keeping {
    direct: &'static Direct,
    to_save: Py<PyString>,
}

unsafe extern "C" fn least(
    state: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: Python calls with the state and the arguments.
    unsafe { new(builtin::state::<Direct>(state), builtin::arguments(arguments, count)) }
}

unsafe extern "C" fn least_keeping(
    state: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: Python calls with the state and the arguments; a null is an exception's, which is left set.
    unsafe {
        let state = builtin::state::<Keeping>(state);
        let arguments = builtin::arguments(arguments, count);
        let object = new(state.direct, arguments);
        if let (Some(ctx), false) = (arguments.first(), object.is_null()) {
            let kept = builtin::tuple([object].into_iter());
            ffi::PyObject_SetAttr(*ctx, state.to_save.as_ptr(), kept);
            ffi::Py_XDECREF(kept);
        }
        object
    }
}

/// # Safety
/// Python is attached, and the arguments are objects.
unsafe fn new(direct: &Direct, arguments: &[*mut PyObject]) -> *mut PyObject {
    // SAFETY: the caller's.
    unsafe {
        let mut first = None;
        for argument in arguments {
            if let Some(tensor) = direct.lent(*argument) {
                first.get_or_insert(tensor);
            }
        }
        let Some(first) = first else { return builtin::none() };
        match like(direct, first) {
            Some(new) => {
                let object = direct.python.to_python.object(&new);
                if object.is_null() { no_memory() } else { object }
            }
            None => no_memory(),
        }
    }
}

/// # Safety
/// The tensor lives.
unsafe fn like(direct: &Direct, tensor: RawTensor) -> Option<Handle> {
    let symbols = direct.symbols;
    let (mut dims, mut sizes, mut strides) = (0, ptr::null(), ptr::null());
    let (mut dtype, mut device, mut index) = (0, 0, 0);
    let mut new = ptr::null_mut();
    // SAFETY: the tensor lives, and the results may be written.
    unsafe {
        (symbols.dim)(tensor, &mut dims);
        (symbols.sizes)(tensor, &mut sizes);
        (symbols.strides)(tensor, &mut strides);
        (symbols.dtype)(tensor, &mut dtype);
        (symbols.device_type)(tensor, &mut device);
        (symbols.device_index)(tensor, &mut index);
        (symbols.empty_strided)(dims, sizes, strides, dtype, device, index, &mut new);
        Handle::from_raw(new)
    }
}
