//! PyTorch's threads, for passes on the CPU.
//!
//! Threads of our own would be in the way of PyTorch's, which go on looking for work for milliseconds after each of its passes; what
//! `torch.set_num_threads` says would not be for them; and after a fork, as in the workers of a `DataLoader`, there would be none.
//!
//! By `torch_parallel_for` of torch/csrc/stable/c/shim.h, since 2.10: `at::parallel_for`. Earlier versions leave passes to rayon's
//! threads.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use ferrolayer::device::{self, Threads};

use crate::symbols::Loaded;

/// Begin, end, and what it was given.
type Part = unsafe extern "C" fn(i64, i64, *mut c_void);

struct TorchThreads {
    /// Begin, end, the least of a part, function, and what that is given.
    parallel_for: unsafe extern "C" fn(i64, i64, i64, Part, *mut c_void) -> i32,
    num_threads: unsafe extern "C" fn(*mut u32) -> i32,
}

/// What all threads are to do, and how the first failed that did.
struct Job<'a> {
    work: &'a (dyn Fn() + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Lets all passes on the CPU run on PyTorch's threads, if this libtorch has the functions for that. It is loaded.
pub(crate) fn install() {
    static FOUND: OnceLock<Option<TorchThreads>> = OnceLock::new();
    if let Some(threads) = FOUND.get_or_init(TorchThreads::find) {
        // Somebody else's stay, and do as well.
        device::run_on(threads);
    }
}

impl TorchThreads {
    fn find() -> Option<Self> {
        let torch = Loaded::find(c"libtorch_cpu.so")?;
        // SAFETY: each name's declaration is the field's type (see the header above).
        unsafe {
            Some(Self {
                parallel_for: torch.symbol(c"torch_parallel_for")?,
                num_threads: torch.symbol(c"torch_get_num_threads")?,
            })
        }
    }
}

impl Threads for TorchThreads {
    fn count(&self) -> usize {
        let mut count = 1;
        // SAFETY: it may be written.
        let code = unsafe { (self.num_threads)(&mut count) };
        if code == 0 { count as usize } else { 1 }
    }

    fn run(&self, threads: usize, work: &(dyn Fn() + Sync)) {
        let job = Job { work, panic: Mutex::new(None) };
        let context = ptr::from_ref(&job).cast_mut().cast();
        let parts = i64::try_from(threads).unwrap_or(i64::MAX);
        // SAFETY: `part` takes a job, which lives until the call returns, when all parts are done.
        let code = unsafe { (self.parallel_for)(0, parts, 1, part, context) };
        if code != 0 {
            // No thread was to be had: what nobody has done is done here.
            work();
        }
        if let Some(payload) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
    }
}

/// # Safety
/// `context` is a [`Job`].
unsafe extern "C" fn part(begin: i64, end: i64, context: *mut c_void) {
    // SAFETY: the caller's.
    let job = unsafe { &*context.cast_const().cast::<Job<'_>>() };
    for _ in begin..end {
        // No panic may pass through C.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(job.work)) {
            job.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }
}
