//! How a product of 16-bit floats is cut up for Hopper's tensor cores: what is legal, and what should take the least time.
//!
//! The time is a model's (`hopper/model.rs`; `docs/perf/dense.md` says how well it ranks). Any choice is right; the same sizes get the
//! same one on every GPU that has these kernels.

mod model;

use cuda_std::launch::LaunchDims;
use kernels::dense::wgmma::{self, DEPTH, PIECE};

use self::model::{KINDS, Kind};
use super::tensor::{LONGEST, MOST_SPLITS};
use super::{MULTIPROCESSORS, Plan, Tile};

/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 256;
/// Rows below which `mma.sync` in tiles of 64 × 64 is chosen: with 8 it takes less time for 3 of 21 shapes, with fewer nothing was
/// measured.
const LEAST_ROWS: u32 = 8;

impl Plan {
    /// For `rows × columns` sums over `depth` on Hopper's tensor cores, of operands whose rows have these lengths; `None` when
    /// others are faster, when there is nothing to sum, when the results' rows are not whole pieces, or when that is more
    /// than a launch can name. (That the operands' rows are whole pieces, the caller has to see to.)
    pub fn hopper(rows: usize, columns: usize, depth: usize, lengths: [usize; 2]) -> Option<Self> {
        let cuts = Self::hopper_cuts(rows, columns, depth)?;
        cuts.min_by_key(|(kind, plan)| model::time(plan, kind, lengths)).map(|(_, plan)| plan)
    }

    /// All that are legal.
    fn hopper_cuts(rows: usize, columns: usize, depth: usize) -> Option<impl Iterator<Item = (&'static Kind, Self)>> {
        let [rows, columns, depth] = super::small_enough([rows, columns, depth])?;
        if rows < LEAST_ROWS || columns == 0 || depth == 0 || !columns.is_multiple_of(PIECE) {
            return None;
        }
        let least = depth.div_ceil(LONGEST).clamp(1, MOST_SPLITS);
        let legal = KINDS.iter().flat_map(move |kind| {
            let cut = move |splits| {
                let tile = Tile::Hopper { columns: kind.columns, across: kind.across, together: kind.together };
                let plan = Self::cut(tile, [rows, columns, depth], splits, DEPTH);
                // What a cluster's parts are, no other kernel has to add.
                let plan = if kind.together == 1 { plan } else { Self { splits: 1, ..plan } };
                (kind, plan)
            };
            // More parts than fill the GPU win nothing.
            let room = u64::from(MULTIPROCESSORS) / tiles(kind, rows, columns);
            let parts = if kind.together == 1 {
                let most = u64::from(depth / LEAST_DEPTH).min(room).min(MOST_SPLITS.into()) as u32;
                least..=most.max(least)
            } else {
                let legal = least <= kind.together && depth >= kind.together * DEPTH && room >= kind.together.into();
                kind.together..=if legal { kind.together } else { 0 }
            };
            parts.map(cut)
        });
        Some(legal.filter(|(_, plan)| plan.hopper_blocks() < 1 << 31))
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_hopper([rows, columns, depth]: [usize; 3]) -> impl Iterator<Item = Self> {
        Self::hopper_cuts(rows, columns, depth).into_iter().flatten().map(|(_, plan)| plan)
    }

    /// The blocks that tiles would have, each one of its own.
    fn hopper_blocks(&self) -> u64 {
        let Tile::Hopper { columns, across, together } = self.tile else { return 0 };
        let tiles_across = u64::from(self.shape.columns.div_ceil(self.tile.columns()));
        let down = u64::from(self.shape.rows.div_ceil(self.tile.rows() * wgmma::sharing(columns, across, together)));
        tiles_across * down * u64::from(self.splits) * u64::from(wgmma::cluster(columns, across, together))
    }

    /// The grid and the block, on a GPU of so many multiprocessors: each has one block, which takes tile after tile; but
    /// clusters that share a tile's depth take one.
    pub fn hopper_dims(&self, multiprocessors: u32) -> LaunchDims {
        let Tile::Hopper { columns, across, together } = self.tile else {
            unreachable!("{:?} is no tile of Hopper's", self.tile)
        };
        let cluster = wgmma::cluster(columns, across, together);
        let room = if together == 1 { (multiprocessors / cluster).max(1) * cluster } else { u32::MAX };
        let blocks = self.hopper_blocks().min(room.into()) as u32;
        LaunchDims::new(blocks, wgmma::BLOCK).with_shared(wgmma::shared_bytes(columns, across, together))
    }
}

fn tiles(kind: &Kind, rows: u32, columns: u32) -> u64 {
    let [rows_of_tile, columns_of_tile] = wgmma::tile(kind.columns, kind.across);
    u64::from(rows.div_ceil(rows_of_tile)) * u64::from(columns.div_ceil(columns_of_tile))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan([rows, columns, depth]: [usize; 3]) -> Plan {
        Plan::hopper(rows, columns, depth, [depth, depth]).unwrap()
    }

    /// Rows and columns of a tile, blocks that share its depth, and splits.
    fn cut(sizes: [usize; 3]) -> ([u32; 2], u32, u32) {
        let plan = plan(sizes);
        let Tile::Hopper { columns, across, together } = plan.tile else { panic!("{plan:?}") };
        let (part, parts) = (plan.shape.depth_per_split as usize, plan.splits.max(together) as usize);
        assert!(part * parts >= sizes[2] && part.is_multiple_of(DEPTH as usize), "{plan:?}");
        assert!(part * parts - sizes[2] < part || together > 1, "{plan:?}");
        (wgmma::tile(columns, across), together, plan.splits)
    }

    #[test]
    fn what_was_measured_to_be_best_is_chosen() {
        assert_eq!(cut([4096, 4096, 4096]), ([128, 256], 1, 1));
        assert_eq!(cut([2048, 2048, 2048]), ([128, 256], 1, 1));
        assert_eq!(cut([1536, 1536, 1536]), ([128, 144], 1, 1));
        assert_eq!(cut([512, 11_008, 4096]), ([128, 168], 1, 1));
        assert_eq!(cut([4160, 4160, 4160]), ([128, 192], 1, 1));
        assert_eq!(cut([512, 4096, 11_008]), ([128, 128], 1, 1));
        assert_eq!(cut([1000, 1000, 1000]), ([128, 128], 1, 1));
        assert_eq!(cut([8192, 8192, 8192]), ([128, 256], 1, 1));
        assert_eq!(cut([128, 4096, 4096]), ([128, 64], 2, 1));
        assert_eq!(cut([128, 640, 1024]), ([64, 128], 4, 1));
    }

    #[test]
    fn thin_products_fill_the_gpu() {
        for sizes in [[128, 4096, 4096], [4096, 128, 4096]] {
            let plan = plan(sizes);
            assert!(3 * plan.hopper_blocks() > MULTIPROCESSORS.into(), "{plan:?}");
        }
    }

    /// Where a few tiles are all there is, blocks share their depth.
    #[test]
    fn deep_products_are_shared() {
        let plan = plan([256, 256, 8192]);
        let Tile::Hopper { together, .. } = plan.tile else { panic!("{plan:?}") };
        assert!(plan.splits.max(together) >= 4, "{plan:?}");
    }

    #[test]
    fn no_part_is_longer_than_its_error_allows() {
        for depth in [16_384, 16_385, 1 << 20] {
            let plan = plan([4096, 4096, depth]);
            assert!(plan.shape.depth_per_split <= LONGEST, "{plan:?}");
        }
        // So long that the parts are as many as a grid can have.
        assert!(cut([16, 8, (1 << 31) - 8]).2 <= MOST_SPLITS);
    }

    #[test]
    fn what_others_are_for_is_left_to_them() {
        for [rows, columns, depth] in
            [[0, 8, 8], [7, 8, 8], [16, 0, 8], [16, 8, 0], [16, 12, 8], [1 << 31, 8, 8], [16, 8, 1 << 31]]
        {
            assert!(Plan::hopper(rows, columns, depth, [depth, depth]).is_none());
        }
        assert_eq!(cut([8, 8, 8]), ([128, 64], 1, 1));
    }

    #[test]
    fn blocks_are_no_more_than_there_is_room_or_work_for() {
        let blocks = |sizes, multiprocessors| plan(sizes).hopper_dims(multiprocessors).grid;
        assert_eq!(blocks([8192, 8192, 8192], 132), [132, 1, 1]);
        assert_eq!(blocks([8192, 8192, 8192], 79), [78, 1, 1]);
        assert_eq!(blocks([16, 8, 8], 132), [1, 1, 1]);
        // Two blocks for each of 64 tiles, whatever the GPU.
        assert_eq!(blocks([128, 4096, 4096], 78), [128, 1, 1]);
    }

    /// As much as a block can have, and no more.
    #[test]
    fn shared_memory_suffices() {
        for Kind { columns, across, together, .. } in KINDS {
            let (bytes, stages) =
                (wgmma::shared_bytes(columns, across, together), wgmma::stages(columns, across, together));
            assert!(bytes <= 227 * 1024 && stages >= 4, "{columns}, {across}, {together}: {bytes}");
        }
    }
}
