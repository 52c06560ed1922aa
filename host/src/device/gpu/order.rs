//! The order between a stream here and streams of other libraries on the same GPU.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use libcuda::{DriverError, Event, Stream};

use super::Gpu;
use super::backend::Backend;
use super::driver::Driver;
use crate::{Error, Result};

/// The event by which streams meet, made when they first do. Waiting takes note of where it is now: it can be moved at once.
#[derive(Default)]
pub(super) struct Meeting(Mutex<Option<Event>>);

impl Meeting {
    /// Has what `after` queues from now on wait for what `before` has queued until now.
    fn order(&self, before: &Stream, after: &Stream) -> Result<(), DriverError> {
        let mut event = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if event.is_none() {
            *event = Some(Event::untimed(before.context())?);
        }
        let event = event.as_ref().expect("just made");
        event.record(before)?;
        after.wait_event(event)
    }
}

/// A point in a stream: see [`Gpu::mark`].
#[derive(Debug)]
pub struct Mark(Option<(Gpu, Event)>);

impl Mark {
    /// Whether all that was queued before the mark is done. It does not wait.
    ///
    /// # Errors
    /// [`Error::KernelFault`] when a kernel that was queued failed.
    pub fn is_done(&self) -> Result<bool> {
        match &self.0 {
            Some((gpu, event)) => match gpu.driver() {
                Some(driver) => driver.told(event.query(), || format!("asking {gpu} how far it is")),
                None => Ok(true),
            },
            None => Ok(true),
        }
    }
}

impl Gpu {
    /// The driver's side; `None` if the GPU is emulated.
    pub(super) fn driver(&self) -> Option<&Driver> {
        match self.backend() {
            Backend::Driver(driver) => Some(driver),
            Backend::Emulated(_) => None,
        }
    }

    /// The GPU's number; `None` if it is emulated.
    pub fn ordinal(&self) -> Option<u32> {
        self.driver().map(Driver::ordinal)
    }

    /// The driver's handle of the stream, for other libraries, which can have it wait for their own (`CUstream`,
    /// `cudaStream_t`); null if the GPU is emulated. It lives as long as the last clone of this and the last tensor here.
    pub fn raw_stream(&self) -> *mut c_void {
        self.driver().map_or(std::ptr::null_mut(), |driver| driver.stream().raw().cast())
    }

    /// Has what is queued here from now on wait for what is queued on `other` now. No one waits on the CPU.
    ///
    /// # Safety
    /// `other` is a stream of this GPU's primary context: a handle, or null, 1 or 2 as `cuda.h` has them.
    ///
    /// # Errors
    /// [`Error::Argument`] while `other` is captured, since this stream would be too; the driver's errors.
    pub unsafe fn wait_for(&self, other: *mut c_void) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.order("Gpu::wait_for", other, |here, other| (other, here)) }
    }

    /// Has what is queued on `other` from now on wait for what is queued here now. No one waits on the CPU.
    ///
    /// # Safety
    /// As [`Gpu::wait_for`].
    ///
    /// # Errors
    /// As [`Gpu::wait_for`].
    pub unsafe fn hold_back(&self, other: *mut c_void) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.order("Gpu::hold_back", other, |here, other| (here, other)) }
    }

    /// Whether what is queued on `other` is captured as a graph, and not run.
    ///
    /// # Safety
    /// As [`Gpu::wait_for`].
    ///
    /// # Errors
    /// The driver's errors.
    pub unsafe fn captures(&self, other: *mut c_void) -> Result<bool> {
        let Some(driver) = self.driver() else { return Ok(false) };
        // SAFETY: the caller's; it is not kept.
        let other = unsafe { Stream::from_raw(other.cast(), driver.context()) };
        driver.told(other.is_capturing(), || format!("asking for the state of another stream than {self}"))
    }

    /// # Safety
    /// As [`Gpu::wait_for`].
    unsafe fn order(
        &self,
        op: &'static str,
        other: *mut c_void,
        ordered: impl for<'s> FnOnce(&'s Stream, &'s Stream) -> (&'s Stream, &'s Stream),
    ) -> Result<()> {
        self.inner.recording.refuse(|| format!("waiting for another stream of {self}"))?;
        let Some(driver) = self.driver() else { return Ok(()) };
        // SAFETY: the caller's; it is not kept.
        let other = unsafe { Stream::from_raw(other.cast(), driver.context()) };
        let during = || format!("ordering {self} with another stream");
        if driver.told(other.is_capturing(), during)? {
            return Err(Error::Argument {
                op,
                argument: "other",
                got: "a stream that is captured".into(),
                expected: "one that runs what is queued: one stream's order cannot depend on a graph's replay".into(),
            });
        }
        let (before, after) = ordered(driver.stream(), &other);
        driver.told(self.inner.meeting.order(before, after), during)
    }

    /// A point after what is queued now.
    ///
    /// # Errors
    /// [`Error::Recording`] while a graph is recorded; the driver's errors.
    pub fn mark(&self) -> Result<Mark> {
        self.inner.recording.refuse(|| format!("marking a point on {self}"))?;
        let Some(driver) = self.driver() else { return Ok(Mark(None)) };
        let during = || format!("marking a point on {self}");
        let event = driver.told(Event::untimed(driver.context()), during)?;
        driver.told(event.record(driver.stream()), during)?;
        Ok(Mark(Some((self.clone(), event))))
    }
}
