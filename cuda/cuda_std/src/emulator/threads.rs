//! The threads of a block as threads of the operating system: what AddressSanitizer can follow.
//!
//! They are kept from launch to launch of the thread that launches: to make them takes a sanitizer longer than most launches. What
//! is handed to them and back goes through atomics of this file: what std's locks order no sanitizer sees.

use std::cell::RefCell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use super::STACK_BYTES;

/// Turns that a thread gives away before it sleeps.
const YIELDS: u32 = 2;

thread_local! {
    static WORKERS: RefCell<Vec<Worker>> = const { RefCell::new(Vec::new()) };
}

/// The threads of a launch.
pub struct Crew {
    threads: u32,
    /// Those that run it, once they may begin.
    handles: OnceLock<Vec<Thread>>,
}

impl Crew {
    pub fn new(threads: u32) -> Self {
        Self { threads, handles: OnceLock::new() }
    }

    /// Calls `work` for each thread with its number, all of them at once, and returns when all have ended. When not
    /// all can be made none begins: how many there are, and why not more.
    pub fn run(&self, work: &(dyn Fn(u32) + Sync)) -> Result<(), (usize, io::Error)> {
        WORKERS.with_borrow_mut(|workers| {
            while workers.len() < self.threads as usize {
                workers.push(Worker::new(workers.len()).map_err(|error| (workers.len(), error))?);
            }
            let workers = &workers[..self.threads as usize];
            self.handles.get_or_init(|| workers.iter().map(|worker| worker.thread().clone()).collect());
            let job = Job { work, left: AtomicUsize::new(workers.len()), launcher: thread::current() };
            for worker in workers {
                worker.give(&job);
            }
            while job.left.load(Ordering::Acquire) > 0 {
                thread::park();
            }
            Ok(())
        })
    }

    /// Lets a paused thread go on.
    pub fn wake(&self, thread: u32) {
        if let Some(handle) = self.handles.get().and_then(|handles| handles.get(thread as usize)) {
            handle.unpark();
        }
    }

    /// Pauses the running thread, until somebody wakes it or for no reason.
    pub fn pause(&self, _thread: u32) {
        for _ in 0..YIELDS {
            thread::yield_now();
        }
        thread::park();
    }
}

/// What the threads of a launch do.
struct Job<'l> {
    work: &'l (dyn Fn(u32) + Sync),
    /// Threads that have not ended.
    left: AtomicUsize,
    launcher: Thread,
}

/// A thread between launches, and during one.
struct Worker {
    desk: Arc<Desk>,
    /// Until it is dropped.
    join: Option<JoinHandle<()>>,
}

/// Where a thread finds what it is to do.
#[derive(Default)]
struct Desk {
    /// Null while there is nothing to do.
    job: AtomicPtr<Job<'static>>,
    /// There will be nothing any more.
    closed: AtomicBool,
}

impl Worker {
    fn new(number: usize) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let its = desk.clone();
        let number = u32::try_from(number).expect("a block has 1024 threads at most");
        let join = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || its.serve(number))?;
        Ok(Self { desk, join: Some(join) })
    }

    fn thread(&self) -> &Thread {
        self.join.as_ref().expect("joined when dropped").thread()
    }

    /// Lets it begin. The caller keeps the job until nobody is left.
    fn give(&self, job: &Job<'_>) {
        self.desk.job.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Release);
        self.thread().unpark();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.desk.closed.store(true, Ordering::Release);
        let Some(join) = self.join.take() else { return };
        join.thread().unpark();
        let joined = join.join();
        debug_assert!(joined.is_ok(), "a kernel's panic is caught in its thread");
    }
}

impl Desk {
    fn serve(&self, number: u32) {
        while !self.closed.load(Ordering::Acquire) {
            let job = self.job.swap(ptr::null_mut(), Ordering::Acquire);
            // SAFETY: it was given, and lives until this thread, too, has counted itself out below.
            let Some(Job { work, left, launcher }) = (unsafe { job.as_ref() }) else {
                thread::park();
                continue;
            };
            work(number);
            let launcher = launcher.clone();
            // What it refers to is gone as soon as the last has done this.
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                launcher.unpark();
            }
        }
    }
}
