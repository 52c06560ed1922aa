//! `libcuda.so.1`: opened once, on the first call, and never closed; and what stands in for it where it is not there.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use libloading::Library;

use crate::codes;

/// The name that the driver's installer puts on the loader's path. `libcuda.so` alone belongs to development packages.
const LIBRARY: &str = "libcuda.so.1";

/// The driver, or the loader's reason for its absence. Kept for the life of the process: a driver does not come or go.
pub(crate) fn library() -> Result<&'static Library, &'static str> {
    static DRIVER: OnceLock<Result<Library, String>> = OnceLock::new();
    DRIVER
        // SAFETY: the driver's initialisers are made to run in any process; it is never closed, so that no address
        // taken from it outlives it.
        .get_or_init(|| unsafe { Library::new(LIBRARY) }.map_err(reason))
        .as_ref()
        .map_err(String::as_str)
}

/// libloading's own text is "dlopen failed"; the loader's is behind it.
fn reason(error: libloading::Error) -> String {
    match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// The driver's function of this name, if there is a driver and it is new enough to have it.
pub(crate) fn find(name: &CStr) -> Option<*mut ()> {
    let library = library().ok()?;
    // SAFETY: a symbol is read as a plain address here; whoever calls it says what it is.
    let symbol = unsafe { library.get::<*mut ()>(name) }.ok()?;
    Some(*symbol).filter(|address| !address.is_null())
}

/// What a call answers that cannot be made: there is no driver, or it is older than the call.
pub(crate) fn unavailable(name: &CStr) -> u32 {
    if library().is_ok() {
        codes::NOT_FOUND
    } else if name == c"cuInit" {
        codes::NO_DEVICE
    } else {
        codes::NOT_INITIALIZED
    }
}

/// The address that a call of `name` goes to: the driver's, or a function that reports its absence.
pub(crate) fn entry_point(name: &CStr) -> *mut () {
    if let Some(address) = find(name) {
        return address;
    }
    // cust's errors ask these two for their text, and panic if they fail: they answer without a driver too.
    if name == c"cuGetErrorName" || name == c"cuGetErrorString" {
        return error_name as *mut ();
    }
    match unavailable(name) {
        codes::NO_DEVICE => no_device as *mut (),
        codes::NOT_INITIALIZED => not_initialized as *mut (),
        _ => not_found as *mut (),
    }
}

// These stand in for functions with any parameters: in the C calling conventions of x86-64 and aarch64 the caller
// removes the arguments, so that a callee may ignore them.
extern "C" fn no_device() -> u32 {
    codes::NO_DEVICE
}

extern "C" fn not_initialized() -> u32 {
    codes::NOT_INITIALIZED
}

extern "C" fn not_found() -> u32 {
    codes::NOT_FOUND
}

/// `cuGetErrorName` and `cuGetErrorString` without a driver.
///
/// # Safety
/// `text` is null or may be written.
unsafe extern "C" fn error_name(code: u32, text: *mut *const c_char) -> u32 {
    let (Some(name), false) = (codes::name(code), text.is_null()) else {
        return codes::INVALID_VALUE;
    };
    // SAFETY: not null, and the caller's to write.
    unsafe { text.write(name.as_ptr()) };
    codes::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_without_a_driver() {
        let mut text = std::ptr::null();
        // SAFETY: `text` may be written.
        assert_eq!(unsafe { error_name(700, &mut text) }, codes::SUCCESS);
        // SAFETY: filled with a static string, since the call succeeded.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_ILLEGAL_ADDRESS");
        // SAFETY: as above.
        assert_eq!(unsafe { error_name(12345, &mut text) }, codes::INVALID_VALUE);
        // SAFETY: null is answered with an error.
        assert_eq!(unsafe { error_name(700, std::ptr::null_mut()) }, codes::INVALID_VALUE);
    }
}
