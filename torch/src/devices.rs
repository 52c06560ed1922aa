//! The devices that operators run on: one for the CPU, and one for each stream of a GPU, and that for each way to PyTorch's
//! memory.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ferrolayer::Device;
use ferrolayer::device::{Allocator, Cpu, GpuOptions};

/// By which way memory comes from PyTorch: its owner is a handle, or Python's object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Torch,
    Python,
}

/// The CPU with the memory that `allocator` first gave.
#[inline]
pub(crate) fn cpu(memory: Memory, allocator: impl FnOnce() -> Arc<dyn Allocator>) -> &'static Device {
    static CPU: [OnceLock<Device>; 2] = [const { OnceLock::new() }; 2];
    // As long as the process, as the device.
    CPU[memory as usize].get_or_init(|| Device::Cpu(Cpu::with_static_allocator(&**Box::leak(Box::new(allocator())))))
}

/// A stream: a GPU's number, and the driver's handle; and its memory.
type Stream = (i32, usize, Memory);

/// The GPU's stream as a device, with the memory that `allocator` first gave for that GPU.
///
/// # Safety
/// `stream` is a stream of this GPU's primary context, as PyTorch's are, whenever the device is used.
pub(crate) unsafe fn cuda(
    memory: Memory,
    index: i32,
    stream: *mut c_void,
    allocator: impl FnOnce() -> Arc<dyn Allocator>,
) -> ferrolayer::Result<Device> {
    // A thread rarely changes its stream, and a lock is slower than this.
    thread_local! {
        static LAST: RefCell<Option<(Stream, Device)>> = const { RefCell::new(None) };
    }
    let key = (index, stream.addr(), memory);
    LAST.with_borrow_mut(|last| match last {
        Some((stream, device)) if *stream == key => Ok(device.clone()),
        _ => {
            // SAFETY: the caller's.
            let device = unsafe { open(key, stream, allocator)? };
            *last = Some((key, device.clone()));
            Ok(device)
        }
    })
}

/// The same, of all threads: tensors on one stream are on one device.
///
/// # Safety
/// As [`cuda`]'s.
unsafe fn open(
    key: Stream,
    stream: *mut c_void,
    allocator: impl FnOnce() -> Arc<dyn Allocator>,
) -> ferrolayer::Result<Device> {
    // As many as there are streams, which PyTorch makes once and uses again.
    static OPENED: Mutex<Vec<(Stream, Device)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, device)) = opened.iter().find(|(stream, _)| *stream == key) {
        return Ok(device.clone());
    }
    // A tensor's device has a number that is not negative.
    let ordinal = u32::try_from(key.0).unwrap_or(0);
    // SAFETY: the caller's.
    let gpu = unsafe { GpuOptions::default().allocator(allocator()).open_on_stream(ordinal, stream)? };
    let device = Device::Gpu(gpu);
    opened.push((key, device.clone()));
    Ok(device)
}
