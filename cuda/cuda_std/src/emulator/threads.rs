//! The threads of a block as threads of the operating system: what the sanitizers can follow.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use super::STACK_BYTES;

/// Turns that a thread gives away before it sleeps.
const YIELDS: u32 = 2;

/// The threads of a launch.
pub struct Crew {
    threads: u32,
    /// Those that were made.
    handles: OnceLock<Vec<Thread>>,
    /// Whether `handles` is set, so that all may begin, or none: how std's lock orders the two, no sanitizer sees.
    open: AtomicBool,
}

impl Crew {
    pub fn new(threads: u32) -> Self {
        Self { threads, handles: OnceLock::new(), open: AtomicBool::new(false) }
    }

    /// Calls `work` for each thread with its number, all of them at once, and returns when all have ended. When not
    /// all can be made none begins: how many there are, and why not more.
    pub fn run(&self, work: &(dyn Fn(u32) + Sync)) -> Result<(), (usize, io::Error)> {
        thread::scope(|scope| {
            let (mut joins, mut failure) = (Vec::new(), None);
            for number in 0..self.threads {
                let body = move || {
                    if self.wait_for_start() {
                        work(number);
                    }
                };
                match thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, body) {
                    Ok(join) => joins.push(join),
                    Err(error) => {
                        failure = Some((joins.len(), error));
                        break;
                    }
                }
            }
            let handles = self.handles.get_or_init(|| joins.iter().map(|join| join.thread().clone()).collect());
            self.open.store(true, Ordering::Release);
            for handle in handles {
                handle.unpark();
            }
            for join in joins {
                // ThreadSanitizer sees a join, and not the end of the scope.
                let joined = join.join();
                debug_assert!(joined.is_ok(), "a kernel's panic is caught in its thread");
            }
            failure.map_or(Ok(()), Err)
        })
    }

    /// Waits until all threads are there; whether they are.
    fn wait_for_start(&self) -> bool {
        while !self.open.load(Ordering::Acquire) {
            thread::park();
        }
        self.handles.get().is_some_and(|handles| handles.len() == self.threads as usize)
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
