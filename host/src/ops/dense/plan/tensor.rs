//! How a product of 16-bit floats is cut up for tensor cores: what is legal, and what should take the least time.
//!
//! The time is a model's, in clocks of an H100 or H200: the busiest multiprocessor's slices, or the bytes that all
//! blocks fetch from the L2 cache, whichever takes longer, and what it costs to add parts. Any choice is right; the
//! same sizes get the same one on every GPU that goes by it, so that results do not depend on which of these it is.

use kernels::dense::mma;

use super::{MULTIPROCESSORS, Plan, Tile};
use crate::device::tiles;

/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 256;
/// The greatest depth of a split. Tensor cores cut off what does not fit into a sum instead of rounding it, so that the
/// error grows with the depth and not with its root: measured with positive numbers, within this depth it is below what
/// f32's own rounding is allowed, with four times as much above. The parts are added as f32.
pub(super) const LONGEST: u32 = 16_384;
/// The most splits: a grid's blocks along z.
pub(super) const MOST_SPLITS: u32 = 65_535;

/// Clocks of a slice ([`mma::depth`]): what it takes of a multiprocessor that has several blocks, and how long with one alone. From
/// times on an H200 at 1.98 GHz; those of wide tiles by their times beside large ones at 4096³, where power limits both.
const fn slice_clocks(tile: Tile) -> [u64; 2] {
    match tile {
        Tile::TensorWide => [2170, 2170],
        Tile::TensorLarge => [1140, 1435],
        _ => [220, 285],
    }
}

/// Clocks that a block takes before its first product and after its last.
const START: u64 = 2500;
/// Clocks that the kernel takes which adds the parts, besides their bytes.
const FINISH: u64 = 5000;
/// Bytes that the L2 cache gives to all multiprocessors in a clock.
const L2_BYTES: u64 = 3600;

const TILES: [Tile; 3] = [Tile::TensorWide, Tile::TensorLarge, Tile::TensorSmall];

impl Plan {
    /// For `rows × columns` sums over `depth` on tensor cores; `None` when that is more than a launch can name.
    pub fn tensor(rows: usize, columns: usize, depth: usize) -> Option<Self> {
        Self::all_of_tensor([rows, columns, depth]).min_by_key(Self::clocks)
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_tensor(sizes: [usize; 3]) -> impl Iterator<Item = Self> {
        super::small_enough(sizes).into_iter().flat_map(|[rows, columns, depth]| {
            TILES.into_iter().flat_map(move |tile| {
                let blocks = blocks(tile, rows, columns);
                // More splits than fill the GPU win nothing.
                let room = u64::from(MULTIPROCESSORS * mma::per_multiprocessor(tile.columns())) / blocks.max(1);
                let least = depth.div_ceil(LONGEST).clamp(1, MOST_SPLITS);
                let most = u64::from(depth / LEAST_DEPTH).min(room).min(MOST_SPLITS.into()) as u32;
                let cut = move |splits| Self::cut(tile, [rows, columns, depth], splits, mma::depth(tile.columns()));
                (least..=most.max(least)).map(cut)
            })
        })
    }

    /// What the model says that it takes.
    fn clocks(&self) -> u64 {
        let Self { tile, splits, shape } = *self;
        let name = tile.columns();
        let slices = u64::from(shape.depth_per_split.min(shape.depth).div_ceil(mma::depth(name)));
        let blocks = blocks(tile, shape.rows, shape.columns) * u64::from(splits);
        // The multiprocessor that has the most blocks, several at once.
        let queue = blocks.div_ceil(MULTIPROCESSORS.into());
        let at_once = queue.min(mma::per_multiprocessor(name).into()).max(1);
        let [busy, alone] = slice_clocks(tile);
        let together = (at_once * busy).max(alone);
        let multiprocessor = queue.div_ceil(at_once) * (slices * together + START);
        let slice_bytes = u64::from((mma::rows(name) + mma::columns(name)) * mma::depth(name) * 2);
        let fetched = blocks * slices * slice_bytes / L2_BYTES;
        let parts = match splits {
            1 => 0,
            // Written, and read.
            n => FINISH + 8 * u64::from(n) * u64::from(shape.rows) * u64::from(shape.columns) / L2_BYTES,
        };
        multiprocessor.max(fetched) + parts
    }

    /// The blocks of a split.
    pub(super) fn tensor_blocks(&self) -> u32 {
        tiles(blocks(self.tile, self.shape.rows, self.shape.columns) as usize, 1)
    }
}

fn blocks(tile: Tile, rows: u32, columns: u32) -> u64 {
    u64::from(rows.div_ceil(tile.rows())) * u64::from(columns.div_ceil(tile.columns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rows: usize, columns: usize, depth: usize) -> (Tile, u32) {
        let plan = Plan::tensor(rows, columns, depth).unwrap();
        let covered = plan.splits as usize * plan.shape.depth_per_split as usize;
        assert!(covered >= depth && covered - depth < plan.shape.depth_per_split as usize || depth == 0);
        assert_eq!(plan.shape.depth_per_split % mma::depth(plan.tile.columns()), 0);
        (plan.tile, plan.splits)
    }

    #[test]
    fn what_was_measured_to_be_best_is_chosen() {
        assert_eq!(cut(2048, 2048, 2048), (Tile::TensorWide, 1));
        assert_eq!(cut(4096, 4096, 4096), (Tile::TensorWide, 1));
        assert_eq!(cut(8192, 8192, 8192), (Tile::TensorWide, 1));
        assert_eq!(cut(1024, 1024, 1024), (Tile::TensorSmall, 1));
        assert_eq!(cut(1000, 1000, 1000), (Tile::TensorSmall, 1));
        assert_eq!(cut(128, 128, 128), (Tile::TensorSmall, 1));
    }

    #[test]
    fn small_products_are_split_only_where_the_depth_is_worth_it() {
        assert_eq!(cut(1, 8, 8), (Tile::TensorSmall, 1));
        assert_eq!(cut(64, 64, 256).1, 1);
        assert_eq!(cut(10, 20, 0).1, 1);
        assert_eq!(cut(0, 24, 300).1, 1);
        assert!(cut(64, 64, 16_384).1 > 8);
    }

    #[test]
    fn thin_products_fill_the_gpu() {
        for [rows, columns, depth] in [[128, 4096, 4096], [4096, 128, 4096], [256, 256, 8192]] {
            let (tile, splits) = cut(rows, columns, depth);
            let blocks = blocks(tile, rows as u32, columns as u32) * u64::from(splits);
            assert!(2 * blocks > MULTIPROCESSORS.into(), "{tile:?} in {splits}");
        }
    }

    #[test]
    fn no_part_is_longer_than_its_error_allows() {
        for depth in [16_384, 16_385, 1 << 20] {
            let plan = Plan::tensor(4096, 4096, depth).unwrap();
            assert!(plan.shape.depth_per_split <= LONGEST, "{plan:?}");
        }
        // So long that the parts are as many as a grid can have.
        assert!(cut(8, 8, (1 << 31) - 8).1 <= MOST_SPLITS);
    }

    #[test]
    fn refuses_what_32_bits_do_not_count() {
        for sizes in [[1 << 31, 8, 8], [8, 1 << 31, 8], [8, 8, 1 << 31]] {
            assert!(Plan::tensor(sizes[0], sizes[1], sizes[2]).is_none());
        }
    }
}
