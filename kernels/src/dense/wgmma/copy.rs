//! The copying thread: brings the slices of all tiles of the block, one after the other.
//!
//! What lies outside of the matrix is not copied: it would come as zeros, and more slowly than what lies inside. So a tile that the
//! matrix ends in has fewer boxes, or, where the depth is innermost, a box with fewer rows, for which there is a map of its own.
//! Shared memory keeps there what it had: it is multiplied into sums that are outside too. (Outside of the depth zeros are needed.)

use cuda_std::arch::sm_90a::{MBarrier, copy_box_in, copy_box_in_cluster, prefetch_tensor_map};
use cuda_std::grid;
use cuda_std::prelude::*;

use super::cluster::Cluster;
use super::element::Factor;
use super::order::Order;
use super::ring::{Place, Ring};
use super::{DEPTH, SWAPPED, tile as sides};

/// An operand's matrix, as copies see it.
#[derive(Clone, Copy)]
pub struct Operand {
    /// For whole boxes, and for those with the rows of [`edge`](super::edge). Without the depth innermost all boxes are whole.
    pub maps: [TensorMap; 2],
    /// Its rows, or columns, that are the result's too.
    pub count: u32,
}

/// Brings an operand's maps to where copies look for them.
#[device_inline]
pub fn prefetch<const DEPTH_INNER: bool>([whole, edge]: [TensorMap; 2]) {
    prefetch_tensor_map(whole);
    if DEPTH_INNER {
        prefetch_tensor_map(edge);
    }
}

/// What the block brings of one side of a tile, for each slice.
#[derive(Clone, Copy)]
struct Side<const DEPTH_INNER: bool> {
    map: TensorMap,
    /// Rows, or columns, of its boxes together; each takes 128 bytes.
    copied: u32,
    /// The same of all blocks that bring the side together.
    of_all: u32,
    /// Where it begins: rows, or columns, and the depth from a slice's first on.
    first: u32,
    deeper: u32,
    /// Elements from the side's place in a stage to that of what the block brings.
    offset: u32,
    /// For which blocks of the cluster: none where it is for this one alone.
    blocks: u16,
}

impl<const DEPTH_INNER: bool> Side<DEPTH_INNER> {
    /// Of `side` rows, or columns, from `first` on: part `part` of so many (their logarithm to base 2), for `blocks`.
    #[device_inline]
    fn new<T: Factor>(
        Operand { maps: [whole, edge], count }: Operand,
        side: u32,
        first: u32,
        [part, parts]: [u32; 2],
        blocks: u16,
    ) -> Self {
        // Rows or columns that there are of so many from one on, in boxes.
        let there = |first: u32, side: u32| {
            let inside = count.saturating_sub(first).min(side);
            inside.next_multiple_of(if DEPTH_INNER { SWAPPED } else { 64 / T::HALVES })
        };
        let of_all = there(first, side);
        let blocks = if parts > 0 { blocks } else { 0 };
        if DEPTH_INNER {
            let each = side >> parts;
            let before = part * each;
            let copied = there(first + before, each);
            let map = if copied < each { edge } else { whole };
            Self { map, copied, of_all, first: first + before, deeper: 0, offset: before * DEPTH, blocks }
        } else {
            // Of each box a part of the depth.
            let each = DEPTH >> parts;
            let before = part * each;
            Self { map: whole, copied: of_all, of_all, first, deeper: before, offset: before * 64 / T::HALVES, blocks }
        }
    }

    /// Brings one slice, at `depth`, to the blocks.
    ///
    /// # Safety
    /// `slice` is the side's place in a stage that nobody uses, the barrier that stage's; the maps are of boxes as
    /// [`operand_box`](super::operand_box) says.
    #[device_inline]
    unsafe fn bring<T: Factor>(self, slice: Shared<T::Half>, depth: u32, full: MBarrier) {
        let Self { map, copied, first, deeper, offset, blocks, .. } = self;
        let copy = |slice, place| {
            // SAFETY: the caller's; the boxes are inside of the side's place.
            unsafe {
                if blocks != 0 {
                    copy_box_in_cluster(slice, map, place, full, blocks);
                } else {
                    copy_box_in(slice, map, place, full);
                }
            }
        };
        let depth = (depth + deeper) / T::HALVES;
        // SAFETY: inside the side's place.
        let slice = unsafe { slice.offset(offset) };
        if DEPTH_INNER {
            if copied > 0 {
                copy(slice, [depth, first]);
            }
        } else {
            let mut across = 0;
            while across < copied {
                // SAFETY: inside the side's place.
                let slice = unsafe { slice.offset(across * DEPTH) };
                copy(slice, [first + across, depth]);
                across += 64 / T::HALVES;
            }
        }
    }
}

/// Brings all slices of the block's tiles.
///
/// Where the block shares nothing, that is compiled in: each copy would ask for whom it is, and of narrow tiles this thread is what the
/// others wait for.
///
/// # Safety
/// One thread; the protocol of the module above.
#[device_inline]
pub unsafe fn run<
    T: Factor,
    const COLUMNS: u32,
    const HEIGHT: u32,
    const PARTS: u32,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
>(
    ring: Ring<T::Half, COLUMNS, HEIGHT, PARTS>,
    operands: [Operand; 2],
    order: Order<COLUMNS, HEIGHT, PARTS>,
) {
    // SAFETY: the caller's; a block that shares nothing is a cluster of its own.
    unsafe {
        if ring.cluster.sharers() == 1 {
            let (ring, order) = (ring.within(Cluster::ALONE), order.within(Cluster::ALONE));
            bring::<T, COLUMNS, HEIGHT, PARTS, A_DEPTH_INNER, B_DEPTH_INNER>(ring, operands, order);
        } else {
            bring::<T, COLUMNS, HEIGHT, PARTS, A_DEPTH_INNER, B_DEPTH_INNER>(ring, operands, order);
        }
    }
}

/// [`run`], by a cluster that is known or not.
///
/// # Safety
/// As [`run`].
#[device_inline]
unsafe fn bring<
    T: Factor,
    const COLUMNS: u32,
    const HEIGHT: u32,
    const PARTS: u32,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
>(
    ring: Ring<T::Half, COLUMNS, HEIGHT, PARTS>,
    [a, b]: [Operand; 2],
    mut order: Order<COLUMNS, HEIGHT, PARTS>,
) {
    let [rows, columns] = sides(ring.columns, HEIGHT);
    // Blocks one below the other have the same columns, those side by side the same rows.
    let Cluster { blocks: [down, beside], place: [place_down, place_beside] } = ring.cluster;
    let [same_rows, same_columns] = ring.cluster.masks();
    let mut place = Place::<COLUMNS, HEIGHT, PARTS>::START;
    let mut next = order.next();
    grid::begin();
    while let Some(tile) = next {
        let left = Side::<A_DEPTH_INNER>::new::<T>(a, rows, tile.row, [place_beside, beside], same_rows);
        let right = Side::<B_DEPTH_INNER>::new::<T>(b, columns, tile.column, [place_down, down], same_columns);
        let mut depth = tile.depth;
        let mut slices = tile.slices;
        while slices > 0 {
            let full = ring.full(place.stage);
            // SAFETY: of a stage that was never filled the phase before the first has passed; of any other the warps have
            // arrived. The bytes are those of the boxes, outside of the depth too.
            unsafe {
                ring.empty(place.stage).wait(place.parity ^ 1);
                full.arrive_expecting(2 * DEPTH * (left.of_all + right.of_all));
                let slice = ring.slices().offset(place.stage * ring.stage);
                left.bring::<T>(slice, depth, full);
                right.bring::<T>(slice.offset(rows * DEPTH), depth, full);
            }
            place = place.next(ring.stages);
            depth += DEPTH;
            slices -= 1;
        }
        next = order.next();
    }
    if ring.cluster.sharers() > 1 {
        // Until the other blocks' warps have arrived for the last time: they do so here.
        let mut stage = 0;
        while stage < ring.stages {
            // SAFETY: as above.
            unsafe { ring.empty(place.stage).wait(place.parity ^ 1) };
            place = place.next(ring.stages);
            stage += 1;
        }
    }
}
