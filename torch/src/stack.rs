//! Calls from libtorch: arguments and results are 64 bits each on a stack.
//!
//! A tensor is an owned handle: an argument's is ours to delete, a result's libtorch's. An argument that may be `None` is
//! null, or a cell on C++'s heap that holds the 64 bits, ours to free. Python's lock is not held. Direct functions lay
//! out arguments for themselves, see [`Passed`].

use std::any::Any;
use std::borrow::Cow;
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::{ptr, slice};

use ferrolayer::device::Foreign;
use ferrolayer::{DType, Device, Element, Tensor};
use smallvec::SmallVec;

use crate::arguments::{Arguments, Source};
use crate::devices::Memory;
use crate::handle::{Handle, TensorCell, TorchMemory};
use crate::layout::{Dims, Order};
use crate::loan::Loan;
use crate::operator::{Call, Operator, kernel_of};
use crate::schema::{Kind, Parameter, Signature};
use crate::symbols::{FreeCell, RawTensor, Symbols};
use crate::value::{Scalar, for_any};
use crate::{AnyTensor, Error, Outputs, Result, devices};

/// What libtorch calls for the operator.
///
/// # Safety
/// `stack` has as many arguments as the operator's schema, as libtorch converts them, and room for as many results.
pub(crate) unsafe extern "C-unwind" fn kernel<O: Operator>(stack: *mut u64, inputs: u64, outputs: u64) {
    let (signature, call) = kernel_of::<O>();
    debug_assert_eq!((inputs, outputs), (signature.parameters().len() as u64, signature.outputs as u64));
    // SAFETY: the caller's; the counts are the schema's, by which libtorch made the stack.
    if let Err(message) = unsafe { run(signature, call, stack, Passed::ByLibtorch) } {
        fail(&message);
    }
}

/// Throws.
fn fail(message: &str) -> ! {
    let stable = Symbols::get().and_then(|symbols| symbols.stable.as_ref()).expect("libtorch called");
    let message = CString::new(message.replace('\0', " ")).expect("no zero bytes are left");
    // SAFETY: the texts end with zeros and live while the exception is made, which copies them. It unwinds through `kernel`
    // alone, whose caller is C++ and expects exceptions.
    unsafe { (stable.check_fail)(c"ferrolayer".as_ptr(), c"".as_ptr(), 0, message.as_ptr()) }
}

/// How arguments are on a stack.
#[derive(Clone, Copy)]
pub(crate) enum Passed<'a> {
    /// Tensors are ours. What may be `None` is null, or a cell on C++'s heap, ours to free.
    ByLibtorch,
    /// Tensors are for the time of the call. A bit for each argument that is `None`.
    Lent(u32, &'a Loan),
}

/// Runs the operator; what went wrong as its caller is to read it.
///
/// # Safety
/// As [`kernel`]'s, with arguments as `passed` says.
#[inline]
pub(crate) unsafe fn run(
    signature: &'static Signature,
    call: Call,
    stack: *mut u64,
    passed: Passed<'_>,
) -> Result<(), String> {
    let work = || {
        let symbols = Symbols::get().expect("libtorch called");
        // SAFETY: the caller's.
        let inputs = unsafe { Stack::new(symbols, signature, stack, passed) };
        let mut arguments = Arguments::new(signature, Source::Stack(inputs));
        let outputs = call(&mut arguments)?;
        if let Source::Stack(stack) = arguments.into_source() {
            stack.finish()?;
        }
        // SAFETY: the arguments were taken off the stack, which has room for the schema's results.
        unsafe { hand_over(symbols, signature, outputs, stack) }
    };
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| error.of_operator(signature.name())),
        Err(panic) => Err(panicked(signature.name(), &*panic)),
    }
}

/// What to say of a panic.
pub(crate) fn panicked(operator: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("{operator}: a bug: {}", text.unwrap_or("a panic"))
}

/// The arguments of a call.
pub(crate) struct Stack<'a> {
    symbols: &'static Symbols,
    signature: &'static Signature,
    slots: &'a mut [u64],
    passed: Passed<'a>,
    /// How many were taken; the rest is still to be freed, unless it is lent.
    taken: usize,
    /// The GPU of the last tensor, and its stream's device.
    gpu: Option<(i32, Device)>,
    /// Tensors that the operator writes to, and the dense copies that it writes instead.
    written: Vec<(Argument<'a>, Arc<Handle>)>,
}

/// Whether the bits are those of `true`, of which libtorch writes one byte.
#[inline]
pub(crate) fn is_true(bits: u64) -> bool {
    bits as u8 != 0
}

/// A tensor that was taken off the stack.
enum Argument<'a> {
    Own(Handle),
    /// Not to be deleted.
    Lent(ManuallyDrop<Handle>, &'a Loan),
}

impl Deref for Argument<'_> {
    type Target = Handle;

    #[inline]
    fn deref(&self) -> &Handle {
        match self {
            Self::Own(handle) => handle,
            Self::Lent(handle, _) => handle,
        }
    }
}

impl Argument<'_> {
    /// As the owner of memory.
    #[inline]
    fn into_owner(self) -> Box<dyn Any + Send + Sync> {
        match self {
            Self::Own(handle) => handle.into_owner(),
            Self::Lent(_, loan) => loan.lend(),
        }
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        if matches!(self.passed, Passed::Lent(..)) {
            return;
        }
        for index in self.taken..self.slots.len() {
            let parameter = &self.signature.parameters()[index];
            let bits = self.bits(index, parameter);
            if let (Some(bits), Kind::Tensor) = (bits, parameter.kind) {
                // SAFETY: what was not taken is a tensor's handle, ours.
                drop(unsafe { Handle::from_raw(ptr::with_exposed_provenance_mut(bits as usize)) });
            }
        }
    }
}

impl<'a> Stack<'a> {
    /// # Safety
    /// `stack` holds arguments as `signature` and `passed` say; they are no one else's.
    #[inline]
    unsafe fn new(
        symbols: &'static Symbols,
        signature: &'static Signature,
        stack: *mut u64,
        passed: Passed<'a>,
    ) -> Self {
        let inputs = signature.parameters().len();
        // SAFETY: the caller's. A stack without arguments may be null.
        let slots = if inputs == 0 { &mut [][..] } else { unsafe { slice::from_raw_parts_mut(stack, inputs) } };
        Self { symbols, signature, slots, passed, taken: 0, gpu: None, written: Vec::new() }
    }

    /// The bits of an argument; `None` for Python's `None`. An optional argument's cell is freed.
    #[inline]
    fn bits(&self, index: usize, parameter: &Parameter) -> Option<u64> {
        let bits = self.slots[index];
        match self.passed {
            Passed::Lent(none, _) => return (none >> index & 1 == 0).then_some(bits),
            Passed::ByLibtorch if !parameter.optional => return Some(bits),
            Passed::ByLibtorch => {}
        }
        let cell: *mut u64 = ptr::with_exposed_provenance_mut(bits as usize);
        if cell.is_null() {
            return None;
        }
        // SAFETY: libtorch made the cell for us, and it is freed once: each argument is taken once.
        unsafe {
            let bits = *cell;
            match self.symbols.stable.as_ref().map(|stable| &stable.free_cell) {
                Some(FreeCell::Torch(free)) => _ = free(cell),
                Some(FreeCell::Delete(free)) => free(cell.cast()),
                // There are no cells without who makes them.
                None => {}
            }
            Some(bits)
        }
    }

    /// An argument that is no tensor.
    #[inline]
    pub fn scalar(&mut self, index: usize, parameter: &Parameter) -> Scalar {
        self.taken = index + 1;
        match (self.bits(index, parameter), parameter.kind) {
            (Some(bits), Kind::Int) => Scalar::Int(bits as i64),
            (Some(bits), Kind::Float) => Scalar::Float(f64::from_bits(bits)),
            (Some(bits), Kind::Bool) => Scalar::Bool(is_true(bits)),
            (None, _) | (_, Kind::Tensor) => Scalar::None,
        }
    }

    /// The bits of an argument that is a number and cannot be `None`.
    #[inline]
    pub fn number(&mut self, index: usize) -> u64 {
        self.taken = index + 1;
        self.slots[index]
    }

    /// An argument that is a tensor, or `None`.
    #[inline]
    pub fn tensor(&mut self, index: usize, parameter: &'static Parameter) -> Result<Option<Parts<'_>>> {
        self.taken = index + 1;
        let Some(bits) = self.bits(index, parameter) else { return Ok(None) };
        // SAFETY: a tensor's slot holds a handle, owned unless it is lent.
        let handle = unsafe { Handle::from_raw(ptr::with_exposed_provenance_mut(bits as usize)) };
        let Some(handle) = handle else { return Ok(None) };
        let handle = match self.passed {
            Passed::Lent(_, loan) => Argument::Lent(ManuallyDrop::new(handle), loan),
            Passed::ByLibtorch => Argument::Own(handle),
        };
        let symbols = self.symbols;
        // SAFETY: the tensor lives until another has its memory, be it as its owner.
        let facts = unsafe { facts(symbols, handle.as_raw()) };
        let Facts { dtype, device_type, shape, strides } =
            facts.map_err(|(got, expected)| self.error(parameter, got, expected))?;
        let address = handle.address(symbols)?;
        if address == 0 && !shape.contains(&0) {
            return Err(self.error(parameter, "without memory (a fake or a meta tensor)", "a tensor with data"));
        }
        let (device, device_index, alignment) = if device_type == symbols.cpu {
            // Elements can begin anywhere in memory that PyTorch did not make.
            (devices::cpu(Memory::Torch, || TorchMemory::of(symbols, (symbols.cpu, 0))), 0, dtype.size() as u64)
        } else if device_type == symbols.cuda {
            let (index, device) = gpu(symbols, &handle, &mut self.gpu)?;
            // Kernels take 16 bytes at once, and a view can begin between.
            (device, index, 16)
        } else {
            return Err(self.error(parameter, "on another device", "a tensor on the CPU or a CUDA GPU; use .to()"));
        };
        let order = Order::of(shape, strides);
        let memory = if !order.scattered && address.is_multiple_of(alignment) {
            Foreign { address, owner: handle.into_owner() }
        } else {
            let code = symbols.code_of(dtype);
            let copy = Handle::empty(symbols, shape, &order.strides, code, (device_type, device_index))?;
            copy.copy_from(symbols, &handle)?;
            let address = copy.address(symbols)?;
            if parameter.mutable {
                let copy = Arc::new(copy);
                self.written.push((handle, copy.clone()));
                Foreign { address, owner: Box::new(copy) }
            } else {
                Foreign { address, owner: copy.into_owner() }
            }
        };
        Ok(Some(Parts { dtype, device, shape, strides: order.strides, memory }))
    }

    /// Writes back what the operator wrote to copies.
    #[inline]
    pub fn finish(&self) -> Result<()> {
        self.written.iter().try_for_each(|(tensor, copy)| tensor.copy_from(self.symbols, copy))
    }

    #[cold]
    fn error(&self, parameter: &'static Parameter, got: &str, expected: &str) -> Error {
        let (operator, argument) = (self.signature.name(), self.signature.argument(parameter));
        Error::Argument { operator, argument, got: got.into(), expected: expected.into() }
    }
}

/// What libtorch says of a tensor.
struct Facts<'a> {
    dtype: DType,
    device_type: i32,
    shape: &'a [usize],
    strides: &'a [usize],
}

/// Asks, or says what the tensor is and what was expected.
///
/// # Safety
/// The tensor lives, and is not resized, while the facts are used.
#[inline]
unsafe fn facts<'a>(symbols: &Symbols, raw: RawTensor) -> Result<Facts<'a>, (&'static str, &'static str)> {
    let (mut dtype, mut device_type) = (0, 0);
    // SAFETY: the tensor lives, and the results may be written. An undefined tensor, Python's None, has a type of its own,
    // and is asked nothing else.
    unsafe {
        (symbols.dtype)(raw, &mut dtype);
        let Some(dtype) = symbols.type_of(dtype) else {
            return Err(("None, or of a type that is not computed", "a tensor of floating point; use .float()"));
        };
        (symbols.device_type)(raw, &mut device_type);
        match dimensions(symbols, raw) {
            Some((shape, strides)) => Ok(Facts { dtype, device_type, shape, strides }),
            None => Err(("not strided", "a dense tensor; use .to_dense()")),
        }
    }
}

/// Shape and strides; `None` for a tensor that has none.
///
/// # Safety
/// The tensor is defined. It lives, and is not resized, while they are used.
#[inline]
unsafe fn dimensions<'a>(symbols: &Symbols, raw: RawTensor) -> Option<(&'a [usize], &'a [usize])> {
    let (mut dims, mut sizes, mut strides) = (0, ptr::null(), ptr::null());
    // SAFETY: the results may be written, and stay null where there are none. The tensor has as many of both as dimensions;
    // none is negative.
    unsafe {
        (symbols.dim)(raw, &mut dims);
        if dims == 0 {
            return Some((&[], &[]));
        }
        (symbols.sizes)(raw, &mut sizes);
        (symbols.strides)(raw, &mut strides);
        if sizes.is_null() || strides.is_null() {
            return None;
        }
        let len = dims as usize;
        Some((slice::from_raw_parts(sizes.cast(), len), slice::from_raw_parts(strides.cast(), len)))
    }
}

/// The index of a tensor's GPU, and its current stream as a device, which `last` keeps for the call's next tensor.
#[inline]
fn gpu<'l>(
    symbols: &'static Symbols,
    handle: &Handle,
    last: &'l mut Option<(i32, Device)>,
) -> Result<(i32, &'l Device)> {
    let mut index = 0;
    // SAFETY: the tensor lives, and the result may be written.
    unsafe { (symbols.device_index)(handle.as_raw(), &mut index) };
    if last.as_ref().is_none_or(|(known, _)| *known != index) {
        let failed = || Error::Torch { during: "asking for the current CUDA stream", what: symbols.last_error() };
        let current = symbols.cuda_stream.ok_or_else(failed)?;
        let mut stream = ptr::null_mut();
        // SAFETY: the result may be written.
        if unsafe { current(index, &mut stream) } != 0 {
            return Err(failed());
        }
        // SAFETY: libtorch's streams are of the primary context, and are not destroyed.
        let device =
            unsafe { devices::cuda(Memory::Torch, index, stream, || TorchMemory::of(symbols, (symbols.cuda, index)))? };
        *last = Some((index, device));
    }
    let (index, device) = last.as_ref().expect("just put there");
    Ok((*index, device))
}

/// What a tensor is made of. The memory's owner is a tensor of PyTorch's with this shape and this order in memory, on this
/// device; the shape and the strides live as long.
pub(crate) struct Parts<'a> {
    pub dtype: DType,
    pub device: &'a Device,
    pub shape: &'a [usize],
    pub strides: Cow<'a, [usize]>,
    pub memory: Foreign,
}

impl Parts<'_> {
    /// The tensor, whose element type is known to be this.
    #[inline]
    pub fn tensor<T: Element>(self) -> Result<Tensor<T>> {
        debug_assert_eq!(self.dtype, T::DTYPE);
        // SAFETY: the owner is such a tensor. PyTorch's callers, as those of its own ops, do not write to arguments
        // meanwhile, and do not read those that are declared as written.
        Ok(unsafe { Tensor::from_foreign(self.device, self.shape, &self.strides, self.memory)? })
    }

    /// The tensor.
    #[inline]
    pub fn any(self) -> Result<AnyTensor> {
        Ok(match self.dtype {
            DType::F32 => AnyTensor::F32(self.tensor()?),
            DType::F64 => AnyTensor::F64(self.tensor()?),
            DType::F16 => AnyTensor::F16(self.tensor()?),
            DType::Bf16 => AnyTensor::Bf16(self.tensor()?),
            DType::U8 => AnyTensor::U8(self.tensor()?),
            DType::U16 => AnyTensor::U16(self.tensor()?),
            DType::U32 => AnyTensor::U32(self.tensor()?),
            DType::U64 => AnyTensor::U64(self.tensor()?),
            other => unreachable!("{other}: no type of PyTorch's is taken for it"),
        })
    }
}

/// Puts the results on the stack.
///
/// # Safety
/// `stack` has room for as many as the schema says, and holds nothing that is still to be freed.
#[inline]
unsafe fn hand_over(symbols: &Symbols, signature: &'static Signature, outputs: Outputs, stack: *mut u64) -> Result<()> {
    check_count(signature, &outputs)?;
    let mut outputs = outputs.0;
    let mut handles = SmallVec::<[Handle; 4]>::new();
    // From the last to the first, which need not be moved.
    while let Some(output) = outputs.pop() {
        handles.push(for_any!(output, tensor as T => handle_of(symbols, tensor)?));
    }
    for (index, handle) in handles.into_iter().rev().enumerate() {
        // SAFETY: the caller's, and there are as many.
        unsafe { stack.add(index).write(handle.into_raw().expose_provenance() as u64) };
    }
    Ok(())
}

/// Fails unless there are as many as the schema says.
#[inline]
pub(crate) fn check_count(signature: &'static Signature, outputs: &Outputs) -> Result<()> {
    if outputs.0.len() == signature.outputs {
        return Ok(());
    }
    Err(Error::Argument {
        operator: signature.name(),
        argument: "the result",
        got: format!("{} tensors", outputs.0.len()),
        expected: format!("as many as in {}", signature.schema()),
    })
}

/// The handle of the tensor whose memory this is.
#[inline]
fn handle_of<T: Element>(symbols: &Symbols, tensor: Tensor<T>) -> Result<Handle> {
    let (shape, strides) = (Dims::from_slice(tensor.shape()), Dims::from_slice(tensor.strides()));
    let owner = tensor.into_foreign().and_then(|memory| memory.owner.downcast::<TensorCell>().ok());
    let handle = Handle::from_owner(owner.ok_or_else(not_ours)?);
    // SAFETY: the handle lives below.
    let (known, at) = unsafe { dimensions(symbols, handle.as_raw()) }.unwrap_or_default();
    // A body may have given another view of what it made.
    if *known == *shape && *at == *strides { Ok(handle) } else { handle.view(symbols, &shape, &strides) }
}

/// What to say of a result that is no tensor of PyTorch's.
#[cold]
pub(crate) fn not_ours() -> Error {
    Error::Torch {
        during: "giving back a result",
        what:
            "its memory is not PyTorch's, or another tensor has it too: make results on an argument's device, and drop \
               their clones"
                .into(),
    }
}
