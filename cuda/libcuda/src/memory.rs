//! Device memory in stream order, by address. The typed buffers above this are what most callers want.
//!
//! Copies and fills are queued and return before they are done. Their length may be 0, which queues nothing.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use cust::context::Context;
use cust::sys::CUmemoryPool;

use crate::codes;
use crate::context::Current;
use crate::driver;
use crate::error::DriverError;
use crate::stream::Stream;

/// Takes `bytes` of memory (0 is an error) from the device's pool and gives its address. The memory is there for work
/// queued in `stream` from now on, and for other streams once they wait for that. It is aligned to at least 256 bytes
/// and holds anything.
///
/// Dropping the address leaks the memory: [`free_async`] gives it back.
pub fn alloc_async(bytes: usize, stream: &Stream) -> Result<u64, DriverError> {
    if bytes == 0 {
        return Err(DriverError::new("cuMemAllocAsync", codes::INVALID_VALUE));
    }
    let _current = Current::enter(stream.context())?;
    let mut address = 0;
    // SAFETY: the stream is alive; the result may be written.
    unsafe { driver::cuMemAllocAsync(&mut address, bytes, stream.raw()) }?;
    Ok(address)
}

/// Gives memory back to the pool once the work queued in `stream` so far is done.
///
/// # Safety
/// `address` came from [`alloc_async`], is not freed yet, and is used by no work but what `stream` waits for.
pub unsafe fn free_async(address: u64, stream: &Stream) -> Result<(), DriverError> {
    let _current = Current::enter(stream.context())?;
    // SAFETY: passed on to the caller; the stream is alive.
    unsafe { driver::cuMemFreeAsync(address, stream.raw()) }
}

/// Copies host memory to the device.
///
/// # Safety
/// `from` can be read and `to` be written for `bytes`, and both stay so, undisturbed, until the copy is done. (Only
/// from pinned memory does the copy overlap with the calling thread; other memory may be read before this returns, or
/// after.)
pub unsafe fn memcpy_htod_async(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: &Stream,
) -> Result<(), DriverError> {
    if bytes == 0 {
        return Ok(());
    }
    let _current = Current::enter(stream.context())?;
    // SAFETY: passed on to the caller; the stream is alive.
    unsafe { driver::cuMemcpyHtoDAsync_v2(to, from, bytes, stream.raw()) }
}

/// Copies device memory to the host.
///
/// # Safety
/// As for [`memcpy_htod_async`].
pub unsafe fn memcpy_dtoh_async(to: *mut c_void, from: u64, bytes: usize, stream: &Stream) -> Result<(), DriverError> {
    if bytes == 0 {
        return Ok(());
    }
    let _current = Current::enter(stream.context())?;
    // SAFETY: passed on to the caller; the stream is alive.
    unsafe { driver::cuMemcpyDtoHAsync_v2(to, from, bytes, stream.raw()) }
}

/// Copies device memory to device memory.
///
/// # Safety
/// `from` can be read and `to` be written for `bytes`; the two do not overlap; and no other work disturbs them until
/// the copy is done.
pub unsafe fn memcpy_dtod_async(to: u64, from: u64, bytes: usize, stream: &Stream) -> Result<(), DriverError> {
    if bytes == 0 {
        return Ok(());
    }
    let _current = Current::enter(stream.context())?;
    // SAFETY: passed on to the caller; the stream is alive.
    unsafe { driver::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()) }
}

/// Sets `count` bytes to `value`.
///
/// # Safety
/// `address` can be written for `count` bytes, and no other work disturbs them until the fill is done.
pub unsafe fn memset_d8_async(address: u64, value: u8, count: usize, stream: &Stream) -> Result<(), DriverError> {
    if count == 0 {
        return Ok(());
    }
    let _current = Current::enter(stream.context())?;
    // SAFETY: passed on to the caller; the stream is alive.
    unsafe { driver::cuMemsetD8Async(address, value, count, stream.raw()) }
}

/// Sets `count` words of four bytes to `value`. `address` must be a multiple of 4.
///
/// # Safety
/// `address` can be written for `4 * count` bytes, and no other work disturbs them until the fill is done.
pub unsafe fn memset_d32_async(address: u64, value: u32, count: usize, stream: &Stream) -> Result<(), DriverError> {
    if count == 0 {
        return Ok(());
    }
    let _current = Current::enter(stream.context())?;
    // SAFETY: passed on to the caller; the stream is alive.
    unsafe { driver::cuMemsetD32Async(address, value, count, stream.raw()) }
}

/// How much device memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes free. What the pool keeps counts as used.
    pub free: usize,
    /// Bytes in all.
    pub total: usize,
}

/// How much memory the context's device has.
pub fn mem_info(context: &Context) -> Result<MemoryInfo, DriverError> {
    let _current = Current::enter(context)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: a context is current; the results may be written.
    unsafe { driver::cuMemGetInfo_v2(&mut free, &mut total) }?;
    Ok(MemoryInfo { free, total })
}

/// Lets the device's pool keep up to `bytes` of freed memory when a stream, event or context is synchronised, instead
/// of giving it all back to the system, which makes the next allocation slow. The default is 0; `u64::MAX` keeps
/// everything.
pub fn set_release_threshold(context: &Context, bytes: u64) -> Result<(), DriverError> {
    const RELEASE_THRESHOLD: c_int = 4;
    let _current = Current::enter(context)?;
    let mut bytes = bytes;
    let pool = default_pool()?;
    // SAFETY: the device's own pool; this attribute is a u64.
    unsafe { driver::cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, (&raw mut bytes).cast()) }
}

/// Gives memory that the pool keeps back to the system, all but `keep` bytes.
pub fn trim_pool(context: &Context, keep: usize) -> Result<(), DriverError> {
    let _current = Current::enter(context)?;
    let pool = default_pool()?;
    // SAFETY: the device's own pool.
    unsafe { driver::cuMemPoolTrimTo(pool, keep) }
}

/// The pool that [`alloc_async`] takes from, of the current context's device.
fn default_pool() -> Result<CUmemoryPool, DriverError> {
    let mut device = 0;
    let mut pool = null_mut();
    // SAFETY: the results may be written, and the second call has a device from the first.
    unsafe {
        driver::cuCtxGetDevice(&mut device)?;
        driver::cuDeviceGetDefaultMemPool(&mut pool, device)?;
    }
    Ok(pool)
}
