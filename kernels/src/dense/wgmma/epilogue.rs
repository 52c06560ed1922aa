//! What a warp does with its 16 rows of a tile's sums: bias, activation, what was there before, and then it stores them, 64
//! columns at a time, by whole rows, for which they go through room of the warp's own in shared memory; or, of a product
//! that is split, it stores the sums themselves.

use cuda_std::arch::sm_80::Half;
use cuda_std::arch::sm_90a::{
    Sums, arrive_at_cluster, copy_to_block, fence_async_shared, pack, rank_in_cluster, stmatrix_x4, wait_for_cluster,
};
use cuda_std::prelude::*;

use super::super::order::Tile;
use super::super::product::{Epilogue, Shape};
use super::super::{IDENTITY, PRELU_EACH, RELU};
use super::element::Factor;
use super::ring::{Place, Ring};
use super::{PIECE, STORED, WARP_ROWS, warps};

/// Where results go.
#[derive(Clone, Copy)]
pub struct Store<T: Factor, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> {
    pub epilogue: Epilogue<T::Element>,
    pub parts: Option<GlobalMut<f32>>,
    pub shape: Shape,
    /// Shared memory: room for results, and where sums are exchanged.
    pub ring: Ring<T::Half, COLUMNS, HEIGHT, PARTS>,
}

/// A lane's sums of 64 columns: of each 8 columns two of a row, and two of the row 8 below.
pub type Columns = [[Vec2<f32>; 2]; 8];

/// What the epilogue needs of a lane's 64 columns: pairs of the bias, and slopes. It is fetched ahead, for that takes as long as
/// a slice.
#[derive(Clone, Copy)]
pub struct Ahead<T: Factor> {
    bias: [T::Pair; 8],
    slopes: [Vec2<f32>; 8],
}

impl<T: Factor> Ahead<T> {
    const NONE: Self = Self { bias: [T::NONE; 8], slopes: [Vec2::new(0.0, 0.0); 8] };
}

/// Where a lane's first sums of a box are.
#[derive(Clone, Copy)]
pub struct At {
    column: u32,
    /// Of the row, and of the one 8 below; whether they exist.
    rows: [(usize, bool); 2],
    /// Eights of columns that the box has.
    eights: u32,
}

/// Eights of columns of box `number` of so many columns.
const fn eights(columns: u32, number: u32) -> u32 {
    let left = columns.saturating_sub(STORED * number);
    (if left < STORED { left } else { STORED }) / 8
}

impl<T: Factor, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> Store<T, COLUMNS, HEIGHT, PARTS> {
    /// Elements of the room from one warp's box to the next one's: where sums are exchanged, a box lies where the warp's own
    /// of the first block were, which nobody else reads.
    const ROOM: u32 = if PARTS == 1 { STORED * WARP_ROWS } else { 2 * WARP_ROWS * COLUMNS / PARTS };

    /// Whether what the epilogue needs is fetched ahead: three warpgroups have no registers for that.
    const AHEAD: bool = HEIGHT <= 2;

    /// The first row and column of a tile that are the warp's.
    #[device_inline]
    fn corner(&self, tile: Tile, warp: u32) -> [u32; 2] {
        if HEIGHT == 1 {
            [tile.row + WARP_ROWS * (warp % 4), tile.column + warp / 4 * self.ring.columns]
        } else {
            [tile.row + WARP_ROWS * warp, tile.column]
        }
    }

    /// Fetches what the epilogue needs first of a tile.
    ///
    /// # Safety
    /// As [`Store::put`], but for the sums.
    #[device_inline]
    pub unsafe fn ahead(&self, tile: Tile, warp: u32) -> Ahead<T> {
        if !Self::AHEAD {
            return Ahead::NONE;
        }
        let [first, column] = self.corner(tile, warp);
        let column = if PARTS == 1 { column } else { column + COLUMNS / PARTS * rank_in_cluster() };
        // SAFETY: the caller's.
        unsafe { self.fetch(self.at(first, column, 0)) }
    }

    /// Puts what the warp `warp` has of the tile where it belongs; the tile's last slice was at `last`.
    ///
    /// # Safety
    /// All lanes together; the sums are whole; the module's contract. Where a cluster shares the depth, all multiplying warps
    /// of the cluster, once.
    #[device_inline]
    #[allow(unused_assignments, reason = "what is fetched after the last columns, which unrolling leaves")]
    pub unsafe fn put(
        &self,
        sums: &Sums,
        tile: Tile,
        warp: u32,
        last: Place<COLUMNS, HEIGHT, PARTS>,
        ahead: &Ahead<T>,
    ) {
        if PARTS > 1 {
            // SAFETY: the caller's.
            return unsafe { self.put_share(sums, tile, warp, last, ahead) };
        }
        let Shape { rows, columns, .. } = self.shape;
        let [first, column] = self.corner(tile, warp);
        let mut ahead = *ahead;
        unrolled!(B in [0 1 2 3] {
            let box_column = column + STORED * B as u32;
            if STORED * (B as u32) < self.ring.columns && first < rows && box_column < columns {
                let mut values: Columns = [0, 1, 2, 3, 4, 5, 6, 7].map(|j| {
                    [0, 2].map(|i| Vec2::new(sums[32 * B + 4 * j + i], sums[32 * B + 4 * j + i + 1]))
                });
                let at = self.at(first, box_column, B as u32);
                // SAFETY: what exists is this lane's.
                unsafe {
                    match self.parts {
                        Some(parts) => {
                            let part = tile.split as usize * rows as usize * columns as usize;
                            self.store(parts, part, &values, at);
                        }
                        None => {
                            self.finish(&mut values, [box_column, first], at, warp, &ahead);
                            if Self::AHEAD && STORED * (B as u32 + 1) < self.ring.columns {
                                ahead = self.fetch(self.at(first, box_column + STORED, B as u32 + 1));
                            }
                            self.put_results(self.epilogue.out, &values, [box_column, first], at, warp);
                        }
                    }
                }
            }
        });
    }

    /// [`Store::put`] where a cluster shares the depth: each of its blocks gets all sums of a share of the columns, adds
    /// them in the order of the blocks, and stores these results.
    ///
    /// # Safety
    /// As [`Store::put`].
    #[device_inline]
    unsafe fn put_share(
        &self,
        sums: &Sums,
        tile: Tile,
        warp: u32,
        last: Place<COLUMNS, HEIGHT, PARTS>,
        ahead: &Ahead<T>,
    ) {
        let (lane, rank) = (thread::thread_idx_x() % warp::WARP_SIZE, rank_in_cluster());
        let share = COLUMNS / PARTS;
        let groups = share / 8;
        // Of each block's sums those of a warp; of these a group of 8 columns after the other, each lane's four together.
        let first = |block: u32| (block * warps(HEIGHT) + warp) * groups * warp::WARP_SIZE * 4;
        let place = |block: u32, group: u32| first(block) + (group * warp::WARP_SIZE + lane) * 4;
        let (ring, room) = (self.ring.slices().cast::<f32>(), self.ring.out().cast::<f32>());
        let arrive = self.ring.sums(warp);
        let bytes = groups * warp::WARP_SIZE * 16;
        // SAFETY: the ring and the room each have all blocks' sums of a share. Nothing in the ring is used once all warps are
        // done with the last slice. Nobody ends before all have what is theirs.
        unsafe {
            if lane == 0 {
                arrive.arrive_expecting((PARTS - 1) * bytes);
            }
            if tile.slices > 0 {
                self.ring.empty(last.stage).wait(last.parity);
            }
            unrolled!(G in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                if (G as u32) < COLUMNS / 8 {
                    let (block, group) = (G as u32 / groups, G as u32 % groups);
                    let sums = Vec4::new(sums[4 * G], sums[4 * G + 1], sums[4 * G + 2], sums[4 * G + 3]);
                    let target = if block == rank { room } else { ring };
                    target.store4(place(block, group), sums);
                }
            });
            fence_async_shared();
            warp::sync_warp(warp::FULL_MASK);
            if lane < PARTS && lane != rank {
                copy_to_block(room.offset(first(rank)), lane, ring.offset(first(lane)), bytes, arrive);
            }
            arrive.wait(0);
            arrive_at_cluster();
            let zeros = Vec2::new(0.0, 0.0);
            let mut values: Columns = [[zeros; 2]; 8];
            unrolled!(J in [0 1 2 3 4 5 6 7] {
                if (J as u32) < groups {
                    let mut block = 0;
                    while block < PARTS {
                        let sums = room.load4(place(block, J as u32));
                        let [above, below] = values[J];
                        values[J] = [
                            Vec2::new(above.x + sums.x, above.y + sums.y),
                            Vec2::new(below.x + sums.z, below.y + sums.w),
                        ];
                        block += 1;
                    }
                }
            });
            let [first, column] = self.corner(tile, warp);
            let column = column + share * rank;
            let at = self.at(first, column, 0);
            self.finish(&mut values, [column, first], at, warp, ahead);
            self.put_results(self.epilogue.out, &values, [column, first], at, warp);
            wait_for_cluster();
        }
    }

    /// Stores results to `target`, rounded: 64 columns, or a share of a cluster's that is less.
    ///
    /// # Safety
    /// All lanes together; the results that exist are the warp's, and lie in `target` as in `out`.
    #[device_inline]
    unsafe fn put_results(&self, target: GlobalMut<T::Element>, values: &Columns, first: [u32; 2], at: At, warp: u32) {
        // SAFETY: the caller's.
        unsafe {
            if COLUMNS / PARTS >= STORED {
                return T::copy_out(self, target, values, first, at, warp);
            }
            unrolled!(J in [0 1 2 3 4 5 6 7] {
                let exists = self.exists(at, J as u32);
                unrolled!(R in [0 1] {
                    let (row, here) = at.rows[R];
                    target.store2_if(exists && here, row + 8 * J, values[J][R].map(T::Element::from_f32));
                });
            });
        }
    }

    /// Where this lane's sums are, of the rows from `first` and the columns from `column` on, with which box `number` of a tile or
    /// of a share of one begins.
    #[device_inline]
    fn at(&self, first: u32, column: u32, number: u32) -> At {
        let Shape { rows, columns, .. } = self.shape;
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        let (row, column) = (first + lane / 4, column + lane % 4 * 2);
        let of_row = |row: u32| (row as usize * columns as usize + column as usize, row < rows);
        At { column, rows: [of_row(row), of_row(row + 8)], eights: eights(self.ring.columns / PARTS, number) }
    }

    /// Whether the eight columns exist that the `j`th two are of.
    #[device_inline]
    fn exists(&self, at: At, j: u32) -> bool {
        j < at.eights && at.column + 8 * j < self.shape.columns
    }

    /// Stores the values to `target`, from `offset` on.
    ///
    /// # Safety
    /// `target` holds what exists, which is this lane's.
    #[device_inline]
    pub unsafe fn store(&self, target: GlobalMut<f32>, offset: usize, values: &Columns, at: At) {
        unrolled!(J in [0 1 2 3 4 5 6 7] {
            let exists = self.exists(at, J as u32);
            // SAFETY: as the caller says.
            unsafe {
                let [(row, here), (below, there)] = at.rows;
                target.store2_if(exists && here, offset + row + 8 * J, values[J][0]);
                target.store2_if(exists && there, offset + below + 8 * J, values[J][1]);
            }
        });
    }

    /// Fetches the bias and the slopes of 64 columns, where there are any.
    ///
    /// # Safety
    /// As [`Store::store`], of these.
    #[device_inline]
    unsafe fn fetch(&self, at: At) -> Ahead<T> {
        let Epilogue { b, alpha, .. } = self.epilogue;
        let mut ahead = Ahead::<T>::NONE;
        // SAFETY: the caller's. Columns are even.
        unsafe {
            if let Some(b) = b {
                unrolled!(J in [0 1 2 3 4 5 6 7] {
                    ahead.bias[J] = self.bias(b, at, J as u32);
                });
            }
            if let Some(alpha) = alpha {
                let shared = alpha.load(0);
                unrolled!(J in [0 1 2 3 4 5 6 7] {
                    ahead.slopes[J] = self.slopes(alpha, shared, at, J as u32);
                });
            }
        }
        ahead
    }

    /// Two columns' bias, the `j`th ones.
    ///
    /// # Safety
    /// As [`Store::fetch`].
    #[device_inline]
    unsafe fn bias(&self, b: Global<T::Element>, at: At, j: u32) -> T::Pair {
        // SAFETY: the caller's.
        unsafe { T::load_bias(b, self.exists(at, j), (at.column + 8 * j) as usize) }
    }

    /// Two columns' slopes, the `j`th ones: their own, or the one that all share.
    ///
    /// # Safety
    /// As [`Store::fetch`].
    #[device_inline]
    unsafe fn slopes(&self, alpha: Global<f32>, shared: f32, at: At, j: u32) -> Vec2<f32> {
        let exists = self.epilogue.activation == PRELU_EACH && self.exists(at, j);
        // SAFETY: the caller's.
        unsafe { alpha.load2_if(exists, (at.column + 8 * j) as usize, Vec2::new(shared, shared)) }
    }

    /// Makes of sums what is stored: as [`Epilogue::put`] does.
    ///
    /// # Safety
    /// As [`Store::put_results`], of the epilogue's buffers.
    #[device_inline]
    unsafe fn finish(&self, values: &mut Columns, first: [u32; 2], at: At, warp: u32, ahead: &Ahead<T>) {
        let Epilogue { out, beta, z, b, alpha, activation, .. } = self.epilogue;
        let zeros = Vec2::new(0.0, 0.0);
        // What was not fetched ahead is loaded for half of the columns at a time: a branch keeps the other half's loads from coming first,
        // for which there are no registers.
        let half = |j: usize| Self::AHEAD || first[0] + 8 * (j as u32) < self.shape.columns;
        // SAFETY: the caller's.
        unsafe {
            if let Some(b) = b {
                unrolled!(H in [0 4] {
                    if half(H) {
                        unrolled!(J in [0 1 2 3] {
                            let bias = if Self::AHEAD { ahead.bias[H + J] } else { self.bias(b, at, (H + J) as u32) };
                            let [x, y] = T::bias(bias);
                            values[H + J] = values[H + J].map(|z| Vec2::new(z.x + x, z.y + y));
                        });
                    }
                });
            }
            if let Some(z) = z {
                self.put_results(z, values, first, at, warp);
            }
            match activation {
                IDENTITY => {}
                // So that NaN stays.
                RELU => {
                    unrolled!(J in [0 1 2 3 4 5 6 7] {
                        values[J] = values[J].map(|z| z.map(|z| if z <= 0.0 { 0.0 } else { z }));
                    });
                }
                _ => {
                    let shared = match alpha {
                        Some(alpha) if !Self::AHEAD => alpha.load(0),
                        _ => 0.0,
                    };
                    unrolled!(H in [0 4] {
                        if half(H) {
                            unrolled!(J in [0 1 2 3] {
                                let alpha = match alpha {
                                    Some(alpha) if !Self::AHEAD => self.slopes(alpha, shared, at, (H + J) as u32),
                                    _ => ahead.slopes[H + J],
                                };
                                let slope = |z: f32, alpha: f32| if z > 0.0 { z } else { alpha * z };
                                values[H + J] = values[H + J].map(|z| Vec2::new(slope(z.x, alpha.x), slope(z.y, alpha.y)));
                            });
                        }
                    });
                }
            }
            if beta != 0.0 {
                let old = out.as_global();
                let none = zeros.map(T::Element::from_f32);
                unrolled!(J in [0 1 2 3 4 5 6 7] {
                    unrolled!(R in [0 1] {
                        let (row, here) = at.rows[R];
                        let old = old.load2_if(here && self.exists(at, J as u32), row + 8 * J, none).map(T::Element::to_f32);
                        let new = values[J][R];
                        values[J][R] =
                            Vec2::new(float::fma(beta, old.x, new.x), float::fma(beta, old.y, new.y));
                    });
                });
            }
        }
    }
}

impl<T: Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> Store<T, COLUMNS, HEIGHT, PARTS> {
    /// Stores the warp's 16 rows of 64 columns, rounded, by whole rows: through the warp's box in shared memory.
    ///
    /// # Safety
    /// All lanes together; the results that exist are the warp's.
    #[device_inline]
    pub unsafe fn copy_out(
        &self,
        target: GlobalMut<T>,
        values: &Columns,
        [column, first]: [u32; 2],
        at: At,
        warp: u32,
    ) {
        let Shape { rows, columns, .. } = self.shape;
        let lane = thread::thread_idx_x() % warp::WARP_SIZE;
        // Lane 8m + r names row r of matrix m: the first two matrices are 16 rows of 8 columns, the others of the next 8.
        let (row, over) = (lane % 16, lane / 16);
        // SAFETY: the room has the warp's box, which its lanes write when all have read what was there; its pieces are of 16
        // bytes, as the results' are.
        unsafe {
            let room = self.ring.out().offset(warp * Self::ROOM);
            warp::sync_warp(warp::FULL_MASK);
            unrolled!(J in [0 1 2 3] {
                let [[a, b], [c, d]] = [2 * J, 2 * J + 1].map(|j| values[j].map(|z| pack::<T>(z.x, z.y)));
                stmatrix_x4(room, place(row, 2 * J as u32 + over), [a, b, c, d]);
            });
            warp::sync_warp(warp::FULL_MASK);
            let out = GlobalMut::<u32>::from_raw(target.as_raw().cast());
            let piece = lane % 8;
            let from = (first + lane / 8) as usize * columns as usize + (column + piece * PIECE) as usize;
            let there = piece < at.eights && column + piece * PIECE < columns;
            unrolled!(R in [0 4 8 12] {
                let row = lane / 8 + R as u32;
                let exists = first + row < rows && there;
                let words = room.offset(place(row, piece)).cast::<u32>().load4(0);
                out.store4_if(exists, (from + R * columns as usize) / 2, words);
            });
        }
    }
}

/// Where piece `piece` of a row of a warp's box is, swapped so that neither rows nor columns meet in a bank.
#[device_inline]
fn place(row: u32, piece: u32) -> u32 {
    row * STORED + (piece ^ (row % 8)) * PIECE
}
