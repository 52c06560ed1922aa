//! Passes recorded into a CUDA graph, and replayed by one call.
//!
//! While a stream records, memory comes from a pool of the graph's own ([`Pool`]), made outside of the stream: a replay
//! uses the same addresses again, and nothing is allocated then. What the recorded launches use besides is kept alive by
//! the graph. So a graph can be replayed for as long as it lives, whatever becomes of the tensors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_std::launch::{LaunchArguments, LaunchDims};
use libcuda::{DriverError, GraphExec, Stream};

use super::backend::Backend;
use super::driver::Driver;
use super::memory::Allocation;
use super::{Gpu, Inner, KernelModule};
use crate::{Error, Result};

/// The memory of one graph: what was allocated while it was recorded.
pub(super) struct Pool {
    gpu: Gpu,
    /// Allocations are ordered here, since the recording stream can have none.
    aside: Stream,
    pieces: Mutex<Pieces>,
}

/// Address and bytes of each.
#[derive(Default)]
struct Pieces {
    all: Vec<(u64, usize)>,
    /// Those that no one uses, and that a later allocation of the same recording may have: its launches come later.
    free: Vec<(u64, usize)>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// `bytes`, not zero: of the pieces given back the smallest that is large enough, else a new one.
    pub fn take(&self, bytes: usize) -> Result<u64> {
        let mut pieces = lock(&self.pieces);
        let fitting = pieces.free.iter().enumerate().filter(|(_, piece)| piece.1 >= bytes);
        if let Some((index, _)) = fitting.min_by_key(|(_, piece)| piece.1) {
            return Ok(pieces.free.swap_remove(index).0);
        }
        let Backend::Driver(driver) = self.gpu.backend() else { unreachable!("only a driver records") };
        let address = driver.allocate_aside(bytes, &self.aside)?;
        pieces.all.push((address, bytes));
        Ok(address)
    }

    /// Gives out no piece again that was given back so far.
    ///
    /// What comes now takes the place of launches anywhere in the graph, and the pieces are other launches' before and
    /// after it: only while a graph is recorded is everything later than what had a piece before.
    fn keep_what_is_free(&self) {
        lock(&self.pieces).free.clear();
    }

    /// What [`Pool::take`] gave for as many bytes.
    pub fn give_back(&self, address: u64, bytes: usize) {
        let mut pieces = lock(&self.pieces);
        let whole = pieces.all.iter().find(|piece| piece.0 == address).map_or(bytes, |piece| piece.1);
        pieces.free.push((address, whole));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // In the stream's order: after the replays that are queued.
        let pieces = self.pieces.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (address, bytes) in pieces.all.drain(..) {
            self.gpu.release(address, bytes);
        }
    }
}

/// Whether a [`Gpu`] records, and what.
#[derive(Default)]
pub(super) struct Recording {
    /// Whether there is a session, for those who would only look.
    on: AtomicBool,
    session: Mutex<Option<Session>>,
}

struct Session {
    pool: Arc<Pool>,
    kept: Vec<Arc<Allocation>>,
    launches: Vec<(&'static str, LaunchDims)>,
    /// What lost its last owner meanwhile: address and bytes.
    deferred: Vec<(u64, usize)>,
    /// The graph whose kernels get new arguments, and the next of them; without one, launches are recorded.
    updated: Option<(GraphExec, usize)>,
}

impl Recording {
    fn with<R>(&self, f: impl FnOnce(&mut Session) -> R) -> Option<R> {
        if !self.on.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.session).as_mut().map(f)
    }

    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.with(|session| session.pool.clone())
    }

    pub fn keep(&self, allocation: &Arc<Allocation>) {
        self.with(|session| {
            if !session.kept.iter().any(|kept| Arc::ptr_eq(kept, allocation)) {
                session.kept.push(allocation.clone());
            }
        });
    }

    /// Whether the memory will be freed later.
    pub fn defer(&self, address: u64, bytes: usize) -> bool {
        self.with(|session| session.deferred.push((address, bytes))).is_some()
    }

    /// Fails while a graph is recorded.
    pub fn refuse(&self, during: impl FnOnce() -> String) -> Result<()> {
        match self.on.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Error::Recording { during: during() }),
        }
    }

    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Whether memory may be filled, and other work queued that is no kernel: not while arguments are replaced.
    pub fn queues(&self) -> bool {
        self.with(|session| session.updated.is_none()).unwrap_or(true)
    }

    /// Takes note of a launch while a graph is recorded; where its kernels get new arguments, gives it these instead of
    /// having it queued. Whether it is still to be queued.
    pub fn launch(
        &self,
        driver: Option<&Driver>,
        module: &'static KernelModule,
        dims: LaunchDims,
        kernel: &dyn LaunchArguments,
    ) -> Result<bool> {
        let (name, Some(driver)) = (kernel.kernel().name, driver) else { return Ok(true) };
        self.with(|session| {
            let Some((exec, next)) = &mut session.updated else {
                session.launches.push((name, dims));
                return Ok(true);
            };
            let index = *next;
            match session.launches.get_mut(index) {
                Some((recorded, old)) if *recorded == name => *old = dims,
                other => {
                    return Err(Error::Argument {
                        op: "Graph::update",
                        argument: "work",
                        got: format!("a launch of {name}"),
                        expected: match other {
                            Some((recorded, _)) => format!("{recorded}, the graph's kernel number {index}"),
                            None => format!("no more: the graph has {index} kernels"),
                        },
                    });
                }
            }
            // SAFETY: the launch's own contract, which its caller keeps; the graph keeps what safe callers use.
            unsafe { driver.set_kernel(exec, index, module, dims, kernel)? };
            *next += 1;
            Ok(false)
        })
        .unwrap_or(Ok(true))
    }

    /// Fails, and gives the session back, inside another.
    fn begin(&self, session: Session) -> Result<(), Box<Session>> {
        let mut current = lock(&self.session);
        if current.is_some() {
            return Err(Box::new(session));
        }
        *current = Some(session);
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    fn end(&self) -> Option<Session> {
        let mut current = lock(&self.session);
        self.on.store(false, Ordering::Release);
        current.take()
    }
}

/// Ends the recording also where what is recorded panics.
struct EndRecording<'a> {
    inner: &'a Inner,
    driver: &'a Driver,
    captures: bool,
}

impl EndRecording<'_> {
    /// The session, with what was deferred freed.
    fn finish(self) -> (Option<Session>, Option<Result<libcuda::Graph>>) {
        let parts = self.end();
        std::mem::forget(self);
        parts
    }

    fn end(&self) -> (Option<Session>, Option<Result<libcuda::Graph>>) {
        let graph = self.captures.then(|| self.driver.end_capture());
        let mut session = self.inner.recording.end();
        for (address, bytes) in session.iter_mut().flat_map(|session| session.deferred.drain(..)) {
            // SAFETY: `release` was given it by its last owner.
            unsafe { self.inner.backend.free(address, bytes) };
        }
        (session, graph)
    }
}

impl Drop for EndRecording<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Gpu {
    /// Records what `work` queues, instead of running it: a graph to be replayed, and what `work` returned.
    ///
    /// Tensors that `work` makes are the graph's memory: they hold nothing until a replay, and what a replay wrote after
    /// it. Tensors that it uses are read and written where they are at each replay: new values for inputs, parameters and
    /// settings are written into them with [`Tensor::copy_from_slice`](crate::Tensor::copy_from_slice) before it. The graph
    /// keeps the memory of all of them.
    ///
    /// Passes of this library can be recorded. Copies from and to the host and waiting cannot ([`Error::Recording`]), nor
    /// writing to a tensor that is shared with another: that would make a copy, which the next replay would not read. What
    /// other threads queue on this stream meanwhile is recorded too.
    ///
    /// # Errors
    /// Those of `work`; [`Error::Argument`] on an emulated GPU, which has no graphs; [`Error::Recording`] inside another
    /// recording; the driver's errors.
    pub fn record<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<(Graph, R)> {
        const OP: &str = "Gpu::record";
        let Backend::Driver(driver) = self.backend() else {
            return Err(Error::Argument {
                op: OP,
                argument: "self",
                got: self.to_string(),
                expected: "a GPU with a driver".into(),
            });
        };
        let pool = Arc::new(Pool { gpu: self.clone(), aside: driver.new_stream()?, pieces: Mutex::default() });
        let session = Session { pool, kept: Vec::new(), launches: Vec::new(), deferred: Vec::new(), updated: None };
        let inside_another = |_| Error::Recording { during: format!("recording on {self}") };
        self.inner.recording.begin(session).map_err(inside_another)?;
        let recording = EndRecording { inner: &self.inner, driver, captures: true };
        driver.begin_capture()?;
        let result = work();
        let (session, graph) = recording.finish();
        let result = result?;
        let (Some(session), Some(graph)) = (session, graph) else { unreachable!("begun above, and ended once") };
        let exec = driver.instantiate(graph?)?;
        let Session { pool, kept, launches, .. } = session;
        Ok((Graph { exec: Some(exec), gpu: self.clone(), launches, kept, pool }, result))
    }
}

/// Recorded passes: see [`Gpu::record`].
#[derive(Debug)]
pub struct Graph {
    // First, so that it goes before the memory that it uses. Only an update takes it out for a while.
    exec: Option<GraphExec>,
    gpu: Gpu,
    launches: Vec<(&'static str, LaunchDims)>,
    kept: Vec<Arc<Allocation>>,
    pool: Arc<Pool>,
}

impl Graph {
    /// Queues everything that was recorded, on the stream that it was recorded from.
    ///
    /// # Errors
    /// [`Error::Recording`] while the stream records another graph; the driver's errors, a kernel's fault among them.
    pub fn replay(&mut self) -> Result<()> {
        self.gpu.inner.recording.refuse(|| format!("replaying a graph on {}", self.gpu))?;
        let Backend::Driver(driver) = self.gpu.backend() else { unreachable!("only a driver records") };
        let Some(exec) = &mut self.exec else { return Err(self.lost()) };
        driver.replay(exec, &self.launches)
    }

    /// The names of the recorded kernels, in order.
    pub fn kernels(&self) -> impl ExactSizeIterator<Item = &'static str> {
        self.launches.iter().map(|(name, _)| *name)
    }

    /// Gives the graph's kernels new arguments, from number `first` of [`Graph::kernels`] on: those of the launches that
    /// `work` makes, which are not queued. They must be of the same kernels, in the same order.
    ///
    /// The replays that follow use them; those that are queued already do not. What `work` uses is kept like what was
    /// recorded; memory for tensors that it makes is new each time, and the graph's until it goes.
    ///
    /// # Errors
    /// Those of `work`; [`Error::Argument`] when it launches another kernel (those before it have their new arguments
    /// then); as [`Gpu::record`].
    pub fn update<R>(&mut self, first: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let Backend::Driver(driver) = self.gpu.backend() else { unreachable!("only a driver records") };
        let Some(exec) = self.exec.take() else { return Err(self.lost()) };
        self.pool.keep_what_is_free();
        let session = Session {
            pool: self.pool.clone(),
            kept: std::mem::take(&mut self.kept),
            launches: std::mem::take(&mut self.launches),
            deferred: Vec::new(),
            updated: Some((exec, first)),
        };
        let (session, result) = match self.gpu.inner.recording.begin(session) {
            Err(session) => {
                (Some(*session), Err(Error::Recording { during: format!("updating a graph on {}", self.gpu) }))
            }
            Ok(()) => {
                let recording = EndRecording { inner: &self.gpu.inner, driver, captures: false };
                let result = work();
                (recording.finish().0, result)
            }
        };
        let Some(Session { kept, launches, updated: Some((exec, _)), .. }) = session else { return Err(self.lost()) };
        self.exec = Some(exec);
        (self.kept, self.launches) = (kept, launches);
        result
    }

    /// What is left of a graph whose update panicked.
    fn lost(&self) -> Error {
        Error::Driver {
            during: format!("using a graph on {} whose update was broken off", self.gpu),
            source: DriverError::new("cuGraphLaunch", 1),
        }
    }
}
