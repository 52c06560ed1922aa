//! The threads of a block, and what they wait for.
//!
//! Each thread runs, waits in a barrier, waits in an operation of its warp, or has ended. Who completes a group lets
//! it go; who finds that nobody runs any more reports the threads that wait. All of this state is relaxed atomics
//! under a lock that ThreadSanitizer does not see (see the module above); `Edge`s are what it sees.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::error::{Collective, EmulationError, Site, Waiting};
use super::lock::Lock;
use super::matrix::WORDS;
use super::shared::Memory;
use super::warp::Operation;
use super::{Crew, context, fault};
use crate::launch::{KernelInfo, LaunchDims};

const RUNNING: u32 = 0;
const IN_BARRIER: u32 = 1;
const IN_WARP: u32 = 2;
const ENDED: u32 = 3;

/// An order of memory: all that was done before `give` comes before what is done after a later `take`.
#[derive(Default)]
pub(super) struct Edge(AtomicU32);

impl Edge {
    pub fn give(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    pub fn take(&self) {
        self.0.load(Ordering::Acquire);
    }
}

/// A number under the lock.
#[derive(Default)]
struct Number(AtomicU32);

impl Number {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Changes it by one and gives the new value.
    fn up(&self) -> u32 {
        self.set(self.get() + 1);
        self.get()
    }

    fn down(&self) -> u32 {
        self.set(self.get() - 1);
        self.get()
    }
}

/// One thread.
#[derive(Default)]
struct Slot {
    state: Number,
    /// Where it waits.
    site: AtomicPtr<Location<'static>>,
    operation: Number,
    mask: Number,
    value: Number,
    operands: [Number; 2],
    result: Number,
    /// What it gives to an operation on matrices, and then gets of it.
    words: [Number; WORDS],
    /// Changes when the thread may go on. The only field that is read without the lock.
    turn: Number,
    /// Of `sync_warp`.
    arrival: Edge,
    departure: Edge,
}

impl Slot {
    fn wait_at(&self, state: u32, site: &'static Location<'static>, value: u32) {
        self.state.set(state);
        self.site.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
        self.value.set(value);
    }

    fn site(&self) -> &'static Location<'static> {
        // SAFETY: set to a `&'static` before the thread waits; asked only of those that wait.
        unsafe { &*self.site.load(Ordering::Relaxed) }
    }

    /// Lets the thread go on.
    fn release(&self) {
        self.state.set(RUNNING);
        fence(Ordering::Release);
        self.turn.set(self.turn.get().wrapping_add(1));
    }
}

/// The threads of a launch, which are one block after another.
pub(crate) struct Block<'l> {
    info: &'l KernelInfo,
    dims: LaunchDims,
    shared: Memory,
    crew: Crew,
    lock: Lock,
    slots: Box<[Slot]>,
    running: Number,
    in_barrier: Number,
    ended: Number,
    stopped: AtomicBool,
    error: Mutex<Option<EmulationError>>,
    /// Of `sync_threads`: from all to the last, from the last to all.
    arrival: Edge,
    departure: Edge,
    /// Of the end of a block and the start of the next.
    end: Edge,
    start: Edge,
}

impl<'l> Block<'l> {
    pub fn new(info: &'l KernelInfo, dims: LaunchDims) -> Self {
        let running = Number::default();
        running.set(dims.threads());
        Self {
            info,
            dims,
            shared: Memory::new(dims.shared_bytes),
            crew: Crew::new(dims.threads()),
            lock: Lock::default(),
            slots: (0..dims.threads()).map(|_| Slot::default()).collect(),
            running,
            in_barrier: Number::default(),
            ended: Number::default(),
            stopped: AtomicBool::new(false),
            error: Mutex::new(None),
            arrival: Edge::default(),
            departure: Edge::default(),
            end: Edge::default(),
            start: Edge::default(),
        }
    }

    pub fn info(&self) -> &KernelInfo {
        self.info
    }

    pub fn dims(&self) -> LaunchDims {
        self.dims
    }

    pub fn shared(&self) -> &Memory {
        &self.shared
    }

    pub fn into_result(self) -> Result<(), EmulationError> {
        let error = self.error.into_inner();
        error.unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Calls `work` for each thread, with its number.
    pub fn run(&self, work: &(dyn Fn(u32) + Sync)) -> Result<(), EmulationError> {
        self.crew.run(work).map_err(|(got, reason)| EmulationError::Threads {
            kernel: self.info.name,
            got: got as u32,
            expected: self.dims.threads(),
            reason: reason.to_string(),
        })
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the launch; the first error is the one that is reported.
    pub fn stop(&self, error: EmulationError) {
        let held = self.lock.hold();
        self.stop_held(error);
        drop(held);
        self.wake(0..self.dims.threads());
    }

    /// With the lock held. The threads that wait are still to be woken.
    fn stop_held(&self, error: EmulationError) {
        if self.stopped.swap(true, Ordering::Relaxed) {
            return;
        }
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        for slot in &self.slots {
            if slot.state.get() != RUNNING {
                slot.release();
            }
        }
    }

    fn wake(&self, threads: impl Iterator<Item = u32>) {
        threads.for_each(|thread| self.crew.wake(thread));
    }

    /// Waits until the thread's turn is no longer `turn`.
    fn wait(&self, me: u32, turn: u32) {
        let turn_now = || self.slots[me as usize].turn.get();
        context::keep(|| {
            while turn_now() == turn {
                self.crew.pause(me);
            }
        });
        fence(Ordering::Acquire);
    }

    /// Waits for all threads of the block; of how many the predicate was true.
    pub fn barrier(&self, me: u32, site: &'static Location<'static>, predicate: bool) -> u32 {
        let slot = &self.slots[me as usize];
        self.arrival.give();
        let held = self.lock.hold();
        if self.is_stopped() {
            drop(held);
            fault::stop();
        }
        slot.wait_at(IN_BARRIER, site, predicate.into());
        let all = self.in_barrier.up() == self.dims.threads();
        if all && self.slots.iter().all(|slot| slot.site() == site) {
            self.arrival.take();
            let count = self.slots.iter().map(|slot| slot.value.get()).sum();
            self.departure.give();
            self.in_barrier.set(0);
            self.running.set(self.dims.threads());
            for slot in &self.slots {
                slot.result.set(count);
                slot.release();
            }
            drop(held);
            self.wake((0..self.dims.threads()).filter(|&thread| thread != me));
            return count;
        }
        let turn = slot.turn.get();
        let nobody_runs = self.running.down() == 0;
        if nobody_runs {
            self.stop_held(self.divergence());
        }
        drop(held);
        if nobody_runs {
            self.wake(0..self.dims.threads());
        }
        self.wait(me, turn);
        if self.is_stopped() {
            fault::stop();
        }
        self.departure.take();
        slot.result.get()
    }

    /// Does something with the lanes of the mask.
    pub fn collective(
        &self,
        me: u32,
        operation: Operation,
        mask: u32,
        value: u32,
        operands: [u32; 2],
        site: &'static Location<'static>,
    ) -> u32 {
        let lane = me % 32;
        if mask >> lane & 1 == 0 {
            let name = operation.name();
            fault::raise(format!("lane {lane} calls `{name}` with the mask {mask:#010x}, which leaves it out"), site);
        }
        let slot = &self.slots[me as usize];
        let orders_memory = operation == Operation::Sync;
        if orders_memory {
            slot.arrival.give();
        }
        let held = self.lock.hold();
        if self.is_stopped() {
            drop(held);
            fault::stop();
        }
        slot.wait_at(IN_WARP, site, value);
        slot.operation.set(operation.code());
        slot.mask.set(mask);
        for (place, operand) in slot.operands.iter().zip(operands) {
            place.set(operand);
        }
        let turn = slot.turn.get();
        let nobody_runs = self.running.down() == 0;
        let released = self.complete(me / 32, operation, mask);
        let stuck = nobody_runs && released == 0;
        if stuck {
            self.stop_held(self.divergence());
        }
        drop(held);
        if stuck {
            self.wake(0..self.dims.threads());
        }
        self.wake(lanes(released & !(1 << lane)).map(|lane| me / 32 * 32 + lane));
        self.wait(me, turn);
        if self.is_stopped() {
            fault::stop();
        }
        if orders_memory {
            slot.departure.take();
        }
        slot.result.get()
    }

    /// Does something with matrices, together with the whole warp. Of the words given, those that it needs.
    pub fn matrix(
        &self,
        me: u32,
        operation: super::matrix::Operation,
        given: &[u32],
        site: &'static Location<'static>,
    ) -> [u32; 4] {
        let words = &self.slots[me as usize].words;
        // Only this thread touches them until it waits, and again once it goes on.
        for (place, &word) in words.iter().zip(given) {
            place.set(word);
        }
        self.collective(me, Operation::Matrix(operation), u32::MAX, 0, [0; 2], site);
        std::array::from_fn(|i| words[i].get())
    }

    /// Lets the lanes of an operation go if all that are to come have; which they are. With the lock held.
    fn complete(&self, warp: u32, operation: Operation, mask: u32) -> u32 {
        let warp = self.warp(warp);
        let (mut present, mut values) = (0, [0; 32]);
        for (lane, slot) in (0..).zip(warp).filter(|(lane, _)| mask >> lane & 1 == 1) {
            match slot.state.get() {
                ENDED => {}
                IN_WARP if slot.mask.get() == mask && slot.operation.get() == operation.code() => {
                    present |= 1 << lane;
                    values[lane as usize] = slot.value.get();
                }
                _ => return 0,
            }
        }
        let group = || lanes(present).map(|lane| (lane, &warp[lane as usize]));
        if operation == Operation::Sync {
            group().for_each(|(_, slot)| slot.arrival.take());
            group().for_each(|(_, slot)| slot.departure.give());
        }
        if let Operation::Matrix(operation) = operation {
            let mut given = [[u32::MAX; WORDS]; 32];
            group().for_each(|(lane, slot)| given[lane as usize] = slot.words.each_ref().map(Number::get));
            let results = operation.results(&given);
            for (lane, slot) in group() {
                slot.words.iter().zip(results[lane as usize]).for_each(|(place, word)| place.set(word));
            }
        }
        for (lane, slot) in group() {
            let operands = [slot.operands[0].get(), slot.operands[1].get()];
            slot.result.set(operation.result(lane, present, &values, operands));
        }
        for (_, slot) in group() {
            self.running.up();
            slot.release();
        }
        present
    }

    /// The slots of a warp: fewer than 32 in a last one that the block does not fill.
    fn warp(&self, warp: u32) -> &[Slot] {
        let first = warp as usize * 32;
        &self.slots[first..self.slots.len().min(first + 32)]
    }

    /// The lanes of the warp that have not ended.
    pub fn active_lanes(&self, warp: u32) -> u32 {
        (0..)
            .zip(self.warp(warp))
            .filter(|(_, slot)| slot.state.get() != ENDED)
            .fold(0, |mask, (lane, _)| mask | 1 << lane)
    }

    /// The thread has ended its part of the block; whether there is another block to do, or none is left, without an
    /// error.
    pub fn end(&self, me: u32) -> bool {
        let slot = &self.slots[me as usize];
        self.end.give();
        let held = self.lock.hold();
        if self.is_stopped() {
            return false;
        }
        slot.state.set(ENDED);
        let turn = slot.turn.get();
        let mut nobody_runs = self.running.down() == 0;
        if self.ended.up() == self.dims.threads() {
            self.end.take();
            self.shared.poison();
            self.start.give();
            self.ended.set(0);
            self.running.set(self.dims.threads());
            self.slots.iter().for_each(Slot::release);
            drop(held);
            self.wake((0..self.dims.threads()).filter(|&thread| thread != me));
            return true;
        }
        // Those that wait in the warp wait for one fewer.
        let mut released = 0;
        for waiting in self.warp(me / 32) {
            if waiting.state.get() == IN_WARP {
                let operation = Operation::from_code(waiting.operation.get());
                released |= self.complete(me / 32, operation, waiting.mask.get());
            }
        }
        nobody_runs &= released == 0;
        if nobody_runs {
            self.stop_held(self.divergence());
        }
        drop(held);
        if nobody_runs {
            self.wake(0..self.dims.threads());
        }
        self.wake(lanes(released).map(|lane| me / 32 * 32 + lane));
        self.wait(me, turn);
        self.start.take();
        !self.is_stopped()
    }

    /// Who waits for whom, when nobody runs. With the lock held.
    fn divergence(&self) -> EmulationError {
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut ended = Vec::new();
        for (thread, slot) in (0..).zip(&self.slots) {
            let collective = match slot.state.get() {
                IN_BARRIER => Collective::SyncThreads,
                IN_WARP => Collective::Warp {
                    function: Operation::from_code(slot.operation.get()).name(),
                    mask: slot.mask.get(),
                },
                _ => {
                    ended.push(thread);
                    continue;
                }
            };
            let site = Site::from(slot.site());
            let same_warp = |other: u32| collective == Collective::SyncThreads || other / 32 == thread / 32;
            let found = waiting
                .iter_mut()
                .find(|group| group.collective == collective && group.site == site && same_warp(group.threads[0]));
            match found {
                Some(group) => group.threads.push(thread),
                None => waiting.push(Waiting { collective, site, threads: vec![thread], missing: Vec::new() }),
            }
        }
        for group in &mut waiting {
            let expected: Vec<u32> = match group.collective {
                Collective::SyncThreads => (0..self.dims.threads()).collect(),
                Collective::Warp { mask, .. } => {
                    let first = group.threads[0] / 32 * 32;
                    lanes(mask)
                        .map(|lane| first + lane)
                        .filter(|&thread| thread < self.dims.threads() && !ended.contains(&thread))
                        .collect()
                }
            };
            group.missing = expected.into_iter().filter(|thread| !group.threads.contains(thread)).collect();
        }
        EmulationError::Divergence {
            kernel: self.info.name,
            block: context::with(|context| context.block_idx()),
            waiting,
            ended,
        }
    }
}

/// The bits of a mask, as numbers.
fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}
