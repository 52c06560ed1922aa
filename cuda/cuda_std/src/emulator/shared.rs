//! The block's shared memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use super::lock::Lock;
use super::{MAX_SHARED_BYTES, context, fault};

/// Of dynamic shared memory, as on the device.
const ALIGNMENT: usize = 1024;
/// What every byte holds when a block starts: NaN as a float, an index out of bounds as an integer.
const POISON: u8 = 0xFF;
/// Of a static array, as on the device.
const STATIC_ALIGNMENT: u32 = 16;
/// Static arrays of a kernel: more than any has.
const MAX_STATICS: usize = 64;

/// One `shared_array!` in the source. Its address says which.
#[doc(hidden)]
#[derive(Debug)]
pub struct StaticArray(&'static str);

impl StaticArray {
    #[doc(hidden)]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The array's place in the running block.
    #[track_caller]
    pub(crate) fn address(&'static self, bytes: usize) -> *mut u8 {
        let site = Location::caller();
        context::with(|context| context.block().shared().place(self, bytes, site))
    }
}

/// The running block's dynamic shared memory and its bytes.
#[track_caller]
pub(crate) fn dynamic() -> (*mut u8, u32) {
    context::with(|context| {
        let block = context.block();
        (block.shared().memory.as_ptr(), block.dims().shared_bytes)
    })
}

/// All shared memory of the block: the dynamic part, then static arrays in the order in which threads reach them.
///
/// The table of arrays is made of relaxed atomics: finding an array orders no memory between threads.
pub(crate) struct Memory {
    memory: NonNull<u8>,
    used: AtomicU32,
    lock: Lock,
    count: AtomicU32,
    statics: [(AtomicPtr<StaticArray>, AtomicU32); MAX_STATICS],
}

// SAFETY: the memory is only handed out as raw pointers.
unsafe impl Send for Memory {}
// SAFETY: as above; the table is atomics.
unsafe impl Sync for Memory {}

const fn layout() -> Layout {
    match Layout::from_size_align(MAX_SHARED_BYTES as usize, ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!("a size that fits"),
    }
}

impl Memory {
    pub fn new(dynamic_bytes: u32) -> Self {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc(layout()) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout()) };
        // SAFETY: as many bytes were allocated.
        unsafe { memory.write_bytes(POISON, MAX_SHARED_BYTES as usize) };
        Self {
            memory,
            used: AtomicU32::new(dynamic_bytes.next_multiple_of(STATIC_ALIGNMENT)),
            lock: Lock::default(),
            count: AtomicU32::new(0),
            statics: std::array::from_fn(|_| (AtomicPtr::new(ptr::null_mut()), AtomicU32::new(0))),
        }
    }

    /// Makes everything what it is when a block starts. No thread of the block may be running.
    pub fn poison(&self) {
        let used = self.used.load(Ordering::Relaxed).min(MAX_SHARED_BYTES);
        // SAFETY: within the allocation, and nobody is using it.
        unsafe { self.memory.write_bytes(POISON, used as usize) };
    }

    fn place(&self, array: &'static StaticArray, bytes: usize, site: &Location<'_>) -> *mut u8 {
        let offset = self.find(array).unwrap_or_else(|| {
            let _held = self.lock.hold();
            self.find(array).unwrap_or_else(|| self.add(array, bytes, site))
        });
        // SAFETY: within the allocation, as `add` has checked.
        unsafe { self.memory.as_ptr().add(offset as usize) }
    }

    fn find(&self, array: &'static StaticArray) -> Option<u32> {
        let count = self.count.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        self.statics[..count as usize]
            .iter()
            .find(|(key, _)| ptr::eq(key.load(Ordering::Relaxed), array))
            .map(|(_, offset)| offset.load(Ordering::Relaxed))
    }

    /// Only with the lock held.
    fn add(&self, array: &'static StaticArray, bytes: usize, site: &Location<'_>) -> u32 {
        let offset = self.used.load(Ordering::Relaxed);
        let end = offset as usize + bytes.next_multiple_of(STATIC_ALIGNMENT as usize);
        if end > MAX_SHARED_BYTES as usize {
            let name = array.0;
            fault::raise(
                format!("`{name}` brings shared memory to {end} bytes, of which there are {MAX_SHARED_BYTES}"),
                site,
            );
        }
        let count = self.count.load(Ordering::Relaxed);
        let Some((key, place)) = self.statics.get(count as usize) else {
            let message = format!("more than {MAX_STATICS} static arrays in shared memory");
            fault::raise(message, site)
        };
        key.store(ptr::from_ref(array).cast_mut(), Ordering::Relaxed);
        place.store(offset, Ordering::Relaxed);
        // At most MAX_SHARED_BYTES.
        self.used.store(end as u32, Ordering::Relaxed);
        fence(Ordering::Release);
        self.count.store(count + 1, Ordering::Relaxed);
        offset
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), layout()) };
    }
}
