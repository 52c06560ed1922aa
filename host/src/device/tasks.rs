//! Work for all threads, unless it is too little for more than one.

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;

/// Threads that a program has besides rayon's, for [`run_on`].
pub trait Threads: Sync {
    /// How many may be used by a pass that begins now, the one that calls it among them.
    fn count(&self) -> usize;

    /// Calls `work` on this thread and on others at the same time, so many in all or fewer, and returns when all calls have. A panic
    /// in one goes on in the caller.
    fn run(&self, threads: usize, work: &(dyn Fn() + Sync));
}

static THREADS: OnceLock<&'static dyn Threads> = OnceLock::new();

/// From now on all passes on the CPU run on these threads instead of rayon's: those of a framework, which may be awake, and of which its
/// user has said how many there may be. The first ones that it is told stay; whether these are they.
pub fn run_on(threads: &'static dyn Threads) -> bool {
    THREADS.set(threads).is_ok()
}

/// Threads that a pass may use.
pub(crate) fn thread_count() -> usize {
    THREADS.get().map_or_else(rayon::current_num_threads, |threads| threads.count())
}

/// Turns that each thread may have: so many that the last ones are short.
const TURNS: usize = 8;
/// How long the caller looks whether the others are done before it sleeps: as long as it takes to wake it, several times.
const PATIENCE: Duration = Duration::from_micros(200);

/// Calls `work` here and on all others of so many threads, and returns when it has returned everywhere.
///
/// This thread begins at once: the others help from when they are awake, which takes tens of microseconds on a virtual machine.
/// (Given to rayon, all of the work waits for its threads to wake one after another, and the caller for being woken by them.)
pub(crate) fn on_threads(threads: usize, work: impl Fn() + Send + Sync) {
    if threads <= 1 {
        return work();
    }
    if let Some(others) = THREADS.get() {
        return others.run(threads, &work);
    }
    let busy = AtomicUsize::new(0);
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| {
                busy.fetch_add(1, Ordering::Relaxed);
                work();
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
        work();
        let done = Instant::now();
        while busy.load(Ordering::Relaxed) > 0 && done.elapsed() < PATIENCE {
            hint::spin_loop();
        }
    });
}

/// Items that threads take turns at, several `together`: the least that is worth a thread's while.
///
/// Where all of them are one turn, or there is one thread, the calling thread does it: handing it to one of rayon's and
/// waiting takes several microseconds, more than a small pass takes, and another processor's caches have the data then.
pub(crate) trait Tasks: IndexedParallelIterator {
    /// Calls `f` with each.
    #[inline]
    fn run(self, together: usize, f: impl Fn(Self::Item) + Send + Sync) {
        self.run_with(together, || (), |(), item| f(item));
    }

    /// Calls `f` with each, and with something that `init` makes for those that one thread takes after another.
    #[inline]
    fn run_with<S>(
        self,
        together: usize,
        init: impl Fn() -> S + Send + Sync,
        f: impl Fn(&mut S, Self::Item) + Send + Sync,
    ) {
        let items = self.len();
        self.with_producer(ForEach { items, together, init, f });
    }

    /// All of them, in order.
    #[inline]
    fn gather(self, together: usize) -> Vec<Self::Item> {
        let items = self.len();
        self.with_producer(Collect { items, together })
    }
}

impl<I: IndexedParallelIterator> Tasks for I {}

/// Things that threads take, each of them once, one after another.
pub(crate) struct Turns<T> {
    // No thread waits for a lock: a number is given to one of them.
    all: Vec<Mutex<Option<T>>>,
    next: AtomicUsize,
}

impl<T> Turns<T> {
    pub fn new(all: impl IntoIterator<Item = T>) -> Self {
        Self { all: all.into_iter().map(|one| Mutex::new(Some(one))).collect(), next: AtomicUsize::new(0) }
    }

    /// The next one, and its number; `None` when there are no more.
    #[inline]
    pub fn next(&self) -> Option<(usize, T)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let one = self.all.get(number)?.lock().expect("nothing runs while it is locked").take();
        one.map(|one| (number, one))
    }
}

/// Threads for so many items, of which `together` are worth a thread's while.
#[inline]
fn threads_for(items: usize, together: usize) -> usize {
    if items > together { thread_count().min(items / together) } else { 1 }
}

/// So many items in turns for so many threads.
fn turns<P: Producer>(producer: P, items: usize, together: usize, threads: usize) -> Turns<P> {
    let count = (items / together).clamp(1, TURNS * threads);
    let mut rest = Some(producer);
    Turns::new((1..=count).filter_map(|number| {
        if number == count {
            return rest.take();
        }
        // As many in each as in the others, or one more.
        let (part, after) = rest.take()?.split_at(number * items / count - (number - 1) * items / count);
        rest = Some(after);
        Some(part)
    }))
}

/// Calls a function with each item.
struct ForEach<I, F> {
    items: usize,
    together: usize,
    init: I,
    f: F,
}

impl<T, S, I: Fn() -> S + Send + Sync, F: Fn(&mut S, T) + Send + Sync> ProducerCallback<T> for ForEach<I, F> {
    type Output = ();

    #[inline]
    fn callback<P: Producer<Item = T>>(self, producer: P) {
        let Self { items, together, init, f } = self;
        let threads = threads_for(items, together);
        if threads == 1 {
            let mut state = init();
            return producer.into_iter().for_each(|item| f(&mut state, item));
        }
        let turns = turns(producer, items, together, threads);
        on_threads(threads, || {
            let Some((_, mut turn)) = turns.next() else { return };
            let mut state = init();
            loop {
                turn.into_iter().for_each(|item| f(&mut state, item));
                let Some((_, next)) = turns.next() else { break };
                turn = next;
            }
        });
    }
}

/// Collects the items.
struct Collect {
    items: usize,
    together: usize,
}

impl<T: Send> ProducerCallback<T> for Collect {
    type Output = Vec<T>;

    fn callback<P: Producer<Item = T>>(self, producer: P) -> Vec<T> {
        let threads = threads_for(self.items, self.together);
        if threads == 1 {
            return producer.into_iter().collect();
        }
        let turns = turns(producer, self.items, self.together, threads);
        let parts: Vec<Mutex<Vec<T>>> = turns.all.iter().map(|_| Mutex::default()).collect();
        on_threads(threads, || {
            while let Some((number, turn)) = turns.next() {
                let part = turn.into_iter().collect();
                *parts[number].lock().expect("one thread has this number") = part;
            }
        });
        parts.into_iter().flat_map(|part| part.into_inner().expect("no thread is left")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Each once, in whatever order, and gathered in theirs; by this thread where it is one turn.
    #[test]
    fn all_are_done() {
        let here = std::thread::current().id();
        for (count, together) in [(0, 1), (1, 1), (7, 7), (7, 8), (50, 3)] {
            let done = Mutex::new(Vec::new());
            (0..count).into_par_iter().run(together, |i| done.lock().unwrap().push((i, std::thread::current().id())));
            let mut done = done.into_inner().unwrap();
            done.sort_by_key(|(i, _)| *i);
            assert!(done.iter().map(|(i, _)| *i).eq(0..count), "{count} {together}");
            assert!(count > together || done.iter().all(|(_, thread)| *thread == here), "{count} {together}");
            let sum = Mutex::new(0);
            (0..count).into_par_iter().run_with(together, || 1, |one, i| *sum.lock().unwrap() += *one + i);
            assert_eq!(sum.into_inner().unwrap(), (0..count).map(|i| i + 1).sum::<usize>());
            assert!(
                (0..count).into_par_iter().map(|i| 2 * i).gather(together).into_iter().eq((0..count).map(|i| 2 * i))
            );
        }
    }
}
