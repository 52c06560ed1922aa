//! A GPU of this process, with what was loaded there.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use cuda_std::launch::LaunchDims;
use cust::context::Context;
use cust::module::Module;
use libcuda::{CaptureMode, DriverError, DriverVersion, Function, PtxFamily, ThreadCaptureMode};

use super::KernelModule;
use super::pieces::Pieces;
use crate::{Error, Result};

/// Dynamic shared memory that a kernel may use without asking.
pub const SHARED_WITHOUT_ASKING: u32 = 48 * 1024;

/// Since CUDA 12.3 graphs have edges of programmatic dependent launches (its release notes).
const OLDEST_DRIVER_THAT_CAPTURES_EARLY: DriverVersion = DriverVersion::new(12, 3);

/// A GPU of this process: one for all its streams, kept until the process ends, as the kernels loaded there are.
pub struct Card {
    pub ordinal: u32,
    pub name: String,
    /// Its kind, as the driver has it.
    pub model: String,
    pub family: PtxFamily,
    pub multiprocessors: u32,
    /// The most shared memory that a block may ask for, in bytes.
    pub max_shared: u32,
    /// Whether a capture takes launches before the grid before them has ended: its graph then has such edges.
    pub captures_early: bool,
    pub context: Arc<Context>,
    /// The modules that kernels were taken from, by the place of their text, and what was loaded.
    loaded: Mutex<Loaded>,
    /// What was looked up, and is kept like the modules.
    functions: RwLock<HashMap<Key, &'static Entry, BuildHasherDefault<Addresses>>>,
}

/// What was read and loaded: all of it is kept, as the functions are.
#[derive(Default)]
struct Loaded {
    pieces: HashMap<usize, Pieces>,
    modules: Vec<Module>,
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
pub struct Entry {
    pub raw: cust::sys::CUfunction,
    /// Whether it may be launched before the grid before it has ended.
    pub waits: bool,
    /// The dynamic shared memory that it was allowed so far.
    shared_bytes: Mutex<u32>,
    /// How many clusters run at once, of each shape that was asked for.
    clusters: Mutex<HashMap<[u32; 3], u32>>,
}

// SAFETY: a function handle is a name for loaded code; the driver takes it from any thread, and the module that holds the
// code is loaded until the process ends.
unsafe impl Send for Entry {}
// SAFETY: as above; what may change has a lock.
unsafe impl Sync for Entry {}

impl Card {
    /// The GPU with this number; opened by the first call.
    pub fn get(ordinal: u32) -> Result<Arc<Self>> {
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
            model: info.name,
            family,
            multiprocessors: info.multiprocessors,
            max_shared: info.max_shared_per_block,
            captures_early: version >= OLDEST_DRIVER_THAT_CAPTURES_EARLY,
            context: Arc::new(context),
            loaded: Mutex::default(),
            functions: RwLock::default(),
        };
        Ok(card)
    }

    /// Loads a kernel, without the others of its module where that can be: compiling all of them takes half a minute.
    /// Whether it may be launched before the grid before it has ended, too.
    fn load(&self, module: &'static KernelModule, name: &str) -> Result<(cust::sys::CUfunction, bool)> {
        let failed = |call, during: &str, error| Error::Driver {
            during: format!("{during} {}: {name}", self.name),
            source: DriverError::from_cust(call, error),
        };
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let _relaxed = self.relaxed()?;
        let work = || {
            let pieces = loaded.pieces.entry(key(module)).or_insert_with(|| Pieces::of(module.ptx(self.family)));
            let module = Module::from_ptx(pieces.with(name), &[]);
            let module = module.map_err(|error| failed("cuModuleLoadDataEx", "loading a kernel onto", error))?;
            let function = module.get_function(name);
            let function = function.map_err(|error| failed("cuModuleGetFunction", "looking up a kernel on", error))?;
            // At once: the launch may be captured. What keeps the driver from it, the launch tells.
            let _ = Function::from(&function).load();
            let loaded_function = (function.to_raw(), pieces.wait());
            loaded.modules.push(module);
            Ok(loaded_function)
        };
        libcuda::with_current(&self.context, work)
            .map_err(|source| Error::Driver { during: format!("entering the context of {}", self.name), source })?
    }

    /// Lets this thread load and make what it has to while someone else's stream captures, which then goes on.
    pub fn relaxed(&self) -> Result<ThreadCaptureMode> {
        let during = || format!("using {} while a stream may capture", self.name);
        ThreadCaptureMode::enter(CaptureMode::Relaxed).map_err(|source| Error::Driver { during: during(), source })
    }

    pub fn function(&self, module: &'static KernelModule, name: &'static str) -> Result<&'static Entry> {
        let key = Key::of(module, name);
        if let Some(entry) = self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(entry);
        }
        let (raw, waits) = self.load(module, name)?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        // One for each kernel of the process, as the code itself; another thread may have been first.
        let shared_bytes = Mutex::new(SHARED_WITHOUT_ASKING);
        let new = || &*Box::leak(Box::new(Entry { raw, waits, shared_bytes, clusters: Mutex::default() }));
        Ok(functions.entry(key).or_insert_with(new))
    }
}

impl Entry {
    /// Lets the kernel use this much dynamic shared memory.
    pub fn allow_shared(&self, context: &Context, bytes: u32) -> Result<(), DriverError> {
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

    /// The launch with no more clusters along x than run at once, if it asks for that and the driver can tell.
    pub fn resident(&self, context: &Context, dims: LaunchDims) -> Result<LaunchDims, DriverError> {
        if !dims.resident {
            return Ok(dims);
        }
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let most = match clusters.get(&dims.cluster) {
            Some(&most) => most,
            None => {
                // SAFETY: the handle came from the driver, and its module is loaded until the process ends.
                let function = unsafe { Function::from_raw(self.raw) };
                let _relaxed = ThreadCaptureMode::enter(CaptureMode::Relaxed)?;
                let (threads, bytes) = (dims.threads(), dims.shared_bytes);
                let active = libcuda::with_current(context, || function.active_clusters(dims.cluster, threads, bytes))?;
                // Any number is right.
                let most = active.map_or(u32::MAX, |active| active.max(1));
                clusters.insert(dims.cluster, most);
                most
            }
        };
        let [x, y, z] = dims.grid;
        Ok(LaunchDims { grid: [x.min(most.saturating_mul(dims.cluster[0])), y, z], ..dims })
    }
}
