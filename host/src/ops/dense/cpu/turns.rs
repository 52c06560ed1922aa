//! Jobs that the calling thread and rayon's others take turns at.

use std::any::Any;
use std::cell::Cell;
use std::cmp::Reverse;

use crate::device::tasks::{Turns, on_threads, thread_count};

/// Multiplications, or what takes as long, that are worth waking another thread for: that takes tens of microseconds on a
/// virtual machine.
pub(super) const SHARED: usize = 4 << 20;

/// A part of a pass, done once, with memory `R` that the jobs of one thread have in common.
pub(super) struct Job<'a, R> {
    cost: usize,
    run: Box<dyn FnOnce(&mut R) + Send + 'a>,
}

impl<'a, R> Job<'a, R> {
    /// `cost` is in multiplications.
    pub fn new(cost: usize, run: impl FnOnce(&mut R) + Send + 'a) -> Self {
        Self { cost, run: Box::new(run) }
    }
}

thread_local! {
    /// What the jobs of this thread's last pass had in common: memory that comes from the system anew costs its first use as much
    /// as a job.
    static ROOM: Cell<Option<Box<dyn Any>>> = const { Cell::new(None) };
}

/// Does all of them, the longest first, so that no thread has one left when the others are done.
pub(super) fn take_turns<R: Default + 'static>(mut jobs: Vec<Job<'_, R>>) {
    let cost = jobs.iter().fold(0usize, |sum, job| sum.saturating_add(job.cost));
    let threads = if cost < SHARED { 1 } else { thread_count().min(jobs.len()) };
    jobs.sort_by_key(|job| Reverse(job.cost));
    let jobs = Turns::new(jobs);
    let work = || {
        let mut room: Box<R> = ROOM.take().and_then(|room| room.downcast().ok()).unwrap_or_default();
        while let Some((_, job)) = jobs.next() {
            (job.run)(&mut room);
        }
        ROOM.set(Some(room));
    };
    on_threads(threads, work);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Each once, on however many threads, called from one of rayon's or from another.
    #[test]
    fn all_are_done() {
        for (threads, count, cost) in [(1, 5, SHARED), (2, 0, SHARED), (2, 1, SHARED), (3, 50, SHARED), (3, 50, 1)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let run = || {
                let done = Mutex::new(Vec::new());
                let job = |i| {
                    let done = &done;
                    Job::new(cost, move |of_thread: &mut usize| {
                        *of_thread += 1;
                        done.lock().unwrap().push(i);
                    })
                };
                take_turns((0..count).map(job).collect());
                let mut done = done.into_inner().unwrap();
                done.sort_unstable();
                assert!(done.into_iter().eq(0..count), "{threads} {count} {cost}");
            };
            pool.install(run);
            run();
        }
    }
}
