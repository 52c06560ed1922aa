//! The copying thread: brings the slices of all tiles of the block, one after the other.

use cuda_std::arch::sm_90a::{MBarrier, copy_box_in, copy_box_in_cluster, rank_in_cluster};
use cuda_std::grid;
use cuda_std::prelude::*;

use super::element::Factor;
use super::order::Order;
use super::ring::{Place, Ring};
use super::{DEPTH, PANEL, ROWS, sharing, stage, stages, tile as sides};

/// Brings one slice of an operand, or of the columns the block's part for the whole cluster: `SIDE` rows, or columns, from
/// `across` on, at `depth`.
///
/// # Safety
/// `slice` is that part's place in a stage that nobody uses, the barrier that stage's; the map is of boxes as
/// [`operand_box`](super::operand_box) says.
#[inline(always)]
unsafe fn bring<T: Factor, const SIDE: u32, const DEPTH_INNER: bool>(
    slice: Shared<T::Half>,
    map: TensorMap,
    across: u32,
    depth: u32,
    full: MBarrier,
    blocks: u32,
) {
    let copy = |slice, place| {
        // SAFETY: the caller's; the boxes fill the part's place.
        unsafe {
            if blocks > 1 {
                copy_box_in_cluster(slice, map, place, full, (1 << blocks) - 1);
            } else {
                copy_box_in(slice, map, place, full);
            }
        }
    };
    if DEPTH_INNER {
        copy(slice, [depth / T::HALVES, across]);
    } else {
        unrolled!(P in [0 1 2 3] {
            if (P as u32) < SIDE * T::HALVES / 64 {
                // SAFETY: inside the part's place.
                let slice = unsafe { slice.offset(P as u32 * (PANEL / T::HALVES)) };
                copy(slice, [across + 64 / T::HALVES * P as u32, depth / T::HALVES]);
            }
        });
    }
}

/// Brings all slices of the block's tiles.
///
/// # Safety
/// One thread; the protocol of the module above.
#[inline(always)]
pub unsafe fn run<
    T: Factor,
    const COLUMNS: u32,
    const ACROSS: u32,
    const PARTS: u32,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
>(
    ring: Ring<T::Half, COLUMNS, ACROSS, PARTS>,
    [a, b]: [TensorMap; 2],
    mut order: Order<COLUMNS, ACROSS, PARTS>,
) {
    let rows = sides(COLUMNS, ACROSS)[0];
    let mut place = Place::<COLUMNS, ACROSS, PARTS>::START;
    let mut next = order.next();
    grid::begin();
    while let Some(tile) = next {
        let mut depth = tile.depth;
        let mut left = tile.slices;
        while left > 0 {
            let full = ring.full(place.stage);
            // SAFETY: of a stage that was never filled the phase before the first has passed; of any other the warps have
            // arrived. The bytes are those of the boxes, outside of the matrix too.
            unsafe {
                ring.empty(place.stage).wait(place.parity ^ 1);
                full.arrive_expecting(2 * stage(COLUMNS, ACROSS));
                let slice = ring.slices().offset(place.stage * stage(COLUMNS, ACROSS));
                if ACROSS == 1 {
                    bring::<T, ROWS, A_DEPTH_INNER>(slice, a, tile.row, depth, full, 1);
                } else {
                    bring::<T, { ROWS / 2 }, A_DEPTH_INNER>(slice, a, tile.row, depth, full, 1);
                }
                let slice = slice.offset(rows * DEPTH);
                if ACROSS > 1 {
                    bring::<T, ROWS, B_DEPTH_INNER>(slice, b, tile.column, depth, full, 1);
                } else if sharing(COLUMNS, ACROSS, PARTS) == 1 {
                    bring::<T, COLUMNS, B_DEPTH_INNER>(slice, b, tile.column, depth, full, 1);
                } else {
                    let part = rank_in_cluster() * (COLUMNS / 2);
                    let (slice, column) = (slice.offset(part * DEPTH), tile.column + part);
                    if COLUMNS == 256 {
                        bring::<T, 128, B_DEPTH_INNER>(slice, b, column, depth, full, 2);
                    } else {
                        bring::<T, 64, B_DEPTH_INNER>(slice, b, column, depth, full, 2);
                    }
                }
            }
            place = place.next();
            depth += DEPTH;
            left -= 1;
        }
        next = order.next();
    }
    if sharing(COLUMNS, ACROSS, PARTS) > 1 {
        // Until the other blocks' warps have arrived for the last time: they do so here.
        let mut stage = 0;
        while stage < stages(COLUMNS, ACROSS, PARTS) {
            // SAFETY: as above.
            unsafe { ring.empty(place.stage).wait(place.parity ^ 1) };
            place = place.next();
            stage += 1;
        }
    }
}
