//! The warps' work: slice after slice, four of depth at a time ([`fragments`](super::super::fragments)), and copies on the way.

use cuda_std::arch::sm_90a::prefetch_tensor_map;
use cuda_std::prelude::*;

use super::super::fragments::{self, Operands};
use super::order::Order;
use super::ring::{Copier, Place, Ring};
use super::store::{Lane, QUADS, Store};
use super::{COLUMNS, DEPTH, ROWS};

/// A lane's sums: of eight rows and four quads of columns.
pub type Sums = fragments::Sums<{ QUADS as usize }>;
type Fragments = fragments::Fragments<{ QUADS as usize }>;

/// The block's tiles and pieces of `a · b`, `a: [depth, rows]`, `b: [depth, columns]`.
///
/// # Safety
/// The module `dense`'s; all sizes are at least 1; the maps are of the operands, with the boxes of
/// [`operand_box`](super::operand_box).
#[device_inline]
pub unsafe fn product<const PLAIN: bool>(maps: [TensorMap; 2], store: Store) {
    let ring = Ring::new();
    let first = thread::thread_idx_x() == 0;
    let is_first_lane = thread::thread_idx_x() % warp::WARP_SIZE == 0;
    let mut order = Order::new(store.work);
    let mut copier = Copier::new(ring, maps, order);
    // SAFETY: the protocol of the module above.
    unsafe {
        if first {
            let [a, b] = maps;
            prefetch_tensor_map(a);
            prefetch_tensor_map(b);
            ring.init();
        }
        thread::sync_threads();
        if first {
            copier.bring();
            copier.bring();
        }
        let lane = Lane::this();
        let at = |stage: Shared<f32>, depth: u32| Operands {
            rows: stage.offset(lane.row + depth * ROWS),
            columns: stage.offset(ROWS * DEPTH + lane.column + depth * COLUMNS),
            pitches: [ROWS, COLUMNS],
        };
        let mut current = order.next();
        if current.is_none() {
            return;
        }
        let mut following = order.next();
        let mut place = Place::START;
        let mut is_first_slice = true;
        let mut depth = 0;
        ring.full(0).wait(0);
        let mut stage = ring.stage(0);
        let mut operands = at(stage, 0);
        let mut fragments = Fragments::load(operands, 0);
        while let Some(tile) = current {
            // SAFETY: all zeros is an array of floats. Not `[..; 8]`, which becomes a loop and then local memory.
            let mut sums: Sums = core::mem::zeroed();
            let mut left = tile.slices * (DEPTH / FOUR);
            while left > 0 {
                depth += FOUR;
                if depth == DEPTH {
                    depth = 0;
                    // The slice before is done with: each of its products was made a slice ago.
                    warp::sync_warp(warp::FULL_MASK);
                    if is_first_lane && !is_first_slice {
                        ring.empty(place.before()).arrive();
                    }
                    is_first_slice = false;
                    if first {
                        copier.bring();
                    }
                    // After the last slice of all the same one is loaded from once more, for nothing.
                    if left > 1 || following.is_some() {
                        place = place.next();
                        ring.full(place.stage).wait(place.parity);
                        stage = ring.stage(place.stage);
                    }
                }
                let next = at(stage, depth);
                fragments.multiply(&mut sums, operands, 1);
                fragments.multiply(&mut sums, operands, 2);
                fragments.multiply(&mut sums, operands, 3);
                fragments.multiply(&mut sums, next, 0);
                operands = next;
                left -= 1;
            }
            store.put::<PLAIN>(sums, tile, lane);
            current = following;
            following = order.next();
        }
    }
}

/// Of depth that is multiplied between two looks at the way.
const FOUR: u32 = 4;
