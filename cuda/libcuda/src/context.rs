//! A context made current for a while.
//!
//! The driver keeps one current context per thread, and most calls act in it. cust's `Context` is the device's primary
//! context, the one that PyTorch uses too. Streams, events and graphs here know their context and enter it for each
//! call, so that they work from any thread and leave the thread's own choice as it was.

use std::marker::PhantomData;
use std::ptr::null_mut;

use cust::context::Context;
use cust::device::Device;

use crate::driver;
use crate::error::DriverError;

/// The context is current on this thread while this lives; then the one before is again.
#[derive(Debug)]
#[must_use = "the context is current only while this lives"]
pub struct Current<'c> {
    pushed: bool,
    // Not Send: what is current is a matter of this thread.
    context: PhantomData<(&'c Context, *const ())>,
}

impl<'c> Current<'c> {
    /// Makes `context` current on this thread. Costs one look at the thread's state where it is already.
    pub fn enter(context: &'c Context) -> Result<Self, DriverError> {
        let mut now = null_mut();
        // SAFETY: the result may be written.
        unsafe { driver::cuCtxGetCurrent(&mut now) }?;
        let pushed = now != context.as_raw();
        if pushed {
            // SAFETY: the context is alive as long as `context` is borrowed.
            unsafe { driver::cuCtxPushCurrent_v2(context.as_raw()) }?;
        }
        Ok(Self { pushed, context: PhantomData })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = null_mut();
            // A failure leaves the context current, which harms nobody: every call here enters its own. SAFETY: the
            // result may be written; guards of a thread are dropped in the reverse order of their making, or what is
            // popped is another of this thread's contexts, which is no matter of memory.
            let _ = unsafe { driver::cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}

/// The device's primary context.
///
/// What is current on this thread stays so. cust's `Context::new` makes its context current, and with it the device that other
/// libraries of the process, PyTorch among them, take for the one that was chosen.
pub fn primary_context(device: Device) -> Result<Context, DriverError> {
    let mut before = null_mut();
    // SAFETY: the result may be written.
    unsafe { driver::cuCtxGetCurrent(&mut before) }?;
    let context = Context::new(device).map_err(|error| DriverError::from_cust("cuDevicePrimaryCtxRetain", error));
    // SAFETY: the context was current just now; null, where there was none, is none again.
    unsafe { driver::cuCtxSetCurrent(before) }?;
    context
}

/// Runs `f` with `context` current on this thread, and makes the one before current again, also when `f` panics.
pub fn with_current<R>(context: &Context, f: impl FnOnce() -> R) -> Result<R, DriverError> {
    let _current = Current::enter(context)?;
    Ok(f())
}
