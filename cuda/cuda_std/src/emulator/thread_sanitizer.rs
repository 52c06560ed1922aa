//! What ThreadSanitizer must be told.

use std::ffi::{CStr, c_char};

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
