//! Is there a driver, and is there a GPU: asked without a context, and without cust.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::codes;
use crate::driver;
use crate::error::DriverError;
use crate::library;

/// The CUDA version that a driver supports, such as 12.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion(u32);

impl DriverVersion {
    /// CUDA `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major * 1000 + minor * 10)
    }

    /// The part before the point.
    pub const fn major(self) -> u32 {
        self.0 / 1000
    }

    /// The part after the point.
    pub const fn minor(self) -> u32 {
        self.0 % 1000 / 10
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

/// The oldest driver that will do: the one that cust's declarations describe, and that has every call that this crate
/// cannot do without.
pub const MINIMUM_DRIVER: DriverVersion = DriverVersion::new(11, 4);

/// Why the GPU cannot be used. Each reads as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDriver {
    /// There is no driver.
    #[error("no NVIDIA driver on this machine ({reason})")]
    Missing {
        /// What the dynamic loader said.
        reason: &'static str,
    },
    /// There is a driver, and no GPU that it may use.
    #[error("the NVIDIA driver finds no GPU (none is fitted, or CUDA_VISIBLE_DEVICES hides it)")]
    NoDevice,
    /// There is a driver of another age.
    #[error("the NVIDIA driver is too old: it supports CUDA {found}, and CUDA {needed} is the least that will do")]
    TooOld {
        /// What the driver supports.
        found: DriverVersion,
        /// [`MINIMUM_DRIVER`].
        needed: DriverVersion,
    },
    /// The driver is there and does not start.
    #[error("the NVIDIA driver cannot be used: {0}")]
    Unusable(#[from] DriverError),
}

/// Loads the library, or says why not.
fn loaded() -> Result<(), NoDriver> {
    library::library().map(|_| ()).map_err(|reason| NoDriver::Missing { reason })
}

/// The CUDA version that the driver supports, whether or not there is a GPU.
pub fn driver_version() -> Result<DriverVersion, NoDriver> {
    loaded()?;
    let mut version = 0;
    // SAFETY: the result may be written; this call needs no initialisation.
    unsafe { driver::cuDriverGetVersion(&mut version) }?;
    Ok(DriverVersion(version.try_into().unwrap_or(0)))
}

/// How many GPUs this process may use. A driver without a GPU counts zero.
pub fn device_count() -> Result<u32, NoDriver> {
    let found = driver_version()?;
    if found < MINIMUM_DRIVER {
        return Err(NoDriver::TooOld { found, needed: MINIMUM_DRIVER });
    }
    let mut count = 0;
    // SAFETY: flags must be 0, and are; the result may be written.
    let result = unsafe { driver::cuInit(0).and_then(|()| driver::cuDeviceGetCount(&mut count)) };
    match result {
        Ok(()) => Ok(count.try_into().unwrap_or(0)),
        Err(error) if error.code == codes::NO_DEVICE => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// `Ok` when there is a driver that is new enough and at least one GPU. It may be asked any number of times: the driver
/// initialises itself once.
pub fn available() -> Result<(), NoDriver> {
    if device_count()? == 0 { Err(NoDriver::NoDevice) } else { Ok(()) }
}

/// What a GPU is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub ordinal: u32,
    /// Its name, such as "NVIDIA H200".
    pub name: String,
    /// Its compute capability, such as (9, 0).
    pub compute_capability: (u32, u32),
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Its memory, in bytes.
    pub memory: u64,
    /// The most shared memory that a block may ask for, in bytes.
    pub max_shared_per_block: u32,
    /// Whether it has stream-ordered memory ([`alloc_async`](crate::alloc_async)).
    pub memory_pools: bool,
}

/// The driver, and what it says of its GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The CUDA version that it supports.
    pub version: DriverVersion,
    /// Its own version, such as "580.159.03", where the system tells.
    pub release: Option<String>,
    /// Its GPUs, at least one, or why there are none to use.
    pub gpus: Result<Vec<DeviceInfo>, NoDriver>,
}

/// What is here, for programs that tell their user. Makes no context.
pub fn presence() -> Result<Presence, NoDriver> {
    let version = driver_version()?;
    let release = std::fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| release(&text));
    let gpus = devices().and_then(|gpus| if gpus.is_empty() { Err(NoDriver::NoDevice) } else { Ok(gpus) });
    Ok(Presence { version, release, gpus })
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Mon ..`.
fn release(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_number = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_number).map(str::to_owned)
}

/// All GPUs that this process may use, in the driver's order. Makes no context.
pub fn devices() -> Result<Vec<DeviceInfo>, NoDriver> {
    (0..device_count()?).map(|ordinal| device(ordinal).map_err(NoDriver::from)).collect()
}

fn device(ordinal: u32) -> Result<DeviceInfo, DriverError> {
    // CUdevice_attribute
    const MULTIPROCESSOR_COUNT: c_int = 16;
    const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
    const MEMORY_POOLS_SUPPORTED: c_int = 115;

    let mut handle = 0;
    // SAFETY: the driver is initialised (`device_count` did); the result may be written.
    unsafe { driver::cuDeviceGet(&mut handle, ordinal.try_into().unwrap_or(c_int::MAX)) }?;

    let mut name = [0; 256];
    // SAFETY: `handle` is a device, and the buffer is as long as said.
    unsafe { driver::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, handle) }?;
    // SAFETY: the driver ends the name with a zero byte within the length.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();

    let mut memory = 0;
    // SAFETY: `handle` is a device; the result may be written.
    unsafe { driver::cuDeviceTotalMem_v2(&mut memory, handle) }?;

    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `handle` is a device; the result may be written; an unknown attribute is an error.
        unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, handle) }?;
        Ok::<u32, DriverError>(value.try_into().unwrap_or(0))
    };
    Ok(DeviceInfo {
        ordinal,
        name,
        compute_capability: (attribute(COMPUTE_CAPABILITY_MAJOR)?, attribute(COMPUTE_CAPABILITY_MINOR)?),
        multiprocessors: attribute(MULTIPROCESSOR_COUNT)?,
        memory: memory as u64,
        max_shared_per_block: attribute(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        memory_pools: attribute(MEMORY_POOLS_SUPPORTED)? != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_cudas() {
        let version = DriverVersion(12040);
        assert_eq!(version.to_string(), "12.4");
        assert_eq!(version, DriverVersion::new(12, 4));
        assert!(DriverVersion::new(11, 8) < DriverVersion::new(12, 0));
        assert_eq!(DriverVersion::new(13, 0).to_string(), "13.0");
    }

    #[test]
    fn the_release_is_read_from_the_kernel_module_s_line() {
        let line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Mon Oct  5 23:36:41 UTC 2026\nGCC version: 12.2\n";
        assert_eq!(release(line).as_deref(), Some("580.159.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n";
        assert_eq!(release(open).as_deref(), Some("575.57.08"));
        assert_eq!(release("GCC version: 12.2"), None);
    }

    #[test]
    fn each_reason_is_one_sentence() {
        let reasons = [
            NoDriver::Missing { reason: "not found" },
            NoDriver::NoDevice,
            NoDriver::TooOld { found: DriverVersion::new(11, 2), needed: MINIMUM_DRIVER },
            NoDriver::Unusable(DriverError::new("cuInit", 803)),
        ];
        for reason in reasons {
            let text = reason.to_string();
            assert!(text.contains("NVIDIA driver") && !text.contains('\n') && !text.contains(". "), "{text}");
        }
    }
}
