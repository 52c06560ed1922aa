//! The threads of a block as fibres of the thread that launches: a switch takes nanoseconds, where one between threads
//! of the operating system takes microseconds, and a launch is mostly switches. ThreadSanitizer takes them for threads
//! (`thread_sanitizer`), whose order is that of atomics and not that of their turns.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use std::{io, ptr};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::STACK_BYTES;
use super::block::Edge;
#[cfg(thread_sanitizer)]
use super::thread_sanitizer::Threads;

type Pause = Yielder<(), ()>;

/// As many stacks are kept for the next launch.
const KEPT_STACKS: usize = super::MAX_THREADS as usize;

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The threads of a launch. All of it is used by one thread of the operating system; what the other sort of crew shares
/// is atomic here too, so that a block is the same with either.
pub struct Crew {
    ready: Box<[AtomicBool]>,
    /// What pauses each thread; null before it has begun.
    pauses: Box<[AtomicPtr<Pause>]>,
    seen: Threads,
    /// From the thread that launches to those of the launch.
    begin: Edge,
}

/// The threads of a launch, for nobody.
#[cfg(not(thread_sanitizer))]
struct Threads;

#[cfg(not(thread_sanitizer))]
impl Threads {
    fn new(_: usize) -> Self {
        Self
    }

    fn enter(&self) {}

    fn leave(&self) {}

    fn begin(&self, _: u32) {}

    fn pause(&self) {}

    fn end(&self) {}
}

impl Crew {
    pub fn new(threads: u32) -> Self {
        Self {
            ready: (0..threads).map(|_| AtomicBool::new(true)).collect(),
            pauses: (0..threads).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            seen: Threads::new(threads as usize),
            begin: Edge::default(),
        }
    }

    /// Calls `work` for each thread with its number, all of them at once, and returns when all have ended. When not
    /// all can be made none begins: how many there are, and why not more.
    pub fn run(&self, work: &(dyn Fn(u32) + Sync)) -> Result<(), (usize, io::Error)> {
        let mut fibres = Vec::with_capacity(self.ready.len());
        for (thread, pause) in (0..).zip(&self.pauses) {
            let stack = match STACKS.with_borrow_mut(Vec::pop).map_or_else(|| DefaultStack::new(STACK_BYTES), Ok) {
                Ok(stack) => stack,
                Err(error) => return Err((fibres.len(), error)),
            };
            let body = move |yielder: &Pause, ()| {
                pause.store(ptr::from_ref(yielder).cast_mut(), Relaxed);
                self.seen.begin(thread);
                self.begin.take();
                work(thread);
                self.seen.end();
            };
            // SAFETY: what the closure borrows outlives the fibre, which ends below or, not begun, drops here.
            fibres.push(unsafe { Coroutine::with_stack_unchecked(stack, body) });
        }
        self.seen.enter();
        self.begin.give();
        let mut unfinished = fibres.len();
        while unfinished > 0 {
            let before = unfinished;
            let mut resumed = false;
            for (fibre, ready) in fibres.iter_mut().zip(&self.ready) {
                if !fibre.done() && ready.swap(false, Relaxed) {
                    resumed = true;
                    unfinished -= usize::from(fibre.resume(()).as_return().is_some());
                }
            }
            assert!(resumed || unfinished < before, "threads that wait for nothing: {unfinished}");
        }
        self.seen.leave();
        STACKS.with_borrow_mut(|stacks| {
            let room = KEPT_STACKS.saturating_sub(stacks.len());
            stacks.extend(fibres.into_iter().take(room).map(Coroutine::into_stack));
        });
        Ok(())
    }

    /// Lets a paused thread go on, once the running one pauses.
    pub fn wake(&self, thread: u32) {
        self.ready[thread as usize].store(true, Relaxed);
    }

    /// Pauses the running thread, whose number this is, until somebody wakes it.
    pub fn pause(&self, thread: u32) {
        self.seen.pause();
        // SAFETY: the thread runs, so that it has set this, and its yielder lives as long as it does.
        unsafe { &*self.pauses[thread as usize].load(Relaxed) }.suspend(());
        self.seen.begin(thread);
    }
}
