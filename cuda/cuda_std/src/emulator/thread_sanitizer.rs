//! What ThreadSanitizer must be told.
//!
//! That a launch's threads are threads: to the sanitizer they would be the one that launches, whose own steps are in order. It knows
//! fibres by an interface of its own (`sanitizer/tsan_interface.h` of compiler-rt), and takes a switch for no order when told so.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `libtest` hands a test and its result from thread to thread through channels and locks of `std`, which is not
/// instrumented: races for the sanitizer.
const SUPPRESSIONS: &CStr = c"race:CompletedTest\nrace:Option<test::run_test";

/// The sanitizer's run time calls this when the program starts.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const c_char {
    SUPPRESSIONS.as_ptr()
}

/// Makes the linker take the function above instead of the run time's own.
pub fn link() {
    std::hint::black_box(__tsan_default_suppressions as extern "C" fn() -> *const c_char);
}

unsafe extern "C" {
    safe fn __tsan_get_current_fiber() -> *mut c_void;
    safe fn __tsan_create_fiber(flags: c_uint) -> *mut c_void;
    fn __tsan_destroy_fiber(fiber: *mut c_void);
    fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    fn AnnotateIgnoreReadsBegin(file: *const c_char, line: c_int);
    fn AnnotateIgnoreReadsEnd(file: *const c_char, line: c_int);
    fn AnnotateIgnoreWritesBegin(file: *const c_char, line: c_int);
    fn AnnotateIgnoreWritesEnd(file: *const c_char, line: c_int);
}

/// What was done comes before what is done after the switch.
const ORDER: c_uint = 0;
/// `__tsan_switch_to_fiber_no_sync`
const NO_ORDER: c_uint = 1;

thread_local! {
    /// Kept from launch to launch: to make one takes longer than many launches.
    static FIBRES: RefCell<Vec<Fibre>> = const { RefCell::new(Vec::new()) };
}

struct Fibre(AtomicPtr<c_void>);

impl Fibre {
    fn new() -> Self {
        Self(AtomicPtr::new(__tsan_create_fiber(0)))
    }

    #[inline(always)]
    fn switch_to(&self, flags: c_uint) {
        // SAFETY: it lives, and is the sanitizer's.
        unsafe { __tsan_switch_to_fiber(self.0.load(Relaxed), flags) };
    }
}

impl Drop for Fibre {
    fn drop(&mut self) {
        // SAFETY: the sanitizer made it and is not in it: what drops it is not of a launch.
        unsafe { __tsan_destroy_fiber(self.0.load(Relaxed)) };
    }
}

/// The threads of a launch, for the sanitizer. It counts calls and returns, each for the thread that it takes them for: so what tells it of
/// another is inlined.
pub struct Threads {
    /// Not to be dropped: it is the one that launches.
    launcher: ManuallyDrop<Fibre>,
    /// What switches between the others, in which calls need not be as many as returns. What it touches is not looked at.
    scheduler: Fibre,
    fibres: Vec<Fibre>,
}

impl Threads {
    pub fn new(count: usize) -> Self {
        let mut fibres = FIBRES.take();
        while fibres.len() < count {
            fibres.push(Fibre::new());
        }
        let launcher = ManuallyDrop::new(Fibre(AtomicPtr::new(__tsan_get_current_fiber())));
        Self { launcher, scheduler: Fibre::new(), fibres }
    }

    /// From here on, until [`leave`](Self::leave), the sanitizer takes what runs for the scheduler, but where it is told of another.
    #[inline(always)]
    pub fn enter(&self) {
        self.scheduler.switch_to(ORDER);
        // SAFETY: the names are static, and `leave` ends both.
        unsafe {
            AnnotateIgnoreReadsBegin(c"".as_ptr(), 0);
            AnnotateIgnoreWritesBegin(c"".as_ptr(), 0);
        }
    }

    #[inline(always)]
    pub fn leave(&self) {
        // SAFETY: `enter` began both.
        unsafe {
            AnnotateIgnoreReadsEnd(c"".as_ptr(), 0);
            AnnotateIgnoreWritesEnd(c"".as_ptr(), 0);
        }
        self.launcher.switch_to(ORDER);
    }

    /// From here on it is this thread of the launch.
    #[inline(always)]
    pub fn begin(&self, thread: u32) {
        self.fibres[thread as usize].switch_to(NO_ORDER);
    }

    /// From here on it is the scheduler.
    #[inline(always)]
    pub fn pause(&self) {
        self.scheduler.switch_to(NO_ORDER);
    }

    /// The same at a thread's end: all that it did comes before what the scheduler does then.
    #[inline(always)]
    pub fn end(&self) {
        self.scheduler.switch_to(ORDER);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        FIBRES.set(std::mem::take(&mut self.fibres));
    }
}
