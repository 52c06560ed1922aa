//! Elements somewhere in a device's memory, and tensors of them.

use std::any::Any;

use ferrolayer::device::Foreign;
use ferrolayer::{DType, Device, Element, Layout, Result, Tensor};
use ferrolayer_torch::AnyTensor;

use super::abi::DlTensor;

/// Runs a block with a name for the type that has this `DType`.
macro_rules! with_type {
    ($dtype:expr, $type:ident => $body:expr) => {
        with_type!(@ $dtype, $type => $body; F16 ferrolayer::f16, Bf16 ferrolayer::bf16, F32 f32, F64 f64, U8 u8, U16 u16,
                   U32 u32, U64 u64)
    };
    (@ $dtype:expr, $type:ident => $body:expr; $($name:ident $element:ty),*) => {
        match $dtype {
            $(ferrolayer::DType::$name => {
                type $type = $element;
                $body
            })*
            other => unreachable!("{other}: no array's type is taken for it"),
        }
    };
}

/// Runs a block with a name for the tensor, whatever its type.
macro_rules! with_tensor {
    ($any:expr, $tensor:ident => $body:expr) => {
        match $any {
            ferrolayer_torch::AnyTensor::F32($tensor) => $body,
            ferrolayer_torch::AnyTensor::F64($tensor) => $body,
            ferrolayer_torch::AnyTensor::F16($tensor) => $body,
            ferrolayer_torch::AnyTensor::Bf16($tensor) => $body,
            ferrolayer_torch::AnyTensor::U8($tensor) => $body,
            ferrolayer_torch::AnyTensor::U16($tensor) => $body,
            ferrolayer_torch::AnyTensor::U32($tensor) => $body,
            ferrolayer_torch::AnyTensor::U64($tensor) => $body,
        }
    };
}
pub(crate) use with_tensor;

/// An array of elements, each at its place.
pub struct View<'a> {
    pub device: &'a Device,
    pub dtype: DType,
    pub address: u64,
    pub shape: Vec<usize>,
    /// In elements; they may be zero or negative.
    pub strides: Vec<isize>,
}

impl<'a> View<'a> {
    /// Of an array on this device.
    ///
    /// # Safety
    /// The structure is DLPack's.
    pub unsafe fn of(tensor: &DlTensor, device: &'a Device, dtype: DType) -> Self {
        let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
        // SAFETY: as many numbers as dimensions are there; without dimensions there may be nothing.
        let numbers =
            |of: *const i64| unsafe { if ndim == 0 { &[][..] } else { std::slice::from_raw_parts(of, ndim) } };
        let shape: Vec<usize> = numbers(tensor.shape).iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
        let strides = if tensor.strides.is_null() {
            Layout::RowMajor.strides(&shape).into_iter().flatten().map(|stride| stride as isize).collect()
        } else {
            numbers(tensor.strides).iter().map(|&stride| stride as isize).collect()
        };
        let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
        Self { device, dtype, address, shape, strides }
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The strides of a dense tensor whose elements are at the same places, if they are.
    fn dense(&self) -> Option<Vec<usize>> {
        let matches = |strides: &[usize]| {
            let mut pairs = self.shape.iter().zip(strides.iter().zip(&self.strides));
            self.len() == 0 || pairs.all(|(&size, (&a, &b))| size == 1 || a as isize == b)
        };
        let layouts = [Layout::RowMajor, Layout::ChannelsLast];
        let ordered = layouts.iter().filter_map(|layout| layout.strides(&self.shape));
        ordered.chain([self.by_stride()]).find(|strides| matches(strides))
    }

    /// The strides of a dense tensor whose dimensions are in the order of these strides.
    fn by_stride(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        order.sort_by_key(|&dim| self.strides[dim]);
        let mut strides = vec![0; order.len()];
        let mut step = 1usize;
        for dim in order {
            // A dimension of one element has no neighbours, and must not come between those that have.
            strides[dim] = step;
            step = step.saturating_mul(self.shape[dim].max(1));
        }
        strides
    }

    /// A tensor of these elements in row-major or channels-last order: of this memory where it is in such an order and
    /// aligned, else of a copy. `None` where they are neither dense nor on the CPU.
    ///
    /// # Safety
    /// Until the owner is dropped the elements are there, and no one writes to them. A copy on a GPU is made by what is
    /// queued on the device's stream, until when the memory stays: also when the owner was dropped, which this does then.
    pub unsafe fn tensor(&self, owner: impl Any + Send + Sync) -> Result<Option<AnyTensor>> {
        // SAFETY: the caller's.
        with_type!(self.dtype, T => unsafe { Ok(self.typed::<T>(owner)?.map(AnyTensor::from)) })
    }

    /// # Safety
    /// As [`View::tensor`]'s.
    unsafe fn typed<T: Element>(&self, owner: impl Any + Send + Sync) -> Result<Option<Tensor<T>>> {
        let len = self.len();
        let Some(strides) = self.dense() else {
            if !matches!(self.device, Device::Cpu(_)) {
                return Ok(None);
            }
            // SAFETY: the caller's.
            let values = unsafe { self.gathered::<T>() };
            return Tensor::from_vec(self.device, &self.shape, values).map(Some);
        };
        let alignment = match self.device {
            // Kernels take 16 bytes at once.
            Device::Gpu(_) if len > 1 => 16,
            _ => align_of::<T>() as u64,
        };
        let tensor = if len == 0 || self.address.is_multiple_of(alignment) {
            let memory = Foreign { address: self.address, owner: Box::new(owner) };
            // SAFETY: the caller's; operators do not write to their arguments.
            unsafe { Tensor::from_foreign(self.device, &self.shape, &strides, memory)? }
        } else {
            // SAFETY: the caller's.
            unsafe { Tensor::copy_of_foreign(self.device, &self.shape, &strides, self.address)? }
        };
        match tensor.layout() {
            Some(_) => Ok(Some(tensor)),
            None => tensor.to_layout(Layout::RowMajor).map(Some),
        }
    }

    /// The elements in row-major order.
    ///
    /// # Safety
    /// They are on the CPU.
    unsafe fn gathered<T: Element>(&self) -> Vec<T> {
        let begin: *const u8 = std::ptr::with_exposed_provenance(self.address as usize);
        let mut values = Vec::with_capacity(self.len());
        let mut index = vec![0; self.shape.len()];
        // Along the last dimension there is nothing to count but itself.
        let (&inner, outer) = self.shape.split_last().expect("a single element is dense");
        let step = self.strides[outer.len()];
        for _ in 0..outer.iter().product() {
            let offset: isize = index.iter().zip(&self.strides).map(|(&i, &stride): (&isize, _)| i * stride).sum();
            values.extend((0..inner as isize).map(|i| {
                let place = (offset + i * step) * size_of::<T>() as isize;
                // SAFETY: the element at this index is there; it may begin anywhere, and any bits are an element.
                unsafe { begin.wrapping_offset(place).cast::<T>().read_unaligned() }
            }));
            for (i, &size) in index.iter_mut().zip(outer).rev() {
                *i += 1;
                if (*i as usize) < size {
                    break;
                }
                *i = 0;
            }
        }
        values
    }
}
