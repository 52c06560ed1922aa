//! Operators as Python functions that go round PyTorch's dispatcher where it has nothing to add.
//!
//! A small operator's time is the dispatcher's: arguments become C++'s boxed values, are matched with the schema, and become
//! what a stable kernel takes, which costs a multiple of the work itself. A direct function takes the tensors from Python's
//! objects, runs the same kernel, and makes Python's objects of the results. It does so only for what the dispatcher would
//! hand to the CPU's or CUDA's kernel unchanged, which it asks for at each call, in this order:
//!
//! | condition | what it leaves to the dispatcher |
//! | --- | --- |
//! | no dispatch key is switched on or off in this thread | `make_fx`, fake tensors, `torch.func`, `vmap`, `torch.jit.trace`, autocast, other modes |
//! | no function mode, no observer | `torch.set_default_device` and other modes of Python; the profiler, which is to see the operator |
//! | arguments of exactly the schema's types | numbers that have to be converted, and all refusals |
//! | tensors are `torch.Tensor` or `torch.nn.Parameter` themselves | subclasses, fake tensors |
//! | tensors are strided, and negated by no bit | sparse, nested and quantised ones, `_neg_view` |
//! | the operator succeeds | errors, so that there is one place that words them |
//!
//! In all other cases [`functions`]' first gives `None`, and its second calls the operator. Autograd passes these operators by
//! (Python registers them so), and so do they.

use std::ffi::{CStr, c_int};
use std::{ptr, slice};

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::handle::Handle;
use crate::operator::Entry;
use crate::python_symbols::PythonSymbols;
use crate::schema::{Kind, Signature};
use crate::stack::{self, Optional};
use crate::symbols::Symbols;

/// The name of the capsule that a function's state is in.
const STATE: &CStr = c"ferrolayer_torch.direct";
/// The most arguments, and results, that an operator called this way has.
const SLOTS: usize = 32;

/// As many elements of a tensor go without letting other threads run Python: some microseconds.
const SMALL: i64 = 1 << 10;

/// What a function knows.
struct Direct {
    symbols: &'static Symbols,
    python: &'static PythonSymbols,
    entry: Entry,
    /// The operator, to be called where this is not enough; otherwise the result is `None` then.
    operator: Option<Py<PyAny>>,
    /// `torch.Tensor` and `torch.nn.Parameter`.
    types: [Py<PyAny>; 2],
    /// What the thread's dispatch keys are in `torch.inference_mode()`, where autograd alone is off.
    inference: [u64; 2],
}

/// An operator's direct functions, which take the schema's arguments by position: one that gives `None` where it will not do,
/// and one that calls the operator then. None where this PyTorch lacks what they take, or the operator writes to an argument.
pub(crate) fn functions<'py>(
    py: Python<'py>,
    entry: Entry,
    operator: &Bound<'py, PyAny>,
) -> PyResult<Option<[Bound<'py, PyCFunction>; 2]>> {
    let (Some(symbols), Some(python)) = (Symbols::get(), PythonSymbols::get()) else { return Ok(None) };
    let parameters = entry.signature.parameters();
    if entry.signature.outputs == 0 || parameters.iter().any(|parameter| parameter.mutable) {
        return Ok(None);
    }
    let torch = py.import("torch")?;
    let types =
        || Ok::<_, PyErr>([torch.getattr("Tensor")?.unbind(), torch.getattr("nn")?.getattr("Parameter")?.unbind()]);
    let mut inference = python.keys();
    // Not from within another mode, whose keys these would be.
    if inference == [0, 0] {
        let mode = torch.call_method0("inference_mode")?;
        mode.call_method0("__enter__")?;
        inference = python.keys();
        mode.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    } else {
        inference = [0, 0];
    }
    let attempt = Direct { symbols, python, entry, operator: None, types: types()?, inference };
    let run = Direct { symbols, python, entry, operator: Some(operator.clone().unbind()), types: types()?, inference };
    Ok(Some([attempt.into_function(py, c"direct")?, run.into_function(py, c"run")?]))
}

/// What Python calls.
unsafe extern "C" fn call(
    capsule: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: `into_function` put the state there, which is never freed.
    let direct = unsafe { &*ffi::PyCapsule_GetPointer(capsule, STATE.as_ptr()).cast::<Direct>() };
    let arguments = match count {
        // Their place may be null.
        0 => &[],
        // SAFETY: Python gives as many arguments, which live during the call.
        _ => unsafe { slice::from_raw_parts(arguments.cast_const(), count.cast_unsigned()) },
    };
    // SAFETY: Python is attached.
    unsafe { direct.call(arguments).unwrap_or_else(|| direct.otherwise(arguments)) }
}

impl Direct {
    fn into_function<'py>(self, py: Python<'py>, name: &'static CStr) -> PyResult<Bound<'py, PyCFunction>> {
        // As long as the process, as the operator.
        let state: *mut Self = Box::into_raw(Box::new(self));
        let method = Box::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: call },
            ml_flags: ffi::METH_FASTCALL,
            ml_doc: ptr::null(),
        });
        // SAFETY: Python is attached. The state and the method live as long as the process.
        unsafe {
            let capsule = Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(state.cast(), STATE.as_ptr(), None))?;
            let function = ffi::PyCFunction_NewEx(Box::into_raw(method), capsule.as_ptr(), ptr::null_mut());
            Ok(Bound::from_owned_ptr_or_err(py, function)?.cast_into()?)
        }
    }

    /// Where that will not do: `None`, or by the dispatcher.
    ///
    /// # Safety
    /// Python is attached, and the arguments are objects.
    #[cold]
    unsafe fn otherwise(&self, arguments: &[*mut PyObject]) -> *mut PyObject {
        // SAFETY: the caller's; a tuple's items are owned by it.
        unsafe {
            let Some(operator) = &self.operator else {
                ffi::Py_INCREF(ffi::Py_None());
                return ffi::Py_None();
            };
            let tuple = ffi::PyTuple_New(arguments.len().cast_signed());
            if tuple.is_null() {
                return tuple;
            }
            for (index, argument) in arguments.iter().enumerate() {
                ffi::Py_INCREF(*argument);
                ffi::PyTuple_SetItem(tuple, index.cast_signed(), *argument);
            }
            let result = ffi::PyObject_CallObject(operator.as_ptr(), tuple);
            ffi::Py_DECREF(tuple);
            result
        }
    }

    /// Round the dispatcher; `None` where that would not do, with nothing done and no exception set.
    ///
    /// # Safety
    /// As [`Direct::otherwise`]'s.
    #[inline]
    unsafe fn call(&self, arguments: &[*mut PyObject]) -> Option<*mut PyObject> {
        let signature = self.entry.signature;
        let parameters = signature.parameters();
        let keys = self.python.keys();
        let plain = (keys == [0, 0] || keys == self.inference) && arguments.len() == parameters.len();
        // SAFETY: C++ functions of this thread's state alone, without arguments.
        if !plain || unsafe { (self.python.has_callbacks)() || (self.python.function_mode)() } {
            return None;
        }
        let mut slots = [0; SLOTS];
        let mut taken = Taken { slots: &mut slots, signature, count: 0, none: 0 };
        let mut small = true;
        for (index, (argument, parameter)) in arguments.iter().zip(parameters).enumerate() {
            // SAFETY: the caller's.
            let bits = unsafe {
                match parameter.kind {
                    _ if *argument == ffi::Py_None() => {
                        if !parameter.optional {
                            return None;
                        }
                        taken.none |= 1 << index;
                        0
                    }
                    Kind::Tensor => {
                        let tensor = self.tensor(*argument)?;
                        small &= self.is_small(&tensor);
                        tensor.into_raw().expose_provenance() as u64
                    }
                    Kind::Int if ffi::PyLong_CheckExact(*argument) != 0 => {
                        let mut overflow: c_int = 0;
                        let value = ffi::PyLong_AsLongLongAndOverflow(*argument, &mut overflow);
                        (overflow == 0).then_some(value.cast_unsigned())?
                    }
                    Kind::Float if ffi::PyFloat_CheckExact(*argument) != 0 => {
                        ffi::PyFloat_AsDouble(*argument).to_bits()
                    }
                    Kind::Bool if *argument == ffi::Py_True() => 1,
                    Kind::Bool if *argument == ffi::Py_False() => 0,
                    Kind::Int | Kind::Float | Kind::Bool => return None,
                }
            };
            taken.slots[index] = bits;
            taken.count = index + 1;
        }
        let none = taken.none;
        // The kernel takes them from here.
        std::mem::forget(taken);
        // SAFETY: the slots hold what the schema says, as for libtorch, and as many results have room. Other threads may run
        // Python meanwhile, and have to where the kernel waits for something: of small work on the CPU that takes longer than
        // the work, which waits for nothing.
        let done = unsafe {
            let thread = if small { ptr::null_mut() } else { ffi::PyEval_SaveThread() };
            let done = stack::run(signature, self.entry.call, slots.as_mut_ptr(), Optional::Absent(none));
            if !thread.is_null() {
                ffi::PyEval_RestoreThread(thread);
            }
            done
        };
        done.ok()?;
        // SAFETY: the results are there, owned handles.
        Some(unsafe { self.results(&slots[..signature.outputs]) })
    }

    /// The tensor of a Python object, if it is one that the dispatcher would hand on as it is.
    ///
    /// # Safety
    /// Python is attached, and it is an object.
    #[inline]
    unsafe fn tensor(&self, object: *mut PyObject) -> Option<Handle> {
        // SAFETY: the caller's.
        let class = unsafe { ffi::Py_TYPE(object) }.cast::<PyObject>();
        if !self.types.iter().any(|exact| exact.as_ptr() == class) {
            return None;
        }
        // SAFETY: it is a tensor's object.
        let handle = unsafe { self.python.from_python.tensor(object)? };
        // SAFETY: the handle lives, and is a pointer to an `at::Tensor`.
        let plain = unsafe {
            let strided = self.python.layout.is_none_or(|layout| {
                let mut found = -1;
                layout(handle.as_raw(), &mut found) == 0 && found == self.python.strided
            });
            strided && !(self.python.is_negative)(handle.as_raw())
        };
        plain.then_some(handle)
    }

    /// Whether it is on the CPU, and its elements are few.
    #[inline]
    fn is_small(&self, tensor: &Handle) -> bool {
        let (mut device, mut elements) = (-1, 0);
        // SAFETY: the tensor lives, and the results may be written.
        unsafe {
            (self.symbols.device_type)(tensor.as_raw(), &mut device) == 0
                && device == self.symbols.cpu
                && (self.python.elements)(tensor.as_raw(), &mut elements) == 0
                && elements <= SMALL
        }
    }

    /// Python's object of the results: a tensor, or a tuple of them. Null with an exception set where there is no memory.
    ///
    /// # Safety
    /// Python is attached; the results are owned handles, used by no one else.
    unsafe fn results(&self, results: &[u64]) -> *mut PyObject {
        // SAFETY: the caller's.
        let mut objects = results.iter().map(|bits| unsafe {
            let handle = Handle::from_raw(ptr::with_exposed_provenance_mut(*bits as usize));
            handle.map_or(ptr::null_mut(), |handle| self.python.to_python.object(&handle))
        });
        if results.len() == 1 {
            return objects.next().filter(|object| !object.is_null()).unwrap_or_else(no_memory);
        }
        // SAFETY: the caller's; a tuple's items are owned by it.
        unsafe {
            let tuple = ffi::PyTuple_New(results.len().cast_signed());
            for (index, object) in objects.enumerate() {
                if tuple.is_null() || object.is_null() {
                    ffi::Py_XDECREF(object);
                    ffi::Py_XDECREF(tuple);
                    return no_memory();
                }
                ffi::PyTuple_SetItem(tuple, index.cast_signed(), object);
            }
            tuple
        }
    }
}

/// What PyTorch's own ops raise then is lost, but that they failed is not.
#[cold]
fn no_memory() -> *mut PyObject {
    // SAFETY: only called with Python attached.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            PyMemoryError::new_err("a tensor's Python object").restore(Python::assume_attached());
        }
    }
    ptr::null_mut()
}

/// Tensors that were taken from Python's objects, to be given back unless the kernel takes them.
struct Taken<'a> {
    slots: &'a mut [u64; SLOTS],
    signature: &'static Signature,
    count: usize,
    /// A bit for each argument that is `None`.
    none: u32,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (bits, parameter) in self.slots.iter().zip(self.signature.parameters()).take(self.count) {
            if parameter.kind == Kind::Tensor {
                // SAFETY: a tensor's slot holds an owned handle, or null for `None`.
                drop(unsafe { Handle::from_raw(ptr::with_exposed_provenance_mut(*bits as usize)) });
            }
        }
    }
}
