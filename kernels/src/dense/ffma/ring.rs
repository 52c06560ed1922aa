//! The ring of slices in shared memory: the stages, their barriers, and the copies that fill them.

use cuda_std::arch::sm_90a::{MBarrier, copy_box_in, fence_barrier_init};
use cuda_std::prelude::*;

use super::order::{Order, Tile};
use super::{COLUMNS, DEPTH, ROWS, STAGES, WARPS};

/// Elements of a stage: a slice of both operands.
const STAGE: u32 = (ROWS + COLUMNS) * DEPTH;

/// A block's shared memory.
#[derive(Clone, Copy)]
pub struct Ring {
    shared: Shared<f32>,
    barriers: Shared<u64>,
}

impl Ring {
    #[device_inline]
    pub fn new() -> Self {
        let shared = dynamic_shared::<f32>();
        // SAFETY: inside the block's shared memory.
        Self { shared, barriers: unsafe { shared.offset(STAGES * STAGE) }.cast() }
    }

    /// Makes the barriers ready.
    ///
    /// # Safety
    /// One thread, once; the block's barrier comes before their use.
    #[device_inline]
    pub unsafe fn init(self) {
        let mut stage = 0;
        while stage < STAGES {
            // SAFETY: the caller's.
            unsafe {
                self.full(stage).init(1);
                self.empty(stage).init(WARPS);
            }
            stage += 1;
        }
        fence_barrier_init();
    }

    /// A stage: the rows' slice, and then the columns'.
    #[device_inline]
    pub fn stage(self, stage: u32) -> Shared<f32> {
        // SAFETY: there are so many stages.
        unsafe { self.shared.offset(stage * STAGE) }
    }

    /// The barrier at which the stage's bytes arrive.
    #[device_inline]
    pub fn full(self, stage: u32) -> MBarrier {
        // SAFETY: there are two barriers a stage.
        MBarrier::at(unsafe { self.barriers.offset(stage) })
    }

    /// The barrier at which warps arrive that are done with the stage.
    #[device_inline]
    pub fn empty(self, stage: u32) -> MBarrier {
        // SAFETY: there are two barriers a stage.
        MBarrier::at(unsafe { self.barriers.offset(STAGES + stage) })
    }
}

/// A place on the way round the ring.
#[derive(Clone, Copy)]
pub struct Place {
    pub stage: u32,
    /// Of how many times the ring was gone round.
    pub parity: u32,
}

impl Place {
    pub const START: Self = Self { stage: 0, parity: 0 };

    /// The next one.
    #[device_inline]
    pub fn next(self) -> Self {
        let last = self.stage + 1 == STAGES;
        Self { stage: if last { 0 } else { self.stage + 1 }, parity: if last { self.parity ^ 1 } else { self.parity } }
    }

    /// The stage before this one.
    #[device_inline]
    pub fn before(self) -> u32 {
        if self.stage == 0 { STAGES - 1 } else { self.stage - 1 }
    }
}

/// What the thread that copies knows: how far it has come.
pub struct Copier {
    ring: Ring,
    maps: [TensorMap; 2],
    order: Order,
    /// The tile whose next slice is to be brought; its depth and slices are of what is left of it.
    tile: Tile,
    place: Place,
}

impl Copier {
    #[device_inline]
    pub fn new(ring: Ring, maps: [TensorMap; 2], order: Order) -> Self {
        let tile = Tile { place: [0; 2], depth: 0, slices: 0, piece: 0 };
        Self { ring, maps, order, tile, place: Place::START }
    }

    /// Brings the next slice of the block's work into the next stage, if there is one left.
    ///
    /// # Safety
    /// One thread; the protocol of the module above.
    #[device_inline]
    pub unsafe fn bring(&mut self) {
        if self.tile.slices == 0 {
            match self.order.next() {
                Some(tile) => self.tile = tile,
                None => return,
            }
        }
        let Tile { place: [row, column], depth, .. } = self.tile;
        let [a, b] = self.maps;
        let full = self.ring.full(self.place.stage);
        // SAFETY: of a stage that was never filled the phase before the first has passed; of any other the warps have
        // arrived. The bytes are those of the boxes, outside of the matrix too.
        unsafe {
            self.ring.empty(self.place.stage).wait(self.place.parity ^ 1);
            full.arrive_expecting(4 * STAGE);
            let rows = self.ring.stage(self.place.stage);
            copy_box_in(rows, a, [row, depth], full);
            copy_box_in(rows.offset(ROWS * DEPTH), b, [column, depth], full);
        }
        self.place = self.place.next();
        self.tile.depth += DEPTH;
        self.tile.slices -= 1;
    }
}
