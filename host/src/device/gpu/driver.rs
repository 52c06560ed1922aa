//! A stream of a real GPU.

use std::ffi::c_void;
use std::fmt::{Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_std::launch::{LaunchArguments, LaunchDims};
use cust::context::Context;
use libcuda::{
    CaptureMode, DriverError, Event, Graph, GraphExec, LaunchAttributes, PtxFamily, Stream, TensorMap, TensorMapError,
    TiledArray,
};

use super::KernelModule;
use super::card::{Card, Entry, SHARED_WITHOUT_ASKING};
use super::launched::Launched;
use super::spare::Spare;
use crate::{Error, Result};

/// The driver's code for memory that is not to be had.
const OUT_OF_MEMORY: u32 = 2;

/// One stream, and what was launched on it.
pub struct Driver {
    card: Arc<Card>,
    stream: Stream,
    launched: Mutex<Launched>,
    /// What was freed here and is small; none where faults are looked for, so that no piece is used again unseen.
    spare: Option<Mutex<Spare>>,
    /// Waits after each launch, so that a fault names exactly one.
    blocking: bool,
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
        Self { card, stream, launched: Mutex::default(), spare: (!blocking).then(Mutex::default), blocking }
    }

    /// The most shared memory that a block may ask for, in bytes.
    pub fn max_shared(&self) -> u32 {
        self.card.max_shared
    }

    pub fn ordinal(&self) -> u32 {
        self.card.ordinal
    }

    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        let during = || format!("allocating {bytes} bytes on {}", self.card.name);
        let captured = self.told(self.stream.is_capturing(), during)?;
        if let Some(address) = self.spare().filter(|_| !captured).and_then(|mut spare| spare.take(bytes)) {
            return Ok(address);
        }
        let address = match libcuda::alloc_async(bytes, &self.stream) {
            // What this process has freed and keeps for later may be in pieces too small: without these it may do.
            Err(error) if error.code == OUT_OF_MEMORY && !captured => {
                self.trim()?;
                libcuda::alloc_async(bytes, &self.stream)
            }
            result => result,
        };
        let address = self.told(address, during).map_err(|error| self.out_of_memory(error, bytes))?;
        if let Some(mut spare) = self.spare().filter(|_| captured) {
            spare.is_captured(address);
        }
        Ok(address)
    }

    /// Waits for the stream, and gives back to the driver what was freed on it, and what the GPU's pool keeps that is free.
    pub fn trim(&self) -> Result<()> {
        // First, so that nothing is queued on a stream that is captured: this fails there.
        self.synchronize()?;
        self.free_spare();
        self.synchronize()?;
        self.told(libcuda::trim_pool(&self.card.context, 0), || format!("giving back memory of {}", self.card.name))
    }

    fn spare(&self) -> Option<MutexGuard<'_, Spare>> {
        self.spare.as_ref().map(|spare| spare.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Frees what was freed and kept.
    fn free_spare(&self) {
        let pieces = self.spare().map_or_else(Vec::new, |mut spare| spare.drain().collect());
        for address in pieces {
            // SAFETY: allocated on this stream, and nobody has it.
            let _ = unsafe { libcuda::free_async(address, &self.stream) };
        }
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

    /// Whether kernels are launched from PTX for `sm_90a`, where a module has it.
    pub fn is_hopper(&self) -> bool {
        self.card.family == PtxFamily::Sm90a
    }

    pub fn model(&self) -> &str {
        &self.card.model
    }

    pub fn multiprocessors(&self) -> u32 {
        self.card.multiprocessors
    }

    /// The map of an array that was found to be valid.
    pub fn tensor_map(&self, array: &TiledArray<'_>) -> Result<TensorMap> {
        let map = TensorMap::encode_tiled(array, &self.card.context).map_err(|error| match error {
            TensorMapError::Driver(source) => source,
            wrong => unreachable!("{wrong}"),
        });
        self.told(map, || format!("describing a matrix to {}", self.card.name))
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
    pub unsafe fn set_kernel(
        &self,
        exec: &mut GraphExec,
        index: usize,
        module: &'static KernelModule,
        dims: LaunchDims,
        kernel: &dyn LaunchArguments,
    ) -> Result<()> {
        let name = kernel.kernel().name;
        let (entry, dims) = self.entry(module, name, dims)?;
        let mut result = Ok(());
        kernel.with_params(&mut |params| {
            // SAFETY: the caller's.
            result = unsafe { exec.set_kernel(index, entry.raw, dims.grid, dims.block, dims.shared_bytes, params) };
        });
        self.told(result, || format!("giving {name} of a graph new arguments"))
    }

    /// # Safety
    /// `address` came from [`Driver::allocate`] with this size and is not used again.
    pub unsafe fn free(&self, address: u64, bytes: usize) {
        let captured = self.stream.is_capturing().unwrap_or(true);
        if self.spare().filter(|_| !captured).is_some_and(|mut spare| spare.keep(address, bytes)) {
            return;
        }
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

    /// The kernel, allowed as much shared memory as the launch asks for, and the launch as this GPU makes it.
    fn entry(
        &self,
        module: &'static KernelModule,
        name: &'static str,
        dims: LaunchDims,
    ) -> Result<(&'static Entry, LaunchDims)> {
        let entry = self.card.function(module, name)?;
        if dims.shared_bytes > SHARED_WITHOUT_ASKING {
            let allowed = entry.allow_shared(&self.card.context, dims.shared_bytes);
            self.told(allowed, || format!("giving {name} {} bytes of shared memory", dims.shared_bytes))?;
        }
        let dims =
            self.told(entry.resident(&self.card.context, dims), || format!("asking how often {name} runs at once"))?;
        Ok((entry, dims))
    }

    /// # Safety
    /// The kernel's contract, and its buffers are this GPU's.
    pub unsafe fn launch(
        &self,
        module: &'static KernelModule,
        dims: LaunchDims,
        kernel: &dyn LaunchArguments,
    ) -> Result<()> {
        let name = kernel.kernel().name;
        let (entry, dims) = self.entry(module, name, dims)?;
        self.launched.lock().unwrap_or_else(PoisonError::into_inner).note(name, dims);
        // Where a kernel waits for the grid before it by itself, its launch need not.
        let early = entry.waits
            && (self.card.captures_early || !self.told(self.stream.is_capturing(), || format!("launching {name}"))?);
        let cluster = (dims.cluster != [1; 3]).then_some(dims.cluster);
        let attributes = LaunchAttributes { programmatic_serialization: early, cluster };
        let mut result = Ok(());
        kernel.with_params(&mut |params| {
            // SAFETY: the launch type writes the parameters as the kernel declares them; the module is loaded until the
            // process ends; the rest is the caller's.
            result = unsafe {
                libcuda::launch(entry.raw, dims.grid, dims.block, dims.shared_bytes, &self.stream, params, attributes)
            };
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

impl Drop for Driver {
    fn drop(&mut self) {
        self.free_spare();
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
