//! Work for all threads, unless it is too little for more than one.

use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;

/// Items that threads take turns at, several `together`: the least that is worth a thread's while.
///
/// Where all of them are one turn, or rayon has one thread, the calling thread does it: handing it to one of rayon's and
/// waiting takes several microseconds, more than a small pass takes, and another processor's caches have the data then.
pub(crate) trait Tasks: IndexedParallelIterator {
    /// Calls `f` with each.
    #[inline]
    fn run(self, together: usize, f: impl Fn(Self::Item) + Send + Sync) {
        if is_shared(self.len(), together) {
            return self.with_min_len(together).for_each(f);
        }
        self.with_producer(ForEach(f));
    }

    /// Calls `f` with each, and with something that `init` makes for those that one thread takes after another.
    #[inline]
    fn run_with<S>(
        self,
        together: usize,
        init: impl Fn() -> S + Send + Sync,
        f: impl Fn(&mut S, Self::Item) + Send + Sync,
    ) {
        if is_shared(self.len(), together) {
            return self.with_min_len(together).for_each_init(init, f);
        }
        let mut state = init();
        self.with_producer(ForEach(|item| f(&mut state, item)));
    }

    /// All of them, in order.
    #[inline]
    fn gather(self, together: usize) -> Vec<Self::Item> {
        if is_shared(self.len(), together) {
            return self.with_min_len(together).collect();
        }
        self.with_producer(Collect)
    }
}

impl<I: IndexedParallelIterator> Tasks for I {}

fn is_shared(items: usize, together: usize) -> bool {
    items > together && rayon::current_num_threads() > 1
}

/// Calls a function with each item, on the thread that is here.
struct ForEach<F>(F);

impl<T, F: FnMut(T)> ProducerCallback<T> for ForEach<F> {
    type Output = ();

    #[inline]
    fn callback<P: Producer<Item = T>>(self, items: P) {
        items.into_iter().for_each(self.0);
    }
}

/// Collects the items, on the thread that is here.
struct Collect;

impl<T> ProducerCallback<T> for Collect {
    type Output = Vec<T>;

    #[inline]
    fn callback<P: Producer<Item = T>>(self, items: P) -> Vec<T> {
        items.into_iter().collect()
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
