//! The product of f32 matrices that lie in three parts of bf16 each ([`split`](super)), on Hopper's tensor cores: six products
//! of parts, all but those that no f32 sum would show. In PTX for `sm_90a` alone.
//!
//! **Roles.** A block of three warpgroups stays on its multiprocessor and takes tile after tile ([`ring`](super::ring)). Of the
//! first warpgroup one thread issues all copies in; each of the other two multiplies 64 rows of the tile, and stores its sums
//! ([`store`](super::store)). They need the registers that the first gives away.
//!
//! **Stages.** Shared memory has a ring of six stages, each for the same part of both operands over [`DEPTH`] of depth. A slice
//! of depth takes three: low, middle, high, in the order in which they are done with. An operand lies there as it lies in
//! global memory, pieces of 16 bytes swapped within 128 bytes: `wgmma` takes either way.
//!
//! **Protocol.** A stage has two barriers. Its copies count their bytes at `full`; the multiplying warps wait for it, and each
//! arrives at `empty` when the products that read the stage are done. The copying thread waits for `empty` before it fills the
//! stage again. Both sides go round the ring at the same places, so that a phase's parity says which time round it is.
//!
//! **Sums.** Tensor cores cut off what a sum does not hold instead of rounding it. So a slice's products begin with the
//! smallest, and after each slice their sum is taken out and added to another in ordinary arithmetic. Two sums alternate in the
//! tensor cores: while one is added, the other is worked on.
//!
//! Bound by the tensor cores, with six products in place of one.

use cuda_std::arch::sm_90a::{
    MBarrier, Matrix, Sums, copy_box_in, prefetch_tensor_map, set_max_registers_down, set_max_registers_up, wgmma,
    wgmma_commit, wgmma_fence, wgmma_settle, wgmma_wait,
};
use cuda_std::prelude::*;

use super::super::product::{Epilogue, Shape};
use super::super::wgmma::{BLOCK, DEPTH, ROWS};
use super::ring::{Order, Ring, stages_of};
use super::store::Store;
use super::{BLOCKS, COLUMNS, PARTS, STAGE};

/// Registers of each thread of the copying warpgroup, and of the multiplying ones. All together are a multiprocessor's.
const COPY_REGISTERS: u32 = 40;
const MULTIPLY_REGISTERS: u32 = 232;
/// Elements of 64 rows, or columns, of a slice.
pub(super) const PANEL: u32 = 64 * DEPTH;

/// An operand's parts.
#[derive(Clone, Copy)]
pub struct Parts {
    pub map: TensorMap,
    /// Rows of each part in memory.
    pub rows: u32,
}

/// The block's tiles of `a · b`, `a: [rows, depth]`, `b: [depth, columns]`, into `epilogue`, or into `parts`,
/// `[splits, rows, columns]`, where they are given; unless one of the split's blocks refused one of the matrices in
/// `OPERANDS`, as `refusals` say: then nothing but a 1 in `refused`, which is 0 otherwise.
///
/// `A_DEPTH_INNER` says that `a` lies row by row, `B_DEPTH_INNER` that `b` lies column by column; otherwise the other way.
///
/// # Safety
/// The module `dense`'s; all sizes are at least 1; the maps are of the operands' parts as one matrix, their boxes those of
/// [`operand_box`](super::super::wgmma::operand_box), pieces swapped within 128 bytes.
#[device_inline]
pub unsafe fn product<const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool, const OPERANDS: u32>(
    [a, b]: [Parts; 2],
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    epilogue: Epilogue<f32>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
) {
    let ring = Ring::new();
    let order = Order::<COLUMNS>::new(shape, splits);
    let thread = thread::thread_idx_x();
    // SAFETY: the protocol of the modules above.
    unsafe {
        if thread == 0 {
            prefetch_tensor_map(a.map);
            prefetch_tensor_map(b.map);
            ring.init();
        }
        let mut refuses = 0;
        let mut block = thread;
        while block < BLOCKS {
            refuses |= refusals.load(block as usize);
            block += BLOCK;
        }
        let refuses = thread::sync_threads_or(refuses & OPERANDS != 0);
        if thread::block_idx_x() == 0 && thread == 0 {
            refused.store(0, u32::from(refuses));
        }
        if refuses {
            return;
        }
        if thread < 128 {
            set_max_registers_down::<COPY_REGISTERS>();
            if thread == 0 {
                copy::<A_DEPTH_INNER, B_DEPTH_INNER>(ring, [a, b], order);
            }
        } else {
            set_max_registers_up::<MULTIPLY_REGISTERS>();
            let store = Store { epilogue, parts, shape, room: ring.room() };
            multiply::<A_DEPTH_INNER, B_DEPTH_INNER>(ring, order, store);
        }
    }
}

/// Brings one slice of a part of an operand.
///
/// # Safety
/// `slice` is the part's place in a stage that nobody uses, the barrier that stage's.
#[device_inline]
unsafe fn bring<const SIDE: u32, const DEPTH_INNER: bool>(
    slice: Shared<bf16>,
    operand: Parts,
    part: u32,
    [across, depth]: [u32; 2],
    full: MBarrier,
) {
    let first = part * operand.rows;
    // SAFETY: the caller's.
    unsafe {
        if DEPTH_INNER {
            copy_box_in(slice, operand.map, [depth, first + across], full);
        } else {
            unrolled!(P in [0 1] {
                copy_box_in(slice.offset(P as u32 * PANEL), operand.map, [across + 64 * P as u32, first + depth], full);
            });
        }
    }
}

/// Brings all slices of the block's tiles.
///
/// # Safety
/// One thread; the protocol of the module above.
#[device_inline]
unsafe fn copy<const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    ring: Ring,
    [a, b]: [Parts; 2],
    mut order: Order<COLUMNS>,
) {
    let mut number = 0;
    while let Some(tile) = order.next() {
        let mut depth = tile.depth;
        let mut left = tile.slices;
        while left > 0 {
            let (first, parity) = stages_of(number);
            let mut part = 0;
            while part < PARTS {
                let at = first + part;
                let full = ring.full(at);
                // SAFETY: of a stage that was never filled the phase before the first has passed; of any other the warps have
                // arrived. The bytes are those of the boxes, outside of the matrix too.
                unsafe {
                    ring.empty(at).wait(parity ^ 1);
                    full.arrive_expecting(2 * STAGE);
                    let slice = ring.slices().offset(at * STAGE);
                    let part = PARTS - 1 - part;
                    bring::<ROWS, A_DEPTH_INNER>(slice, a, part, [tile.row, depth], full);
                    bring::<COLUMNS, B_DEPTH_INNER>(slice.offset(ROWS * DEPTH), b, part, [tile.column, depth], full);
                }
                part += 1;
            }
            number += 1;
            depth += DEPTH;
            left -= 1;
        }
    }
}

/// A thread's sums of a tile: of [`COLUMNS`] columns.
pub(super) type Total = [f32; COLUMNS as usize / 2];

/// A multiplying warp.
struct Multiplier<const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool> {
    ring: Ring,
    /// The first stage's slices.
    a: Matrix,
    b: Matrix,
    /// Of the block's slices, the next one's number.
    number: u32,
    is_first_lane: bool,
}

impl<const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool> Multiplier<A_DEPTH_INNER, B_DEPTH_INNER> {
    /// Begins the products of a slice of the parts in two stages.
    ///
    /// # Safety
    /// As `wgmma`'s; both stages are full.
    #[device_inline]
    unsafe fn products(&self, sums: &mut Sums, a: u32, b: u32, add: bool) {
        let a = self.a.offset(2 * a * STAGE);
        let b = self.b.offset(2 * b * STAGE);
        unrolled!(K in [0 1 2 3] {
            let a = a.offset(K as u32 * step(A_DEPTH_INNER));
            let b = b.offset(K as u32 * step(B_DEPTH_INNER));
            // SAFETY: the caller's. Of the three one is left.
            unsafe {
                match (A_DEPTH_INNER, B_DEPTH_INNER) {
                    (true, true) => wgmma::<bf16, COLUMNS, false, false>(sums, a, b, K > 0 || add),
                    (true, false) => wgmma::<bf16, COLUMNS, false, true>(sums, a, b, K > 0 || add),
                    (false, _) => wgmma::<bf16, COLUMNS, true, true>(sums, a, b, K > 0 || add),
                }
            }
        });
    }

    /// This warp is done with a stage.
    ///
    /// # Safety
    /// It is, and so it says once.
    #[device_inline]
    unsafe fn done(&self, stage: u32) {
        if self.is_first_lane {
            // SAFETY: the caller's.
            unsafe { self.ring.empty(stage).arrive() };
        }
    }

    /// Begins the next slice's products, into `sums`, and adds to `total` those of the slice before, which are in `before`.
    ///
    /// # Safety
    /// All threads of the warpgroup together; the module's protocol.
    #[device_inline]
    unsafe fn slice(&mut self, sums: &mut Sums, before: &mut Sums, total: &mut Total, is_first: bool) {
        let (low, parity) = stages_of(self.number);
        // The same in all lanes already. Taken from one of them it is new in each slice: else all descriptors of either half of
        // the ring would be computed before the loop, and kept in registers that sums need.
        let low = warp::shuffle(low, 0);
        let (middle, high) = (low + 1, low + 2);
        // SAFETY: stages are full, and stay so until this warp says that it is done: when all products are that read them,
        // for groups of products end in order.
        unsafe {
            self.ring.full(low).wait(parity);
            self.ring.full(middle).wait(parity);
            self.ring.full(high).wait(parity);
            wgmma_fence();
            self.products(sums, low, high, false);
            self.products(sums, high, low, true);
            wgmma_commit();
            wgmma_wait::<1>();
            wgmma_settle::<COLUMNS>(before);
            if !is_first {
                self.done(PARTS - low + 2);
            }
            add(total, before);
            wgmma_fence();
            self.products(sums, middle, middle, true);
            self.products(sums, middle, high, true);
            self.products(sums, high, middle, true);
            wgmma_commit();
            wgmma_wait::<1>();
            self.done(low);
            self.products(sums, high, high, true);
            wgmma_commit();
            wgmma_wait::<1>();
            self.done(middle);
        }
        self.number = self.number.wrapping_add(1);
    }

    /// Adds the last slice's products.
    ///
    /// # Safety
    /// As [`Multiplier::slice`].
    #[device_inline]
    unsafe fn finish(&self, last: &mut Sums, total: &mut Total) {
        // SAFETY: the caller's.
        unsafe {
            wgmma_wait::<0>();
            wgmma_settle::<COLUMNS>(last);
            self.done(stages_of(self.number.wrapping_sub(1)).0 + 2);
        }
        add(total, last);
    }
}

/// Bytes from 16 of depth to the next 16 of an operand's slice.
const fn step(depth_inner: bool) -> u32 {
    if depth_inner { 2 * 16 } else { 2 * 16 * 64 }
}

/// `total += sums`.
#[device_inline]
pub(super) fn add(total: &mut Total, sums: &Sums) {
    macro_rules! each {
        ($($i:literal)*) => { $(total[$i] += sums[$i];)* };
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
        41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
}

/// Multiplies and stores this warpgroup's rows of the block's tiles.
///
/// # Safety
/// All threads of the warpgroup together; the protocol of the module above.
#[device_inline]
unsafe fn multiply<const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    ring: Ring,
    mut order: Order<COLUMNS>,
    store: Store,
) {
    let warp = thread::thread_idx_x() / warp::WARP_SIZE - 4;
    // SAFETY: inside a stage.
    let (a, b) = unsafe {
        let a = ring.slices().offset(warp / 4 * PANEL);
        (Matrix::at(a, 2 * PANEL), Matrix::at(ring.slices().offset(ROWS * DEPTH), 2 * PANEL))
    };
    let is_first_lane = thread::thread_idx_x() % warp::WARP_SIZE == 0;
    let mut warpgroup = Multiplier::<A_DEPTH_INNER, B_DEPTH_INNER> { ring, a, b, number: 0, is_first_lane };
    while let Some(tile) = order.next() {
        // SAFETY: all zeros are arrays of floats. Not `[0.0; 128]`, which becomes a loop and then local memory.
        let (mut even, mut odd, mut total): (Sums, Sums, Total) = unsafe { core::mem::zeroed() };
        let mut slice = 0;
        // SAFETY: the caller's; a tile has at least one slice.
        unsafe {
            loop {
                warpgroup.slice(&mut even, &mut odd, &mut total, slice == 0);
                slice += 1;
                if slice == tile.slices {
                    warpgroup.finish(&mut even, &mut total);
                    break;
                }
                warpgroup.slice(&mut odd, &mut even, &mut total, false);
                slice += 1;
                if slice == tile.slices {
                    warpgroup.finish(&mut odd, &mut total);
                    break;
                }
            }
            store.put(&total, tile, warp);
        }
    }
}
