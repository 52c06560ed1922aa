//! Streams, our own and other people's.
//!
//! cust's `Stream` drops the non-blocking flag, so that its streams wait for the legacy default stream, and cannot be
//! made from a handle. These can: a kernel can be launched on PyTorch's current stream.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

use cust::context::Context;
use cust::sys::CUstream;

use crate::codes;
use crate::context::Current;
use crate::driver;
use crate::error::DriverError;
use crate::event::Event;
use crate::graph::Graph;

/// An ordered queue of work on one GPU.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use ferrolayer_libcuda::{Event, Stream};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// cust::init(cust::CudaFlags::empty())?;
/// let context = Arc::new(cust::context::Context::new(cust::device::Device::get_device(0)?)?);
/// let stream = Stream::new(&context)?;
/// let (start, end) = (Event::new(&context)?, Event::new(&context)?);
/// start.record(&stream)?;
/// // ... launches ...
/// end.record(&stream)?;
/// stream.synchronize()?;
/// println!("{} ms", end.elapsed_since(&start)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    raw: CUstream,
    owned: bool,
    context: Arc<Context>,
}

// SAFETY: a stream's handle may be used from any thread, and the driver locks what it must.
unsafe impl Send for Stream {}
// SAFETY: as above; the calls on `&self` are the driver's thread-safe ones.
unsafe impl Sync for Stream {}

/// What another thread may do while a stream captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaptureMode {
    /// Calls that a capture cannot hold, such as an allocation, fail in any thread.
    Global,
    /// They fail in the capturing thread only.
    #[default]
    ThreadLocal,
    /// They are allowed.
    Relaxed,
}

/// What this thread may do while streams capture, anyone's, until this is dropped: then it is as before.
///
/// With [`CaptureMode::Relaxed`] calls that are no work of a stream, such as loading a module, do not break the capture of
/// someone else who began it in another mode; `torch.cuda.graph` begins one that forbids them to all threads.
#[derive(Debug)]
#[must_use = "the mode is the thread's only while this lives"]
pub struct ThreadCaptureMode {
    before: c_int,
    // Not Send: it is this thread's.
    thread: PhantomData<*const ()>,
}

impl ThreadCaptureMode {
    /// Gives this thread another mode.
    pub fn enter(mode: CaptureMode) -> Result<Self, DriverError> {
        let mut before = mode as c_int;
        // SAFETY: the mode is one, and may be written.
        unsafe { driver::cuThreadExchangeStreamCaptureMode(&mut before) }?;
        Ok(Self { before, thread: PhantomData })
    }
}

impl Drop for ThreadCaptureMode {
    fn drop(&mut self) {
        // It cannot fail for a mode that the driver gave. SAFETY: as above.
        let _ = unsafe { driver::cuThreadExchangeStreamCaptureMode(&mut self.before) };
    }
}

impl Stream {
    /// A new stream that does not wait for the legacy default stream (`CU_STREAM_NON_BLOCKING`).
    pub fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        const NON_BLOCKING: u32 = 1;
        let _current = Current::enter(context)?;
        let mut raw = null_mut();
        // SAFETY: a context is current; the result may be written.
        unsafe { driver::cuStreamCreate(&mut raw, NON_BLOCKING) }?;
        Ok(Self { raw, owned: true, context: Arc::clone(context) })
    }

    /// A stream that was made elsewhere, such as PyTorch's current stream (`torch.cuda.current_stream().cuda_stream`).
    /// It is not destroyed here. Null is the legacy default stream of `context`.
    ///
    /// # Safety
    /// `raw` is a stream of `context` (or null, 1 or 2, as `cuda.h` has it), and lives until this value is dropped.
    pub unsafe fn from_raw(raw: CUstream, context: &Arc<Context>) -> Self {
        Self { raw, owned: false, context: Arc::clone(context) }
    }

    /// The driver's handle, for other libraries. It lives as long as this value, where this value made it.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// The context that the stream belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all work in the stream is done. An error may come from any of that work.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: the stream is alive.
        unsafe { driver::cuStreamSynchronize(self.raw) }
    }

    /// Whether all work in the stream is done. An error may come from any of that work.
    pub fn query(&self) -> Result<bool, DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: the stream is alive.
        done(unsafe { driver::cuStreamQuery(self.raw) })
    }

    /// Has work that is queued from now on wait for `event`, which may be of another stream.
    pub fn wait_event(&self, event: &Event) -> Result<(), DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: stream and event are alive; the driver keeps what it needs of an event that is destroyed early.
        unsafe { driver::cuStreamWaitEvent(self.raw, event.raw(), 0) }
    }

    /// From now on work that is queued here is recorded, not run, until [`end_capture`](Self::end_capture).
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<(), DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: the stream is alive.
        unsafe { driver::cuStreamBeginCapture_v2(self.raw, mode as c_int) }
    }

    /// The work recorded since [`begin_capture`](Self::begin_capture). After an error within, the recording is
    /// discarded, the error is returned, and the stream is ordinary again.
    pub fn end_capture(&self) -> Result<Graph, DriverError> {
        let _current = Current::enter(&self.context)?;
        let mut graph = null_mut();
        // SAFETY: the stream is alive; the result may be written.
        unsafe { driver::cuStreamEndCapture(self.raw, &mut graph) }?;
        // SAFETY: a new graph, which nobody else has.
        Ok(unsafe { Graph::from_raw(graph, &self.context) })
    }

    /// Whether work that is queued here is being recorded.
    pub fn is_capturing(&self) -> Result<bool, DriverError> {
        let _current = Current::enter(&self.context)?;
        let mut status = 0;
        // SAFETY: the stream is alive; the result may be written.
        unsafe { driver::cuStreamIsCapturing(self.raw, &mut status) }?;
        Ok(status != 0)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // Nothing can be done about a failure: it is an earlier fault's, which the next checked call reports, or
            // the driver's own end. SAFETY: made here and destroyed once; the driver lets work that is queued finish.
            let _ = unsafe { driver::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// "Not ready" is an answer, not an error.
pub(crate) fn done(result: Result<(), DriverError>) -> Result<bool, DriverError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.code == codes::NOT_READY => Ok(false),
        Err(error) => Err(error),
    }
}
