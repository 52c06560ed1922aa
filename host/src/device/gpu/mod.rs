//! One stream of one GPU as a device, or of a GPU that is emulated.

mod backend;
mod card;
mod driver;
mod emulated;
mod graph;
mod launched;
mod memory;
mod module;
mod order;
mod packed;
mod pieces;
mod spare;
mod tensor_map;

use std::fmt::{Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_std::launch::{BufferArg, DeviceMemory, Launch, LaunchArguments, LaunchDims, MemorySpace};

use self::backend::Backend;
pub(crate) use self::card::SHARED_WITHOUT_ASKING;
pub use self::graph::Graph;
use self::graph::{Pool, Recording};
use self::memory::{Allocation, Origin};
pub use self::memory::{GpuBuffer, GpuSlice, GpuSliceMut};
pub use self::module::KernelModule;
pub use self::order::Mark;
use self::order::Meeting;
use crate::device::allocator::{self, ALLOCATED, Allocator, Foreign, Request};
use crate::device::explain;
use crate::{DType, Element, Error, Result};

/// The kernels of this library.
static FERROLAYER: KernelModule = KernelModule::packed(
    include_bytes!("../../../ptx/ferrolayer.sm_80.ptx.zst"),
    include_bytes!("../../../ptx/ferrolayer.sm_90a.ptx.zst"),
);

/// A stream of a GPU: passes queued on it run one after another, and the calls that queue them return at once.
///
/// Cheap to clone; clones are the same stream.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    poison: bool,
    memory: allocator::Allocation,
    workspace: Mutex<Kept>,
    recording: Recording,
    meeting: Meeting,
}

/// The workspace between passes: raw, since a buffer would keep its own stream alive.
#[derive(Default)]
struct Kept {
    address: u64,
    len: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let kept = self.workspace.get_mut().unwrap_or_else(PoisonError::into_inner);
        if kept.len > 0 {
            // SAFETY: `workspace` allocated it with this size, and no guard outlives the `Gpu` it borrows.
            unsafe { self.backend.free(kept.address, kept.len * size_of::<f32>()) };
        }
    }
}

/// How a [`Gpu`] is opened, where the defaults do not do.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    poison: bool,
    memory: allocator::Allocation,
}

impl GpuOptions {
    /// Fills outputs with [`Element::POISON`] before a pass writes them, so that an element left out is seen.
    #[must_use]
    pub fn poison(mut self) -> Self {
        self.poison = true;
        self
    }

    /// Takes the memory of tensors, and of what a pass needs for itself, from `allocator`: on the stream nothing is
    /// allocated or freed but by it. (What [`Gpu::record`] records has the graph's own memory, as ever.)
    #[must_use]
    pub fn allocator(mut self, allocator: Arc<dyn Allocator>) -> Self {
        self.memory = allocator::Allocation::Shared(allocator);
        self
    }

    /// The GPU with this number, on a new stream that does not wait for the default one.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when there is no driver or no such GPU.
    pub fn open(self, ordinal: u32) -> Result<Gpu> {
        Ok(Gpu::with(Backend::driver(ordinal)?, self))
    }

    /// A stream made elsewhere, PyTorch's say, of the GPU with this number.
    ///
    /// # Safety
    /// `stream` is a stream of that GPU's primary context, and lives until the last clone of the result and the last
    /// tensor on it are gone.
    ///
    /// # Errors
    /// As [`GpuOptions::open`].
    pub unsafe fn open_on_stream(self, ordinal: u32, stream: *mut core::ffi::c_void) -> Result<Gpu> {
        // SAFETY: passed on to the caller.
        Ok(Gpu::with(unsafe { Backend::driver_on_stream(ordinal, stream)? }, self))
    }

    /// No GPU: the kernels' own source runs on threads of this machine, with every index checked.
    ///
    /// Thousands of times slower than a GPU; for tests, debuggers and sanitizers. With the feature `emulator`.
    #[cfg(any(feature = "emulator", test))]
    pub fn emulated(self) -> Gpu {
        Gpu::with(Backend::emulated(), self)
    }
}

impl Gpu {
    /// The GPU with this number, on a new stream of its own.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when there is no driver or no such GPU.
    pub fn new(ordinal: u32) -> Result<Self> {
        GpuOptions::default().open(ordinal)
    }

    /// An emulated GPU: see [`GpuOptions::emulated`].
    #[cfg(any(feature = "emulator", test))]
    pub fn emulated() -> Self {
        GpuOptions::default().emulated()
    }

    fn with(backend: Backend, options: GpuOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                backend,
                poison: options.poison,
                memory: options.memory,
                workspace: Mutex::default(),
                recording: Recording::default(),
                meeting: Meeting::default(),
            }),
        }
    }

    fn backend(&self) -> &Backend {
        &self.inner.backend
    }

    /// Memory for `len` elements, to be written before it is read.
    ///
    /// # Errors
    /// The driver's errors, out of memory among them; the allocator's, where there is one.
    pub fn allocate<T: Element>(&self, len: usize) -> Result<GpuBuffer<T>> {
        self.allocate_tensor(&[len], &[1])
    }

    /// As [`Gpu::allocate`], for a dense tensor.
    pub(crate) fn allocate_tensor<T: Element>(&self, shape: &[usize], strides: &[usize]) -> Result<GpuBuffer<T>> {
        let len = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
        let sizes = len.and_then(|len| Some((len, len.checked_mul(size_of::<T>())?)));
        let (len, bytes) =
            sizes.ok_or_else(|| Error::OutOfMemory { device: self.to_string(), bytes: usize::MAX, free: None })?;
        let buffer = match (self.inner.recording.pool(), self.inner.memory.get()) {
            (None, Some(allocator)) => {
                let memory = allocator.allocate(&Request { dtype: T::DTYPE, shape, strides })?;
                // SAFETY: an allocator's promise.
                unsafe { GpuBuffer::foreign(self, ALLOCATED, memory, len)? }
            }
            (pool, _) if bytes == 0 => GpuBuffer::new(self, 0, len, pool.map_or(Origin::Stream, Origin::Pool)),
            (Some(pool), _) => GpuBuffer::new(self, pool.take(bytes)?, len, Origin::Pool(pool)),
            (None, None) => GpuBuffer::new(self, self.backend().allocate(bytes)?, len, Origin::Stream),
        };
        if self.inner.poison && bytes > 0 && self.inner.recording.queues() {
            // SAFETY: the buffer was just allocated with this size.
            unsafe { self.backend().fill(DeviceMemory::<T>::address(&buffer), 0xFF, bytes)? };
        }
        Ok(buffer)
    }

    /// Memory that holds a copy of `values`.
    ///
    /// # Errors
    /// As [`Gpu::allocate`].
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<GpuBuffer<T>> {
        let mut buffer = self.allocate(values.len())?;
        buffer.copy_from_slice(values)?;
        Ok(buffer)
    }

    /// Memory of at least `len` elements that a pass may use between its launches. It is kept and handed out again;
    /// the guard keeps other threads' passes on this stream from queuing in between. An allocator's
    /// ([`GpuOptions::allocator`]) is the pass's alone, and goes with the guard.
    ///
    /// # Errors
    /// As [`Gpu::allocate`].
    pub fn workspace(&self, len: usize) -> Result<Workspace<'_>> {
        let space = self.backend().space();
        let of = |address, len, origin| Workspace { space, address, len, origin };
        let bytes = len * size_of::<f32>();
        if let Some(pool) = self.inner.recording.pool() {
            // The stream's own may be replaced by a larger one before a replay.
            let address = if bytes == 0 { 0 } else { pool.take(bytes)? };
            return Ok(of(address, len, Room::Pool(pool)));
        }
        if let Some(allocator) = self.inner.memory.get() {
            if len == 0 {
                return Ok(of(0, 0, Room::Nothing));
            }
            let memory = allocator.allocate(&Request { dtype: DType::F32, shape: &[len], strides: &[1] })?;
            memory.check(ALLOCATED, len, memory::VECTOR)?;
            return Ok(of(memory.address, len, Room::Foreign(memory)));
        }
        let mut kept = self.inner.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len < len {
            let old = std::mem::take(&mut *kept);
            if old.len > 0 {
                // SAFETY: allocated below with this size; freed in stream order, after the launches that use it.
                unsafe { self.backend().free(old.address, old.len * size_of::<f32>()) };
            }
            let address = self.backend().allocate(bytes)?;
            *kept = Kept { address, len };
        }
        Ok(of(kept.address, kept.len, Room::Kept(kept)))
    }

    /// Queues a kernel of this library; one of your own is launched from its [`KernelModule`].
    ///
    /// # Errors
    /// As [`KernelModule::launch`].
    ///
    /// # Safety
    /// The kernel's own contract holds: for these arguments and dimensions it touches nothing outside its buffers.
    pub unsafe fn launch<K: Launch>(&self, dims: LaunchDims, kernel: K) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.launch_from(&FERROLAYER, dims, kernel) }
    }

    /// # Safety
    /// As [`KernelModule::launch`].
    unsafe fn launch_from<K: Launch>(&self, module: &'static KernelModule, dims: LaunchDims, kernel: K) -> Result<()> {
        if !self.is_to_be_queued(module, dims, &kernel)? {
            return Ok(());
        }
        // SAFETY: passed on to the caller; the buffers are this GPU's, checked above.
        unsafe { self.backend().launch(module, dims, kernel) }
    }

    /// Whether there is anything to queue once a launch is checked, explained, and taken note of in a recording. Not generic, as all
    /// that launches go through: compiled for each kernel it was a quarter of a program.
    fn is_to_be_queued(
        &self,
        module: &'static KernelModule,
        dims: LaunchDims,
        kernel: &dyn LaunchArguments,
    ) -> Result<bool> {
        if dims.grid.contains(&0) {
            return Ok(false);
        }
        self.check_buffers(kernel)?;
        explain::launch(kernel.kernel().name, dims);
        self.inner.recording.launch(self.driver(), module, dims, kernel)
    }

    /// Fails unless all buffers of a launch are in this GPU's memory, and those that it writes apart from all others.
    fn check_buffers(&self, kernel: &dyn LaunchArguments) -> Result<()> {
        let mut problem = None;
        let mut index = 0;
        kernel.for_each_buffer(&mut |buffer| {
            if buffer.space != self.backend().space() && buffer.bytes > 0 {
                problem.get_or_insert(Error::Device {
                    op: kernel.kernel().name,
                    argument: buffer.name,
                    got: "another memory".into(),
                    expected: self.to_string(),
                });
            }
            // Buffers of tensors are never shared with one that is written. Those of other memory may be.
            if buffer.writes {
                let mut other_index = 0;
                kernel.for_each_buffer(&mut |other| {
                    if other_index != index && overlap(&buffer, &other) {
                        problem.get_or_insert(Error::Overlap {
                            op: kernel.kernel().name,
                            argument: buffer.name,
                            other: other.name,
                        });
                    }
                    other_index += 1;
                });
            }
            index += 1;
        });
        problem.map_or(Ok(()), Err)
    }

    /// Waits until all that was queued is done.
    ///
    /// # Errors
    /// [`Error::KernelFault`] when a kernel that was queued failed.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.recording.refuse(|| format!("waiting for {self}"))?;
        self.backend().synchronize()
    }

    /// Waits as [`Gpu::synchronize`] does, then gives back the memory of tensors that are gone, for other processes to have: as
    /// long as this one runs, it keeps that for its own tensors otherwise. What other streams of the GPU keep of small tensors
    /// stays theirs.
    ///
    /// # Errors
    /// [`Gpu::synchronize`]'s.
    pub fn trim(&self) -> Result<()> {
        self.inner.recording.refuse(|| format!("giving back memory of {self}"))?;
        self.backend().trim()
    }

    /// Seconds that the GPU takes for what `work` queues, by its own clock; waits for it.
    ///
    /// # Errors
    /// Those of `work`, and [`Gpu::synchronize`]'s.
    pub fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let mut work = Some(work);
        let times = self.time_each(1, |_| work.take().map_or(Ok(()), |work| work()))?;
        Ok(times[0])
    }

    /// As [`Gpu::time`], of each of `count` pieces of work that are queued one behind the other: `work` gets their numbers.
    /// It waits for the last alone, so what a call costs the host is in no time but where the GPU has to wait for the next
    /// piece: work in front, whose times are not looked at, lets the host get ahead.
    ///
    /// # Errors
    /// As [`Gpu::time`].
    pub fn time_each(&self, count: usize, work: impl FnMut(usize) -> Result<()>) -> Result<Vec<f64>> {
        self.inner.recording.refuse(|| format!("timing on {self}"))?;
        self.backend().time_each(count, work)
    }

    /// # Safety
    /// `bytes` at both are allocated.
    unsafe fn copy_to_host(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        self.inner.recording.refuse(|| format!("copying {bytes} bytes from {self}"))?;
        // SAFETY: the caller's.
        unsafe { self.backend().copy_to_host(to, from, bytes) }
    }

    /// # Safety
    /// `bytes` at both are allocated.
    unsafe fn copy_from_host(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        self.inner.recording.refuse(|| format!("copying {bytes} bytes to {self}"))?;
        // SAFETY: the caller's.
        unsafe { self.backend().copy_from_host(to, from, bytes) }
    }

    /// Frees memory that an allocation owned; after the recording, where there is one: what it frees is part of no graph.
    fn release(&self, address: u64, bytes: usize) {
        if !self.inner.recording.defer(address, bytes) {
            // SAFETY: allocated here with this size, and its owner is gone.
            unsafe { self.backend().free(address, bytes) };
        }
    }

    fn keep_for_graph(&self, allocation: &Arc<Allocation>) {
        self.inner.recording.keep(allocation);
    }

    /// Whether what is queued is recorded ([`Gpu::record`]).
    pub fn is_recording(&self) -> bool {
        self.inner.recording.is_on()
    }

    /// The most shared memory that a block may ask for, in bytes.
    pub(crate) fn max_shared(&self) -> u32 {
        self.backend().max_shared()
    }

    /// The kind of GPU, as the driver has it, such as `NVIDIA H200`; `emulated` where it is none.
    pub fn model(&self) -> &str {
        match self.backend() {
            Backend::Driver(driver) => driver.model(),
            Backend::Emulated(_) => "emulated",
        }
    }

    /// The GPU's number, of all its streams; none of an emulated one.
    pub(crate) fn number(&self) -> Option<u32> {
        match self.backend() {
            Backend::Driver(driver) => Some(driver.ordinal()),
            Backend::Emulated(_) => None,
        }
    }

    /// Which state of their sources this library's kernels are of.
    pub(crate) fn kernels() -> &'static str {
        static SOURCES: OnceLock<String> = OnceLock::new();
        SOURCES.get_or_init(|| FERROLAYER.sources().unwrap_or_default())
    }

    /// Whether this is an emulated GPU.
    pub fn is_emulated(&self) -> bool {
        matches!(self.backend(), Backend::Emulated(_))
    }

    /// Blocks that work at a time, about, of so many a multiprocessor, for kernels whose blocks take one part of the work after another. As an H200
    /// has them: what is summed in another order has other bits. On the emulated grid few, so that small images have several parts for each.
    pub(crate) fn at_once(&self, of_multiprocessor: u32) -> u32 {
        const MULTIPROCESSORS: u32 = 132;
        if self.is_emulated() { 3 } else { MULTIPROCESSORS * of_multiprocessor }
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Display for Gpu {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.backend().fmt(f)
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({self})")
    }
}

/// A [`Gpu`]'s workspace, for as long as one pass queues its launches.
pub struct Workspace<'a> {
    space: MemorySpace,
    address: u64,
    len: usize,
    origin: Room<'a>,
}

/// What a [`Workspace`] holds on to until it goes.
#[expect(dead_code, reason = "held until the pass is queued")]
enum Room<'a> {
    Nothing,
    /// The stream's own, for one pass at a time.
    Kept(MutexGuard<'a, Kept>),
    /// A graph's that is being recorded.
    Pool(Arc<Pool>),
    /// An allocator's.
    Foreign(Foreign),
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        if let Room::Pool(pool) = &self.origin
            && self.len > 0
        {
            pool.give_back(self.address, self.len * size_of::<f32>());
        }
    }
}

impl Workspace<'_> {
    /// All of it, to be read.
    pub fn as_slice(&self) -> GpuSlice<'_, f32> {
        // SAFETY: the guard owns the memory for as long as it is borrowed.
        unsafe { GpuSlice::new(self.address, self.len, self.space) }
    }

    /// All of it, to be written.
    pub fn as_slice_mut(&mut self) -> GpuSliceMut<'_, f32> {
        // SAFETY: the guard owns the memory for as long as it is borrowed, here mutably.
        unsafe { GpuSliceMut::new(self.address, self.len, self.space) }
    }
}

/// Whether two buffers have a byte in common.
fn overlap(a: &BufferArg, b: &BufferArg) -> bool {
    let starts_in = |a: &BufferArg, b: &BufferArg| a.address >= b.address && a.address - b.address < b.bytes as u64;
    a.space == b.space && a.bytes > 0 && b.bytes > 0 && (starts_in(a, b) || starts_in(b, a))
}

/// Tiles of `tile` elements that cover `n`: a grid's size.
///
/// # Panics
/// When there are more than a grid can have, 2³¹ - 1: no tensor that fits into a GPU's memory has as many.
pub fn tiles(n: usize, tile: u32) -> u32 {
    let tiles = n.div_ceil(tile as usize);
    u32::try_from(tiles).ok().filter(|tiles| *tiles < 1 << 31).expect("a tensor that fits into memory")
}
