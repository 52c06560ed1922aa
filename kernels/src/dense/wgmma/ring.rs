//! The ring of slices in shared memory: where the stages are, their barriers, and the way round.

use cuda_std::arch::sm_80::Half;
use cuda_std::arch::sm_90a::{MBarrier, fence_barrier_init};
use cuda_std::prelude::*;

use super::cluster::Cluster;
use super::{out, stage, stages, warps};

/// A block's shared memory.
#[derive(Clone, Copy)]
pub struct Ring<T, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> {
    shared: Shared<T>,
    barriers: Shared<u64>,
    pub cluster: Cluster,
    /// Columns of a warpgroup's tile; elements of a stage, and how many stages there are.
    pub columns: u32,
    pub stage: u32,
    pub stages: u32,
}

impl<T: Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> Ring<T, COLUMNS, HEIGHT, PARTS> {
    /// For tiles of so many columns a warpgroup, up to `COLUMNS`.
    #[device_inline]
    pub fn new(columns: u32) -> Self {
        let shared = dynamic_shared::<T>();
        let (stage, stages) = (stage(columns, HEIGHT), stages(columns, HEIGHT, PARTS));
        // SAFETY: inside the block's shared memory.
        let barriers = unsafe { shared.offset(stages * stage + out(columns, HEIGHT, PARTS)) };
        Self { shared, barriers: barriers.cast(), cluster: Cluster::here::<PARTS>(), columns, stage, stages }
    }

    /// The same of a block whose cluster is known to be this.
    #[device_inline]
    pub fn within(self, cluster: Cluster) -> Self {
        Self { cluster, ..self }
    }

    /// Makes the barriers ready.
    ///
    /// # Safety
    /// One thread, once; the block's barrier comes before their use.
    #[device_inline]
    pub unsafe fn init(self) {
        let mut stage = 0;
        while stage < self.stages {
            // SAFETY: the caller's.
            unsafe {
                self.full(stage).init(1);
                self.empty(stage).init(warps(HEIGHT) * self.cluster.sharers());
            }
            stage += 1;
        }
        if PARTS > 1 {
            let mut warp = 0;
            while warp < warps(HEIGHT) {
                // SAFETY: the caller's.
                unsafe { self.sums(warp).init(1) };
                warp += 1;
            }
        }
        fence_barrier_init();
    }

    /// The first stage's slices; the others follow.
    #[device_inline]
    pub fn slices(self) -> Shared<T> {
        self.shared
    }

    /// The room for results.
    #[device_inline]
    pub fn out(self) -> Shared<T> {
        // SAFETY: inside the block's shared memory.
        unsafe { self.shared.offset(self.stages * self.stage) }
    }

    /// The barrier at which the stage's bytes arrive.
    #[device_inline]
    pub fn full(self, stage: u32) -> MBarrier {
        // SAFETY: there are two barriers a stage.
        MBarrier::at(unsafe { self.barriers.offset(stage) })
    }

    /// The barrier at which the other blocks' sums arrive that are a warp's.
    #[device_inline]
    pub fn sums(self, warp: u32) -> MBarrier {
        // SAFETY: they come after those of the stages.
        MBarrier::at(unsafe { self.barriers.offset(2 * self.stages + warp) })
    }

    /// The barrier at which warps arrive that have turned what the stage has of the right operand, where that is done; where the
    /// depth is shared it is not.
    #[device_inline]
    pub fn turned(self, stage: u32) -> MBarrier {
        const { assert!(PARTS == 1 && stages(COLUMNS, HEIGHT, PARTS) <= warps(HEIGHT), "these places are others'") };
        self.sums(stage)
    }

    /// Makes the barriers of [`Ring::turned`] ready, for so many warps.
    ///
    /// # Safety
    /// As [`Ring::init`], before it.
    #[device_inline]
    pub unsafe fn init_turned(self, warps: u32) {
        let mut stage = 0;
        while stage < self.stages {
            // SAFETY: the caller's.
            unsafe { self.turned(stage).init(warps) };
            stage += 1;
        }
    }

    /// Says of a warp that it is done with the stage: to all blocks that fill it together.
    ///
    /// # Safety
    /// All lanes, each with its number; the protocol of the module above.
    #[device_inline]
    pub unsafe fn release(self, stage: u32, lane: u32) {
        // SAFETY: the caller's; a block's copying thread waits for all arrivals before it ends.
        unsafe {
            if lane == 0 {
                self.empty(stage).arrive();
            } else if lane < self.cluster.sharers() {
                self.empty(stage).arrive_in(self.cluster.sharer(lane));
            }
        }
    }

    /// The barrier at which warps arrive that are done with the stage.
    #[device_inline]
    pub fn empty(self, stage: u32) -> MBarrier {
        // SAFETY: there are two barriers a stage.
        MBarrier::at(unsafe { self.barriers.offset(self.stages + stage) })
    }
}

/// A place on the way round the ring.
#[derive(Clone, Copy)]
pub struct Place<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> {
    pub stage: u32,
    /// Of how many times the ring was gone round.
    pub parity: u32,
}

impl<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> Place<COLUMNS, HEIGHT, PARTS> {
    pub const START: Self = Self { stage: 0, parity: 0 };

    /// The next one, of so many stages.
    #[device_inline]
    pub fn next(self, stages: u32) -> Self {
        let last = self.stage + 1 == stages;
        Self { stage: if last { 0 } else { self.stage + 1 }, parity: if last { self.parity ^ 1 } else { self.parity } }
    }
}
