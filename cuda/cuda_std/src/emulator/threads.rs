//! The threads of a block as threads of the operating system: what the sanitizers can follow.

use std::io;
use std::sync::OnceLock;
use std::thread::{self, Thread};

use super::STACK_BYTES;

/// Turns that a thread gives away before it sleeps.
const YIELDS: u32 = 2;

/// The threads of a launch.
pub struct Crew {
    threads: u32,
    /// Those that were made. Set when all may begin, or none.
    handles: OnceLock<Vec<Thread>>,
}

impl Crew {
    pub fn new(threads: u32) -> Self {
        Self { threads, handles: OnceLock::new() }
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
            for handle in self.handles.get_or_init(|| joins.iter().map(|join| join.thread().clone()).collect()) {
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
        loop {
            if let Some(handles) = self.handles.get() {
                return handles.len() == self.threads as usize;
            }
            thread::park();
        }
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
