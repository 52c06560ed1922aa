//! What can go wrong, said so that the caller can mend it: which op, which argument, what it was, what was expected.

use crate::{DType, Layout};

/// The result of everything fallible here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of this library.
///
/// The variants that name an `op` are raised before anything was computed or launched: outputs are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's shape does not fit the call.
    #[error("{op}: {argument} has shape {got:?}, expected {expected}")]
    Shape {
        /// The op, as in `max_pool.forward`.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// The shape it had.
        got: Vec<usize>,
        /// What would have fitted.
        expected: String,
    },
    /// A tensor's elements are in an order for which the op has no kernel.
    #[error(
        "{op}: {argument} has shape {shape:?} and strides {strides:?}, expected {} order; `Tensor::to_layout` copies it",
        expected.iter().map(|layout| layout.name()).collect::<Vec<_>>().join(" or ")
    )]
    Layout {
        /// The op.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<usize>,
        /// The layouts that fit.
        expected: &'static [Layout],
    },
    /// A value that is not a tensor (a window, a stride, a probability) does not fit the call.
    #[error("{op}: {argument} is {got}, expected {expected}")]
    Argument {
        /// The op or function.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// What it was.
        got: String,
        /// What would have fitted.
        expected: String,
    },
    /// A tensor lives on another device, or another stream of the same one, than the rest of the call's.
    #[error("{op}: {argument} is on {got}, expected {expected} like the other tensors; `Tensor::to` moves it")]
    Device {
        /// The op.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// Where it is.
        got: String,
        /// Where the others are.
        expected: String,
    },
    /// A kernel would write to memory that another of its buffers is in, too.
    ///
    /// Tensors do not come to this: one that is written is no one else's, or is copied first.
    #[error("{op}: {argument} is written, and has memory in common with {other}")]
    Overlap {
        /// The kernel.
        op: &'static str,
        /// The buffer that it writes.
        argument: &'static str,
        /// The other buffer.
        other: &'static str,
    },
    /// The device has no version of the op for this element type.
    #[error("{op}: {argument} holds {got}, which {device} does not compute; expected {expected}")]
    DType {
        /// The op.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// Its element type.
        got: DType,
        /// The device.
        device: String,
        /// The element types it takes.
        expected: &'static str,
    },
    /// Backward was called without the forward that saves what it needs.
    #[error("{layer}: backward needs a forward in training mode before it")]
    NoForward {
        /// The layer.
        layer: String,
    },
    /// Something that a graph cannot hold was asked for while one was recorded.
    #[error(
        "{during}: not while a graph is recorded on this stream; do it before or after `Gpu::record` (a tensor that is \
         written there must not be shared with another)"
    )]
    Recording {
        /// What was asked for.
        during: String,
    },
    /// Memory for a tensor or a pass is not to be had. Nothing was changed, and what needs less works.
    #[error(
        "{device} has no {bytes} bytes left{}",
        free.map(|free| format!(": {free} are free")).unwrap_or_default()
    )]
    OutOfMemory {
        /// Where.
        device: String,
        /// What was asked for.
        bytes: usize,
        /// What was free then, where that is known.
        free: Option<usize>,
    },
    /// An [`Allocator`](crate::device::Allocator) gave no memory.
    #[error("no memory from the allocator: {0}")]
    Allocator(Box<dyn std::error::Error + Send + Sync>),
    /// There is no GPU to use.
    #[error("{0}")]
    NoGpu(#[from] libcuda::NoDriver),
    /// A call of the driver failed.
    #[error("{during}: {source}")]
    Driver {
        /// What was being done.
        during: String,
        /// The driver's answer.
        source: libcuda::DriverError,
    },
    /// A kernel failed while it ran; the driver tells so at the next call that can say it.
    ///
    /// `launches` are the candidates, latest last: all that were queued since the stream was last known to be good. With
    /// `FERROLAYER_LAUNCH_BLOCKING=1` it is exactly one.
    ///
    /// The GPU can no longer be used by this process, whose every later call on it fails likewise: CUDA leaves its context
    /// unusable (CUDA Driver API, `CUDA_ERROR_ILLEGAL_ADDRESS` and its kin: "the process must be terminated and
    /// relaunched"). Tensors on the CPU, and other processes, are as they were. The way back is a new process, from the
    /// parameters saved last ([`nn::save`](crate::nn::save)); what trains for long keeps its GPU work in a process of its
    /// own, and starts another when that ends with this error.
    #[error("{during}: a kernel failed ({source}); launched since the last synchronisation: {}", launches.join(", "))]
    KernelFault {
        /// The call that told.
        during: String,
        /// The driver's answer.
        source: libcuda::DriverError,
        /// Kernels that may be the one, with their grids, latest last.
        launches: Vec<String>,
    },
    /// A kernel broke a rule on the emulated grid.
    #[error("{kernel}: {source}")]
    Emulation {
        /// The kernel.
        kernel: &'static str,
        /// The rule and the place.
        source: cuda_std::launch::EmulationError,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file of parameters does not hold what the model needs.
    #[error("{path}: {problem}")]
    Parameters {
        /// The file.
        path: std::path::PathBuf,
        /// What is missing, superfluous or of the wrong shape.
        problem: String,
    },
    /// A table of tuned products cannot be used ([`ops::dense::tune`](crate::ops::dense::tune)). Plans are as they were.
    #[error("{table}: {problem}")]
    Table {
        /// The file, where it is one.
        table: String,
        /// What is wrong with it.
        problem: String,
    },
}
