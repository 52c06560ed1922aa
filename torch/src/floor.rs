//! The least that a call of an operator costs an extension, for the bench to compare with.

use std::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::builtin;
use crate::direct::{Direct, no_memory};
use crate::handle::Handle;
use crate::symbols::RawTensor;

/// A function of any objects that takes those that are tensors from Python, asks PyTorch for memory like the first's (the same
/// shape, strides, type and device), and gives that as a new tensor. It checks nothing, and computes nothing.
pub(crate) fn function<'py>(py: Python<'py>, direct: &'static Direct) -> PyResult<Bound<'py, PyCFunction>> {
    builtin::of(py, c"least", call, direct)
}

unsafe extern "C" fn call(
    state: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: Python calls with the state and the arguments.
    unsafe {
        let direct = builtin::state::<Direct>(state);
        let mut first = None;
        for argument in builtin::arguments(arguments, count) {
            if let Some(tensor) = direct.tensor(*argument) {
                first.get_or_insert(tensor);
            }
        }
        let Some(first) = first else { return builtin::none() };
        match like(direct, first.as_raw()) {
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
