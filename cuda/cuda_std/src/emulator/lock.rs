//! A lock that orders the hardware and that ThreadSanitizer does not see.
//!
//! What it guards are atomics, so that there is no race; with `std`'s lock every shuffle would order memory between
//! threads that a device leaves unordered, and a missing barrier would go unseen.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Spins before it gives its time away: what is done under the lock takes well below a microsecond, unless its holder
/// was taken off the processor.
const SPINS: u32 = 64;

#[derive(Default)]
pub struct Lock(AtomicBool);

/// The lock, held.
pub struct Held<'a>(&'a Lock);

impl Lock {
    pub fn hold(&self) -> Held<'_> {
        let mut spins = 0;
        while self.0.compare_exchange_weak(false, true, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        fence(Ordering::Acquire);
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        fence(Ordering::Release);
        self.0.0.store(false, Ordering::Relaxed);
    }
}
