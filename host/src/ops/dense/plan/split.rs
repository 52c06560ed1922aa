//! How an f32 product is cut up whose operands are taken apart for Hopper's tensor cores, and when that pays.
//!
//! Both times are a model's, in nanoseconds on an H200 (`docs/perf/dense.md` has what it was made from). Any choice is right, and
//! the same sizes get the same one on every GPU that has these kernels.

use cuda_std::launch::LaunchDims;
use kernels::dense::split::{self, MOST_DEPTH};
use kernels::dense::wgmma::{self, DEPTH};
use kernels::dense::{LARGE, Shape, Sizes};

use super::{MULTIPROCESSORS, Plan, Tile};

/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 128;
/// The most splits, of which each adds a part to be written and read.
const MOST_SPLITS: u32 = 64;
/// Elements of an operand, whose parts take 6 bytes each: larger ones are left as they are, for the workspace's sake.
const MOST_ELEMENTS: u64 = 1 << 30;

/// A kernel more, from the one before to its own first access.
const LAUNCH: u64 = 2000;
/// A tile's six products of a slice, and what a tile takes besides.
const SLICE: u64 = 1950;
const TILE: u64 = 2000;
/// Bytes that are split, and bytes of parts that are written and read, in a nanosecond.
const SPLIT_BYTES: u64 = 3700;
const PART_BYTES: u64 = 3000;
/// Picoseconds that a product of f32 itself takes for each depth and each block of a multiprocessor, in large and small tiles;
/// nanoseconds that it takes besides.
const F32_DEPTH: [u64; 2] = [98_000, 27_000];
const F32_START: u64 = 4000;

impl Plan {
    /// For `rows × columns` sums over `depth`; `None` where the product of f32 itself should take no longer, or where the parts
    /// would be more than a launch can name.
    pub fn split(rows: usize, columns: usize, depth: usize) -> Option<Self> {
        let f32 = Self::new(rows, columns, depth)?.f32_time();
        let sizes = [rows, columns, depth];
        let cuts = Self::all_of_split(sizes).map(|plan| (plan, plan.split_time()));
        let (plan, time) = cuts.min_by_key(|&(_, time)| time)?;
        let bytes: u64 = operands(super::small_enough(sizes)?).iter().map(|sizes| 10 * sizes.padded()).sum();
        let passes = LAUNCH + bytes / SPLIT_BYTES;
        (passes + time + LAUNCH < f32).then_some(plan)
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_split(sizes: [usize; 3]) -> impl Iterator<Item = Self> {
        let legal = super::small_enough(sizes).filter(|&sizes @ [_, _, depth]| {
            // Whichever way an operand lies, it has these sides.
            let operands = operands(sizes);
            let turned = operands.map(|Sizes { rows, columns }| Sizes { rows: columns, columns: rows });
            let fits = operands.iter().chain(&turned).all(|sizes| sizes.padded() <= MOST_ELEMENTS);
            !sizes.contains(&0) && depth < MOST_DEPTH && fits
        });
        legal.into_iter().flat_map(|sizes @ [_, _, depth]| {
            let cut = move |splits| Self::cut(Tile::Split, sizes, splits, DEPTH);
            let tiles = cut(1).split_tiles();
            // More splits than fill the GPU four times win nothing.
            let room = 4 * u64::from(MULTIPROCESSORS) / tiles;
            let most = u64::from(depth / LEAST_DEPTH).min(room).clamp(1, MOST_SPLITS.into()) as u32;
            (1..=if tiles < 1 << 25 { most } else { 0 }).map(cut)
        })
    }

    /// The grid and the block of the product of operands in parts, on a GPU of so many multiprocessors: each has one block.
    pub fn split_dims(&self, multiprocessors: u32) -> LaunchDims {
        let blocks = (self.split_tiles() * u64::from(self.splits)).min(multiprocessors.into()) as u32;
        LaunchDims::new(blocks, wgmma::BLOCK).with_shared(split::shared_bytes())
    }

    /// The tiles of a part.
    fn split_tiles(&self) -> u64 {
        let Shape { rows, columns, .. } = self.shape;
        u64::from(rows.div_ceil(wgmma::ROWS)) * u64::from(columns.div_ceil(split::COLUMNS))
    }

    /// The product of operands in parts.
    fn split_time(&self) -> u64 {
        let slices = u64::from(self.shape.depth_per_split.min(self.shape.depth).div_ceil(DEPTH));
        let queue = (self.split_tiles() * u64::from(self.splits)).div_ceil(MULTIPROCESSORS.into());
        LAUNCH + queue * (slices * SLICE + TILE) + self.finish_time()
    }

    /// The product of f32 itself.
    pub(super) fn f32_time(&self) -> u64 {
        let Shape { rows, columns, depth, depth_per_split } = self.shape;
        let side = self.tile.columns();
        let tiles = u64::from(rows.div_ceil(side)) * u64::from(columns.div_ceil(side));
        let blocks = (tiles * u64::from(self.splits)).div_ceil(MULTIPROCESSORS.into());
        let of_depth = F32_DEPTH[usize::from(side < LARGE)];
        LAUNCH + F32_START + blocks * u64::from(depth_per_split.min(depth)) * of_depth / 1000 + self.finish_time()
    }

    /// The addition of a split product's parts.
    pub(super) fn finish_time(&self) -> u64 {
        match self.parts() as u64 {
            0 => 0,
            parts => LAUNCH + 8 * parts / PART_BYTES,
        }
    }
}

/// The sizes of a product's operands.
fn operands([rows, columns, depth]: [u32; 3]) -> [Sizes; 2] {
    [Sizes { rows, columns: depth }, Sizes { rows: columns, columns: depth }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rows: usize, columns: usize, depth: usize) -> Option<u32> {
        let plan = Plan::split(rows, columns, depth)?;
        let covered = plan.splits as usize * plan.shape.depth_per_split as usize;
        assert!(covered >= depth && covered - depth < plan.shape.depth_per_split as usize);
        assert_eq!((plan.tile, plan.shape.depth_per_split % DEPTH), (Tile::Split, 0));
        Some(plan.splits)
    }

    /// The faster of both by measurement, where they are not within a tenth of each other.
    #[test]
    fn chooses_what_was_measured_to_be_faster() {
        for [rows, columns, depth] in [
            [8192, 8192, 8192],
            [2048, 2048, 2048],
            [512, 4096, 11_008],
            [4096, 4096, 128],
            [8192, 8192, 64],
            [1000, 999, 1001],
            [768, 768, 768],
        ] {
            assert!(cut(rows, columns, depth).is_some(), "{rows}x{columns} over {depth}");
        }
        for [rows, columns, depth] in [[512, 512, 512], [64, 8192, 8192], [1, 1, 1], [1, 4096, 4096], [60_000, 10, 784]]
        {
            assert_eq!(cut(rows, columns, depth), None, "{rows}x{columns} over {depth}");
        }
    }

    #[test]
    fn few_tiles_are_split() {
        assert_eq!(cut(1024, 1024, 1024), Some(2));
        assert_eq!(cut(256, 256, 16_384), Some(32));
        assert_eq!(cut(4096, 4096, 4096), Some(1));
        // 140 tiles, of which the last eight would wait for all others.
        assert!(cut(4472, 512, 4768) > Some(1));
    }

    #[test]
    fn refuses_what_parts_or_launches_cannot_have() {
        for [rows, columns, depth] in
            [[0, 8, 8], [8, 0, 8], [8, 8, 0], [4096, 4096, 1 << 23], [1 << 31, 4096, 4096], [1 << 20, 4096, 1 << 11]]
        {
            assert_eq!(cut(rows, columns, depth), None, "{rows}x{columns} over {depth}");
        }
    }
}
