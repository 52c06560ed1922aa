//! Processes with a driver of our choice: this binary again, told by a variable what to do.

use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Arc;

use cust::context::Context;
use cust::device::Device;
use cust::error::CudaError;
use cust::sys::cudaError_enum as Code;
use ferrolayer_libcuda::{DriverVersion, LaunchAttributes, MINIMUM_DRIVER, NoDriver, Stream, launch};
use libtest_mimic::Completion;

use crate::{Outcome, linking};

/// The variable that tells the process its part.
pub const ROLE: &str = "FERROLAYER_LIBCUDA_ROLE";

/// What lies in the child's way as `libcuda.so.1`.
pub enum Driver {
    /// A file that the loader refuses. A machine that has a driver then has none, as far as the child can tell.
    Broken,
    /// `tests/fixtures/fake_driver.rs`.
    Fake,
}

/// Runs the part `role` in a process of its own.
pub fn run(role: &str, driver: Driver, variables: &[(&str, &str)]) -> Outcome {
    let folder = std::env::temp_dir().join(format!("ferrolayer-libcuda-{}-{role}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let library = folder.join("libcuda.so.1");
    match driver {
        Driver::Broken => std::fs::write(&library, "not a library")?,
        Driver::Fake => match linking::example("fake_driver") {
            Some(fake) => std::fs::copy(fake, &library).map(drop)?,
            None => {
                return Ok(Completion::ignored_with(
                    "libfake_driver.so is not built (cargo test without --test builds it)",
                ));
            }
        },
    }
    let output = Command::new(std::env::current_exe()?)
        .env(ROLE, role)
        .env("LD_LIBRARY_PATH", &folder)
        .envs(variables.iter().copied())
        .output();
    std::fs::remove_dir_all(&folder)?;
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout);
    // The last word shows that the part was played to its end.
    if output.status.success() && said.trim_end().ends_with(DONE) {
        return Ok(Completion::Completed);
    }
    Err(format!("{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

const DONE: &str = "done";

/// In the child: does the part, and says so.
pub fn play(role: &str) {
    match role {
        "without" => without(),
        "old" => old(),
        "arguments" => arguments(),
        "race" => race(),
        "too_old" => too_old(),
        "no_device" => no_device(),
        other => panic!("no part is called {other}"),
    }
    println!("{DONE}");
}

fn without() {
    // cust's own way in: an error, with a text (cust asks the driver for it, and panics if that fails).
    let error = cust::init(cust::CudaFlags::empty()).unwrap_err();
    assert_eq!(error, CudaError::NoDevice);
    assert!(error.to_string().contains("CUDA_ERROR_NO_DEVICE"), "{error}");
    assert_eq!(Device::num_devices(), Err(CudaError::NotInitialized));
    assert_eq!(Device::get_device(0).unwrap_err(), CudaError::NotInitialized);
    // SAFETY: without a driver no argument is looked at.
    assert_eq!(unsafe { cust::sys::cuMemAlloc_v2(null_mut(), 16) }, Code::CUDA_ERROR_NOT_INITIALIZED);
    // SAFETY: as above.
    assert_eq!(unsafe { cust::sys::cuCtxSynchronize() }, Code::CUDA_ERROR_NOT_INITIALIZED);

    let reason = ferrolayer_libcuda::available().unwrap_err();
    assert!(matches!(reason, NoDriver::Missing { .. }), "{reason:?}");
    let text = reason.to_string();
    assert!(text.starts_with("no NVIDIA driver on this machine ("), "{text}");
    assert!(text.contains("file too short") || text.contains("invalid ELF header"), "the loader's reason: {text}");
    assert_eq!(ferrolayer_libcuda::driver_version().unwrap_err(), reason);
    assert_eq!(ferrolayer_libcuda::device_count().unwrap_err(), reason);
    assert_eq!(ferrolayer_libcuda::devices().unwrap_err(), reason);
}

fn old() {
    cust::init(cust::CudaFlags::empty()).expect("the fake driver initialises");
    // Through a trampoline, and through our own call.
    // SAFETY: the function is absent, so that no argument is looked at.
    assert_eq!(unsafe { cust::sys::cuStreamSynchronize(null_mut()) }, Code::CUDA_ERROR_NOT_FOUND);
    let stream = fake_stream();
    let error = stream.synchronize().unwrap_err();
    assert_eq!((error.call, error.code), ("cuStreamSynchronize", 500));

    // A launch that may start early starts in order, one in clusters is refused.
    let early = LaunchAttributes { programmatic_serialization: true, ..Default::default() };
    fake_launch(&stream, early).expect("falls back to cuLaunchKernel");
    fake_launch(&stream, LaunchAttributes::default()).expect("plain launch");
    let clustered = LaunchAttributes { cluster: Some([2, 1, 1]), ..early };
    let error = fake_launch(&stream, clustered).unwrap_err();
    assert_eq!((error.call, error.code), ("cuLaunchKernelEx", 500));

    // The thread's current context is as before, none, after all this on another thread than the one that made it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fake_launch(&stream, early).expect("from another thread");
            let mut current = null_mut();
            // SAFETY: the result may be written.
            assert_eq!(unsafe { cust::sys::cuCtxGetCurrent(&mut current) }, Code::CUDA_SUCCESS);
            assert!(current.is_null());
        });
    });
}

/// A stream whose handle the fake driver knows.
fn fake_stream() -> Stream {
    let device = Device::get_device(0).expect("the fake device");
    let context = Arc::new(Context::new(device).expect("the fake context"));
    // SAFETY: the fake driver follows no handle.
    unsafe { Stream::from_raw(0x5171 as *mut _, &context) }
}

fn fake_launch(stream: &Stream, attributes: LaunchAttributes) -> Result<(), ferrolayer_libcuda::DriverError> {
    let mut number = 1u32;
    let mut params = [(&raw mut number).cast::<c_void>()];
    let function = 0xfedc_ba98_7654_3210_usize as *mut _;
    // SAFETY: the fake driver runs nothing and follows no handle.
    unsafe { launch(function, [2, 3, 5], [7, 11, 13], 17, stream, &mut params, attributes) }
}

fn arguments() {
    // Each of these is the first call of its function, the one that is resolved on the way; then once more, resolved.
    for _ in 0..2 {
        // SAFETY: the fake driver follows no handle.
        let result =
            unsafe { cust::sys::cuTexRefSetMipmapLevelClamp(0x1111_2222_3333_4444_usize as *mut _, -0.25, 1.5e30) };
        assert_eq!(result, Code::CUDA_SUCCESS, "arguments in floating-point registers");
        let mut params = [null_mut()];
        // SAFETY: as above.
        let result = unsafe {
            cust::sys::cuLaunchKernel(
                0xfedc_ba98_7654_3210_usize as *mut _,
                2,
                3,
                5,
                7,
                11,
                13,
                17,
                0x5171 as *mut _,
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        assert_eq!(result, Code::CUDA_SUCCESS, "arguments in registers and on the stack");
    }
    // The fake driver does look: one wrong value is an error.
    // SAFETY: as above.
    let result = unsafe { cust::sys::cuTexRefSetMipmapLevelClamp(0x1111_2222_3333_4444_usize as *mut _, -0.25, 2.0) };
    assert_eq!(result, Code::CUDA_ERROR_INVALID_VALUE);
}

fn race() {
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                // SAFETY: flags must be 0, and are.
                assert_eq!(unsafe { cust::sys::cuInit(0) }, Code::CUDA_SUCCESS);
                arguments();
                ferrolayer_libcuda::available().expect("the fake driver has a GPU");
            });
        }
    });
}

fn too_old() {
    let needed = MINIMUM_DRIVER;
    let reason = NoDriver::TooOld { found: DriverVersion::new(11, 2), needed };
    assert_eq!(ferrolayer_libcuda::available(), Err(reason.clone()));
    assert_eq!(ferrolayer_libcuda::driver_version(), Ok(DriverVersion::new(11, 2)));
    let text = reason.to_string();
    assert!(text.contains("CUDA 11.2") && text.contains("CUDA 11.4"), "{text}");
}

fn no_device() {
    assert_eq!(ferrolayer_libcuda::available(), Err(NoDriver::NoDevice));
    assert_eq!(ferrolayer_libcuda::device_count(), Ok(0));
    assert_eq!(ferrolayer_libcuda::devices(), Ok(Vec::new()));
}
