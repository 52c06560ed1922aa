//! Results: an array of this library's own memory, which others take by DLPack.

use std::ffi::c_void;

use ferrolayer::{Device, Layout};
use ferrolayer_torch::AnyTensor;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::abi::{
    CPU, CUDA, DlDevice, DlTensor, DlType, IS_COPIED, ManagedTensor, ManagedTensorVersioned, PLAIN, VERSION, VERSIONED,
};
use super::error::raised;
use super::streams::{Reader, loaded};
use super::view::{View, with_tensor};

/// An array of Ferrolayer's own memory, on the CPU or a GPU.
///
/// `numpy.asarray`, `cupy.from_dlpack`, `jax.dlpack.from_dlpack` and `torch.from_dlpack` make arrays of their own of it,
/// which share the memory.
#[pyclass(frozen, module = "ferrolayer.functional")]
pub struct Array {
    /// Keeps the memory.
    tensor: AnyTensor,
    /// What others take the elements for.
    dtype: DlType,
    address: u64,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Array {
    /// A result.
    pub fn new(mut tensor: AnyTensor) -> ferrolayer::Result<Self> {
        let address = with_tensor!(&mut tensor, inner => inner.address()?);
        let strides = with_tensor!(&tensor, inner => inner.strides().to_vec());
        let (dtype, shape) = (DlType::of(tensor.dtype()), tensor.shape().to_vec());
        Ok(Self { tensor, dtype, address, shape, strides })
    }

    pub fn device(&self) -> &Device {
        with_tensor!(&self.tensor, inner => inner.device())
    }

    fn like(&self, tensor: AnyTensor, address: u64) -> Self {
        Self { tensor, address, dtype: self.dtype, shape: self.shape.clone(), strides: self.strides.clone() }
    }

    /// The same memory as an operator's argument.
    pub fn argument(&self) -> ferrolayer::Result<AnyTensor> {
        let view = View {
            device: self.device(),
            dtype: self.tensor.dtype(),
            address: self.address,
            shape: self.shape.clone(),
            strides: self.strides.iter().map(|&stride| stride as isize).collect(),
        };
        // SAFETY: the owner has the memory, of which this is all. That who took it by DLPack does not write to it during a
        // call is the caller's, as for any argument. It is freed in the order of the stream on which it was made and is
        // used now.
        let tensor = unsafe { view.tensor(self.tensor.clone())? };
        Ok(tensor.expect("what an array has is dense"))
    }

    fn dl_device(&self) -> (i32, i32) {
        match self.device() {
            Device::Gpu(gpu) => (CUDA, gpu.ordinal().unwrap_or(0) as i32),
            Device::Cpu(_) | Device::Shapes => (CPU, 0),
        }
    }

    /// On this device, copied as asked for, and whether it is.
    fn moved(&self, py: Python<'_>, device: Option<(i32, i32)>, copy: Option<bool>) -> PyResult<(Self, bool)> {
        let fails = |error: ferrolayer::Error| raised("__dlpack__", error.into());
        let here = self.dl_device();
        let mut tensor = self.tensor.clone();
        match device {
            Some((CPU, _)) if here.0 == CUDA => {
                if copy == Some(false) {
                    let text = "an array on a GPU comes to the CPU by a copy alone; leave copy=False out";
                    return Err(PyBufferError::new_err(text));
                }
                let tensor = py.detach(|| {
                    let cpu = Device::cpu();
                    Ok(with_tensor!(&tensor, inner => AnyTensor::from(inner.to(&cpu)?)))
                });
                Ok((self.moved_to(tensor.map_err(fails)?).map_err(fails)?, true))
            }
            Some(device) if device != here => {
                let text =
                    format!("the array is on device {here:?} (DLPack's numbers) and cannot be given on {device:?}");
                Err(PyBufferError::new_err(text))
            }
            _ if copy == Some(true) => {
                // Two have the memory: who asks to write gets some of its own.
                let address = with_tensor!(&mut tensor, inner => inner.address()).map_err(fails)?;
                Ok((self.like(tensor, address), true))
            }
            _ => Ok((self.like(tensor, self.address), false)),
        }
    }

    fn moved_to(&self, mut tensor: AnyTensor) -> ferrolayer::Result<Self> {
        let address = with_tensor!(&mut tensor, inner => inner.address()?);
        Ok(self.like(tensor, address))
    }
}

#[pymethods]
impl Array {
    /// The size of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// The element type by NumPy's name.
    #[getter]
    fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// Where the elements are: "cpu", or "cuda:0" and so on.
    #[getter(device)]
    fn device_name(&self) -> String {
        match self.dl_device() {
            (CUDA, index) => format!("cuda:{index}"),
            _ => "cpu".into(),
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "ferrolayer.functional.Array(shape={:?}, dtype={}, device={})",
            self.shape,
            self.dtype,
            self.device_name()
        )
    }

    /// The same elements under another shape; nothing is copied.
    fn reshape(&self, shape: Vec<usize>) -> PyResult<Self> {
        let row_major = Layout::RowMajor.strides(&self.shape);
        let strides = if self.shape.iter().product::<usize>() != shape.iter().product::<usize>() {
            None
        } else if shape.get(1..).is_some_and(|rest| shape[0] == 1 && *rest == self.shape) {
            Some([&[1], &self.strides[..]].concat())
        } else if self.shape.get(1..).is_some_and(|rest| self.shape[0] == 1 && *rest == shape) {
            Some(self.strides[1..].to_vec())
        } else {
            row_major.filter(|strides| *strides == self.strides).and_then(|_| Layout::RowMajor.strides(&shape))
        };
        let Some(strides) = strides else {
            let text =
                format!("{:?} with strides {:?} does not become {shape:?} without a copy", self.shape, self.strides);
            return Err(PyValueError::new_err(text));
        };
        Ok(Self { shape, strides, ..self.like(self.tensor.clone(), self.address) })
    }

    /// The same memory with bfloat16 taken for uint16, for libraries without that type.
    fn bits(&self) -> PyResult<Self> {
        if self.dtype != DlType::BF16 {
            return Err(PyTypeError::new_err(format!("bits() is for bfloat16, not {}", self.dtype)));
        }
        Ok(Self { dtype: DlType::U16, ..self.like(self.tensor.clone(), self.address) })
    }

    /// DLPack's device type and number.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.dl_device()
    }

    /// A DLPack capsule, versioned if `max_version` is `(1, 0)` or later.
    ///
    /// On a GPU `stream` is told when the elements are there: it waits for them, and no one on the CPU does. When the capsule
    /// is deleted, this library's stream waits for what is queued on `stream` before the memory is used for something else:
    /// `stream` has to live until then, and work on other streams has to be in its order.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (array, copied) = self.moved(py, dl_device, copy)?;
        let (kind, index) = array.dl_device();
        let reader = match array.device() {
            Device::Gpu(gpu) => Reader::new(py, gpu, index as u32, stream.as_ref())?,
            // What was copied from a GPU is there when the copy returns.
            _ if stream.is_some() && self.dl_device().0 == CPU => {
                let text = "stream is for arrays on a GPU, and this one is on the CPU; leave it out";
                return Err(PyValueError::new_err(text));
            }
            _ => None,
        };
        let tensor = DlTensor {
            data: std::ptr::with_exposed_provenance_mut::<c_void>(array.address as usize),
            device: DlDevice { kind, index },
            ndim: array.shape.len() as i32,
            dtype: array.dtype,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let memory = Memory { tensor: Some(array.tensor), reader };
        if max_version.is_some_and(|(major, _)| major >= VERSION.major) {
            let (context, deleter) = (std::ptr::null_mut(), Some(delete::<ManagedTensorVersioned> as _));
            let flags = if copied { IS_COPIED } else { 0 };
            let managed = ManagedTensorVersioned { version: VERSION, context, deleter, flags, tensor };
            export(py, managed, memory, &array.shape, &array.strides)
        } else {
            let managed =
                ManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(delete::<ManagedTensor> as _) };
            export(py, managed, memory, &array.shape, &array.strides)
        }
    }

    /// What NumPy makes an array of that shares the memory, writable in every version of NumPy.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (py, array) = (slf.py(), slf.get());
        let size = array.tensor.dtype().size();
        if array.dl_device().0 != CPU || array.dtype == DlType::BF16 {
            return Err(PyAttributeError::new_err(format!("{} is not NumPy's", array.__repr__())));
        }
        let kind = array.dtype.to_string().chars().next().unwrap_or('V');
        let strides: Vec<usize> = array.strides.iter().map(|stride| stride * size).collect();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, &array.shape)?)?;
        interface.set_item("strides", PyTuple::new(py, strides)?)?;
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        interface.set_item("typestr", format!("{order}{kind}{size}"))?;
        // NumPy takes 0 for no memory given; of no elements none is read.
        interface.set_item("data", (array.address.max(64), false))?;
        Ok(interface)
    }

    /// A NumPy array that shares the memory, if it is on the CPU.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, array) = (slf.py(), slf.get());
        if array.dl_device().0 != CPU {
            let text =
                format!("{} is not in the CPU's memory; use cupy.from_dlpack or torch.from_dlpack", array.__repr__());
            return Err(PyTypeError::new_err(text));
        }
        let numpy = py.import("numpy")?;
        let mut made = if array.dtype == DlType::BF16 {
            let Some(types) = loaded(py, "ml_dtypes") else {
                return Err(PyTypeError::new_err("NumPy has no bfloat16; import ml_dtypes, whose it takes"));
            };
            let bits = numpy.call_method1("asarray", (Bound::new(py, array.bits()?)?,))?;
            bits.call_method1("view", (types.getattr("bfloat16")?,))?
        } else {
            numpy.call_method1("asarray", (slf,))?
        };
        if let Some(dtype) = dtype {
            let keywords = PyDict::new(py);
            keywords.set_item("copy", false)?;
            made = made.call_method(intern!(py, "astype"), (dtype,), Some(&keywords))?;
        }
        if copy == Some(true) { made.call_method0(intern!(py, "copy")) } else { Ok(made) }
    }
}

/// What a capsule's receiver has: the memory, and on a GPU the stream where it is used.
struct Memory {
    tensor: Option<AnyTensor>,
    reader: Option<Reader>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let (Some(reader), Some(tensor)) = (&self.reader, self.tensor.take()) {
            reader.finish(tensor);
        }
    }
}

/// One of DLPack's two structures.
trait Managed: 'static {
    const NAMES: (&'static std::ffi::CStr, &'static std::ffi::CStr);
    fn tensor(&mut self) -> &mut DlTensor;
    fn context(&mut self) -> &mut *mut c_void;
}

impl Managed for ManagedTensor {
    const NAMES: (&'static std::ffi::CStr, &'static std::ffi::CStr) = PLAIN;

    fn tensor(&mut self) -> &mut DlTensor {
        &mut self.tensor
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.context
    }
}

impl Managed for ManagedTensorVersioned {
    const NAMES: (&'static std::ffi::CStr, &'static std::ffi::CStr) = VERSIONED;

    fn tensor(&mut self) -> &mut DlTensor {
        &mut self.tensor
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.context
    }
}

/// The structure, and what it points to.
struct Exported<M> {
    managed: M,
    /// Shape and strides, one after the other.
    numbers: Vec<i64>,
    _memory: Memory,
}

/// A capsule with the structure.
fn export<'py, M: Managed>(
    py: Python<'py>,
    managed: M,
    memory: Memory,
    shape: &[usize],
    strides: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let numbers = shape.iter().chain(strides).map(|&number| number as i64).collect();
    let exported = Box::into_raw(Box::new(Exported { managed, numbers, _memory: memory }));
    // SAFETY: just made, and not yet anyone else's. The numbers do not move when the box does not, nor otherwise. The capsule
    // gets the address of the structure within the box, and the name lives for ever.
    unsafe {
        let numbers = (*exported).numbers.as_mut_ptr();
        let tensor = (*exported).managed.tensor();
        tensor.shape = numbers;
        tensor.strides = numbers.add(shape.len());
        *(*exported).managed.context() = exported.cast();
        let managed = &raw mut (*exported).managed;
        let capsule = ffi::PyCapsule_New(managed.cast(), M::NAMES.0.as_ptr(), Some(forget::<M>));
        if capsule.is_null() {
            delete(managed);
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// What the structure's receiver calls at its end, in any thread, with Python's lock or without.
///
/// # Safety
/// `managed` is that of [`export`], and is not used again.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: the caller's; the context is the box that `export` made.
    unsafe { drop(Box::from_raw((*managed).context().cast::<Exported<M>>())) };
}

/// The end of a capsule, whose structure is deleted if no one took it.
///
/// # Safety
/// `capsule` is that of [`export`].
unsafe extern "C" fn forget<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller's; a capsule with the first name still owns the structure.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAMES.0.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, M::NAMES.0.as_ptr()).cast::<M>());
        }
    }
}
