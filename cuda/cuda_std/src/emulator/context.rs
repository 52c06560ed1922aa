//! Which thread of which block the running thread is.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::block::Block;
use super::copies::Copies;

thread_local! {
    /// Atomic for ThreadSanitizer, to which the fibres that this thread runs are threads.
    static CURRENT: AtomicPtr<Context<'static>> = const { AtomicPtr::new(ptr::null_mut()) };
}

fn current() -> *const Context<'static> {
    CURRENT.with(|current| current.load(Relaxed))
}

fn set_current(context: *const Context<'static>) {
    CURRENT.with(|current| current.store(context.cast_mut(), Relaxed));
}

pub struct Context<'a> {
    block: &'a Block<'a>,
    thread: u32,
    thread_idx: [u32; 3],
    block_idx: Cell<[u32; 3]>,
    pub copies: RefCell<Copies>,
}

/// The thread is in a kernel until this is dropped.
pub struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        set_current(ptr::null());
    }
}

impl<'a> Context<'a> {
    pub fn new(block: &'a Block<'a>, thread: u32) -> Self {
        Self {
            block,
            thread,
            thread_idx: unravel(u64::from(thread), block.dims().block),
            block_idx: Cell::new([0; 3]),
            copies: RefCell::default(),
        }
    }

    /// Makes it the running thread's. The context must outlive the result.
    pub fn enter(&self) -> Running {
        set_current(ptr::from_ref(self).cast());
        Running
    }

    pub fn enter_block(&self, number: u64) {
        self.block_idx.set(unravel(number, self.block.dims().grid));
        // Copies that nobody waited for end with their block.
        *self.copies.borrow_mut() = Copies::default();
    }

    pub fn block(&self) -> &Block<'a> {
        self.block
    }

    /// The thread's number in the block.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    pub fn thread_idx(&self) -> [u32; 3] {
        self.thread_idx
    }

    pub fn block_idx(&self) -> [u32; 3] {
        self.block_idx.get()
    }
}

/// Place `number` of a box, x fastest.
fn unravel(number: u64, sides: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = sides.map(u64::from);
    // Each is below its side, a u32.
    [number % x, number / x % y, number / x / y].map(|i| i as u32)
}

/// Calls `f`, in which other threads of the grid may take their turns.
pub fn keep(f: impl FnOnce()) {
    let own = current();
    f();
    set_current(own);
}

/// Whether this thread is one of the emulated grid.
pub fn is_running() -> bool {
    !current().is_null()
}

/// Calls `f` with the running thread's context.
#[track_caller]
pub fn with<R>(f: impl FnOnce(&Context<'_>) -> R) -> R {
    let current = current();
    assert!(!current.is_null(), "only a kernel can do this: launch it on the emulated grid with `Launch::emulate`");
    // SAFETY: set by `enter` and cleared when its result drops, before the context does.
    f(unsafe { &*current })
}
