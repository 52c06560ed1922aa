//! Events: points in a stream, to wait for or to take the time at.

use std::ptr::null_mut;
use std::sync::Arc;

use cust::context::Context;
use cust::sys::CUevent;

use crate::context::Current;
use crate::driver;
use crate::error::DriverError;
use crate::stream::{Stream, done};

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: an event's handle may be used from any thread, and the driver locks what it must.
unsafe impl Send for Event {}
// SAFETY: as above; the calls on `&self` are the driver's thread-safe ones.
unsafe impl Sync for Event {}

impl Event {
    /// An event that takes the time.
    pub fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        Self::with_flags(context, 0)
    }

    /// An event that only orders work, which costs the GPU less.
    pub fn untimed(context: &Arc<Context>) -> Result<Self, DriverError> {
        const DISABLE_TIMING: u32 = 2;
        Self::with_flags(context, DISABLE_TIMING)
    }

    fn with_flags(context: &Arc<Context>, flags: u32) -> Result<Self, DriverError> {
        let _current = Current::enter(context)?;
        let mut raw = null_mut();
        // SAFETY: a context is current; the result may be written.
        unsafe { driver::cuEventCreate(&mut raw, flags) }?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// The driver's handle, alive as long as this value.
    pub fn raw(&self) -> CUevent {
        self.raw
    }

    /// Moves the event to the end of what is queued in `stream` now.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: both are alive.
        unsafe { driver::cuEventRecord(self.raw, stream.raw()) }
    }

    /// Whether the work before the event is done; an event never recorded counts as done.
    pub fn query(&self) -> Result<bool, DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: the event is alive.
        done(unsafe { driver::cuEventQuery(self.raw) })
    }

    /// Waits until the work before the event is done.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = Current::enter(&self.context)?;
        // SAFETY: the event is alive.
        unsafe { driver::cuEventSynchronize(self.raw) }
    }

    /// Milliseconds from `start` to this event, to about half a microsecond. Both must be recorded, timed and done.
    pub fn elapsed_since(&self, start: &Event) -> Result<f32, DriverError> {
        let _current = Current::enter(&self.context)?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; the result may be written.
        unsafe { driver::cuEventElapsedTime(&mut milliseconds, start.raw, self.raw) }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // As for streams: nothing can be done about a failure.
        // SAFETY: made here and destroyed once; the driver keeps what queued work still needs.
        let _ = unsafe { driver::cuEventDestroy_v2(self.raw) };
    }
}
