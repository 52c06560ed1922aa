//! An argument: anyone's array, as a tensor of its memory.

use std::sync::Arc;

use ferrolayer::{DType, Device};
use ferrolayer_torch::AnyTensor;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::abi::{CPU, CUDA, CUDA_HOST, DlType, VERSION, device_name};
use super::capsule::Capsule;
use super::error::{not_real, raised};
use super::streams::{self, Lent, Loans, is_of, loaded};
use super::view::View;

/// Whose argument it is, for messages.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub operator: &'a str,
    pub argument: &'a str,
}

impl Place<'_> {
    fn wrong(self, what: impl std::fmt::Display) -> PyErr {
        PyTypeError::new_err(format!("{}: {} {what}", self.operator, self.argument))
    }
}

/// The array's memory as a tensor; the array is lent.
pub fn take(at: Place<'_>, object: &Bound<'_, PyAny>, loans: &mut Loans) -> PyResult<AnyTensor> {
    match take_as(at, object, None, loans) {
        Err(error) if error.is_instance_of::<PyBufferError>(object.py()) => {
            let numpy = loaded(object.py(), "numpy");
            match numpy.filter(|numpy| is_of(object, numpy, "ndarray")) {
                Some(_) => take_from_numpy(at, object, error, loans),
                None => Err(refused(at, object.py(), &error)),
            }
        }
        result => result,
    }
}

/// What NumPy does not hand over itself.
fn take_from_numpy(at: Place<'_>, array: &Bound<'_, PyAny>, error: PyErr, loans: &mut Loans) -> PyResult<AnyTensor> {
    let py = array.py();
    let dtype = array.getattr(intern!(py, "dtype"))?;
    let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
    if !dtype.getattr(intern!(py, "isnative"))?.extract::<bool>()? {
        return Err(
            at.wrong(format!("is {name} with the bytes of the other order; use .astype(\"{name}\"), which swaps them"))
        );
    }
    if name == "bfloat16" {
        let bits = array.call_method1(intern!(py, "view"), (intern!(py, "uint16"),))?;
        return take_as(at, &bits, Some(DType::Bf16), loans).or_else(|_| {
            let copy = bits.call_method0(intern!(py, "copy"))?;
            take_as(at, &copy, Some(DType::Bf16), loans)
        });
    }
    if !matches!(dtype.getattr(intern!(py, "kind"))?.extract::<char>()?, 'f' | 'i' | 'u') {
        return Err(PyTypeError::new_err(not_real(at.operator, at.argument, &name)));
    }
    // Read-only ones before NumPy 2.1, and strides that are no multiple of the elements' size.
    let copy = array.call_method0(intern!(py, "copy"))?;
    take_as(at, &copy, None, loans).map_err(|_| refused(at, py, &error))
}

fn refused(at: Place<'_>, py: Python<'_>, error: &PyErr) -> PyErr {
    let refused = at.wrong(format!("is not handed over by its library: {}", error.value(py)));
    refused.set_cause(py, Some(error.clone_ref(py)));
    refused
}

/// As [`take`], of what the array's library does hand over; its elements are taken for those of the type `dtype`, if given.
fn take_as(at: Place<'_>, object: &Bound<'_, PyAny>, dtype: Option<DType>, loans: &mut Loans) -> PyResult<AnyTensor> {
    let py = object.py();
    let class = || object.get_type().name().map_or("unknown".into(), |name| name.to_string());
    let Some(asked) = object.getattr_opt(intern!(py, "__dlpack_device__"))? else {
        return Err(at.wrong(match class() {
            name if name.contains("Tracer") => {
                format!("is a {name}, which has no elements yet; call it by jax.pure_callback")
            }
            name => format!(
                "is of type {name}, expected an array with __dlpack__, as NumPy's, CuPy's, JAX's and PyTorch's have"
            ),
        }));
    };
    let (kind, index): (i32, i32) = asked.call0()?.extract()?;
    let device = match (kind, u32::try_from(index)) {
        (CPU | CUDA_HOST, _) => Device::cpu(),
        (CUDA, Ok(ordinal)) => streams::device(py, ordinal)?,
        _ => return Err(at.wrong(format!("is in {}; move it to the CPU or a CUDA GPU", device_name(kind)))),
    };
    let gpu = match &device {
        Device::Gpu(gpu) => Some((gpu, index as u32)),
        Device::Cpu(_) | Device::Shapes => None,
    };
    // By the capsule's being asked for with our stream, that waits for the array's work.
    let capsule = match gpu {
        Some((gpu, ordinal)) => {
            let theirs = streams::stream_of(at, object, gpu, ordinal)?;
            let capsule = Arc::new(Capsule::take(&capsule_of(object, Some(gpu.raw_stream().addr()))?)?);
            loans.on_gpu(gpu, Lent::new(capsule.clone(), theirs));
            capsule
        }
        None => {
            let capsule = Arc::new(Capsule::take(&capsule_of(object, None)?)?);
            loans.on_cpu(capsule.clone());
            capsule
        }
    };
    let tensor = capsule.tensor();
    let known: DlType = tensor.dtype;
    let Some(dtype) = dtype.or(known.dtype()) else {
        return Err(PyTypeError::new_err(not_real(at.operator, at.argument, &known.to_string())));
    };
    // SAFETY: the capsule has DLPack's structure, whose elements stay as long as it. That no one writes to them is the
    // caller's, as for any function of arrays. On a GPU our stream was told to the library, which has had it wait for what
    // the array's elements come from, and the loans keep the capsule as long as work uses it that is queued by now.
    let made = unsafe { View::of(tensor, &device, dtype).tensor(capsule.clone()) };
    match made.map_err(|error| raised(at.operator, error.into()))? {
        Some(tensor) => Ok(tensor),
        None => Err(at.wrong(
            "has gaps, repeated or reversed elements, which are not copied on a GPU; pass a dense copy, such as \
             cupy.ascontiguousarray(x) or x.contiguous()",
        )),
    }
}

/// The capsule of an array, versioned where its library knows such.
fn capsule_of<'py>(object: &Bound<'py, PyAny>, stream: Option<usize>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let keywords = PyDict::new(py);
    // On the CPU the protocol has none.
    if let Some(stream) = stream {
        keywords.set_item(intern!(py, "stream"), stream)?;
    }
    keywords.set_item(intern!(py, "max_version"), (VERSION.major, VERSION.minor))?;
    let give = object.getattr(intern!(py, "__dlpack__"))?;
    match give.call((), Some(&keywords)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            keywords.del_item(intern!(py, "max_version"))?;
            give.call((), Some(&keywords))
        }
        result => result,
    }
    .map_err(|error| {
        // What PyTorch said of gradients before 2.9, and what libraries say by the protocol, are one.
        if !error.is_instance_of::<PyRuntimeError>(py) {
            return error;
        }
        let refused = PyBufferError::new_err(error.value(py).to_string());
        refused.set_cause(py, Some(error));
        refused
    })
}
