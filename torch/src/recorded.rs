//! Operators with gradients, called eagerly: what a layer's function calls, and forward of its `autograd.Function`.
//!
//! [`eager`] gives the function of an operator that serves both ways: without gradients it is a direct function; where
//! autograd is to record the call it hands the arguments to the `apply` of an `autograd.Function`. [`forward`] gives that
//! Function's forward: it runs the operator, and keeps on `ctx` what backward will want. Both would do in Python, in a
//! microsecond and a half more.
//!
//! For the Function, numbers are one tuple: arguments from the first that is no tensor on. Its caller takes 0.1 µs for each
//! argument.

use std::cell::RefCell;
use std::ptr;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCFunction, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::builtin;
use crate::direct::{Direct, Results, SLOTS, number};
use crate::schema::Kind;

/// Gives the operator's object in Python the two that make functions: `eager(apply, occupied, plain, numbers, dims,
/// settings)` and `forward(kept, shape)`.
pub(crate) fn attach(operator: &Bound<'_, PyAny>, direct: &'static Direct) -> PyResult<()> {
    let py = operator.py();
    let make = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
        Ok(eager(direct, arguments)?.into_any().unbind())
    };
    operator.setattr("eager", PyCFunction::new_closure(py, Some(c"eager"), None, make)?)?;
    let make = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
        let (kept, shape) = arguments.extract()?;
        Ok(forward(arguments.py(), direct, kept, shape)?.into_any().unbind())
    };
    operator.setattr("forward", PyCFunction::new_closure(py, Some(c"forward"), None, make)?)
}

/// An argument's place in the schema from which on all are numbers.
fn first_number(direct: &Direct) -> usize {
    let parameters = direct.entry.signature.parameters();
    parameters.iter().position(|parameter| parameter.kind != Kind::Tensor).unwrap_or(parameters.len())
}

struct Eager {
    /// Where no gradient is wanted.
    plain: &'static Direct,
    apply: Py<PyAny>,
    /// Whether something is under way that `apply` is not for, asked where a dispatch key is on or off.
    occupied: Py<PyAny>,
    /// Makes the operator's numbers of the arguments that stand for them.
    numbers: Option<Py<PyAny>>,
    /// As many dimensions as the first argument has to have, if that is looked at.
    dims: Option<i64>,
    /// From this tensor on they are settings: where a gradient is wanted of one, more is to be done.
    settings: usize,
    made: RefCell<Made>,
    requires_grad: Py<PyString>,
    tensors: usize,
}

/// Numbers that were made of arguments, the last of them. Python's lock is held where they are used.
#[derive(Default)]
struct Made {
    all: Vec<Numbers>,
    /// The one that makes place for the next.
    oldest: usize,
}

/// A model has few windows, and who asks with ever new numbers is to pay for no long search.
const REMEMBERED: usize = 16;

struct Numbers {
    /// Of which objects, each of which cannot change.
    key: Vec<Py<PyAny>>,
    tuple: Py<PyTuple>,
    /// The numbers, if they are exactly of the schema's types.
    read: Option<Vec<u64>>,
}

/// The operator's first result, or `None` where more is to be done than to run it and to record it, or it fails.
///
/// Arguments are the operator's tensors, and then what `numbers`, if that is given, makes the tuple of its others of; their
/// own otherwise. Where no gradient is wanted the result is that of `plain`, the direct function of an operator with the same
/// arguments. A first argument of other than `dims` dimensions is more to be done, too, if they are given, and so is
/// a gradient of an argument from `settings` on.
fn eager<'py>(direct: &'static Direct, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyCFunction>> {
    let py = arguments.py();
    let (apply, occupied, plain, numbers, dims, settings): (_, _, Bound<'py, PyAny>, _, _, Option<usize>) =
        arguments.extract()?;
    // SAFETY: only direct functions have this name, and this is their state.
    let plain = unsafe {
        let capsule = ffi::PyCFunction_GetSelf(plain.cast::<PyCFunction>()?.as_ptr());
        if capsule.is_null() {
            return Err(PyErr::fetch(py));
        }
        builtin::state::<Direct>(capsule)
    };
    let requires_grad = PyString::intern(py, "requires_grad").unbind();
    let (made, tensors) = (RefCell::default(), first_number(direct));
    let settings = settings.map_or(tensors, |settings| settings.min(tensors));
    let state = Eager { plain, apply, occupied, numbers, dims, settings, made, requires_grad, tensors };
    builtin::of(py, c"eager", call_eager, Box::leak(Box::new(state)))
}

unsafe extern "C" fn call_eager(
    state: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: Python calls with the state and the arguments, and is attached.
    unsafe {
        let (eager, arguments) = (builtin::state::<Eager>(state), builtin::arguments(arguments, count));
        match eager.call(Python::assume_attached(), arguments) {
            Ok(result) => result.unwrap_or_else(builtin::none),
            Err(error) => {
                error.restore(Python::assume_attached());
                ptr::null_mut()
            }
        }
    }
}

impl Eager {
    /// # Safety
    /// The arguments are objects.
    #[inline]
    unsafe fn call(&self, py: Python<'_>, arguments: &[*mut PyObject]) -> PyResult<Option<*mut PyObject>> {
        let Some((tensors, others)) = arguments.split_at_checked(self.tensors) else { return Ok(None) };
        // SAFETY: the caller's; a function of this thread's state alone.
        unsafe {
            if let (Some(dims), Some(first)) = (self.dims, tensors.first())
                && self.plain.dims(*first).is_some_and(|found| found != dims)
            {
                return Ok(None);
            }
            let wants = |tensors: &[*mut PyObject]| tensors.iter().any(|tensor| self.requires_grad(*tensor));
            let (data, settings) = tensors.split_at(self.settings);
            let recorded = (self.plain.symbols.grad_mode)();
            if recorded && wants(settings) {
                return Ok(None);
            }
            if !(recorded && wants(data)) {
                if others.is_empty() {
                    return Ok(self.plain.call(tensors, &[], Results::First));
                }
                let mut place = [0; SLOTS];
                let read = self.with_numbers(py, others, |numbers| {
                    let read = numbers.read.as_ref()?;
                    place.get_mut(..read.len())?.copy_from_slice(read);
                    Some(read.len())
                })?;
                return Ok(read.and_then(|len| self.plain.call(tensors, &place[..len], Results::First)));
            }
            if self.plain.is_forward_mode() || !self.plain.is_plain() && self.is_occupied() {
                return Ok(None);
            }
            let result = if others.is_empty() {
                builtin::called(self.apply.as_ptr(), tensors)
            } else {
                let tuple = self.with_numbers(py, others, |numbers| numbers.tuple.clone_ref(py))?;
                let mut place = [ptr::null_mut(); SLOTS];
                let Some(given) = place.get_mut(..=tensors.len()) else { return Ok(None) };
                given[..tensors.len()].copy_from_slice(tensors);
                given[tensors.len()] = tuple.as_ptr();
                builtin::called(self.apply.as_ptr(), given)
            };
            if !result.is_null() {
                return Ok(Some(result));
            }
            // What PyTorch or the operator refused is worded where it is called again. Anything else is the caller's.
            let error = PyErr::fetch(py);
            if error.is_instance_of::<PyRuntimeError>(py) { Ok(None) } else { Err(error) }
        }
    }

    /// Looks at the numbers that these arguments stand for.
    ///
    /// # Safety
    /// The arguments are objects.
    #[inline]
    unsafe fn with_numbers<R>(
        &self,
        py: Python<'_>,
        arguments: &[*mut PyObject],
        look: impl FnOnce(&Numbers) -> R,
    ) -> PyResult<R> {
        {
            let made = self.made.borrow();
            let same = |key: &[Py<PyAny>]| {
                key.len() == arguments.len() && key.iter().zip(arguments).all(|(kept, given)| kept.as_ptr() == *given)
            };
            if let Some(numbers) = made.all.iter().find(|numbers| same(&numbers.key)) {
                return Ok(look(numbers));
            }
        }
        // SAFETY: the caller's.
        unsafe { self.make_numbers(py, arguments, look) }
    }

    /// # Safety
    /// The arguments are objects.
    #[cold]
    unsafe fn make_numbers<R>(
        &self,
        py: Python<'_>,
        arguments: &[*mut PyObject],
        look: impl FnOnce(&Numbers) -> R,
    ) -> PyResult<R> {
        // SAFETY: the caller's.
        let key: Vec<Bound<'_, PyAny>> =
            arguments.iter().map(|object| unsafe { Bound::from_borrowed_ptr(py, *object) }).collect();
        let tuple = PyTuple::new(py, &key)?;
        let tuple = match &self.numbers {
            Some(make) => make.bind(py).call1(tuple)?.cast_into()?,
            None => tuple,
        };
        let parameters = &self.plain.entry.signature.parameters()[self.tensors..];
        let pairs = tuple.iter().zip(parameters);
        // SAFETY: Python is attached, and these are objects.
        let read = pairs.map(|(object, parameter)| unsafe { number(parameter.kind, object.as_ptr()) });
        let read = read.collect::<Option<Vec<u64>>>();
        let constant = key.iter().all(is_constant);
        let numbers = Numbers { key: key.into_iter().map(Bound::unbind).collect(), tuple: tuple.unbind(), read };
        let looked = look(&numbers);
        if constant {
            let mut made = self.made.borrow_mut();
            let Made { all, oldest } = &mut *made;
            // What leaves is let go when nothing is borrowed any more.
            let _left = if all.len() < REMEMBERED {
                all.push(numbers);
                None
            } else {
                let left = std::mem::replace(&mut all[*oldest], numbers);
                *oldest = (*oldest + 1) % REMEMBERED;
                Some(left)
            };
            drop(made);
        }
        Ok(looked)
    }

    /// # Safety
    /// As [`Eager::call`]'s.
    #[inline]
    unsafe fn requires_grad(&self, tensor: *mut PyObject) -> bool {
        // SAFETY: the caller's.
        unsafe {
            if tensor == ffi::Py_None() {
                return false;
            }
            if let Some(wanted) = self.plain.requires_grad(tensor) {
                return wanted;
            }
            let found = ffi::PyObject_GetAttr(tensor, self.requires_grad.as_ptr());
            if found.is_null() {
                // No tensor, which is refused elsewhere.
                ffi::PyErr_Clear();
                return false;
            }
            let wanted = found == ffi::Py_True();
            ffi::Py_DECREF(found);
            wanted
        }
    }

    /// # Safety
    /// Python is attached.
    #[cold]
    unsafe fn is_occupied(&self) -> bool {
        // SAFETY: the caller's.
        unsafe {
            let found = builtin::called(self.occupied.as_ptr(), &[]);
            if found.is_null() {
                ffi::PyErr_Clear();
                return true;
            }
            let occupied = found != ffi::Py_False();
            ffi::Py_DECREF(found);
            occupied
        }
    }
}

/// Whether the object cannot change: a number, a text, `None`, or a tuple of numbers.
fn is_constant(object: &Bound<'_, PyAny>) -> bool {
    let single = |object: &Bound<'_, PyAny>| {
        object.is_none()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyBool>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyString>()
    };
    single(object)
        || object.is_exact_instance_of::<PyTuple>()
            && object.cast::<PyTuple>().is_ok_and(|items| items.iter().all(|item| single(&item)))
}

/// Arguments as the schema has them, of those of which numbers are one tuple; `None` if they are not such.
///
/// # Safety
/// Python is attached, and the arguments are objects. The place is used while they live.
#[inline]
unsafe fn flat<'a>(
    arguments: &'a [*mut PyObject],
    tensors: usize,
    place: &'a mut [*mut PyObject; SLOTS],
) -> Option<&'a [*mut PyObject]> {
    if arguments.len() == tensors {
        return Some(arguments);
    }
    if arguments.len() != tensors + 1 {
        return None;
    }
    // SAFETY: the caller's; a tuple that is held by the caller keeps its items.
    unsafe {
        let numbers = arguments[tensors];
        if ffi::PyTuple_Check(numbers) == 0 {
            return None;
        }
        let count = ffi::PyTuple_Size(numbers).cast_unsigned();
        let all = place.get_mut(..tensors + count)?;
        all[..tensors].copy_from_slice(&arguments[..tensors]);
        for (index, number) in all[tensors..].iter_mut().enumerate() {
            *number = ffi::PyTuple_GetItem(numbers, index.cast_signed());
        }
        Some(all)
    }
}

struct Forward {
    direct: &'static Direct,
    tensors: usize,
    /// Which tensors are kept for backward, by their places among arguments and, counted on from these, results.
    kept: Vec<usize>,
    /// The argument whose shape is kept.
    shape: Option<usize>,
    names: Names,
}

/// The attributes of `ctx`.
struct Names {
    to_save: Py<PyString>,
    numbers: Py<PyString>,
    shape: Py<PyString>,
}

/// Forward of an `autograd.Function` around the operator, which gives its first result.
///
/// Tensors are kept as `ctx.save_for_backward` does, numbers as `ctx.numbers`, the shape as `ctx.shape`.
fn forward<'py>(
    py: Python<'py>,
    direct: &'static Direct,
    kept: Vec<usize>,
    shape: Option<usize>,
) -> PyResult<Bound<'py, PyCFunction>> {
    let (signature, tensors) = (direct.entry.signature, first_number(direct));
    let inputs = signature.parameters().len();
    let held = |index: &usize| *index < tensors || (inputs..inputs + signature.outputs).contains(index);
    if !kept.iter().all(held) || shape.is_some_and(|index| index >= tensors) {
        return Err(PyValueError::new_err(format!("{}: there is no such tensor", signature.name())));
    }
    let names = Names {
        to_save: PyString::intern(py, "to_save").unbind(),
        numbers: PyString::intern(py, "numbers").unbind(),
        shape: PyString::intern(py, "shape").unbind(),
    };
    builtin::of(py, c"forward", call_forward, Box::leak(Box::new(Forward { direct, tensors, kept, shape, names })))
}

unsafe extern "C" fn call_forward(
    state: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: Python calls with the state and the arguments.
    unsafe {
        let forward = builtin::state::<Forward>(state);
        match builtin::arguments(arguments, count) {
            [ctx, given @ ..] => forward.call(*ctx, given),
            [] => builtin::none(),
        }
    }
}

impl Forward {
    /// # Safety
    /// Python is attached, and all are objects.
    #[inline]
    unsafe fn call(&self, ctx: *mut PyObject, given: &[*mut PyObject]) -> *mut PyObject {
        let mut place = [ptr::null_mut(); SLOTS];
        // SAFETY: the caller's.
        unsafe {
            let Some(arguments) = flat(given, self.tensors, &mut place) else {
                // Which the operator refuses.
                return self.direct.run(given);
            };
            let output = self.direct.run(arguments);
            if output.is_null() {
                return output;
            }
            let several = self.direct.entry.signature.outputs > 1;
            let result = |index| if several { ffi::PyTuple_GetItem(output, index) } else { output };
            let kept = || {
                let inputs = self.direct.entry.signature.parameters().len();
                self.kept.iter().map(move |&index| match index.checked_sub(inputs) {
                    None => arguments[index],
                    Some(index) => result(index.cast_signed()),
                })
            };
            let numbers = given.get(self.tensors).copied();
            let done = (self.kept.is_empty() || set_new(ctx, &self.names.to_save, builtin::tuple(kept())))
                && numbers.is_none_or(|numbers| {
                    ffi::Py_INCREF(numbers);
                    set_new(ctx, &self.names.numbers, numbers)
                })
                && self.shape.is_none_or(|index| {
                    let shape = ffi::PyObject_GetAttr(arguments[index], self.names.shape.as_ptr());
                    set_new(ctx, &self.names.shape, shape)
                });
            if done && !several {
                return output;
            }
            let first = if done { result(0) } else { ptr::null_mut() };
            ffi::Py_XINCREF(first);
            ffi::Py_DECREF(output);
            first
        }
    }
}

/// Gives the object this attribute; `false` where that failed, or `value` is null, with an exception set.
///
/// # Safety
/// Python is attached. The value is null, or owned by no one else.
#[inline]
unsafe fn set_new(object: *mut PyObject, name: &Py<PyString>, value: *mut PyObject) -> bool {
    // SAFETY: the caller's.
    unsafe {
        if value.is_null() {
            return false;
        }
        let status = ffi::PyObject_SetAttr(object, name.as_ptr(), value);
        ffi::Py_DECREF(value);
        status == 0
    }
}
