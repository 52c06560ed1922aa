//! What every test stands on: the first GPU, the kernels, and a buffer.

use std::ffi::{CString, c_void};
use std::sync::{Arc, OnceLock};

use cust::context::Context;
use cust::device::Device;
use cust::module::Module;
use ferrolayer_libcuda::{
    DeviceInfo, DriverError, DriverVersion, Function, MINIMUM_DRIVER, Stream, alloc_async, available, device_count,
    devices, driver_version, free_async, memcpy_dtoh_async, memcpy_htod_async, with_current,
};
use libtest_mimic::{Completion, Failed};

/// `Ok(Completed)`, `Ok(ignored with a reason)`, or what is wrong.
pub type Outcome = Result<Completion, Failed>;

/// A test that a GPU is there for.
pub type Test = fn(&Gpu) -> Outcome;

/// The first GPU.
pub struct Gpu {
    pub context: Arc<Context>,
    pub info: DeviceInfo,
    sm_80: Module,
    sm_90: Option<Module>,
}

/// Runs the test, or says why not.
pub fn run(test: Test) -> Outcome {
    match available() {
        Ok(()) => test(Gpu::first()?),
        Err(reason) if std::env::var("FERROLAYER_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            Err(format!("FERROLAYER_REQUIRE_GPU=1, but: {reason}").into())
        }
        Err(reason) => Ok(Completion::ignored_with(reason.to_string())),
    }
}

impl Gpu {
    /// The first GPU, set up once.
    pub fn first() -> Result<&'static Gpu, String> {
        static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
        GPU.get_or_init(|| Self::new().map_err(|error| error.to_string())).as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        cust::init(cust::CudaFlags::empty())?;
        let info = devices()?.into_iter().next().ok_or("no device after all")?;
        let context = Arc::new(Context::new(Device::get_device(0)?)?);
        let module = |text: &str| -> Result<Module, Box<dyn std::error::Error>> {
            let text = CString::new(text)?;
            Ok(with_current(&context, || Module::from_ptx_cstr(&text, &[]))??)
        };
        let sm_80 = module(include_str!("sm_80.ptx"))?;
        let hopper = info.compute_capability >= (9, 0);
        let sm_90 = if hopper { Some(module(include_str!("sm_90.ptx"))?) } else { None };
        Ok(Self { context, info, sm_80, sm_90 })
    }

    /// A kernel of `sm_80.ptx`.
    pub fn kernel(&self, name: &str) -> Result<Function<'_>, Failed> {
        Ok(Function::from(&with_current(&self.context, || self.sm_80.get_function(name))??))
    }

    /// A kernel of `sm_90.ptx`, on GPUs that have those instructions.
    pub fn hopper_kernel(&self, name: &str) -> Result<Option<Function<'_>>, Failed> {
        let Some(module) = &self.sm_90 else { return Ok(None) };
        Ok(Some(Function::from(&with_current(&self.context, || module.get_function(name))??)))
    }

    /// Why a test of [`hopper_kernel`](Self::hopper_kernel) was not run.
    pub fn not_hopper(&self) -> Outcome {
        let (major, minor) = self.info.compute_capability;
        let reason = format!("{} has compute capability {major}.{minor}, and this needs 9.0", self.info.name);
        Ok(Completion::ignored_with(reason))
    }

    pub fn stream(&self) -> Result<Stream, DriverError> {
        Stream::new(&self.context)
    }
}

/// The pointer that a launch takes for an argument.
pub fn argument<T>(value: &mut T) -> *mut c_void {
    (&raw mut *value).cast()
}

/// Words in device memory, of one stream.
pub struct Buffer<'s> {
    pub address: u64,
    length: usize,
    stream: &'s Stream,
}

impl<'s> Buffer<'s> {
    pub fn new(words: &[u32], stream: &'s Stream) -> Result<Self, DriverError> {
        let buffer = Self { address: alloc_async(size_of_val(words), stream)?, length: words.len(), stream };
        buffer.write(words)?;
        Ok(buffer)
    }

    pub fn from_floats(values: &[f32], stream: &'s Stream) -> Result<Self, DriverError> {
        let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        Self::new(&words, stream)
    }

    /// Waits for the copy, so that `words` may go.
    pub fn write(&self, words: &[u32]) -> Result<(), DriverError> {
        assert_eq!(words.len(), self.length);
        // SAFETY: both have this length, and stay until the copy is done, which is waited for.
        unsafe { memcpy_htod_async(self.address, words.as_ptr().cast(), size_of_val(words), self.stream) }?;
        self.stream.synchronize()
    }

    pub fn read(&self) -> Result<Vec<u32>, DriverError> {
        let mut words = vec![0u32; self.length];
        let bytes = size_of_val(words.as_slice());
        // SAFETY: as in `write`.
        unsafe { memcpy_dtoh_async(words.as_mut_ptr().cast(), self.address, bytes, self.stream) }?;
        self.stream.synchronize()?;
        Ok(words)
    }

    pub fn floats(&self) -> Result<Vec<f32>, DriverError> {
        Ok(self.read()?.into_iter().map(f32::from_bits).collect())
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in this stream, freed once, and used in this stream only.
        if let Err(error) = unsafe { free_async(self.address, self.stream) } {
            eprintln!("{error}");
        }
    }
}

pub fn presence(gpu: &Gpu) -> Outcome {
    available()?;
    let version = driver_version()?;
    assert!(version >= MINIMUM_DRIVER && version < DriverVersion::new(100, 0), "{version}");
    let all = devices()?;
    assert_eq!(all.len(), device_count()? as usize);
    assert_eq!(all[0], gpu.info);
    assert!(!gpu.info.name.is_empty() && gpu.info.multiprocessors > 0 && gpu.info.memory > 1 << 28, "{:?}", gpu.info);
    assert!(gpu.info.max_shared_per_block >= 48 << 10, "{:?}", gpu.info);

    // The current context is entered for the call and left after it, also on a thread that has none.
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let current = || {
                    let mut raw = std::ptr::null_mut();
                    // SAFETY: the result may be written.
                    let result = unsafe { cust::sys::cuCtxGetCurrent(&mut raw) };
                    assert_eq!(result, cust::sys::cudaError_enum::CUDA_SUCCESS);
                    raw
                };
                assert!(current().is_null());
                assert_eq!(with_current(&gpu.context, current), Ok(gpu.context.as_raw()));
                assert!(current().is_null());
            })
            .join()
            .expect("no panic");
    });
    // An error carries the driver's own sentence.
    let text = DriverError::new("cuLaunchKernel", 700).to_string();
    assert!(text.contains("(700): "), "{text}");
    Ok(Completion::Completed)
}
