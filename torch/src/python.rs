//! Operators as Python functions of PyTorch's tensors, for a torch without the C functions.
//!
//! Python's lock is held while arguments are read and results made, and let go while the operator computes: what it waits
//! for may be held by a thread that waits for Python.

use std::borrow::Cow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use ferrolayer::device::{Allocator, Foreign, Request};
use ferrolayer::{DType, Device, Element, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::arguments::{Arguments, Source};
use crate::devices::Memory;
use crate::layout::{Dims, Order};
use crate::library::KEYS;
use crate::operator::Entry;
use crate::schema::{Kind, Parameter, Signature};
use crate::stack::{Parts, check_count, not_ours, panicked};
use crate::value::for_any;
use crate::{Error, Result, Value, devices};

/// Defines the operators, and implements them by Python functions.
pub(crate) fn register(py: Python<'_>, namespace: &str, operators: &[Entry]) -> PyResult<()> {
    // Deleted libraries take their operators with them.
    static LIBRARIES: PyOnceLock<Py<pyo3::types::PyList>> = PyOnceLock::new();
    let library = py.import("torch.library")?.getattr("Library")?.call1((namespace, "FRAGMENT"))?;
    LIBRARIES.get_or_init(py, || pyo3::types::PyList::empty(py).unbind()).bind(py).append(&library)?;
    for entry in operators {
        library.call_method1("define", (entry.signature.schema(),))?;
        let function = function(py, *entry)?;
        for key in KEYS {
            library.call_method1("impl", (entry.name(), &function, key))?;
        }
    }
    Ok(())
}

/// The operator as a Python function that takes the schema's arguments by position and returns a tensor, a tuple of them, or
/// None. It goes round PyTorch's dispatcher: there is no autograd, no autocast and no tracing of it.
fn function(py: Python<'_>, entry: Entry) -> PyResult<Bound<'_, PyCFunction>> {
    PyCFunction::new_closure(py, None, None, move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        call(arguments.py(), entry, arguments)
    })
}

fn call(py: Python<'_>, entry: Entry, arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let signature = entry.signature;
    let parameters = signature.parameters();
    // The dispatcher leaves out the last arguments where they equal their defaults.
    let Some(defaults) = signature.defaults_after(arguments.len()) else {
        let (given, schema) = (arguments.len(), signature.schema());
        return Err(PyTypeError::new_err(format!("{given} arguments for {schema}")));
    };
    let torch = Torch::get(py)?;
    let mut written = Vec::new();
    let mut values = Vec::with_capacity(parameters.len());
    for (object, parameter) in arguments.iter_borrowed().zip(parameters) {
        let value = value(py, torch, signature, parameter, &object, &mut written);
        values.push(value.map_err(|error| error.raised(signature))?);
    }
    values.extend(defaults.map(Value::Int));
    let mut arguments = Arguments::new(signature, Source::Values(values.into_iter()));
    let outputs = py.detach(move || {
        let outputs = panic::catch_unwind(AssertUnwindSafe(|| (entry.call)(&mut arguments)));
        drop(arguments);
        outputs
    });
    let outputs = match outputs {
        Ok(outputs) => outputs.map_err(|error| Failure::from(error).raised(signature))?,
        Err(panic) => return Err(PyRuntimeError::new_err(panicked(signature.name(), &*panic))),
    };
    for (tensor, copy) in written {
        tensor.bind(py).call_method1(intern!(py, "copy_"), (copy,))?;
    }
    let raised = |error: Error| Failure::from(error).raised(signature);
    check_count(signature, &outputs).map_err(raised)?;
    let mut results = outputs.0.into_iter().map(|output| for_any!(output, tensor as T => object_of(py, tensor)));
    match signature.outputs {
        0 => Ok(py.None()),
        1 => results.next().unwrap_or_else(|| Err(not_ours().into())).map_err(|failure| failure.raised(signature)),
        _ => {
            let results = results.collect::<Result<Vec<_>, Failure>>().map_err(|failure| failure.raised(signature))?;
            Ok(PyTuple::new(py, results)?.into_any().unbind())
        }
    }
}

/// What is asked of torch at every call.
struct Torch {
    empty_strided: Py<PyAny>,
    current_stream: Option<Py<PyAny>>,
    /// The type objects, each of which is the only one of its type.
    types: Vec<(Py<PyAny>, DType)>,
}

impl Torch {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        TORCH.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            // The first of a type is what results have. Older versions lack the last three.
            let names = [
                ("float32", DType::F32),
                ("float64", DType::F64),
                ("float16", DType::F16),
                ("bfloat16", DType::Bf16),
                ("uint8", DType::U8),
                ("int16", DType::U16),
                ("int32", DType::U32),
                ("int64", DType::U64),
                ("uint16", DType::U16),
                ("uint32", DType::U32),
                ("uint64", DType::U64),
            ];
            let types = names.iter().filter_map(|(name, dtype)| Some((torch.getattr(*name).ok()?.unbind(), *dtype)));
            Ok(Self {
                empty_strided: torch.getattr("empty_strided")?.unbind(),
                current_stream: torch.getattr("_C")?.getattr("_cuda_getCurrentRawStream").ok().map(Bound::unbind),
                types: types.collect(),
            })
        })
    }

    fn type_of(&self, object: &Bound<'_, PyAny>) -> Option<DType> {
        self.types.iter().find(|(known, _)| object.is(known)).map(|(_, dtype)| *dtype)
    }
}

/// A tensor of Python's, whose memory a tensor here has.
struct PythonTensor {
    object: Py<PyAny>,
    shape: Dims,
    strides: Dims,
}

/// What an argument is.
fn value(
    py: Python<'_>,
    torch: &Torch,
    signature: &'static Signature,
    parameter: &'static Parameter,
    object: &Bound<'_, PyAny>,
    written: &mut Vec<(Py<PyAny>, Py<PyAny>)>,
) -> Result<Value, Failure> {
    if object.is_none() && parameter.optional {
        return Ok(Value::None);
    }
    match parameter.kind {
        Kind::Int => return Ok(Value::Int(object.extract()?)),
        Kind::Float => return Ok(Value::Float(object.extract()?)),
        Kind::Bool => return Ok(Value::Bool(object.extract()?)),
        Kind::Tensor => {}
    }
    let refused = |got: String, expected: &str| {
        let (operator, argument) = (signature.name(), signature.argument(parameter));
        Failure::from(Error::Argument { operator, argument, got, expected: expected.into() })
    };
    if object.is_none() {
        return Err(refused("None".into(), "a tensor"));
    }
    let dtype = object.getattr(intern!(py, "dtype"))?;
    let name = || dtype.str().map_or("of another type".into(), |name| name.to_string());
    let Some(dtype) = torch.type_of(&dtype) else {
        return Err(refused(name(), "a tensor of floating point; use .float()"));
    };
    let shape = dims(&object.getattr(intern!(py, "shape"))?)?;
    let strides = dims(&object.call_method0(intern!(py, "stride"))?)?;
    let index: i32 = object.call_method0(intern!(py, "get_device"))?.extract()?;
    let mut address: u64 = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
    if address == 0 && !shape.contains(&0) {
        return Err(refused("without memory (a fake or a meta tensor)".into(), "a tensor with data"));
    }
    let gpu;
    let (device, alignment) = match index {
        // Elements can begin anywhere in memory that PyTorch did not make.
        ..0 => (cpu(py)?, dtype.size() as u64),
        _ => {
            gpu = cuda(py, torch, index)?;
            // Kernels take 16 bytes at once, and a view can begin between.
            (&gpu, 16)
        }
    };
    let order = Order::of(&shape, &strides);
    let mut memory = object.clone();
    if order.scattered || !address.is_multiple_of(alignment) {
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "dtype"), object.getattr(intern!(py, "dtype"))?)?;
        keywords.set_item(intern!(py, "device"), object.getattr(intern!(py, "device"))?)?;
        memory =
            torch.empty_strided.bind(py).call((tuple(py, &shape)?, tuple(py, &order.strides)?), Some(&keywords))?;
        // No gradient of the copy is wanted.
        let detached = object.call_method0(intern!(py, "detach"))?;
        memory.call_method1(intern!(py, "copy_"), (detached,))?;
        address = memory.call_method0(intern!(py, "data_ptr"))?.extract()?;
        if parameter.mutable {
            written.push((object.clone().unbind(), memory.clone().unbind()));
        }
    }
    let owner =
        PythonTensor { object: memory.unbind(), shape: shape.clone(), strides: Dims::from_slice(&order.strides) };
    let memory = Foreign { address, owner: Box::new(owner) };
    let parts = Parts { dtype, device, shape: &shape, strides: Cow::Borrowed(&order.strides), memory };
    Ok(Value::Tensor(parts.any()?))
}

fn dims(object: &Bound<'_, PyAny>) -> PyResult<Dims> {
    object.cast::<PyTuple>()?.iter_borrowed().map(|size| size.extract()).collect()
}

fn tuple<'py>(py: Python<'py>, dims: &[usize]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, dims)
}

/// The tensor of Python's whose memory this is.
fn object_of<T: Element>(py: Python<'_>, tensor: Tensor<T>) -> Result<Py<PyAny>, Failure> {
    let [shape, strides] = [tensor.shape(), tensor.strides()].map(Dims::from_slice);
    let owner = tensor.into_foreign().and_then(|memory| memory.owner.downcast::<PythonTensor>().ok());
    let owner = owner.ok_or_else(not_ours)?;
    if owner.shape == shape && owner.strides == strides {
        return Ok(owner.object);
    }
    let view = (tuple(py, &shape)?, tuple(py, &strides)?);
    Ok(owner.object.bind(py).call_method1(intern!(py, "as_strided"), view)?.unbind())
}

fn cpu(py: Python<'_>) -> PyResult<&'static Device> {
    // What can fail is done before, and once.
    static MEMORY: PyOnceLock<Arc<dyn Allocator>> = PyOnceLock::new();
    let memory = MEMORY.get_or_try_init(py, || PythonMemory::of(py, "cpu"))?;
    Ok(devices::cpu(Memory::Python, || memory.clone()))
}

fn cuda(py: Python<'_>, torch: &Torch, index: i32) -> Result<Device, Failure> {
    let Some(current_stream) = &torch.current_stream else {
        return Err(PyRuntimeError::new_err("this torch has no CUDA").into());
    };
    let stream: usize = current_stream.bind(py).call1((index,))?.extract()?;
    let memory = PythonMemory::of(py, &format!("cuda:{index}"))?;
    // SAFETY: torch's streams are of the primary context, and are not destroyed.
    Ok(unsafe { devices::cuda(Memory::Python, index, std::ptr::with_exposed_provenance_mut(stream), || memory)? })
}

/// torch's memory of one device, by `torch.empty_strided`.
struct PythonMemory {
    empty_strided: Py<PyAny>,
    /// The keyword arguments for each type.
    keywords: Vec<(DType, Py<PyDict>)>,
}

impl PythonMemory {
    fn of(py: Python<'_>, device: &str) -> PyResult<Arc<dyn Allocator>> {
        let torch = Torch::get(py)?;
        let device = py.import("torch")?.getattr("device")?.call1((device,))?;
        let mut keywords = Vec::new();
        for (object, dtype) in &torch.types {
            let arguments = PyDict::new(py);
            arguments.set_item("dtype", object)?;
            arguments.set_item("device", &device)?;
            keywords.push((*dtype, arguments.unbind()));
        }
        Ok(Arc::new(Self { empty_strided: torch.empty_strided.clone_ref(py), keywords }))
    }

    fn empty(&self, py: Python<'_>, request: &Request<'_>) -> PyResult<Foreign> {
        let keywords =
            self.keywords.iter().find(|(dtype, _)| *dtype == request.dtype).map(|(_, keywords)| keywords.bind(py));
        let arguments = (tuple(py, request.shape)?, tuple(py, request.strides)?);
        let object = self.empty_strided.bind(py).call(arguments, keywords)?;
        let address = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let [shape, strides] = [request.shape, request.strides].map(Dims::from_slice);
        Ok(Foreign { address, owner: Box::new(PythonTensor { object: object.unbind(), shape, strides }) })
    }
}

// SAFETY: torch gives a new tensor's memory to no one else while the tensor lives, aligned to 64 bytes and more. On a GPU it
// is of the stream that was current, which is the one that the device was opened on.
unsafe impl Allocator for PythonMemory {
    fn allocate(&self, request: &Request<'_>) -> ferrolayer::Result<Foreign> {
        Python::attach(|py| self.empty(py, request)).map_err(|error| ferrolayer::Error::Allocator(Box::new(error)))
    }
}

/// What went wrong: Python's exceptions stay what they are.
enum Failure {
    Python(PyErr),
    Here(Error),
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<pyo3::CastError<'_, '_>> for Failure {
    fn from(error: pyo3::CastError<'_, '_>) -> Self {
        Self::Python(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Op(ferrolayer::Error::Allocator(error)) => match error.downcast::<PyErr>() {
                Ok(error) => Self::Python(*error),
                Err(error) => Self::Here(ferrolayer::Error::Allocator(error).into()),
            },
            error => Self::Here(error),
        }
    }
}

impl From<ferrolayer::Error> for Failure {
    fn from(error: ferrolayer::Error) -> Self {
        Error::from(error).into()
    }
}

impl Failure {
    fn raised(self, signature: &Signature) -> PyErr {
        match self {
            Self::Python(error) => error,
            Self::Here(error) => PyRuntimeError::new_err(error.of_operator(signature.name())),
        }
    }
}
