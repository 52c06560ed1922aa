//! The operators as functions of arrays of any library that speaks DLPack, without PyTorch.

mod abi;
mod array;
mod capsule;
mod error;
mod streams;
mod take;
mod view;

use std::panic::{self, AssertUnwindSafe};

use ferrolayer::{DType, Device, Tensor};
use ferrolayer_torch::{AnyTensor, Entry, Value};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCFunction, PyDict, PyFloat, PyInt, PyTuple};

pub use self::array::Array;
use self::error::raised;
use self::streams::Loans;
use self::take::{Place, take};

/// Each operator as a function that takes arrays and numbers by position, and gives an `Array` or a tuple of them.
///
/// Where the schema has a tensor there may be a float instead, which becomes an array of that one number in the type that
/// the first array is computed in, or a tuple of ints, which becomes one of uint64; both where the first array is.
#[pyfunction]
pub fn array_functions(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let functions = PyDict::new(py);
    // What writes to its argument is for PyTorch: others' arrays may be read-only, and were handed over to be read.
    for entry in crate::ops::ALL.into_iter().filter(|entry| !entry.name().ends_with('_')) {
        let function =
            move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| call(arguments.py(), entry, arguments);
        functions.set_item(entry.name(), PyCFunction::new_closure(py, None, None, function)?)?;
    }
    Ok(functions)
}

/// An argument, or what becomes one once it is known where.
enum Argument {
    Value(Value),
    Number(f64),
    Numbers(Vec<u64>),
}

fn call(py: Python<'_>, entry: Entry, arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    streams::release(py);
    let name = entry.name();
    let mut given = Vec::with_capacity(arguments.len());
    // Until the end of the call, and on a GPU until that of the work.
    let mut loans = Loans::default();
    for (index, object) in arguments.iter_borrowed().enumerate() {
        let argument = entry.argument(index).unwrap_or("an argument too many");
        given.push(argument_of(Place { operator: name, argument }, &object, &mut loans)?);
    }
    let outputs = py.detach(move || {
        // A panic is a bug, but no reason to end the program.
        panic::catch_unwind(AssertUnwindSafe(|| entry.call(values(given)?)))
    });
    drop(loans);
    let outputs: Vec<AnyTensor> = match outputs {
        Ok(outputs) => outputs.map_err(|error| raised(name, error))?,
        Err(_) => return Err(PyRuntimeError::new_err(format!("{name}: a bug: a panic"))),
    };
    let arrays: Result<Vec<_>, _> = outputs.into_iter().map(Array::new).collect();
    let mut arrays = arrays.map_err(|error| raised(name, error.into()))?;
    match arrays.len() {
        1 => Ok(Bound::new(py, arrays.remove(0))?.into_any().unbind()),
        _ => Ok(PyTuple::new(py, arrays)?.into_any().unbind()),
    }
}

fn argument_of(at: Place<'_>, object: &Bound<'_, PyAny>, loans: &mut Loans) -> PyResult<Argument> {
    let value = if object.is_none() {
        Value::None
    } else if let Ok(value) = object.cast_exact::<PyBool>() {
        Value::Bool(value.is_true())
    } else if object.cast_exact::<PyInt>().is_ok() {
        Value::Int(object.extract()?)
    } else if object.cast_exact::<PyFloat>().is_ok() {
        return Ok(Argument::Number(object.extract()?));
    } else if object.cast_exact::<PyTuple>().is_ok() {
        return Ok(Argument::Numbers(object.extract()?));
    } else if let Ok(array) = object.cast_exact::<Array>() {
        Value::Tensor(array.get().argument().map_err(|error| raised(at.operator, error.into()))?)
    } else {
        Value::Tensor(take(at, object, loans)?)
    };
    Ok(Argument::Value(value))
}

/// The arguments as the operator takes them.
fn values(given: Vec<Argument>) -> ferrolayer_torch::Result<Vec<Value>> {
    let first = given.iter().find_map(|argument| match argument {
        Argument::Value(Value::Tensor(tensor)) => Some((device_of(tensor).clone(), tensor.dtype())),
        _ => None,
    });
    let (device, dtype) = first.unwrap_or((Device::cpu(), DType::F32));
    let value = |argument| {
        let tensor = match argument {
            Argument::Value(value) => return Ok(value),
            Argument::Number(number) if dtype == DType::F64 => Tensor::from_vec(&device, &[1], vec![number])?.into(),
            Argument::Number(number) => Tensor::from_vec(&device, &[1], vec![number as f32])?.into(),
            Argument::Numbers(numbers) => Tensor::from_vec(&device, &[numbers.len()], numbers)?.into(),
        };
        Ok(Value::Tensor(tensor))
    };
    given.into_iter().map(value).collect()
}

fn device_of(tensor: &AnyTensor) -> &Device {
    view::with_tensor!(tensor, inner => inner.device())
}
