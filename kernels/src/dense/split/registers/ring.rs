//! A block's shared memory: slots, their barriers, and the way round.

use cuda_std::arch::sm_90a::{MBarrier, fence_barrier_init};
use cuda_std::prelude::*;

use super::super::{LEFT, ROOM, right, slots};
use super::WARPS;

/// A block's shared memory: the right operand's slots, the left one's of each warpgroup, room for results, barriers.
#[derive(Clone, Copy)]
pub struct Ring<const COLUMNS: u32>(Shared<bf16>);

impl<const COLUMNS: u32> Ring<COLUMNS> {
    pub const LEFTS: u32 = slots(COLUMNS)[0];
    pub const RIGHTS: u32 = slots(COLUMNS)[1];

    #[device_inline]
    pub fn new() -> Self {
        Self(dynamic_shared())
    }

    /// Makes the barriers ready.
    ///
    /// # Safety
    /// One thread, once; the block's barrier comes before their use.
    #[device_inline]
    pub unsafe fn init(self) {
        // SAFETY: the caller's.
        unsafe {
            let mut slot = 0;
            while slot < Self::RIGHTS {
                self.right_full(slot).init(1);
                self.right_empty(slot).init(2 * WARPS);
                slot += 1;
            }
            let mut slot = 0;
            while slot < 2 * Self::LEFTS {
                self.left_full(slot).init(1);
                self.left_empty(slot).init(WARPS);
                slot += 1;
            }
            self.turn(0).init(WARPS);
            self.turn(1).init(WARPS);
        }
        fence_barrier_init();
    }

    /// The first of the right operand's slots.
    #[device_inline]
    pub fn rights(self) -> Shared<bf16> {
        self.0
    }

    /// The first of the left operand's slots: a warpgroup's come after the other's.
    #[device_inline]
    pub fn lefts(self) -> Shared<f32> {
        // SAFETY: inside the block's shared memory; so for what follows.
        unsafe { self.0.offset(Self::RIGHTS * right(COLUMNS)) }.cast()
    }

    /// The room for results of all warps.
    #[device_inline]
    pub fn room(self) -> Shared<f32> {
        // SAFETY: as above.
        unsafe { self.lefts().offset(2 * Self::LEFTS * LEFT) }
    }

    #[device_inline]
    fn barrier(self, number: u32) -> MBarrier {
        // SAFETY: as above.
        MBarrier::at(unsafe { self.room().offset(2 * WARPS * ROOM).cast::<u64>().offset(number) })
    }

    #[device_inline]
    pub fn right_full(self, slot: u32) -> MBarrier {
        self.barrier(slot)
    }

    #[device_inline]
    pub fn right_empty(self, slot: u32) -> MBarrier {
        self.barrier(Self::RIGHTS + slot)
    }

    #[device_inline]
    pub fn left_full(self, slot: u32) -> MBarrier {
        self.barrier(2 * Self::RIGHTS + slot)
    }

    #[device_inline]
    pub fn left_empty(self, slot: u32) -> MBarrier {
        self.barrier(2 * Self::RIGHTS + 2 * Self::LEFTS + slot)
    }

    /// Where a warpgroup waits for its turn.
    #[device_inline]
    pub fn turn(self, warpgroup: u32) -> MBarrier {
        self.barrier(2 * Self::RIGHTS + 4 * Self::LEFTS + warpgroup)
    }
}

/// A place on the way round a ring.
#[derive(Clone, Copy)]
pub struct Place {
    pub slot: u32,
    /// Of how many times the ring was gone round.
    pub parity: u32,
}

impl Place {
    pub const START: Self = Self { slot: 0, parity: 0 };

    /// The next one, of so many.
    #[device_inline]
    pub fn next(self, slots: u32) -> Self {
        let last = self.slot + 1 == slots;
        Self { slot: if last { 0 } else { self.slot + 1 }, parity: if last { self.parity ^ 1 } else { self.parity } }
    }
}
