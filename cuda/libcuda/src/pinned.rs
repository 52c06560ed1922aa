//! Page-locked host memory, which copies go from and to at full speed and beside the calling thread's work.

use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cust::context::Context;

use crate::codes;
use crate::context::Current;
use crate::driver;
use crate::error::DriverError;

mod sealed {
    pub trait Plain {}
}

/// Numbers, for which any bytes are a value.
pub trait Plain: sealed::Plain + Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl sealed::Plain for $type {}
        impl Plain for $type {}
    )*};
}

plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// A slice in page-locked host memory, zero at first. Freeing it is slow, and so is making it: keep it for many copies.
#[derive(Debug)]
pub struct Pinned<T: Plain> {
    start: NonNull<T>,
    length: usize,
    context: Arc<Context>,
}

// SAFETY: owned memory of numbers; the driver frees it from any thread.
unsafe impl<T: Plain> Send for Pinned<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Plain> Sync for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// `length` zeros.
    pub fn new(length: usize, context: &Arc<Context>) -> Result<Self, DriverError> {
        const CALL: &str = "cuMemAllocHost_v2";
        let invalid = || DriverError::new(CALL, codes::INVALID_VALUE);
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(invalid)?;
        let start = if bytes == 0 {
            NonNull::dangling()
        } else {
            let _current = Current::enter(context)?;
            let mut address = null_mut();
            // SAFETY: a context is current; the result may be written.
            unsafe { driver::cuMemAllocHost_v2(&mut address, bytes) }?;
            let start = NonNull::new(address.cast::<T>()).ok_or_else(invalid)?;
            // SAFETY: new memory of this length, aligned to a page.
            unsafe { start.write_bytes(0, length) };
            start
        };
        Ok(Self { start, length, context: Arc::clone(context) })
    }
}

impl<T: Plain> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: allocated for this length (or dangling for none) and initialised; nobody writes while it is borrowed,
        // which the copies' own requirements ask of the GPU.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // Nothing can be done about a failure: the driver is gone, or reports an earlier fault that the next checked
        // call gives.
        if let Ok(_current) = Current::enter(&self.context) {
            // SAFETY: allocated by the driver and freed once.
            let _ = unsafe { driver::cuMemFreeHost(self.start.as_ptr().cast()) };
        }
    }
}
