//! The product of an f32 matrix as it lies and of one in three parts ([`split`](super)): the first one's parts are made in registers,
//! where `wgmma` takes its left operand from, and lie in no memory. In PTX for `sm_90a` alone.
//!
//! The result comes turned: its columns are the left operand's rows. So a large matrix of weights is read once, 4 bytes an element,
//! and nothing else: for `y` the left operand is `w`, for `dx` it is `wᵀ`, for `dw` it is `xᵀ`, and `x` or `dz` is what lies in parts.
//!
//! **Roles.** As in [`product`](super::product): one thread copies, two warpgroups multiply, each 64 rows of a tile of 128 rows and
//! `COLUMNS` columns, and store their sums.
//!
//! **Slots.** For each warpgroup a ring of its 64 rows of a slice of depth, f32; for both together one of a slice of the other operand, three
//! parts. Each slot has two barriers, `full` and `empty`, and is gone round as [`product`](super::product)'s stages are.
//!
//! **Turns.** A warpgroup takes its part of a slice out of its slot, makes the parts, begins all of the slice's products, waits for them and adds
//! their sum to another. Only the products are the tensor cores': while one warpgroup does the rest, the other's are under way. A barrier
//! for each warpgroup keeps them in turn: the other one arrives there when it has begun its products.
//!
//! **What has no parts** is found where parts are made: then `refused` becomes 1, and all results are to be made again. So nothing waits to
//! learn what the split's blocks refused.
//!
//! A lane takes two neighbouring rows, which are the fragment's `g` and `g + 8`, so that no two lanes meet in a bank whichever way the
//! matrix lies, and sums of neighbouring rows are neighbours in the result.
//!
//! Bound by the tensor cores, with six products in place of one; of thin results by memory, 4 bytes of each element of the left operand.

mod ring;
mod store;

use cuda_std::arch::sm_90a::{
    Matrix, Sums, copy_box_in, prefetch_tensor_map, set_max_registers_down, set_max_registers_up, wgmma_commit,
    wgmma_fence, wgmma_finish, wgmma_of,
};
use cuda_std::grid;
use cuda_std::prelude::*;

use self::ring::{Place, Ring};
use self::store::Store;
use super::super::product::{Epilogue, Shape};
use super::super::wgmma::{DEPTH, ROWS};
use super::product::{PANEL, Parts, Total, add};
use super::ring::Order;
use super::{BLOCKS, LEFT, LIMIT, PARTS, ROOM, SCALE, right, take};

/// Registers of each thread of the copying warpgroup, and of the multiplying ones. All together are a multiprocessor's.
const COPY_REGISTERS: u32 = 40;
const MULTIPLY_REGISTERS: u32 = 232;
/// Elements of a box of the left operand: 64 rows of 128 bytes.
const BOX: u32 = LEFT / 2;
/// Warps of a warpgroup.
const WARPS: u32 = 4;

/// The block's tiles of `(a · b)ᵀ`, `a: [shape.columns, depth]` f32, `b: [depth, shape.rows]` in parts, into `epilogue`, or into `parts`,
/// `[splits, rows, columns]`, where they are given. A 1 in `refused` where one of the split's blocks refused `b`, as `refusals` say, or an
/// element of `a` has no parts: then all else is nothing. Otherwise it stays as it is.
///
/// `A_DEPTH_INNER` says that `a` lies row by row, `B_DEPTH_INNER` that `b` lies column by column; otherwise the other way.
///
/// # Safety
/// The module `dense`'s; all sizes are at least 1; rows of `a` in memory are a multiple of four elements; the maps are of `a`, with boxes of
/// [`LEFT_BOX`](super::LEFT_BOX), and of the other's parts as one matrix, with those of [`operand_box`](super::super::wgmma::operand_box)
/// for `COLUMNS`, pieces swapped within 128 bytes.
#[device_inline]
pub unsafe fn product<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    a: TensorMap,
    b: Parts,
    refusals: Global<u32>,
    refused: GlobalMut<u32>,
    epilogue: Epilogue<f32>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
) {
    let ring = Ring::<COLUMNS>::new();
    let order = Order::<COLUMNS>::new(Shape { rows: shape.columns, columns: shape.rows, ..shape }, splits);
    let thread = thread::thread_idx_x();
    // SAFETY: the protocol of the module above.
    unsafe {
        if thread == 0 {
            prefetch_tensor_map(a);
            prefetch_tensor_map(b.map);
            ring.init();
        }
        thread::sync_threads();
        // Each role waits for the grid before when it has done all that it can do without.
        if thread < 128 {
            set_max_registers_down::<COPY_REGISTERS>();
            if thread == 0 {
                copy::<COLUMNS, A_DEPTH_INNER, B_DEPTH_INNER>(ring, a, b, order);
            } else {
                grid::begin();
                if thread::block_idx_x() == 0 {
                    let mut refuses = 0;
                    let mut block = thread - 1;
                    while block < BLOCKS {
                        refuses |= refusals.load(block as usize);
                        block += 127;
                    }
                    // `b` is the first of the split's matrices.
                    refused.store_if(refuses & 1 != 0, 0, 1);
                }
            }
        } else {
            set_max_registers_up::<MULTIPLY_REGISTERS>();
            grid::begin();
            let store = Store { epilogue, parts, shape };
            let refuses = multiply::<COLUMNS, A_DEPTH_INNER, B_DEPTH_INNER>(ring, order, store);
            refused.store_if(refuses, 0, 1);
        }
    }
}

/// Brings all slices of the block's tiles.
///
/// # Safety
/// One thread; the protocol of the module above.
#[device_inline]
unsafe fn copy<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    ring: Ring<COLUMNS>,
    a: TensorMap,
    b: Parts,
    mut order: Order<COLUMNS>,
) {
    let (mut left, mut right_place) = (Place::START, Place::START);
    let mut next = order.next();
    grid::begin();
    while let Some(tile) = next {
        let mut depth = tile.depth;
        let mut slices = tile.slices;
        while slices > 0 {
            // SAFETY: of a slot that was never filled the phase before the first has passed; of any other the warps have
            // arrived. The bytes are those of the boxes, outside of the matrix too.
            unsafe {
                let mut warpgroup = 0;
                while warpgroup < 2 {
                    let slot = warpgroup * Ring::<COLUMNS>::LEFTS + left.slot;
                    let (full, target) = (ring.left_full(slot), ring.lefts().offset(slot * LEFT));
                    ring.left_empty(slot).wait(left.parity ^ 1);
                    full.arrive_expecting(4 * LEFT);
                    let row = tile.row + ROWS / 2 * warpgroup;
                    unrolled!(P in [0 1] {
                        let on = 32 * P as u32;
                        let place = if A_DEPTH_INNER { [depth + on, row] } else { [row + on, depth] };
                        copy_box_in(target.offset(BOX * P as u32), a, place, full);
                    });
                    warpgroup += 1;
                }
                let slot = right_place.slot;
                let full = ring.right_full(slot);
                ring.right_empty(slot).wait(right_place.parity ^ 1);
                full.arrive_expecting(2 * right(COLUMNS));
                unrolled!(P in [0 1 2] {
                    let target = ring.rights().offset(slot * right(COLUMNS) + P as u32 * COLUMNS * DEPTH);
                    let first = P as u32 * b.rows;
                    if B_DEPTH_INNER {
                        copy_box_in(target, b.map, [depth, first + tile.column], full);
                    } else {
                        unrolled!(H in [0 1] {
                            if 64 * (H as u32) < COLUMNS {
                                let place = [tile.column + 64 * H as u32, first + depth];
                                copy_box_in(target.offset(PANEL * H as u32), b.map, place, full);
                            }
                        });
                    }
                });
            }
            left = left.next(Ring::<COLUMNS>::LEFTS);
            right_place = right_place.next(Ring::<COLUMNS>::RIGHTS);
            depth += DEPTH;
            slices -= 1;
        }
        next = order.next();
    }
}

/// A lane's part of a slice of the left operand: of each part, for every 16 of depth.
type Fragments = [[[u32; 4]; 4]; PARTS as usize];
/// High, middle and low, as they are in fragments and in memory.
const HIGH: usize = 0;
const MIDDLE: usize = 1;
const LOW: usize = 2;

/// A multiplying warp.
struct Multiplier<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool> {
    ring: Ring<COLUMNS>,
    /// The first slot's slice of the right operand.
    b: Matrix,
    /// Its place among the warpgroup's slots, and among the right operand's.
    left: Place,
    right: Place,
    /// Which of the two warpgroups, and the parity of its turn.
    warpgroup: u32,
    turn: u32,
    /// The largest magnitude of all elements of the left operand, or a NaN.
    largest: f32,
    lane: u32,
    /// The warp's number in its warpgroup.
    warp: u32,
}

impl<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>
    Multiplier<COLUMNS, A_DEPTH_INNER, B_DEPTH_INNER>
{
    #[device_inline]
    fn new(ring: Ring<COLUMNS>) -> Self {
        let thread = thread::thread_idx_x();
        let (warp, lane) = (thread / warp::WARP_SIZE - WARPS, thread % warp::WARP_SIZE);
        let warpgroup = warp / WARPS;
        Self {
            ring,
            b: Matrix::at(ring.rights(), 2 * PANEL),
            left: Place::START,
            right: Place::START,
            warpgroup,
            turn: warpgroup ^ 1,
            largest: 0.0,
            lane,
            warp: warp % WARPS,
        }
    }

    /// Of 16 of depth the lane's elements of two rows: those at two neighbouring depths, and 8 depths on.
    ///
    /// # Safety
    /// `slice` is a full slot's.
    #[device_inline]
    unsafe fn rows(&self, slice: Shared<f32>, k: u32) -> [Vec4<f32>; 2] {
        let (g, c) = (self.lane / 4, self.lane % 4);
        // In shared memory pieces of four elements are swapped by the number of the row of 128 bytes.
        // SAFETY: the caller's.
        unsafe {
            if A_DEPTH_INNER {
                [0, 1].map(|r| {
                    let row = 16 * self.warp + 2 * g + r;
                    let [low, high] = [0, 1].map(|half| {
                        let piece = (4 * (k % 2) + 2 * half + c / 2) ^ (row % 8);
                        slice.load2(k / 2 * BOX + row * 32 + piece * 4 + c % 2 * 2)
                    });
                    Vec4::new(low.x, low.y, high.x, high.y)
                })
            } else {
                let [a, b, c, d] = [0, 1, 8, 9].map(|on| {
                    let depth = 2 * c + on;
                    let piece = (4 * (self.warp % 2) + g / 2) ^ (depth % 8);
                    slice.load2(self.warp / 2 * BOX + (16 * k + depth) * 32 + piece * 4 + g % 2 * 2)
                });
                [Vec4::new(a.x, b.x, c.x, d.x), Vec4::new(a.y, b.y, c.y, d.y)]
            }
        }
    }

    /// Makes the parts of the next slice of the left operand.
    ///
    /// # Safety
    /// All lanes together; the module's protocol.
    #[device_inline]
    unsafe fn part(&mut self, fragments: &mut Fragments) {
        let slot = self.warpgroup * Ring::<COLUMNS>::LEFTS + self.left.slot;
        // SAFETY: the slot is full, and stays so until this warp says that it is done.
        unsafe {
            self.ring.left_full(slot).wait(self.left.parity);
            let slice = self.ring.lefts().offset(slot * LEFT);
            unrolled!(K in [0 1 2 3] {
                let rows = self.rows(slice, K as u32);
                unrolled!(R in [0 1] {
                    let Vec4 { x, y, z, w } = rows[R].map(f32::abs);
                    let largest = float::maximum(float::maximum(x, y), float::maximum(z, w));
                    self.largest = float::maximum(self.largest, largest);
                    let (high, rest) = take(rows[R].map(|x| x * SCALE));
                    let (middle, rest) = take(rest);
                    let (low, _) = take(rest);
                    unrolled!(H in [0 1] {
                        fragments[HIGH][K][2 * H + R] = high[H];
                        fragments[MIDDLE][K][2 * H + R] = middle[H];
                        fragments[LOW][K][2 * H + R] = low[H];
                    });
                });
            });
            warp::sync_warp(warp::FULL_MASK);
            if self.lane == 0 {
                self.ring.left_empty(slot).arrive();
            }
        }
        self.left = self.left.next(Ring::<COLUMNS>::LEFTS);
    }

    /// Begins the products of a slice's part of the left operand and of the right operand's part.
    ///
    /// # Safety
    /// As `wgmma`'s; the slot is full.
    #[device_inline]
    unsafe fn products(&self, sums: &mut Sums, a: &[[u32; 4]; 4], b: usize, add: bool) {
        let b = self.b.offset(2 * (self.right.slot * right(COLUMNS) + b as u32 * COLUMNS * DEPTH));
        unrolled!(K in [0 1 2 3] {
            // SAFETY: the caller's. Of the two one is left.
            unsafe {
                if B_DEPTH_INNER {
                    wgmma_of::<bf16, COLUMNS, false>(sums, a[K], b.offset(2 * 16 * K as u32), K > 0 || add);
                } else {
                    wgmma_of::<bf16, COLUMNS, true>(sums, a[K], b.offset(2 * 16 * 64 * K as u32), K > 0 || add);
                }
            }
        });
    }

    /// Makes the products of a slice and adds them to `total`.
    ///
    /// # Safety
    /// All threads of the warpgroup together; the module's protocol.
    #[device_inline]
    unsafe fn slice(&mut self, sums: &mut Sums, fragments: &Fragments, total: &mut Total) {
        // SAFETY: the slot is full, and stays so until this warp says that it is done. Nothing is under way before, nor after.
        unsafe {
            self.ring.right_full(self.right.slot).wait(self.right.parity);
            self.ring.turn(self.warpgroup).wait(self.turn);
            wgmma_fence();
            self.products(sums, &fragments[LOW], HIGH, false);
            self.products(sums, &fragments[HIGH], LOW, true);
            self.products(sums, &fragments[MIDDLE], MIDDLE, true);
            self.products(sums, &fragments[MIDDLE], HIGH, true);
            self.products(sums, &fragments[HIGH], MIDDLE, true);
            self.products(sums, &fragments[HIGH], HIGH, true);
            wgmma_commit();
            if self.lane == 0 {
                self.ring.turn(self.warpgroup ^ 1).arrive();
            }
            wgmma_finish::<COLUMNS>(sums);
            if self.lane == 0 {
                self.ring.right_empty(self.right.slot).arrive();
            }
        }
        add(total, sums);
        self.turn ^= 1;
        self.right = self.right.next(Ring::<COLUMNS>::RIGHTS);
    }
}

/// Multiplies and stores this warpgroup's rows of the block's tiles; whether any element of the left operand has no parts.
///
/// # Safety
/// All threads of the warpgroup together; the protocol of the module above.
#[device_inline]
unsafe fn multiply<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
    ring: Ring<COLUMNS>,
    mut order: Order<COLUMNS>,
    store: Store,
) -> bool {
    let mut warpgroup = Multiplier::<COLUMNS, A_DEPTH_INNER, B_DEPTH_INNER>::new(ring);
    let warp = WARPS * warpgroup.warpgroup + warpgroup.warp;
    // SAFETY: the warp's own.
    let room = unsafe { ring.room().offset(warp * ROOM) };
    while let Some(tile) = order.next() {
        // SAFETY: all zeros are arrays of floats and words. Not `[0.0; 128]`, which becomes a loop and then local memory.
        let (mut sums, mut total): (Sums, Total) = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut fragments: Fragments = unsafe { core::mem::zeroed() };
        let mut slice = 0;
        // SAFETY: the caller's.
        unsafe {
            while slice < tile.slices {
                warpgroup.part(&mut fragments);
                warpgroup.slice(&mut sums, &fragments, &mut total);
                slice += 1;
            }
            store.put::<COLUMNS>(&total, tile, warp, room);
        }
    }
    // NaN is not below the limit either.
    !(warpgroup.largest < LIMIT)
}
