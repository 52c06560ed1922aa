//! How an f32 product is cut up whose operands are taken apart for Hopper's tensor cores, and when that pays.
//!
//! Both times are a model's, in nanoseconds on an H200 (`docs/perf/dense.md` has what it was made from). Any choice is right, and
//! the same sizes get the same one on every GPU that has these kernels.

use cuda_std::launch::LaunchDims;
use kernels::dense::split::{self, MOST_DEPTH};
use kernels::dense::wgmma::{self, DEPTH};
use kernels::dense::{Shape, Sizes};

use super::{MULTIPROCESSORS, Plan, Tile};
use crate::ops::dense::gpu::Product;

/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 64;
/// The most splits, of which each adds a part to be written and read.
const MOST_SPLITS: u32 = 64;
/// Elements of an operand, whose parts take 6 bytes each: larger ones are left as they are, for the workspace's sake.
const MOST_ELEMENTS: u64 = 1 << 30;

/// All launches together: the split's, the product's, and that of the product of f32, which leaves at once.
const START: u64 = 4500;
/// Nanoseconds of a tile's six products of a slice, and what a tile takes besides: of both operands in parts, and of one whose parts are made
/// in registers, by rows of the tile.
const BOTH: [u64; 2] = [1873, 3405];
const REGISTERS: [(u32, [u64; 2]); 2] = [(64, [1226, 1483]), (128, [1773, 2605])];
/// Elements that rows of an operand are a multiple of whose parts are made in registers: 16 bytes.
const PIECE: u32 = 4;
/// Bytes that are split in a nanosecond.
const SPLIT_BYTES: u64 = 3870;
/// What the addition of a split product's parts takes besides them, and how many bytes of them it goes through in a nanosecond.
const FINISH: [u64; 2] = [1714, 10_760];

impl Plan {
    /// For a product of `rows × columns` sums over `depth`, which `accumulates` to what is there or does not; `None` where the product of f32
    /// itself should take no longer, or where the parts would be more than a launch can name.
    pub fn split(product: Product, sizes: [usize; 3], accumulates: bool) -> Option<Self> {
        let f32 = Self::new(product, sizes)?.cores_time(product);
        let cuts = Self::split_cuts(product, sizes).filter(|(_, plan)| !accumulates || plan.may_accumulate());
        let (time, plan) = cuts.min_by_key(|&(time, _)| time)?;
        (time < f32).then_some(plan)
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_split(product: Product, sizes: [usize; 3]) -> impl Iterator<Item = Self> {
        Self::split_cuts(product, sizes).map(|(_, plan)| plan)
    }

    /// All that are legal, each with what it takes, as the model says.
    fn split_cuts(product: Product, sizes: [usize; 3]) -> impl Iterator<Item = (u64, Self)> {
        let legal = super::small_enough(sizes).filter(|sizes| !sizes.contains(&0) && sizes[2] < MOST_DEPTH);
        legal.into_iter().flat_map(move |sizes @ [rows, columns, depth]| {
            // Whichever way an operand lies, it has these sides.
            let sides = |across| [Sizes { rows: across, columns: depth }, Sizes { rows: depth, columns: across }];
            let splits = |across| sides(across).iter().all(|sizes| sizes.padded() <= MOST_ELEMENTS);
            let bytes = |across| 10 * sides(across)[0].padded();
            let length = if product == Product::Forward { depth } else { columns };
            let mut tiles = Vec::with_capacity(3);
            if splits(rows) && splits(columns) {
                tiles.push((Tile::Split, BOTH, bytes(rows) + bytes(columns)));
            }
            if splits(rows) && length.is_multiple_of(PIECE) {
                tiles.extend(REGISTERS.map(|(side, time)| (Tile::SplitRegisters { rows: side }, time, bytes(rows))));
            }
            tiles.into_iter().flat_map(move |(tile, time, bytes)| {
                let before = START + bytes / SPLIT_BYTES;
                let cut = move |splits| Self::cut(tile, sizes, splits, DEPTH);
                let count = cut(1).split_tiles();
                // More splits than fill the GPU four times win nothing.
                let room = 4 * u64::from(MULTIPROCESSORS) / count;
                let most = u64::from(depth / LEAST_DEPTH).min(room).clamp(1, MOST_SPLITS.into()) as u32;
                let plans = (1..=if count < 1 << 25 { most } else { 0 }).map(cut);
                plans.map(move |plan| (before + plan.split_time(time), plan))
            })
        })
    }

    /// Whether what is accumulated to is still there where a product of parts turns out to be none, which is told while it is made or before.
    pub fn may_accumulate(&self) -> bool {
        self.splits > 1 || self.takes_both()
    }

    /// Whether both operands are taken apart before the product.
    pub fn takes_both(&self) -> bool {
        self.tile == Tile::Split
    }

    /// The grid and the block of the product of operands in parts, on a GPU of so many multiprocessors: each has one block.
    pub fn split_dims(&self, multiprocessors: u32) -> LaunchDims {
        let blocks = (self.split_tiles() * u64::from(self.splits)).min(multiprocessors.into()) as u32;
        let shared = match self.tile {
            Tile::SplitRegisters { rows } => split::shared_bytes_in_registers(rows),
            _ => split::shared_bytes(),
        };
        LaunchDims::new(blocks, wgmma::BLOCK).with_shared(shared)
    }

    /// The tiles of a part.
    fn split_tiles(&self) -> u64 {
        let Shape { rows, columns, .. } = self.shape;
        u64::from(rows.div_ceil(self.tile.rows())) * u64::from(columns.div_ceil(self.tile.columns()))
    }

    /// The product of operands in parts, and the addition of its own parts.
    fn split_time(&self, [slice, tile]: [u64; 2]) -> u64 {
        let slices = u64::from(self.shape.depth_per_split.min(self.shape.depth).div_ceil(DEPTH));
        let queue = (self.split_tiles() * u64::from(self.splits)).div_ceil(MULTIPROCESSORS.into());
        let finish = match self.parts() as u64 {
            0 => 0,
            parts => FINISH[0] + 8 * parts / FINISH[1],
        };
        queue * (slices * slice + tile) + finish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the tile, or of both operands in parts none, and splits.
    fn cut(product: Product, sizes @ [_, columns, depth]: [usize; 3], accumulates: bool) -> Option<(Option<u32>, u32)> {
        let plan = Plan::split(product, sizes, accumulates)?;
        let covered = plan.splits as usize * plan.shape.depth_per_split as usize;
        assert!(covered >= depth && covered - depth < plan.shape.depth_per_split as usize, "{plan:?}");
        assert_eq!(plan.shape.depth_per_split % DEPTH, 0, "{plan:?}");
        let rows = match plan.tile {
            Tile::SplitRegisters { rows } => Some(rows),
            Tile::Split => None,
            _ => panic!("{plan:?}"),
        };
        // What copies need, and what may have to be made again.
        let length = if product == Product::Forward { depth } else { columns };
        assert!(
            rows.is_none() || length.is_multiple_of(PIECE as usize) && !(accumulates && plan.splits == 1),
            "{plan:?}"
        );
        Some((rows, plan.splits))
    }

    const ALL: [Product; 3] = [Product::Forward, Product::Dx, Product::Dw];

    /// The faster of both by measurement, where they are not within a tenth of each other.
    #[test]
    fn chooses_what_was_measured_to_be_faster() {
        for product in ALL {
            for sizes in [[8192, 8192, 8192], [2048, 2048, 2048], [512, 4096, 11_008], [4096, 4096, 128]] {
                assert!(cut(product, sizes, false).is_some_and(|(rows, _)| rows.is_some()), "{product:?} {sizes:?}");
            }
            for sizes in [[8, 4096, 4096], [64, 4096, 4096]] {
                assert!(cut(product, sizes, false).is_some_and(|(rows, _)| rows == Some(64)), "{product:?} {sizes:?}");
            }
            for sizes in [[1, 1, 1], [64, 64, 64], [5128, 124, 24], [1144, 1132, 32]] {
                assert_eq!(cut(product, sizes, false), None, "{product:?} {sizes:?}");
            }
        }
        assert_eq!(cut(Product::Forward, [128, 4096, 4096], false), Some((Some(128), 4)));
        assert_eq!(cut(Product::Dx, [128, 4096, 4096], false), Some((Some(128), 4)));
    }

    #[test]
    fn few_tiles_are_split() {
        for product in ALL {
            assert_eq!(cut(product, [1024, 1024, 1024], false), Some((Some(128), 2)));
            assert_eq!(cut(product, [4096, 4096, 4096], false), Some((Some(128), 1)));
            assert!(cut(product, [256, 256, 16_384], false).is_some_and(|(_, splits)| splits > 16));
            // 140 tiles, of which the last eight would wait for all others.
            assert!(cut(product, [4472, 512, 4768], false).is_some_and(|(_, splits)| splits > 1));
        }
    }

    #[test]
    fn both_operands_are_taken_apart_where_rows_or_what_is_there_ask_for_it() {
        assert_eq!(cut(Product::Forward, [4096, 4096, 4095], false), Some((None, 1)));
        assert_eq!(cut(Product::Dx, [4096, 4095, 4096], false), Some((None, 1)));
        assert_eq!(cut(Product::Dw, [4096, 4096, 4095], false), Some((Some(128), 1)));
        for product in [Product::Dx, Product::Dw] {
            assert_eq!(cut(product, [4096, 4096, 4096], true), Some((None, 1)));
            // Into parts: nothing is lost.
            assert_eq!(cut(product, [1024, 1024, 1024], true), Some((Some(128), 2)));
        }
    }

    #[test]
    fn refuses_what_parts_or_launches_cannot_have() {
        for product in ALL {
            for sizes in [
                [0, 8, 8],
                [8, 0, 8],
                [8, 8, 0],
                [4096, 4096, 1 << 23],
                [1 << 31, 4096, 4096],
                [1 << 20, 4096, 1 << 11],
            ] {
                assert_eq!(cut(product, sizes, false), None, "{product:?} {sizes:?}");
            }
        }
    }
}
