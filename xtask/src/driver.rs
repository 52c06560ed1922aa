//! What the driver says of itself and of its GPUs, on a machine that may have none.

use std::ffi::{CStr, c_char, c_int};

use libloading::{Library, Symbol};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const COMPUTE_CAPABILITY: [c_int; 2] = [75, 76];
/// Where the driver is.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// A driver that could be loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct Driver {
    /// The newest CUDA version that it can run.
    pub cuda: (i32, i32),
    /// Its own version, `580.159`, where the system tells.
    pub release: Option<String>,
    /// Its GPUs, or why it shows none.
    pub gpus: Result<Vec<Gpu>, String>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub name: String,
    pub compute_capability: (i32, i32),
}

/// Loads the driver and asks it.
///
/// # Errors
/// Why there is none, in words.
pub fn query() -> Result<Driver, String> {
    // SAFETY: what the driver runs when it is loaded is the system's business and sound in any process.
    let library = unsafe { Library::new(LIBRARY) }.map_err(|_| format!("there is no {LIBRARY} here"))?;
    let cuda = version(&library)?;
    let release = std::fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| release(&text));
    Ok(Driver { cuda, release, gpus: gpus(&library) })
}

fn version(library: &Library) -> Result<(i32, i32), String> {
    let mut version = 0;
    // SAFETY: the signature is that of the CUDA driver API; the argument is an int to write to.
    let result = unsafe {
        let get: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> = symbol(library, b"cuDriverGetVersion\0")?;
        get(&mut version)
    };
    succeeded("cuDriverGetVersion", result)?;
    Ok((version / 1000, version % 1000 / 10))
}

fn gpus(library: &Library) -> Result<Vec<Gpu>, String> {
    type Init = unsafe extern "C" fn(u32) -> c_int;
    type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
    type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
    // SAFETY: the signatures are those of the CUDA driver API (a device is an int); every pointer is to a variable of
    // the right type, the name's with its length, and devices are below the count.
    unsafe {
        succeeded("cuInit", symbol::<Init>(library, b"cuInit\0")?(0))?;
        let mut count = 0;
        succeeded("cuDeviceGetCount", symbol::<Count>(library, b"cuDeviceGetCount\0")?(&mut count))?;
        let name_of = symbol::<Name>(library, b"cuDeviceGetName\0")?;
        let attribute_of = symbol::<Attribute>(library, b"cuDeviceGetAttribute\0")?;
        let mut gpus = Vec::new();
        for device in 0..count {
            let mut name = [0; 256];
            succeeded("cuDeviceGetName", name_of(name.as_mut_ptr(), 256, device))?;
            name[255] = 0;
            let mut capability = [0; 2];
            for (number, attribute) in capability.iter_mut().zip(COMPUTE_CAPABILITY) {
                succeeded("cuDeviceGetAttribute", attribute_of(number, attribute, device))?;
            }
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            gpus.push(Gpu { name, compute_capability: (capability[0], capability[1]) });
        }
        Ok(gpus)
    }
}

/// # Safety
/// `T` must be the symbol's type.
unsafe fn symbol<'a, T>(library: &'a Library, name: &[u8]) -> Result<Symbol<'a, T>, String> {
    // SAFETY: the caller's.
    unsafe { library.get(name) }.map_err(|error| error.to_string())
}

fn succeeded(call: &str, result: c_int) -> Result<(), String> {
    match result {
        0 => Ok(()),
        100 => Err("the driver finds no GPU".to_owned()),
        other => Err(format!("{call} returned error {other}")),
    }
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Mon ..`.
fn release(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_number = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_number).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_the_kernel_module_s_line() {
        let line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Mon Oct  5 23:36:41 UTC 2026\nGCC version: 12.2\n";
        assert_eq!(release(line).as_deref(), Some("580.159.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n";
        assert_eq!(release(open).as_deref(), Some("575.57.08"));
        assert_eq!(release("GCC version: 12.2"), None);
    }
}
