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
//! | forward-mode differentiation is not under way | tangents, which kernels know nothing of |
//! | no function mode, no observer | `torch.set_default_device` and other modes of Python; the profiler, which is to see the operator |
//! | arguments of exactly the schema's types | numbers that have to be converted, and all refusals |
//! | tensors are `torch.Tensor` or `torch.nn.Parameter` themselves | subclasses, fake tensors |
//! | tensors are strided, and negated by no bit | sparse, nested and quantised ones, `_neg_view` |
//! | the operator succeeds | errors, so that there is one place that words them |
//!
//! In all other cases [`functions`]' first gives `None`, and its second calls the operator. Autograd passes these operators by
//! (Python registers them so), and so do they.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString};
use smallvec::SmallVec;

use crate::builtin;
use crate::handle::Handle;
use crate::loan::{Loan, Place};
use crate::operator::Entry;
use crate::python_symbols::{Keys, PythonSymbols};
use crate::schema::Kind;
use crate::stack::{self, Passed};
use crate::symbols::{RawTensor, Symbols};

/// The most arguments, and results, that an operator called this way has.
pub(crate) const SLOTS: usize = 32;

/// As many elements of a tensor go without letting other threads run Python: some microseconds.
const SMALL: i64 = 1 << 10;

/// What is called round the dispatcher: an operator, where and how. As long as the process, as the operator.
pub(crate) struct Direct {
    pub symbols: &'static Symbols,
    pub python: &'static PythonSymbols,
    pub entry: Entry,
    operator: Py<PyAny>,
    /// `torch.Tensor` and `torch.nn.Parameter`.
    types: [Py<PyAny>; 2],
    /// Where their tensor is, if that is known.
    place: Option<Place>,
    /// What the thread's dispatch keys are in `torch.inference_mode()`, where autograd alone is off.
    inference: Keys,
    /// The key that is off in a backward pass, of names of dimensions, as it is where they are not looked at.
    nameless: u64,
    forward_mode: ForwardMode,
}

/// `torch.autograd.forward_ad`'s variables; `_current_level` is -1 outside of all levels.
struct ForwardMode {
    variables: Py<PyDict>,
    level: Py<PyAny>,
    outside: Py<PyAny>,
}

/// The state of an operator, and its direct functions, which take the schema's arguments by position: one that gives `None`
/// where it will not do, and one that calls the operator then. None where this PyTorch lacks what they take, or the operator
/// writes to an argument.
#[allow(clippy::type_complexity, reason = "taken apart where it is called")]
pub(crate) fn functions<'py>(
    py: Python<'py>,
    entry: Entry,
    operator: &Bound<'py, PyAny>,
) -> PyResult<Option<(&'static Direct, [Bound<'py, PyCFunction>; 2])>> {
    let (Some(symbols), Some(python)) = (Symbols::get(), PythonSymbols::get()) else { return Ok(None) };
    let parameters = entry.signature.parameters();
    if entry.signature.outputs == 0 || parameters.iter().any(|parameter| parameter.mutable) {
        return Ok(None);
    }
    let torch = py.import("torch")?;
    let types = [torch.getattr("Tensor")?.unbind(), torch.getattr("nn")?.getattr("Parameter")?.unbind()];
    let place = Place::get(py, &python.from_python)?;
    let mut inference = python.keys();
    // Not from within another mode, whose keys these would be.
    let nameless = if inference == [0, 0] {
        let mode = torch.call_method0("inference_mode")?;
        mode.call_method0("__enter__")?;
        inference = python.keys();
        mode.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        python.key_of_names()
    } else {
        inference = [0, 0];
        0
    };
    let forward_mode = ForwardMode {
        variables: py.import("torch.autograd.forward_ad")?.dict().unbind(),
        level: PyString::intern(py, "_current_level").into_any().unbind(),
        // There is one object of each small number.
        outside: (-1_i64).into_pyobject(py)?.into_any().unbind(),
    };
    let operator = operator.clone().unbind();
    let direct: &'static Direct = Box::leak(Box::new(Direct {
        symbols,
        python,
        entry,
        operator,
        types,
        place,
        inference,
        nameless,
        forward_mode,
    }));
    let function = |name, call| builtin::of(py, name, call, direct);
    Ok(Some((direct, [function(c"direct", try_direct)?, function(c"run", run)?])))
}

/// The bits of an argument of this kind; `None` for an object that would have to be converted, or a tensor.
///
/// # Safety
/// Python is attached, and it is an object.
#[inline]
pub(crate) unsafe fn number(kind: Kind, object: *mut PyObject) -> Option<u64> {
    // SAFETY: the caller's; an object of exactly a type is one of it.
    unsafe {
        match kind {
            Kind::Int if ffi::PyLong_CheckExact(object) != 0 => {
                let mut overflow: c_int = 0;
                let value = ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow);
                (overflow == 0).then_some(value.cast_unsigned())
            }
            Kind::Float if ffi::PyFloat_CheckExact(object) != 0 => Some(ffi::PyFloat_AsDouble(object).to_bits()),
            Kind::Bool if object == ffi::Py_True() => Some(1),
            Kind::Bool if object == ffi::Py_False() => Some(0),
            Kind::Tensor | Kind::Int | Kind::Float | Kind::Bool => None,
        }
    }
}

/// What Python calls as `direct`.
unsafe extern "C" fn try_direct(
    state: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: Python calls with the state and the arguments.
    unsafe {
        let (direct, arguments) = (builtin::state::<Direct>(state), builtin::arguments(arguments, count));
        direct.call(arguments, &[], Results::All).unwrap_or_else(builtin::none)
    }
}

/// What Python calls as `run`.
unsafe extern "C" fn run(state: *mut PyObject, arguments: *mut *mut PyObject, count: ffi::Py_ssize_t) -> *mut PyObject {
    // SAFETY: as above.
    unsafe { builtin::state::<Direct>(state).run(builtin::arguments(arguments, count)) }
}

/// Which results are made Python's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Results {
    /// A tensor, or a tuple of them.
    All,
    /// The first.
    First,
}

impl Direct {
    /// Round the dispatcher, or else by it.
    ///
    /// # Safety
    /// Python is attached, and the arguments are objects.
    #[inline]
    pub unsafe fn run(&self, arguments: &[*mut PyObject]) -> *mut PyObject {
        // SAFETY: the caller's.
        unsafe { self.call(arguments, &[], Results::All).unwrap_or_else(|| self.dispatched(arguments)) }
    }

    /// By the dispatcher.
    ///
    /// # Safety
    /// As [`Direct::run`]'s.
    #[cold]
    unsafe fn dispatched(&self, arguments: &[*mut PyObject]) -> *mut PyObject {
        // SAFETY: the caller's.
        unsafe { builtin::called(self.operator.as_ptr(), arguments) }
    }

    /// Whether tensors can be had without references.
    pub fn lends(&self) -> bool {
        self.place.is_some()
    }

    /// Whether no dispatch key is on or off that would have something to add.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let [on, off] = self.python.keys();
        let keys = [on, off & !self.nameless];
        keys == [0, 0] || keys == self.inference
    }

    /// Whether tensors may have tangents.
    ///
    /// # Safety
    /// Python is attached.
    #[inline]
    pub unsafe fn is_forward_mode(&self) -> bool {
        let ForwardMode { variables, level, outside } = &self.forward_mode;
        // SAFETY: the caller's; the objects live. Nothing is there, and no exception set, in a PyTorch without the variable.
        let found = unsafe { ffi::PyDict_GetItemWithError(variables.as_ptr(), level.as_ptr()) };
        !found.is_null() && found != outside.as_ptr()
    }

    /// Round the dispatcher; `None` where that would not do, with nothing done and no exception set.
    ///
    /// The last arguments may have been read before, by [`number`], and those with defaults left out.
    ///
    /// # Safety
    /// As [`Direct::run`]'s.
    #[inline]
    pub unsafe fn call(&self, arguments: &[*mut PyObject], read: &[u64], which: Results) -> Option<*mut PyObject> {
        let signature = self.entry.signature;
        let parameters = signature.parameters();
        if !self.is_plain() {
            return None;
        }
        let given = arguments.len() + read.len();
        let defaults = signature.defaults_after(given)?;
        // SAFETY: C++ functions of this thread's state alone, without arguments; and the caller's.
        if unsafe { (self.python.has_callbacks)() || (self.python.function_mode)() || self.is_forward_mode() } {
            return None;
        }
        let mut slots = [0; SLOTS];
        let mut none = 0;
        let mut small = self.place.is_some();
        for (index, (argument, parameter)) in arguments.iter().zip(parameters).enumerate() {
            // SAFETY: the caller's.
            slots[index] = unsafe {
                match parameter.kind {
                    _ if *argument == ffi::Py_None() => {
                        if !parameter.optional {
                            return None;
                        }
                        none |= 1 << index;
                        0
                    }
                    Kind::Tensor if small => {
                        let tensor = self.lent(*argument)?;
                        small = self.is_small(tensor);
                        tensor.expose_provenance() as u64
                    }
                    // Others are taken below.
                    Kind::Tensor => 0,
                    kind => number(kind, *argument)?,
                }
            };
        }
        slots[arguments.len()..given].copy_from_slice(read);
        slots[given..].iter_mut().zip(defaults).for_each(|(slot, default)| *slot = default.cast_unsigned());
        let tensors = arguments.iter().zip(parameters).enumerate();
        let tensors =
            tensors.filter(|(index, (_, parameter))| parameter.kind == Kind::Tensor && none >> index & 1 == 0);
        // SAFETY: the caller's.
        let owned = tensors.map(|(index, (argument, _))| (index, unsafe { self.tensor(*argument) }));
        // References to the tensors, for as long as other threads may run Python.
        let mut handles = SmallVec::<[Handle; 8]>::new();
        if !small {
            for (index, handle) in owned.clone() {
                let handle = handle?;
                slots[index] = handle.as_raw().expose_provenance() as u64;
                handles.push(handle);
            }
        }
        let keep = || owned.filter_map(|(_, handle)| handle).collect();
        // Other threads may run Python while the kernel does, and have to where it waits for something. Of small work on the
        // CPU that takes longer than the work, which waits for nothing.
        // SAFETY: Python is attached at the begin and at the end of the call; of `run` no panic comes. The slots hold what the
        // schema says, and as many results have room. The caller has the arguments, whose tensors Python alone could replace:
        // either none runs meanwhile, or there are references.
        let done = unsafe {
            Loan::during(keep, |loan| {
                let thread = if small { ptr::null_mut() } else { ffi::PyEval_SaveThread() };
                let done = stack::run(signature, self.entry.call, slots.as_mut_ptr(), Passed::Lent(none, loan));
                if !thread.is_null() {
                    ffi::PyEval_RestoreThread(thread);
                }
                done
            })
        };
        drop(handles);
        done.ok()?;
        // SAFETY: the results are there, owned handles.
        Some(unsafe { self.results(&slots[..signature.outputs], which) })
    }

    /// The tensor of a Python object, if it is one that the dispatcher would hand on as it is.
    ///
    /// # Safety
    /// Python is attached, and it is an object.
    #[inline]
    unsafe fn tensor(&self, object: *mut PyObject) -> Option<Handle> {
        // SAFETY: the caller's; what has the class of a tensor is a tensor's object.
        let handle = unsafe { self.is_tensor(object).then(|| self.python.from_python.tensor(object))?? };
        // SAFETY: the handle lives.
        unsafe { self.is_dense(handle.as_raw()) }.then_some(handle)
    }

    /// The same, for as long as the object keeps its tensor: not to be deleted. `None` also where it is not known how.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn lent(&self, object: *mut PyObject) -> Option<RawTensor> {
        // SAFETY: as above.
        let raw = unsafe { self.is_tensor(object).then_some(self.place?.tensor(object))? };
        // SAFETY: the object lives.
        unsafe { self.is_dense(raw) }.then_some(raw)
    }

    /// How many dimensions the tensor of a Python object has, of those whose tensor may be lent.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn dims(&self, object: *mut PyObject) -> Option<i64> {
        let mut dims = -1;
        // SAFETY: the caller's; the object lives, and the result may be written.
        unsafe {
            let raw = self.is_tensor(object).then_some(self.place?.tensor(object))?;
            ((self.symbols.dim)(raw, &mut dims) == 0).then_some(dims)
        }
    }

    /// Whether a gradient is wanted of the tensor of a Python object, of those whose tensor may be lent.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn requires_grad(&self, object: *mut PyObject) -> Option<bool> {
        // SAFETY: the caller's; the object lives, and an `at::Tensor` is a pointer to what it is of.
        unsafe {
            let raw = self.is_tensor(object).then_some(self.place?.tensor(object))?;
            Some((self.python.requires_grad)(*raw.cast::<*const c_void>()))
        }
    }

    /// Whether it is a tensor's object that is of no subclass.
    ///
    /// # Safety
    /// As above.
    #[inline]
    unsafe fn is_tensor(&self, object: *mut PyObject) -> bool {
        // SAFETY: the caller's.
        let class = unsafe { ffi::Py_TYPE(object) }.cast::<PyObject>();
        self.types.iter().any(|exact| exact.as_ptr() == class)
    }

    /// Whether a tensor is strided, and negated by no bit.
    ///
    /// # Safety
    /// It lives.
    #[inline]
    unsafe fn is_dense(&self, raw: RawTensor) -> bool {
        // SAFETY: the caller's; it is a pointer to an `at::Tensor`.
        unsafe {
            let strided = self.python.layout.is_none_or(|layout| {
                let mut found = -1;
                layout(raw, &mut found) == 0 && found == self.python.strided
            });
            strided && !(self.python.is_negative)(raw)
        }
    }

    /// Whether it is on the CPU, and its elements are few.
    ///
    /// # Safety
    /// It lives.
    #[inline]
    unsafe fn is_small(&self, raw: RawTensor) -> bool {
        let (mut device, mut elements) = (-1, 0);
        // SAFETY: the caller's, and the results may be written.
        unsafe {
            (self.symbols.device_type)(raw, &mut device) == 0
                && device == self.symbols.cpu
                && (self.python.elements)(raw, &mut elements) == 0
                && elements <= SMALL
        }
    }

    /// Python's object of the results: a tensor, or a tuple of them. Null with an exception set where there is no memory.
    ///
    /// # Safety
    /// Python is attached; the results are owned handles, used by no one else.
    unsafe fn results(&self, results: &[u64], which: Results) -> *mut PyObject {
        // SAFETY: the caller's.
        let mut handles =
            results.iter().map(|bits| unsafe { Handle::from_raw(ptr::with_exposed_provenance_mut(*bits as usize)) });
        // SAFETY: the caller's.
        let object = |handle: Option<Handle>| unsafe {
            handle.map_or(ptr::null_mut(), |handle| self.python.to_python.object(&handle))
        };
        if results.len() == 1 || which == Results::First {
            let first = handles.next().map_or(ptr::null_mut(), object);
            // The others are let go.
            handles.for_each(drop);
            return if first.is_null() { no_memory() } else { first };
        }
        let objects = handles.map(object);
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
pub(crate) fn no_memory() -> *mut PyObject {
    // SAFETY: only called with Python attached.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            PyMemoryError::new_err("a tensor's Python object").restore(Python::assume_attached());
        }
    }
    ptr::null_mut()
}
