//! What the driver answered when it did not answer "success".

use std::ffi::{CStr, c_char};

use crate::{codes, library};

/// A driver call that failed.
///
/// Kernels run after the call that launched them has returned, so that a fault in one comes out of a later call on the
/// same context: `call` names the call that reported, not always the one at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with {name} ({code}){}", Explanation(*code))]
pub struct DriverError {
    /// The driver's function.
    pub call: &'static str,
    /// Its result, a `CUresult`.
    pub code: u32,
    /// The result's name as in `cuda.h`.
    pub name: &'static str,
}

impl DriverError {
    /// The error of this result code.
    pub fn new(call: &'static str, code: u32) -> Self {
        let name =
            codes::name(code).and_then(|name| name.to_str().ok()).unwrap_or("a result this version does not know");
        Self { call, code, name }
    }

    /// An error that one of cust's functions returned. Codes that cust does not know come as `CUDA_ERROR_UNKNOWN`.
    pub fn from_cust(call: &'static str, error: cust::error::CudaError) -> Self {
        Self::new(call, error as u32)
    }
}

/// `Ok` for success, or the error.
pub(crate) fn check(call: &'static str, code: u32) -> Result<(), DriverError> {
    if code == codes::SUCCESS { Ok(()) } else { Err(DriverError::new(call, code)) }
}

/// The driver's own sentence about a code, with a colon before it; nothing where there is no driver.
struct Explanation(u32);

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match explain(self.0) {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

fn explain(code: u32) -> Option<&'static str> {
    let address = library::find(c"cuGetErrorString")?;
    // SAFETY: this is the function's signature in every version of the driver.
    let call = unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(u32, *mut *const c_char) -> u32>(address) };
    let mut text = std::ptr::null();
    // SAFETY: `text` may be written; any code may be asked for.
    let result = unsafe { call(code, &mut text) };
    if result != codes::SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: on success the driver gives a string of its own that is never freed.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_call_and_the_code() {
        let text = DriverError::new("cuLaunchKernel", 700).to_string();
        assert!(text.starts_with("cuLaunchKernel failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{text}");
        let text = DriverError::new("cuInit", 12345).to_string();
        assert!(text.contains("cuInit failed with a result this version does not know (12345)"), "{text}");
    }

    #[test]
    fn takes_custs_errors() {
        let error = DriverError::from_cust("cuModuleLoadData", cust::error::CudaError::InvalidPtx);
        assert_eq!(error.name, "CUDA_ERROR_INVALID_PTX");
    }
}
