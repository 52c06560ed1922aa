//! Dense, row-major tensors on a device.

use std::any::Any;
use std::sync::Arc;

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

use crate::device::{Device, GpuBuffer};
use crate::{Element, Error, Result};

/// A dense, row-major array of `T` on a [`Device`].
///
/// Behaves as a value: `clone` is cheap (both share the memory), and a tensor that is shared is copied when one of its
/// owners is written to, so no one sees another's write.
#[derive(Clone, Debug)]
pub struct Tensor<T: Element> {
    shape: Vec<usize>,
    device: Device,
    storage: Arc<Storage<T>>,
}

#[derive(Debug)]
enum Storage<T: Element> {
    Cpu(Vec<T>),
    Gpu(GpuBuffer<T>),
}

impl<T: Element> Tensor<T> {
    /// A tensor of `shape` on `device` that holds `values` in row-major order.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are not as many values as the shape has elements; a device's own errors.
    pub fn from_vec(device: &Device, shape: &[usize], values: Vec<T>) -> Result<Self> {
        if values.len() != shape.iter().product::<usize>() {
            return Err(Error::Argument {
                op: "Tensor::from_vec",
                argument: "values",
                got: format!("{} values", values.len()),
                expected: format!("as many as shape {shape:?} has elements"),
            });
        }
        let storage = match device {
            Device::Cpu(_) => Storage::Cpu(values),
            Device::Gpu(gpu) => Storage::Gpu(gpu.upload(&values)?),
        };
        Ok(Self::new(device, shape, storage))
    }

    /// Like [`Tensor::from_vec`], copying `values`.
    ///
    /// # Errors
    /// As [`Tensor::from_vec`].
    pub fn from_slice(device: &Device, shape: &[usize], values: &[T]) -> Result<Self> {
        Self::from_vec(device, shape, values.to_vec())
    }

    /// A tensor with an array's shape and values.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn from_array<S: Data<Elem = T>, D: Dimension>(device: &Device, array: &ArrayBase<S, D>) -> Result<Self> {
        Self::from_vec(device, array.shape(), array.iter().copied().collect())
    }

    /// A tensor of which every element is `value`.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn full(device: &Device, shape: &[usize], value: T) -> Result<Self> {
        Self::from_vec(device, shape, vec![value; shape.iter().product()])
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn zeros(device: &Device, shape: &[usize]) -> Result<Self> {
        Self::full(device, shape, T::default())
    }

    /// A tensor to be written whole before it is read: on the GPU its contents are whatever was there; on a device
    /// that poisons outputs they are [`Element::POISON`].
    ///
    /// # Errors
    /// A device's own errors.
    pub fn empty(device: &Device, shape: &[usize]) -> Result<Self> {
        let len = shape.iter().product();
        let storage = match device {
            Device::Cpu(cpu) => Storage::Cpu(vec![if cpu.poisons() { T::POISON } else { T::default() }; len]),
            Device::Gpu(gpu) => Storage::Gpu(gpu.allocate(len)?),
        };
        Ok(Self::new(device, shape, storage))
    }

    /// As [`Tensor::empty`], with this tensor's shape and device.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn empty_like(&self) -> Result<Self> {
        Self::empty(&self.device, &self.shape)
    }

    fn new(device: &Device, shape: &[usize], storage: Storage<T>) -> Self {
        Self { shape: shape.to_vec(), device: device.clone(), storage: Arc::new(storage) }
    }

    /// The size of each dimension; `[]` for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the elements are.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same elements under another shape; nothing is copied.
    ///
    /// # Errors
    /// [`Error::Shape`] when `shape` has another number of elements.
    pub fn reshape(mut self, shape: &[usize]) -> Result<Self> {
        if shape.iter().product::<usize>() != self.len() {
            return Err(Error::Shape {
                op: "Tensor::reshape",
                argument: "self",
                got: self.shape,
                expected: format!("as many elements as {shape:?}"),
            });
        }
        self.shape = shape.to_vec();
        Ok(self)
    }

    /// This tensor on `device`: itself where it is there already, else a copy.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn to(&self, device: &Device) -> Result<Self> {
        if self.device == *device {
            return Ok(self.clone());
        }
        Self::from_vec(device, &self.shape, self.to_vec()?)
    }

    /// The elements, row-major. On the GPU this waits for the passes that were queued before.
    ///
    /// # Errors
    /// A device's own errors; this is where a kernel's fault comes out.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        match &*self.storage {
            Storage::Cpu(values) => Ok(values.clone()),
            Storage::Gpu(buffer) => buffer.download(),
        }
    }

    /// As [`Tensor::to_vec`], as an array of the tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    pub fn to_array(&self) -> Result<ArrayD<T>> {
        let array = ArrayD::from_shape_vec(IxDyn(&self.shape), self.to_vec()?);
        Ok(array.expect("a tensor's elements fill its shape"))
    }

    /// Replaces the elements by `values`, in place where this tensor is the memory's only owner.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are not as many values as elements; a device's own errors.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len() {
            return Err(Error::Argument {
                op: "Tensor::copy_from_slice",
                argument: "values",
                got: format!("{} values", values.len()),
                expected: format!("{}", self.len()),
            });
        }
        match self.storage_mut()? {
            Storage::Cpu(own) => own.copy_from_slice(values),
            Storage::Gpu(buffer) => buffer.copy_from_slice(values)?,
        }
        Ok(())
    }

    /// The elements of a tensor on the CPU, for [`OnCpu`](crate::device::OnCpu) passes.
    ///
    /// # Errors
    /// [`Error::Device`] when the tensor is on a GPU.
    pub fn host(&self) -> Result<&[T]> {
        match &*self.storage {
            Storage::Cpu(values) => Ok(values),
            Storage::Gpu(_) => Err(self.elsewhere("Tensor::host", "the CPU")),
        }
    }

    /// The elements of a tensor on the CPU, to be written.
    ///
    /// # Errors
    /// [`Error::Device`] when the tensor is on a GPU.
    pub fn host_mut(&mut self) -> Result<&mut [T]> {
        if !matches!(*self.storage, Storage::Cpu(_)) {
            return Err(self.elsewhere("Tensor::host_mut", "the CPU"));
        }
        match self.storage_mut()? {
            Storage::Cpu(values) => Ok(values),
            Storage::Gpu(_) => unreachable!("checked above"),
        }
    }

    /// The memory of a tensor on a GPU, for [`OnGpu`](crate::device::OnGpu) passes, as elements of type `U`.
    ///
    /// Kernels are compiled for given types and passes are generic: `U` is the kernel's type, and a tensor of another
    /// is refused here.
    ///
    /// # Errors
    /// [`Error::Device`] when the tensor is not on a GPU, [`Error::DType`] when it does not hold `U`.
    pub fn gpu<U: Element>(&self, op: &'static str, argument: &'static str) -> Result<&GpuBuffer<U>> {
        let Storage::Gpu(buffer) = &*self.storage else {
            return Err(self.elsewhere(op, "a GPU"));
        };
        (buffer as &dyn Any).downcast_ref().ok_or_else(|| self.wrong_type::<U>(op, argument))
    }

    /// As [`Tensor::gpu`], to be written.
    ///
    /// # Errors
    /// As [`Tensor::gpu`].
    pub fn gpu_mut<U: Element>(&mut self, op: &'static str, argument: &'static str) -> Result<&mut GpuBuffer<U>> {
        self.gpu::<U>(op, argument)?;
        match self.storage_mut()? {
            Storage::Gpu(buffer) => Ok((buffer as &mut dyn Any).downcast_mut().expect("checked above")),
            Storage::Cpu(_) => unreachable!("checked above"),
        }
    }

    /// The storage with this tensor as its only owner: copied first where it is shared.
    fn storage_mut(&mut self) -> Result<&mut Storage<T>> {
        if Arc::get_mut(&mut self.storage).is_none() {
            self.storage = Arc::new(match &*self.storage {
                Storage::Cpu(values) => Storage::Cpu(values.clone()),
                Storage::Gpu(buffer) => Storage::Gpu(buffer.duplicate()?),
            });
        }
        Ok(Arc::get_mut(&mut self.storage).expect("a new allocation has one owner"))
    }

    fn elsewhere(&self, op: &'static str, expected: &str) -> Error {
        Error::Device { op, argument: "self", got: self.device.to_string(), expected: expected.into() }
    }

    fn wrong_type<U: Element>(&self, op: &'static str, argument: &'static str) -> Error {
        let expected = match U::DTYPE {
            crate::DType::F32 => "f32",
            crate::DType::F64 => "f64",
            crate::DType::U8 => "u8",
            crate::DType::U16 => "u16",
            crate::DType::U32 => "u32",
        };
        Error::DType { op, argument, got: T::DTYPE, device: self.device.to_string(), expected }
    }
}

/// Where a pass puts a result that may be added to what is there: `tensor = result + beta * tensor`.
///
/// With `beta = 0` the tensor is not read (it may hold NaN).
#[derive(Debug)]
pub struct Out<'a, T: Element> {
    /// The tensor written to; of the result's shape.
    pub tensor: &'a mut Tensor<T>,
    /// The factor of what it held.
    pub beta: T,
}

impl<'a, T: crate::Real> Out<'a, T> {
    /// The result replaces what the tensor held.
    pub fn write(tensor: &'a mut Tensor<T>) -> Self {
        Self { tensor, beta: T::zero() }
    }

    /// The result is added to what the tensor held, as gradients over several batches are.
    pub fn add(tensor: &'a mut Tensor<T>) -> Self {
        Self { tensor, beta: T::one() }
    }
}
