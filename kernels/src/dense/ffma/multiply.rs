//! The warps' work: slice after slice, four of depth at a time, and copies on the way.
//!
//! What limits is the way from the registers: there are two banks of them, of the even and of the odd, each of which gives one a clock,
//! and a cache that keeps an operand for the next instruction. So of each FFMA one operand is the one before's, a row's element, and
//! columns go by in an order in which the sums' registers and the columns' take both banks in turns.

use cuda_std::arch::sm_90a::prefetch_tensor_map;
use cuda_std::prelude::*;

use super::order::Order;
use super::ring::{Copier, Place, Ring};
use super::store::{Lane, QUADS_APART, Store};
use super::{COLUMNS, DEPTH, ROWS};

/// A lane's sums: of eight rows and four quads of columns.
pub type Sums = [[f32; 16]; 8];

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
                fragments.multiply(&mut sums, operands, next);
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

/// Where a lane's operands are in a stage, from a depth of the slice on.
#[derive(Clone, Copy)]
struct Operands {
    rows: Shared<f32>,
    columns: Shared<f32>,
}

/// What a lane has in registers of the operands at one depth.
struct Fragments {
    rows: [Vec4<f32>; 2],
    columns: [Vec4<f32>; 4],
}

impl Fragments {
    /// Those at so many of depth from `operands` on.
    ///
    /// # Safety
    /// The operands' stage is full; so for the next ones.
    #[device_inline]
    unsafe fn load(operands: Operands, depth: u32) -> Self {
        // SAFETY: the caller's; inside the stage.
        unsafe {
            Self {
                rows: Self::load_rows(operands, depth),
                columns: [0, 1, 2, 3].map(|quad| Self::load_quad(operands, depth, quad)),
            }
        }
    }

    #[device_inline]
    unsafe fn load_rows(operands: Operands, depth: u32) -> [Vec4<f32>; 2] {
        let at = depth * ROWS;
        // SAFETY: the caller's.
        unsafe { [operands.rows.load4(at), operands.rows.load4(at + Lane::ROWS_APART)] }
    }

    #[device_inline]
    unsafe fn load_quad(operands: Operands, depth: u32, quad: u32) -> Vec4<f32> {
        // SAFETY: the caller's.
        unsafe { operands.columns.load4(depth * COLUMNS + quad * QUADS_APART) }
    }

    /// Adds to the sums what four of depth give, and loads what comes after: the `next` operands' first.
    ///
    /// # Safety
    /// As [`Fragments::load`], of both operands; they are the first ones'.
    #[device_inline]
    unsafe fn multiply(&mut self, sums: &mut Sums, operands: Operands, next: Operands) {
        // SAFETY: the caller's.
        unsafe {
            self.multiply_one(sums, operands, 1);
            self.multiply_one(sums, operands, 2);
            self.multiply_one(sums, operands, 3);
            self.multiply_one(sums, next, 0);
        }
    }

    /// Adds to the sums what one depth gives, and loads the fragments at another.
    ///
    /// # Safety
    /// As [`Fragments::load`].
    #[device_inline]
    unsafe fn multiply_one(&mut self, sums: &mut Sums, next: Operands, depth: u32) {
        let Self { rows: [low, high], columns } = *self;
        // A row's sums, and back again the next one's: the last column's element is the next row's first.
        macro_rules! there {
            ($r:literal $a:expr) => {
                unrolled!(Q in [0 1 2 3] {
                    let Vec4 { x, y, z, w } = columns[Q];
                    sums[$r][4 * Q + 1] = float::fma($a, y, sums[$r][4 * Q + 1]);
                    sums[$r][4 * Q] = float::fma($a, x, sums[$r][4 * Q]);
                    sums[$r][4 * Q + 3] = float::fma($a, w, sums[$r][4 * Q + 3]);
                    sums[$r][4 * Q + 2] = float::fma($a, z, sums[$r][4 * Q + 2]);
                });
            };
        }
        macro_rules! back {
            ($r:literal $a:expr) => {
                unrolled!(Q in [3 2 1 0] {
                    let Vec4 { x, y, z, w } = columns[Q];
                    sums[$r][4 * Q + 2] = float::fma($a, z, sums[$r][4 * Q + 2]);
                    sums[$r][4 * Q + 3] = float::fma($a, w, sums[$r][4 * Q + 3]);
                    sums[$r][4 * Q] = float::fma($a, x, sums[$r][4 * Q]);
                    sums[$r][4 * Q + 1] = float::fma($a, y, sums[$r][4 * Q + 1]);
                });
            };
        }
        // SAFETY: the caller's.
        unsafe {
            self.rows = Self::load_rows(next, depth);
            self.columns[0] = Self::load_quad(next, depth, 0);
            there!(0 low.x);
            self.columns[1] = Self::load_quad(next, depth, 1);
            back!(1 low.y);
            self.columns[2] = Self::load_quad(next, depth, 2);
            there!(2 low.z);
            self.columns[3] = Self::load_quad(next, depth, 3);
            back!(3 low.w);
            there!(4 high.x);
            back!(5 high.y);
            there!(6 high.z);
            back!(7 high.w);
        }
    }
}
