//! A stream of a real GPU.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::ffi::c_void;
use std::fmt::{Display, Formatter};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use cuda_std::launch::{Launch, LaunchDims};
use cust::context::Context;
use cust::module::Module;
use libcuda::{
    CaptureMode, DriverError, DriverVersion, Event, Function, Graph, GraphExec, LaunchAttributes, PtxFamily, Stream,
    ThreadCaptureMode,
};

use super::KernelModule;
use super::launched::Launched;
use crate::{Error, Result};

/// Dynamic shared memory that a kernel may use without asking.
const SHARED_WITHOUT_ASKING: u32 = 48 * 1024;

/// The driver's code for memory that is not to be had.
const OUT_OF_MEMORY: u32 = 2;

/// One stream, and what was launched on it.
pub struct Driver {
    card: Arc<Card>,
    stream: Stream,
    launched: Mutex<Launched>,
    /// Waits after each launch, so that a fault names exactly one.
    blocking: bool,
}

/// Since CUDA 12.3 graphs have edges of programmatic dependent launches (its release notes).
const OLDEST_DRIVER_THAT_CAPTURES_EARLY: DriverVersion = DriverVersion::new(12, 3);

/// A GPU of this process: one for all its streams, kept until the process ends, since loading the kernels takes seconds.
struct Card {
    ordinal: u32,
    name: String,
    family: PtxFamily,
    /// Whether a capture takes launches before the grid before them has ended: its graph then has such edges.
    captures_early: bool,
    context: Arc<Context>,
    /// What was loaded, by the place of its text.
    modules: Mutex<HashMap<usize, Module>>,
    /// What was looked up, and is kept like the modules.
    functions: RwLock<HashMap<Key, &'static Entry, BuildHasherDefault<Addresses>>>,
}

/// What tells modules apart: each is a static of its own.
fn key(module: &'static KernelModule) -> usize {
    std::ptr::from_ref(module).addr()
}

/// A kernel's module and name, by where they are: each is a static, and each launch asks for one. A name that is there
/// twice is looked up twice.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    module: usize,
    name: usize,
    name_len: usize,
}

impl Key {
    fn of(module: &'static KernelModule, name: &'static str) -> Self {
        Self { module: key(module), name: name.as_ptr().addr(), name_len: name.len() }
    }
}

/// Mixes a [`Key`]'s addresses: fast, and nobody chooses them.
#[derive(Default)]
struct Addresses(u64);

impl Hasher for Addresses {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }

    fn write_usize(&mut self, number: usize) {
        // The golden ratio's bits, as in Fibonacci hashing; the map takes the upper ones, and the lower.
        self.0 = (self.0.rotate_left(23) ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }
}

/// A kernel that was looked up.
struct Entry {
    raw: cust::sys::CUfunction,
    /// Whether it may be launched before the grid before it has ended.
    waits: bool,
    /// The dynamic shared memory that it was allowed so far.
    shared_bytes: Mutex<u32>,
}

// SAFETY: a function handle is a name for loaded code; the driver takes it from any thread, and the module that holds the
// code is loaded until the process ends.
unsafe impl Send for Entry {}
// SAFETY: as above; what may change has a lock.
unsafe impl Sync for Entry {}

impl Card {
    /// The GPU with this number; opened by the first call.
    fn get(ordinal: u32) -> Result<Arc<Self>> {
        static CARDS: OnceLock<Mutex<HashMap<u32, Arc<Card>>>> = OnceLock::new();
        let mut cards = CARDS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(card) = cards.get(&ordinal) {
            return Ok(card.clone());
        }
        let card = Arc::new(Self::open(ordinal)?);
        cards.insert(ordinal, card.clone());
        Ok(card)
    }

    fn open(ordinal: u32) -> Result<Self> {
        const OP: &str = "Device::gpu";
        libcuda::available()?;
        let devices = libcuda::devices()?;
        let version = libcuda::driver_version()?;
        let count = devices.len();
        let Some(info) = devices.into_iter().find(|info| info.ordinal == ordinal) else {
            return Err(Error::Argument {
                op: OP,
                argument: "ordinal",
                got: ordinal.to_string(),
                expected: format!("less than {count}, the number of GPUs"),
            });
        };
        let (major, minor) = info.compute_capability;
        let family = PtxFamily::of(info.compute_capability, version).map_err(|_| Error::Argument {
            op: OP,
            argument: "ordinal",
            got: format!("{ordinal}, a {} of compute capability {major}.{minor}", info.name),
            expected: "a GPU of compute capability 8.0 or later".into(),
        })?;
        let name = format!("GPU {ordinal} ({})", info.name);
        let during = |call| format!("{call} {name}");
        let _relaxed = ThreadCaptureMode::enter(CaptureMode::Relaxed)
            .map_err(|source| Error::Driver { during: during("opening"), source })?;
        let cust =
            |call, during: String| move |error| Error::Driver { during, source: DriverError::from_cust(call, error) };
        cust::init(cust::CudaFlags::empty()).map_err(cust("cuInit", during("starting")))?;
        let device = cust::device::Device::get_device(ordinal).map_err(cust("cuDeviceGet", during("opening")))?;
        let context =
            libcuda::primary_context(device).map_err(|source| Error::Driver { during: during("opening"), source })?;
        // Keep what was freed for the next allocation instead of giving it back at each synchronisation.
        libcuda::set_release_threshold(&context, u64::MAX)
            .map_err(|source| Error::Driver { during: during("setting up the memory pool of"), source })?;
        let card = Self {
            ordinal,
            name,
            family,
            captures_early: version >= OLDEST_DRIVER_THAT_CAPTURES_EARLY,
            context: Arc::new(context),
            modules: Mutex::default(),
            functions: RwLock::default(),
        };
        // Now, and not at the first launch: it takes seconds.
        card.with_module(&super::FERROLAYER, |_| Ok(()))?;
        Ok(card)
    }

    /// Calls `f` with a module, loaded by the first call, in this GPU's context.
    fn with_module<R>(
        &self,
        module: &'static KernelModule,
        f: impl FnOnce(&Module) -> Result<R, cust::error::CudaError>,
    ) -> Result<R> {
        let failed = |call, during: &str, error| Error::Driver {
            during: format!("{during} {}", self.name),
            source: DriverError::from_cust(call, error),
        };
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let _relaxed = self.relaxed()?;
        let work = || {
            let loaded = match modules.entry(key(module)) {
                Occupied(entry) => entry.into_mut(),
                Vacant(entry) => {
                    let loaded = Module::from_ptx(module.ptx(self.family), &[]);
                    entry.insert(loaded.map_err(|e| failed("cuModuleLoadDataEx", "loading kernels onto", e))?)
                }
            };
            f(loaded).map_err(|error| failed("cuModuleGetFunction", "looking up a kernel on", error))
        };
        libcuda::with_current(&self.context, work)
            .map_err(|source| Error::Driver { during: format!("entering the context of {}", self.name), source })?
    }

    /// Lets this thread load and make what it has to while someone else's stream captures, which then goes on.
    fn relaxed(&self) -> Result<ThreadCaptureMode> {
        let during = || format!("using {} while a stream may capture", self.name);
        ThreadCaptureMode::enter(CaptureMode::Relaxed).map_err(|source| Error::Driver { during: during(), source })
    }

    fn function(&self, module: &'static KernelModule, name: &'static str) -> Result<&'static Entry> {
        let key = Key::of(module, name);
        if let Some(entry) = self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(entry);
        }
        let raw = self.with_module(module, |module| {
            let function = module.get_function(name)?;
            // At once: the launch may be captured. What keeps the driver from it, the launch tells.
            let _ = Function::from(&function).load();
            Ok(function.to_raw())
        });
        let raw = raw.map_err(|error| match error {
            Error::Driver { during, source } => Error::Driver { during: format!("{during}: {name}"), source },
            other => other,
        })?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        // One for each kernel of the process, as the code itself; another thread may have been first.
        let waits = module.waits(self.family);
        let new = || &*Box::leak(Box::new(Entry { raw, waits, shared_bytes: Mutex::new(SHARED_WITHOUT_ASKING) }));
        Ok(functions.entry(key).or_insert_with(new))
    }
}

impl Entry {
    /// Lets the kernel use this much dynamic shared memory.
    fn allow_shared(&self, context: &Context, bytes: u32) -> Result<(), DriverError> {
        let mut allowed = self.shared_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > *allowed {
            // SAFETY: the handle came from the driver, and its module is loaded until the process ends.
            let function = unsafe { Function::from_raw(self.raw) };
            let _relaxed = ThreadCaptureMode::enter(CaptureMode::Relaxed)?;
            libcuda::with_current(context, || function.set_max_dynamic_shared(bytes))??;
            *allowed = bytes;
        }
        Ok(())
    }
}

impl Driver {
    /// A new stream of the GPU with this number.
    pub fn open(ordinal: u32) -> Result<Self> {
        let card = Card::get(ordinal)?;
        let _relaxed = card.relaxed()?;
        let stream = Stream::new(&card.context)
            .map_err(|source| Error::Driver { during: format!("making a stream of {}", card.name), source })?;
        Ok(Self::with(card, stream))
    }

    /// A stream made elsewhere.
    ///
    /// # Safety
    /// The stream is one of this GPU's primary context and outlives the result.
    pub unsafe fn open_on_stream(ordinal: u32, stream: *mut c_void) -> Result<Self> {
        let card = Card::get(ordinal)?;
        // SAFETY: the caller's.
        let stream = unsafe { Stream::from_raw(stream.cast(), &card.context) };
        Ok(Self::with(card, stream))
    }

    fn with(card: Arc<Card>, stream: Stream) -> Self {
        let blocking = std::env::var("FERROLAYER_LAUNCH_BLOCKING").is_ok_and(|value| value == "1");
        Self { card, stream, launched: Mutex::default(), blocking }
    }

    pub fn ordinal(&self) -> u32 {
        self.card.ordinal
    }

    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        let during = || format!("allocating {bytes} bytes on {}", self.card.name);
        match libcuda::alloc_async(bytes, &self.stream) {
            Err(error) if error.code == OUT_OF_MEMORY => {}
            result => return self.told(result, during),
        }
        // What this process has freed and keeps for later may be in pieces too small: without these it may do.
        self.synchronize()?;
        self.told(libcuda::trim_pool(&self.card.context, 0), during)?;
        self.told(libcuda::alloc_async(bytes, &self.stream), during).map_err(|error| self.out_of_memory(error, bytes))
    }

    /// What the driver's "out of memory" means for who asked for so many bytes.
    fn out_of_memory(&self, error: Error, bytes: usize) -> Error {
        match error {
            Error::Driver { source, .. } if source.code == OUT_OF_MEMORY => Error::OutOfMemory {
                device: self.to_string(),
                bytes,
                free: libcuda::mem_info(&self.card.context).ok().map(|info| info.free),
            },
            other => other,
        }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.card.context
    }

    /// Another stream of this GPU.
    pub fn new_stream(&self) -> Result<Stream> {
        self.told(Stream::new(&self.card.context), || format!("making a stream on {}", self.card.name))
    }

    /// As [`Driver::allocate`], at once and for any stream, also while this one records.
    pub fn allocate_aside(&self, bytes: usize, aside: &Stream) -> Result<u64> {
        let during = || format!("allocating {bytes} bytes for a graph on {}", self.card.name);
        let address = libcuda::alloc_async(bytes, aside);
        let address = self.told(address, during).map_err(|error| self.out_of_memory(error, bytes))?;
        self.told(aside.synchronize(), during)?;
        Ok(address)
    }

    /// From now on work is recorded.
    pub fn begin_capture(&self) -> Result<()> {
        // Relaxed, since memory is allocated aside meanwhile.
        self.told(self.stream.begin_capture(CaptureMode::Relaxed), || format!("recording on {}", self.card.name))
    }

    /// What was recorded.
    pub fn end_capture(&self) -> Result<Graph> {
        self.told(self.stream.end_capture(), || format!("recording on {}", self.card.name))
    }

    pub fn instantiate(&self, graph: Graph) -> Result<GraphExec> {
        let during = || format!("making a graph ready on {}", self.card.name);
        let mut exec = self.told(graph.instantiate(), during)?;
        self.told(exec.upload(&self.stream), during)?;
        Ok(exec)
    }

    /// Queues a graph whose kernels these are.
    pub fn replay(&self, exec: &mut GraphExec, launches: &[(&'static str, LaunchDims)]) -> Result<()> {
        {
            let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
            launches.iter().for_each(|(name, dims)| launched.note(name, *dims));
        }
        self.told(exec.launch(&self.stream), || format!("replaying a graph on {}", self.card.name))?;
        if self.blocking { self.synchronize() } else { Ok(()) }
    }

    /// Gives a graph's kernel new arguments.
    ///
    /// # Safety
    /// As for a launch, at every replay; the graph's kernel number `index` is this one.
    pub unsafe fn set_kernel<K: Launch>(
        &self,
        exec: &mut GraphExec,
        index: usize,
        module: &'static KernelModule,
        dims: LaunchDims,
        kernel: &K,
    ) -> Result<()> {
        let entry = self.entry::<K>(module, dims)?;
        let result = kernel.with_params(|params| {
            // SAFETY: the caller's.
            unsafe { exec.set_kernel(index, entry.raw, dims.grid, dims.block, dims.shared_bytes, params) }
        });
        self.told(result, || format!("giving {} of a graph new arguments", K::KERNEL.name))
    }

    /// # Safety
    /// `address` came from [`Driver::allocate`] and is not used again.
    pub unsafe fn free(&self, address: u64) {
        // A failure here is an earlier kernel's fault, which the next checked call tells; an owner that goes cannot.
        // SAFETY: the caller's; the memory was allocated on this stream.
        let _ = unsafe { libcuda::free_async(address, &self.stream) };
    }

    /// # Safety
    /// `bytes` at `address` are allocated.
    pub unsafe fn fill(&self, address: u64, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        let result = unsafe { libcuda::memset_d8_async(address, value, bytes, &self.stream) };
        self.told(result, || format!("filling {bytes} bytes on {}", self.card.name))
    }

    /// # Safety
    /// `bytes` at both are allocated.
    pub unsafe fn copy_to_host(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's; the copy is waited for below, also when queuing it failed.
        let result = unsafe { libcuda::memcpy_dtoh_async(to.cast(), from, bytes, &self.stream) };
        self.told(result, || format!("copying {bytes} bytes from {}", self.card.name))?;
        self.synchronize()
    }

    /// # Safety
    /// `bytes` at both are allocated.
    pub unsafe fn copy_from_host(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        // The driver has read pageable memory when the call returns.
        // SAFETY: the caller's.
        let result = unsafe { libcuda::memcpy_htod_async(to, from.cast(), bytes, &self.stream) };
        self.told(result, || format!("copying {bytes} bytes to {}", self.card.name))
    }

    /// # Safety
    /// `bytes` at both are allocated and do not overlap.
    pub unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        let result = unsafe { libcuda::memcpy_dtod_async(to, from, bytes, &self.stream) };
        self.told(result, || format!("copying {bytes} bytes on {}", self.card.name))
    }

    /// The kernel, allowed as much shared memory as the launch asks for.
    fn entry<K: Launch>(&self, module: &'static KernelModule, dims: LaunchDims) -> Result<&'static Entry> {
        let name = K::KERNEL.name;
        let entry = self.card.function(module, name)?;
        if dims.shared_bytes > SHARED_WITHOUT_ASKING {
            let allowed = entry.allow_shared(&self.card.context, dims.shared_bytes);
            self.told(allowed, || format!("giving {name} {} bytes of shared memory", dims.shared_bytes))?;
        }
        Ok(entry)
    }

    /// # Safety
    /// The kernel's contract, and its buffers are this GPU's.
    pub unsafe fn launch<K: Launch>(&self, module: &'static KernelModule, dims: LaunchDims, kernel: &K) -> Result<()> {
        let name = K::KERNEL.name;
        let entry = self.entry::<K>(module, dims)?;
        self.launched.lock().unwrap_or_else(PoisonError::into_inner).note(name, dims);
        // Where a kernel waits for the grid before it by itself, its launch need not.
        let early = entry.waits
            && (self.card.captures_early || !self.told(self.stream.is_capturing(), || format!("launching {name}"))?);
        let attributes = LaunchAttributes { programmatic_serialization: early, ..LaunchAttributes::default() };
        let result = kernel.with_params(|params| {
            // SAFETY: the launch type writes the parameters as the kernel declares them; the module is loaded until the
            // process ends; the rest is the caller's.
            unsafe {
                libcuda::launch(entry.raw, dims.grid, dims.block, dims.shared_bytes, &self.stream, params, attributes)
            }
        });
        self.told(result, || format!("launching {name}"))?;
        // A recording cannot wait; the replay does.
        let waits = self.blocking && !self.told(self.stream.is_capturing(), || format!("launching {name}"))?;
        if waits { self.synchronize() } else { Ok(()) }
    }

    /// Seconds between events around each of the pieces that `work` queues.
    pub fn time_each(&self, count: usize, mut work: impl FnMut(usize) -> Result<()>) -> Result<Vec<f64>> {
        let during = || format!("timing on {}", self.card.name);
        // Made before: between two pieces the host only queues.
        let events = (0..=count).map(|_| self.told(Event::new(&self.card.context), during));
        let events = events.collect::<Result<Vec<_>>>()?;
        self.told(events[0].record(&self.stream), during)?;
        for (piece, end) in events[1..].iter().enumerate() {
            work(piece)?;
            self.told(end.record(&self.stream), during)?;
        }
        self.synchronize()?;
        let seconds = |pair: &[Event]| Ok(f64::from(self.told(pair[1].elapsed_since(&pair[0]), during)?) / 1e3);
        events.windows(2).map(seconds).collect()
    }

    pub fn synchronize(&self) -> Result<()> {
        self.told(self.stream.synchronize(), || format!("waiting for {}", self.card.name))?;
        self.launched.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// Makes of a driver's error this library's: a kernel's fault, with the launches that may be meant, or the call's own.
    pub fn told<R>(&self, result: Result<R, DriverError>, during: impl FnOnce() -> String) -> Result<R> {
        result.map_err(|source| {
            if is_kernel_fault(source.code) {
                let launches = self.launched.lock().unwrap_or_else(PoisonError::into_inner).describe();
                Error::KernelFault { during: during(), source, launches }
            } else {
                Error::Driver { during: during(), source }
            }
        })
    }
}

impl Display for Driver {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        // Two streams of a GPU are two devices: the address tells them apart in a message.
        write!(f, "{}, stream {:p}", self.card.name, self.stream.raw())
    }
}

/// Results that say that a kernel, not the call that returns them, went wrong; the context is lost with all of them.
fn is_kernel_fault(code: u32) -> bool {
    // In cuda.h's order: ECC_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT, HARDWARE_STACK_ERROR,
    // ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, INVALID_PC, LAUNCH_FAILED.
    matches!(code, 214 | 700 | 702 | 710 | 714 | 715 | 716 | 717 | 718 | 719)
}
