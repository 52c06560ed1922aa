//! Where tensors live and passes run. No op is named here.

pub(crate) mod allocator;
pub(crate) mod convert;
mod cpu;
pub(crate) mod explain;
mod gpu;
pub(crate) mod memory;
pub(crate) mod tasks;

use std::fmt::{Display, Formatter};
use std::str::FromStr;

pub use allocator::{Allocator, Foreign, Request};
pub use convert::accumulate;
pub(crate) use convert::{accumulate_all, rounding, widened};
pub use cpu::Cpu;
pub(crate) use gpu::SHARED_WITHOUT_ASKING;
pub use gpu::{Gpu, GpuBuffer, GpuOptions, GpuSlice, GpuSliceMut, Graph, KernelModule, Mark, Workspace, tiles};
pub use tasks::{Threads, run_on};

/// What driver and GPUs this machine has ([`presence`]), and which PTX a GPU takes.
pub use libcuda::{DeviceInfo, DriverVersion, NoDriver, NoPtx, Presence, PtxFamily, presence};

use crate::{DType, Error, Result};

/// Whether there are kernels of 16-bit floats. There are none under a sanitizer: they'd be two thirds of what is compiled for the
/// emulated grid, and no test runs them there.
#[doc(hidden)]
pub const HALF: bool = !cuda_std::emulator::SANITIZED;

/// The CPU, one stream of one GPU, or no memory at all.
///
/// Cheap to clone. Two devices are equal when passes on them are ordered one after another: the CPU is, and a stream
/// with itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Device {
    /// This machine's processor, all its threads.
    Cpu(Cpu),
    /// A GPU's stream.
    Gpu(Gpu),
    /// No memory: tensors here have a shape, an order in memory and an element type, but no elements, and a pass is done
    /// when its arguments have been checked. What ops give here is what they would give elsewhere, with the same errors
    /// ([`Op::output`](crate::op::Op::output)).
    Shapes,
}

impl Device {
    /// The CPU.
    pub fn cpu() -> Self {
        Self::Cpu(Cpu::new())
    }

    /// The GPU with this number, on a new stream of its own.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when there is no driver or no such GPU.
    pub fn gpu(ordinal: u32) -> Result<Self> {
        Ok(Self::Gpu(Gpu::new(ordinal)?))
    }

    /// The first GPU where there is one that works, else the CPU.
    pub fn auto() -> Self {
        Self::gpu(0).unwrap_or_else(|_| Self::cpu())
    }

    /// Runs a validated pass.
    ///
    /// # Errors
    /// The device's own errors.
    pub fn run<P: OnCpu + OnGpu>(&self, pass: P) -> Result<()> {
        match self {
            Self::Cpu(cpu) => pass.on_cpu(cpu),
            Self::Gpu(gpu) => pass.on_gpu(gpu),
            Self::Shapes => Ok(()),
        }
    }

    /// Waits until all that was queued here is done.
    ///
    /// # Errors
    /// [`Error::KernelFault`] when a kernel that was queued failed.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Self::Cpu(_) | Self::Shapes => Ok(()),
            Self::Gpu(gpu) => gpu.synchronize(),
        }
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu(_) => f.write_str("the CPU"),
            Self::Gpu(gpu) => gpu.fmt(f),
            Self::Shapes => f.write_str("no device (shapes only)"),
        }
    }
}

/// `cpu`, `gpu`, `gpu:1` or `auto`.
impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "cpu" => return Ok(Self::cpu()),
            "auto" => return Ok(Self::auto()),
            "gpu" => return Self::gpu(0),
            _ => {}
        }
        match name.strip_prefix("gpu:").and_then(|n| n.parse().ok()) {
            Some(ordinal) => Self::gpu(ordinal),
            None => Err(Error::Argument {
                op: "Device::from_str",
                argument: "name",
                got: format!("{name:?}"),
                expected: "cpu, gpu, gpu:N or auto".into(),
            }),
        }
    }
}

/// Runs a block with `$storage` as the element type of a generic pass, `f32`, `f16` or `bf16`, for which there are
/// kernels; any other is [`Error::DType`].
///
/// Kernels are compiled for given types and passes are generic: this is where the one becomes the other.
///
/// ```
/// use ferrolayer::device::{Gpu, for_storage};
/// use ferrolayer::{Real, Result, Tensor};
///
/// fn queue<T: Real>(gpu: &Gpu, x: &Tensor<T>) -> Result<()> {
///     const OP: &str = "mine.forward";
///     for_storage!(T as S, OP, "x", gpu, {
///         let buffer = x.gpu::<S>(OP, "x")?;
///         // A launch of a kernel with the instance `S`, with `buffer` as an argument.
///         Ok(assert_eq!(buffer.len(), x.len()))
///     })
/// }
/// # #[cfg(feature = "emulator")] {
/// # let gpu = Gpu::emulated();
/// # queue(&gpu, &Tensor::<f32>::zeros(&ferrolayer::Device::Gpu(gpu.clone()), &[3])?)?;
/// # }
/// # Ok::<(), ferrolayer::Error>(())
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! for_storage {
    ($generic:ty as $storage:ident, $op:expr, $argument:expr, $gpu:expr, $body:expr) => {
        match <$generic as $crate::Element>::DTYPE {
            $crate::DType::F32 => {
                type $storage = f32;
                $body
            }
            $crate::DType::F16 if $crate::device::HALF => {
                type $storage = $crate::f16;
                $body
            }
            $crate::DType::Bf16 if $crate::device::HALF => {
                type $storage = $crate::bf16;
                $body
            }
            got => Err($crate::Error::DType {
                op: $op,
                argument: $argument,
                got,
                device: $gpu.to_string(),
                expected: "f32, f16 or bf16",
            }),
        }
    };
}
#[doc(inline)]
pub use crate::for_storage;

/// The error of a type that there is no kernel of, as [`for_storage!`] has it.
pub(crate) fn no_kernel(op: &'static str, argument: &'static str, got: DType, gpu: &Gpu) -> Error {
    Error::DType { op, argument, got, device: gpu.to_string(), expected: "f32, f16 or bf16" }
}

/// As [`for_storage!`], a block that returns, for kernels of 16-bit floats only: of others nothing is run.
macro_rules! for_half {
    ($generic:ty as $storage:ident, $body:block) => {
        match <$generic as $crate::Element>::DTYPE {
            $crate::DType::F16 if $crate::device::HALF => {
                type $storage = $crate::f16;
                $body
            }
            $crate::DType::Bf16 if $crate::device::HALF => {
                type $storage = $crate::bf16;
                $body
            }
            _ => {}
        }
    };
}
pub(crate) use for_half;

/// A validated pass that the CPU can run.
pub trait OnCpu {
    /// Runs it.
    ///
    /// # Errors
    /// The device's own errors.
    fn on_cpu(self, cpu: &Cpu) -> Result<()>;
}

/// A validated pass that a GPU can run: it queues its launches and returns.
pub trait OnGpu {
    /// Queues it.
    ///
    /// # Errors
    /// The device's own errors; [`Error::DType`] for an element type that has no kernel.
    fn on_gpu(self, gpu: &Gpu) -> Result<()>;
}
