//! Dense tensors on a device.

mod foreign;

use std::any::Any;

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};
use triomphe::Arc;

use crate::device::memory::{HostMemory, vec_of};
use crate::device::{Device, GpuBuffer};
use crate::layout::{Dims, row_major, same_places};
use crate::{Element, Error, Layout, Result};

/// The number of elements of a shape, if memory can be addressed that holds as many of these.
fn elements<T>(op: &'static str, argument: &'static str, shape: &[usize]) -> Result<usize> {
    let len = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
    let bytes = len.and_then(|len| len.checked_mul(size_of::<T>()));
    match (len, bytes) {
        (Some(len), Some(bytes)) if isize::try_from(bytes).is_ok() => Ok(len),
        _ => Err(Error::Shape {
            op,
            argument,
            got: shape.to_vec(),
            expected: format!("fewer than 2^63 bytes of {} bytes an element", size_of::<T>()),
        }),
    }
}

/// A dense array of `T` on a [`Device`]: every element of its memory belongs to it, in any order of the dimensions.
///
/// New tensors are row-major, unless a [`Layout`] is asked for. [`Tensor::permute`] gives any other order without a copy;
/// [`Tensor::to_layout`] copies where one is needed. Ops take the layouts that they have kernels for, and say of any
/// other what to call: none copies unasked.
///
/// Behaves as a value: `clone` is cheap (both share the memory), and a tensor that is shared is copied when one of its
/// owners is written to, so no one sees another's write.
#[derive(Clone, Debug)]
pub struct Tensor<T: Element> {
    shape: Dims,
    /// In elements, for each dimension; together they name each element of the storage once.
    strides: Dims,
    /// Together, so that a tensor is small: it is moved often, and what is larger than 128 bytes is moved by a call.
    held: Arc<Held<T>>,
}

const _: () = assert!(size_of::<Tensor<f32>>() <= 96);

/// A device and what a tensor has there.
#[derive(Debug)]
struct Held<T: Element> {
    device: Device,
    storage: Storage<T>,
}

#[derive(Debug)]
enum Storage<T: Element> {
    Cpu(HostMemory<T>),
    Gpu(GpuBuffer<T>),
    /// Of [`Device::Shapes`].
    Nothing,
}

impl<T: Element> Storage<T> {
    fn empty(device: &Device, shape: &[usize], strides: &[usize]) -> Result<Self> {
        Ok(match device {
            Device::Cpu(cpu) => Self::Cpu(cpu.allocate(shape, strides)?),
            Device::Gpu(gpu) => Self::Gpu(gpu.allocate_tensor(shape, strides)?),
            Device::Shapes => Self::Nothing,
        })
    }

    /// As many values as the shape has elements, in the order in which they are in memory.
    fn holding(device: &Device, shape: &[usize], strides: &[usize], values: Vec<T>) -> Result<Self> {
        Ok(match device {
            Device::Cpu(cpu) => Self::Cpu(cpu.hold(shape, strides, values)?),
            Device::Gpu(gpu) => {
                let mut buffer = gpu.allocate_tensor(shape, strides)?;
                buffer.copy_from_slice(&values)?;
                Self::Gpu(buffer)
            }
            Device::Shapes => Self::Nothing,
        })
    }
}

impl<T: Element> Tensor<T> {
    /// A tensor of `shape` on `device` that holds `values` in row-major order.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are not as many values as the shape has elements; a device's own errors.
    pub fn from_vec(device: &Device, shape: &[usize], values: Vec<T>) -> Result<Self> {
        if values.len() != elements::<T>("Tensor::from_vec", "shape", shape)? {
            return Err(Error::Argument {
                op: "Tensor::from_vec",
                argument: "values",
                got: format!("{} values", values.len()),
                expected: format!("as many as shape {shape:?} has elements"),
            });
        }
        let strides = row_major(shape);
        let storage = Storage::holding(device, shape, &strides, values)?;
        Ok(Self::new(device, shape, strides, storage))
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
        let len = elements::<T>("Tensor::full", "shape", shape)?;
        Self::from_vec(device, shape, vec_of(value, len)?)
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
        Self::empty_in(device, shape, Layout::RowMajor)
    }

    /// As [`Tensor::empty`], in this layout.
    ///
    /// # Errors
    /// [`Error::Shape`] for channels last without four dimensions, and for more elements than memory can have; a device's
    /// own errors.
    pub fn empty_in(device: &Device, shape: &[usize], layout: Layout) -> Result<Self> {
        const OP: &str = "Tensor::empty_in";
        elements::<T>(OP, "shape", shape)?;
        let strides = layout.dims(shape).ok_or_else(|| Error::Shape {
            op: OP,
            argument: "shape",
            got: shape.to_vec(),
            expected: "[N, C, H, W] for channels last".into(),
        })?;
        let storage = Storage::empty(device, shape, &strides)?;
        Ok(Self::new(device, shape, strides, storage))
    }

    /// As [`Tensor::empty`], with this tensor's shape, order in memory and device.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn empty_like(&self) -> Result<Self> {
        self.empty_like_on(&self.held.device)
    }

    /// As [`Tensor::empty_like`], on another device and perhaps of another type.
    pub(crate) fn empty_like_on<U: Element>(&self, device: &Device) -> Result<Tensor<U>> {
        let storage = Storage::empty(device, &self.shape, &self.strides)?;
        Ok(Tensor::new(device, &self.shape, self.strides.clone(), storage))
    }

    fn new(device: &Device, shape: &[usize], strides: Dims, storage: Storage<T>) -> Self {
        let held = Arc::new(Held { device: device.clone(), storage });
        Self { shape: Dims::from_slice(shape), strides, held }
    }

    /// The size of each dimension; `[]` for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The distance in memory between neighbours along each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The layout, if it is one that ops have kernels for.
    ///
    /// A shape with dimensions of size 1 may be both: then it is the one that the tensor was made with, or row-major.
    pub fn layout(&self) -> Option<Layout> {
        Layout::of(&self.shape, &self.strides)
    }

    /// Whether the elements are in row-major order in memory.
    pub fn is_contiguous(&self) -> bool {
        self.is_in(Layout::RowMajor)
    }

    /// Whether the elements are where this layout puts them.
    pub(crate) fn is_in(&self, layout: Layout) -> bool {
        layout.has(&self.shape, &self.strides)
    }

    /// Whether element for element `other`, of the same shape, is at the same place in memory.
    pub(crate) fn is_ordered_like<U: Element>(&self, other: &Tensor<U>) -> bool {
        self.shape == other.shape && same_places(&self.shape, &self.strides, &other.strides)
    }

    /// The same memory with the dimensions in another order: dimension `i` of the result is `axes[i]` of this tensor.
    ///
    /// `[N, H, W, C]` in row-major order becomes `[N, C, H, W]`, channels last, by `permute(&[0, 3, 1, 2])`.
    ///
    /// # Errors
    /// [`Error::Argument`] when `axes` does not name each dimension once.
    pub fn permute(mut self, axes: &[usize]) -> Result<Self> {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.shape.len()) {
            return Err(Error::Argument {
                op: "Tensor::permute",
                argument: "axes",
                got: format!("{axes:?}"),
                expected: format!("each of the dimensions 0 to {} once", self.shape.len().saturating_sub(1)),
            });
        }
        self.shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        self.strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(self)
    }

    /// This tensor in `layout`: itself where it is so already, else a copy, made where the tensor is.
    ///
    /// # Errors
    /// [`Error::Shape`] for channels last without four dimensions; a device's own errors.
    pub fn to_layout(&self, layout: Layout) -> Result<Self> {
        if let Some(strides) = layout.dims(&self.shape).filter(|_| self.is_in(layout)) {
            return Ok(Self { strides, ..self.clone() });
        }
        let mut copy = Self::empty_in(&self.held.device, &self.shape, layout)?;
        crate::ops::permute::copy(self, &mut copy)?;
        Ok(copy)
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
        &self.held.device
    }

    /// The same elements, in row-major order, under another shape; nothing is copied.
    ///
    /// # Errors
    /// [`Error::Shape`] when `shape` has another number of elements, [`Error::Layout`] when this tensor is not row-major.
    pub fn reshape(mut self, shape: &[usize]) -> Result<Self> {
        const OP: &str = "Tensor::reshape";
        if elements::<T>(OP, "shape", shape)? != self.len() {
            return Err(Error::Shape {
                op: OP,
                argument: "self",
                got: self.shape.into_vec(),
                expected: format!("as many elements as {shape:?}"),
            });
        }
        if !self.is_contiguous() {
            return Err(self.disordered(OP, "self", &[Layout::RowMajor]));
        }
        self.shape = Dims::from_slice(shape);
        self.strides = row_major(shape);
        Ok(self)
    }

    /// What an op says of this tensor when it has no kernel for its order in memory.
    pub(crate) fn disordered(&self, op: &'static str, argument: &'static str, expected: &'static [Layout]) -> Error {
        Error::Layout { op, argument, shape: self.shape.to_vec(), strides: self.strides.to_vec(), expected }
    }

    /// This tensor on `device`: itself where it is there already, else a copy.
    ///
    /// # Errors
    /// [`Error::Device`] from [`Device::Shapes`], where there is nothing to copy; a device's own errors.
    pub fn to(&self, device: &Device) -> Result<Self> {
        if self.held.device == *device {
            return Ok(self.clone());
        }
        let storage = match device {
            Device::Shapes => Storage::Nothing,
            _ => Storage::holding(device, &self.shape, &self.strides, self.memory()?)?,
        };
        Ok(Self::new(device, &self.shape, self.strides.clone(), storage))
    }

    /// The elements in the order in which they are in memory.
    fn memory(&self) -> Result<Vec<T>> {
        match &self.held.storage {
            Storage::Cpu(values) => Ok(values.as_slice().to_vec()),
            Storage::Gpu(buffer) => buffer.download(),
            Storage::Nothing => Err(self.elsewhere("Tensor::to_vec", "a device with memory")),
        }
    }

    /// The place in memory of each element, in row-major order.
    fn places(&self) -> impl Iterator<Item = usize> {
        let indices = ndarray::indices(IxDyn(&self.shape)).into_iter();
        indices.map(|index| index.slice().iter().zip(&self.strides).map(|(i, stride)| i * stride).sum())
    }

    /// The elements, row-major whatever their order in memory. On the GPU this waits for the passes that were queued before.
    ///
    /// # Errors
    /// [`Error::Device`] for [`Device::Shapes`]; a device's own errors: this is where a kernel's fault comes out.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let memory = self.memory()?;
        if self.is_contiguous() {
            return Ok(memory);
        }
        Ok(self.places().map(|place| memory[place]).collect())
    }

    /// As [`Tensor::to_vec`], as an array of the tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    pub fn to_array(&self) -> Result<ArrayD<T>> {
        let array = ArrayD::from_shape_vec(IxDyn(&self.shape), self.to_vec()?);
        Ok(array.expect("a tensor's elements fill its shape"))
    }

    /// Replaces the elements by `values`, which are in row-major order, in place where this tensor is the memory's only owner.
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
        let mut ordered = Vec::new();
        let values = if self.is_contiguous() {
            values
        } else {
            ordered.resize(values.len(), T::default());
            self.places().zip(values).for_each(|(place, value)| ordered[place] = *value);
            &ordered
        };
        match self.storage_mut()? {
            Storage::Cpu(own) => own.as_mut_slice().copy_from_slice(values),
            Storage::Gpu(buffer) => buffer.copy_from_slice(values)?,
            Storage::Nothing => {}
        }
        Ok(())
    }

    /// The elements of a tensor on the CPU in the order in which they are in memory, for
    /// [`OnCpu`](crate::device::OnCpu) passes.
    ///
    /// # Errors
    /// [`Error::Device`] when the tensor is elsewhere.
    pub fn host(&self) -> Result<&[T]> {
        match &self.held.storage {
            Storage::Cpu(values) => Ok(values.as_slice()),
            Storage::Gpu(_) | Storage::Nothing => Err(self.elsewhere("Tensor::host", "the CPU")),
        }
    }

    /// The elements of a tensor on the CPU, to be written.
    ///
    /// # Errors
    /// [`Error::Device`] when the tensor is elsewhere.
    pub fn host_mut(&mut self) -> Result<&mut [T]> {
        if !matches!(self.held.storage, Storage::Cpu(_)) {
            return Err(self.elsewhere("Tensor::host_mut", "the CPU"));
        }
        match self.storage_mut()? {
            Storage::Cpu(values) => Ok(values.as_mut_slice()),
            Storage::Gpu(_) | Storage::Nothing => unreachable!("checked above"),
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
        let Storage::Gpu(buffer) = &self.held.storage else {
            return Err(self.elsewhere(op, "a GPU"));
        };
        buffer.keep_for_graph();
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
            Storage::Cpu(_) | Storage::Nothing => unreachable!("checked above"),
        }
    }

    /// Gives this tensor memory that it shares with no other, as writing to it does.
    pub(crate) fn make_own(&mut self) -> Result<()> {
        self.storage_mut().map(drop)
    }

    /// The storage with this tensor as its only owner: copied first where it is shared.
    fn storage_mut(&mut self) -> Result<&mut Storage<T>> {
        if Arc::get_mut(&mut self.held).is_none() {
            // A copy would leave the graph with the old memory, which nobody would write again.
            if let (Storage::Gpu(buffer), Device::Gpu(gpu)) = (&self.held.storage, &self.held.device)
                && (buffer.is_in_graph() || gpu.is_recording())
            {
                return Err(Error::Recording {
                    during: format!("writing to a tensor {:?} that a graph uses and another tensor shares", self.shape),
                });
            }
            let mut copy = Storage::empty(&self.held.device, &self.shape, &self.strides)?;
            match (&self.held.storage, &mut copy) {
                (Storage::Cpu(from), Storage::Cpu(to)) => to.as_mut_slice().copy_from_slice(from.as_slice()),
                (Storage::Gpu(from), Storage::Gpu(to)) => to.copy_from(from)?,
                _ => {}
            }
            self.held = Arc::new(Held { device: self.held.device.clone(), storage: copy });
        }
        Ok(&mut Arc::get_mut(&mut self.held).expect("a new allocation has one owner").storage)
    }

    fn elsewhere(&self, op: &'static str, expected: &str) -> Error {
        Error::Device { op, argument: "self", got: self.held.device.to_string(), expected: expected.into() }
    }

    fn wrong_type<U: Element>(&self, op: &'static str, argument: &'static str) -> Error {
        Error::DType { op, argument, got: T::DTYPE, device: self.held.device.to_string(), expected: U::DTYPE.name() }
    }
}
