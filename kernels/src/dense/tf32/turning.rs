//! The product of which the left operand lies with the depth outermost, and the result one way or the other: the multiplying warps
//! take the left operand's slices out of shared memory into registers. In PTX for `sm_90a` alone.
//!
//! Roles, stages, protocol and clusters are those of [`wgmma`](super::super::wgmma). Of a slice each lane takes, for every 8 of depth, two
//! neighbouring rows at two depths. A warp's rows are ordered so that these are the rows of the fragment
//! `g` and `g + 8`: then its sums are neighbours in a result that is turned, and eight lanes store 64 bytes of a row.
//!
//! **Both.** Where the right operand has its depth outermost too, the copying warpgroup's other three warps turn its slices where they are,
//! each those of every third stage, two boxes of 32 columns and 32 of depth at a time: a lane takes fours of four depths and puts back fours of four
//! columns, in an order in which no eight lanes meet in a bank. The multiplying warps wait for these warps too.

use cuda_std::arch::sm_90a::{
    Matrix, Sums, fence_async_shared, meet_cluster, set_max_registers_down, set_max_registers_up, wgmma_commit,
    wgmma_fence, wgmma_finish, wgmma_tf32_of, wgmma_wait,
};
use cuda_std::grid;
use cuda_std::prelude::*;

use super::super::order::Tile;
use super::super::product::Shape;
use super::super::wgmma::copy::{Operand, prefetch};
use super::super::wgmma::element::{Factor, Tf32};
use super::super::wgmma::order::Order;
use super::super::wgmma::ring::{Place, Ring};
use super::super::wgmma::{self, ROWS, copy};
use super::DEPTH;

/// Registers of each thread of the copying warpgroup, and of the multiplying ones. All together are a multiprocessor's. Where copying warps turn
/// slices, of which tiles have few columns, all have as many.
const COPY_REGISTERS: u32 = 40;
const MULTIPLY_REGISTERS: u32 = 232;
/// Warps that turn slices.
const TURNING: u32 = 3;
/// 16-bit elements of a slice of the left operand.
const LEFT: u32 = ROWS * 2 * DEPTH;
/// f32 of 32 columns of it, which are 128 bytes.
const PANEL: u32 = 32 * DEPTH;

/// Where sums go: `out = sum + beta * out`, or `parts`, of which there are `splits`; `[rows, columns]` or, turned, `[columns, rows]`.
#[derive(Clone, Copy)]
pub struct Store {
    pub out: GlobalMut<f32>,
    pub beta: f32,
    pub parts: Option<GlobalMut<f32>>,
    pub shape: Shape,
}

/// The block's tiles of `a · b`, `a: [rows, depth]`, `b: [depth, columns]`, of which `a` lies column by column, and so does the result
/// where it is `TURNED`; `b` too, unless `BOTH` have their depth outermost.
///
/// # Safety
/// The module `dense`'s; all sizes are at least 1; rows in memory of all three matrices are multiples of [`PIECE`](super::PIECE); the maps are of
/// the operands and of type tf32, those of `b` for whole boxes and for the [`edge`](super::super::wgmma::edge), with boxes of
/// [`operand_box`](super::operand_box), pieces swapped within 128 bytes.
#[device_inline]
pub unsafe fn product<const COLUMNS: u32, const TURNED: bool, const BOTH: bool>(
    a: TensorMap,
    b: [TensorMap; 2],
    store: Store,
    splits: u32,
) {
    let ring = Ring::<bf16, COLUMNS, 2, 1>::new(COLUMNS);
    let order = Order::<COLUMNS, 2, 1>::new(COLUMNS, Tf32::in_halves(store.shape), splits, ring.cluster);
    let thread = thread::thread_idx_x();
    // SAFETY: the protocol of the module `wgmma`.
    unsafe {
        if thread == 0 {
            prefetch::<false>([a, a]);
            if BOTH {
                prefetch::<false>(b);
                ring.init_turned(1);
            } else {
                prefetch::<true>(b);
            }
            ring.init();
        }
        if ring.cluster.sharers() > 1 {
            meet_cluster();
        } else {
            thread::sync_threads();
        }
        if thread < 128 {
            if !BOTH {
                set_max_registers_down::<COPY_REGISTERS>();
            }
            if thread == 0 {
                let a = Operand { maps: [a, a], count: store.shape.rows };
                let b = Operand { maps: b, count: store.shape.columns };
                if BOTH {
                    copy::run::<Tf32, COLUMNS, 2, 1, false, false>(ring, [a, b], order);
                } else {
                    copy::run::<Tf32, COLUMNS, 2, 1, false, true>(ring, [a, b], order);
                }
            } else {
                grid::begin();
                if BOTH && thread >= warp::WARP_SIZE {
                    turn::<COLUMNS>(ring, order);
                }
            }
        } else {
            if !BOTH {
                set_max_registers_up::<MULTIPLY_REGISTERS>();
            }
            grid::begin();
            multiply::<COLUMNS, TURNED, BOTH>(ring, order, store);
        }
    }
}

/// Turns the right operand's slices of the block's tiles: each warp those of every third stage, the same ones each time round.
///
/// # Safety
/// The [`TURNING`] warps behind the first; the protocol of the module `wgmma`.
#[device_inline]
unsafe fn turn<const COLUMNS: u32>(ring: Ring<bf16, COLUMNS, 2, 1>, mut order: Order<COLUMNS, 2, 1>) {
    let lane = thread::thread_idx_x() % warp::WARP_SIZE;
    let mut place = Place::<COLUMNS, 2, 1>::START;
    let mine = thread::thread_idx_x() / warp::WARP_SIZE - 1;
    while let Some(tile) = order.next() {
        let mut left = tile.slices;
        while left > 0 {
            if place.stage % TURNING == mine {
                // SAFETY: the stage is full, and stays so until the multiplying warps arrive, which wait for this one.
                unsafe {
                    ring.full(place.stage).wait(place.parity);
                    let slice = ring.slices().offset(place.stage * wgmma::stage(COLUMNS, 2) + LEFT).cast::<f32>();
                    turn_panels(slice, lane);
                    if COLUMNS > 64 {
                        turn_panels(slice.offset(2 * PANEL), lane);
                    }
                    fence_async_shared();
                    warp::sync_warp(warp::FULL_MASK);
                    if lane == 0 {
                        ring.turned(place.stage).arrive();
                    }
                }
            }
            place = place.next(ring.stages);
            left -= 1;
        }
    }
}

/// Turns 32 columns and 32 of depth, twice: rows of 128 bytes, in which pieces of four are swapped by the row's number, before and after.
///
/// # Safety
/// All lanes of the warp together; nobody else uses them.
#[device_inline]
unsafe fn turn_panels(panels: Shared<f32>, lane: u32) {
    let place = |row: u32, piece: u32| row * 32 + (piece ^ (row % 8)) * 4;
    // The fours of columns, and the fours of depth, that each lane takes: eight lanes have eight different ones of either, and of what their
    // numbers become above.
    let across = lane % 8;
    let depth = |turn: u32| across ^ (lane / 8 + 4 * turn);
    // SAFETY: inside the panels, and no lane stores before all have loaded.
    unsafe {
        // Not `[..; 4]`, which becomes a loop and then local memory.
        let mut values: [[[Vec4<f32>; 4]; 2]; 2] = core::mem::zeroed();
        unrolled!(P in [0 1] {
            unrolled!(U in [0 1] {
                unrolled!(D in [0 1 2 3] {
                    let at = place(4 * depth(U as u32) + D as u32, across);
                    values[P][U][D] = panels.load4(P as u32 * PANEL + at);
                });
            });
        });
        warp::sync_warp(warp::FULL_MASK);
        unrolled!(P in [0 1] {
            unrolled!(U in [0 1] {
                let [a, b, c, d] = values[P][U];
                let at = |column: u32| P as u32 * PANEL + place(4 * across + column, depth(U as u32));
                panels.store4(at(0), Vec4::new(a.x, b.x, c.x, d.x));
                panels.store4(at(1), Vec4::new(a.y, b.y, c.y, d.y));
                panels.store4(at(2), Vec4::new(a.z, b.z, c.z, d.z));
                panels.store4(at(3), Vec4::new(a.w, b.w, c.w, d.w));
            });
        });
    }
}

/// A lane's part of the left operand's slice: of every 8 of depth.
type Fragments = [[f32; 4]; 4];

/// A multiplying warp.
struct Multiplier<const COLUMNS: u32> {
    ring: Ring<bf16, COLUMNS, 2, 1>,
    /// The first stage's slice of the right operand.
    b: Matrix,
    /// Where the lane's rows are in a slice, at depths `c` and `c + 4`, the other way round where `c` is odd.
    left: [u32; 2],
    is_odd: bool,
    /// The next stage, and the one whose products may be under way.
    place: Place<COLUMNS, 2, 1>,
    before: u32,
    lane: u32,
}

impl<const COLUMNS: u32> Multiplier<COLUMNS> {
    #[device_inline]
    fn new(ring: Ring<bf16, COLUMNS, 2, 1>, warp: u32) -> Self {
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        let (g, c) = (lane / 4, lane % 4);
        let is_odd = c % 2 == 1;
        // In shared memory pieces of four elements are swapped by the depth: of neighbouring depths the same ones. So odd lanes
        // begin with the other depth, and no two lanes meet in a bank.
        let row = 16 * warp + 2 * g;
        let at = |depth: u32| row / 32 * PANEL + depth * 32 + (row % 32 / 4 ^ depth) * 4 + row % 4;
        let (low, high) = (at(c), at(c + 4));
        let left = if is_odd { [high, low] } else { [low, high] };
        // SAFETY: inside a stage.
        let b = Matrix::at(unsafe { ring.slices().offset(LEFT) }, 0);
        Self { ring, b, left, is_odd, place: Place::START, before: 0, lane }
    }

    /// Begins the products of the next slice, whose part of the left operand goes into `fragments`, and waits for those of the slice before,
    /// which there is where `add`.
    ///
    /// # Safety
    /// All threads of the warpgroup together; the protocol of the module `wgmma`. The slice before had other `fragments`.
    #[device_inline]
    unsafe fn slice<const BOTH: bool>(&mut self, sums: &mut Sums, fragments: &mut Fragments, add: bool) {
        let stage = self.place.stage;
        // SAFETY: the stage is full, and stays so until this warp arrives.
        unsafe {
            self.ring.full(stage).wait(self.place.parity);
            let on = stage * wgmma::stage(COLUMNS, 2);
            let slice = self.ring.slices().offset(on).cast::<f32>();
            unrolled!(K in [0 1 2 3] {
                let first = slice.load2(self.left[0] + 8 * 32 * K as u32);
                let second = slice.load2(self.left[1] + 8 * 32 * K as u32);
                let (low, high) = if self.is_odd { (second, first) } else { (first, second) };
                fragments[K] = [low.x, low.y, high.x, high.y];
            });
            if BOTH {
                self.ring.turned(stage).wait(self.place.parity);
            }
            wgmma_fence();
            unrolled!(K in [0 1 2 3] {
                wgmma_tf32_of::<COLUMNS>(sums, fragments[K], self.b.offset(2 * on + 32 * K as u32), K > 0 || add);
            });
            wgmma_commit();
            wgmma_wait::<1>();
            if add {
                self.ring.release(self.before, self.lane);
            }
        }
        self.before = stage;
        self.place = self.place.next(self.ring.stages);
    }

    /// Waits for the last products.
    ///
    /// # Safety
    /// As [`Multiplier::slice`].
    #[device_inline]
    unsafe fn finish(&self, sums: &mut Sums) {
        // SAFETY: the caller's.
        unsafe {
            wgmma_finish::<COLUMNS>(sums);
            self.ring.release(self.before, self.lane);
        }
    }
}

/// Multiplies and stores this warpgroup's rows of the block's tiles.
///
/// # Safety
/// All threads of the warpgroup together; the protocol of the module `wgmma`.
#[device_inline]
unsafe fn multiply<const COLUMNS: u32, const TURNED: bool, const BOTH: bool>(
    ring: Ring<bf16, COLUMNS, 2, 1>,
    mut order: Order<COLUMNS, 2, 1>,
    store: Store,
) {
    let warp = thread::thread_idx_x() / warp::WARP_SIZE - 4;
    let mut warpgroup = Multiplier::<COLUMNS>::new(ring, warp);
    // SAFETY: all zeros are arrays of floats. Not `[0.0; 128]`, which becomes a loop and then local memory.
    let mut sums: Sums = unsafe { core::mem::zeroed() };
    while let Some(tile) = order.next() {
        // SAFETY: as above.
        let (mut even, mut odd): (Fragments, Fragments) = unsafe { core::mem::zeroed() };
        let mut slice = 0;
        // SAFETY: the caller's; a tile has at least one slice.
        unsafe {
            loop {
                warpgroup.slice::<BOTH>(&mut sums, &mut even, slice > 0);
                slice += 1;
                if slice == tile.slices {
                    break;
                }
                warpgroup.slice::<BOTH>(&mut sums, &mut odd, true);
                slice += 1;
                if slice == tile.slices {
                    break;
                }
            }
            warpgroup.finish(&mut sums);
            store.put::<COLUMNS, TURNED>(&sums, tile, warp);
        }
    }
}

impl Store {
    /// Stores the warp's sums, columns as rows where `TURNED`: two that are neighbours in the result at a time.
    ///
    /// # Safety
    /// What exists of the result is the warp's.
    #[device_inline]
    unsafe fn put<const COLUMNS: u32, const TURNED: bool>(&self, sums: &Sums, tile: Tile, warp: u32) {
        let Self { out, beta, parts, shape } = *self;
        let Shape { rows, columns, .. } = shape;
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        let row = tile.row + 16 * warp + lane / 4 * 2;
        let column = tile.column + lane % 4 * 2;
        let part = tile.split as usize * rows as usize * columns as usize;
        unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31] {
            if (J as u32) < COLUMNS / 8 {
                unrolled!(I in [0 1] {
                    // Row and column of the first, and how sums lie: of two columns, then of the next row.
                    let (row, column, mut pair) = if TURNED {
                        (row, column + 8 * J as u32 + I as u32, Vec2::new(sums[4 * J + I], sums[4 * J + 2 + I]))
                    } else {
                        (row + I as u32, column + 8 * J as u32, Vec2::new(sums[4 * J + 2 * I], sums[4 * J + 2 * I + 1]))
                    };
                    let at = if TURNED {
                        column as usize * rows as usize + row as usize
                    } else {
                        row as usize * columns as usize + column as usize
                    };
                    let exists = column < columns && row < rows;
                    // SAFETY: along a row of the result elements come in twos, for they are a multiple of four.
                    unsafe {
                        match parts {
                            Some(parts) => parts.store2_if(exists, part + at, pair),
                            None => {
                                if beta != 0.0 {
                                    let old = out.as_global().load2_if(exists, at, Vec2::new(0.0, 0.0));
                                    pair = Vec2::new(float::fma(beta, old.x, pair.x), float::fma(beta, old.y, pair.y));
                                }
                                out.store2_if(exists, at, pair);
                            }
                        }
                    }
                });
            }
        });
    }
}
