//! How a product of 16-bit floats is cut up for Hopper's tensor cores: what is legal, and what should take the least time.
//!
//! The time is a model's, in nanoseconds on an H200: for each wave of tiles its slices, each as long as the tensor cores and shared memory
//! take, or as the L2 cache does for the bytes of all blocks that run, or as memory does for what they are the first to read; and
//! what is between tiles, at the end, and what it costs to add parts. Two multiprocessors share their way to the L2 cache: a slice
//! takes longer where there are so many blocks that both have one. Its numbers are fitted to measured times so that it ranks
//! well (`docs/perf/dense.md` says how well); none is the time of a part by itself. Any choice is
//! right; the same sizes get the same one on every GPU that has these kernels.

use cuda_std::launch::LaunchDims;
use kernels::dense::wgmma::{self, DEPTH, PIECE};

use super::tensor::{LONGEST, MOST_SPLITS};
use super::{MULTIPROCESSORS, Plan, Tile};

/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 256;
/// Rows below which `mma.sync` in tiles of 64 × 64 is chosen: with 8 it takes less time for 3 of 21 shapes, with fewer nothing was
/// measured.
const LEAST_ROWS: u32 = 8;

/// A warpgroup's columns, how many warpgroups stand side by side in a tile, how many blocks share its depth, and the model's
/// times: of a slice, on a multiprocessor whose neighbour is idle and on one of two that are not; of what is between a tile's last product
/// and the next one's first; and of what is before the first and after the last.
struct Kind {
    columns: u32,
    across: u32,
    together: u32,
    slice: [u64; 2],
    between: u64,
    ends: u64,
}

const fn kind([columns, across, together]: [u32; 3], slice: [u64; 2], between: u64, ends: u64) -> Kind {
    Kind { columns, across, together, slice, between, ends }
}

const KINDS: [Kind; 11] = [
    kind([256, 1, 1], [569, 638], 2171, 637),
    kind([192, 1, 1], [404, 498], 1577, 454),
    kind([128, 1, 1], [300, 372], 1151, 522),
    kind([128, 1, 2], [265, 364], 311, 2548),
    kind([128, 1, 4], [281, 333], 1135, 2608),
    kind([64, 1, 1], [181, 256], 609, 559),
    kind([64, 1, 2], [151, 237], 801, 1233),
    kind([64, 1, 4], [154, 223], 521, 1820),
    kind([64, 2, 1], [182, 241], 708, 399),
    kind([64, 2, 2], [198, 405], 369, 1274),
    kind([64, 2, 4], [154, 355], 480, 1591),
];

/// Multiprocessors that have no neighbour with a block: of more, two share their way to the L2 cache.
const PAIRS: u64 = MULTIPROCESSORS as u64 / 2;
/// Bytes that the L2 cache gives to all multiprocessors in a nanosecond, and memory to the L2 cache.
const L2_BYTES: u64 = 10_796;
const MEMORY_BYTES: u64 = 3793;
/// What of its bytes an operand's slice costs of that, in thousandths, where 1, 2, 4 and so on blocks that run want it: of the rows', and of the columns'.
const WANTED_ROWS: [u64; 8] = [1000, 847, 717, 618, 618, 618, 618, 618];
const WANTED_COLUMNS: [u64; 5] = [1000, 932, 868, 809, 753];
/// What the kernel takes that adds the parts: at all, for each part, and how many elements of parts it goes through in a
/// nanosecond.
const FINISH: [u64; 3] = [696, 224, 485];
/// What rows that do not begin at multiples of 128 bytes add, in thousandths: to a slice's time, of the rows' and the columns'
/// operand, and where blocks share the columns' slices; to the bytes of each operand.
const UNALIGNED_SLICE: [[u64; 2]; 2] = [[234, 473], [183, 27]];
const UNALIGNED_BYTES: [u64; 2] = [1522, 1164];
/// How much of that rows add whose length is an odd multiple of 64 bytes, and of 32, in thousandths.
const OF_32: u64 = 40;
const OF_16: u64 = 173;
/// Rows of tiles that blocks take which run at the same time, as the kernels' `order.rs` has it.
const BELOW: u32 = 16;
/// Blocks that run at once where four are a cluster: not all multiprocessors are in fours.
const IN_FOURS: u64 = 120;

impl Plan {
    /// For `rows × columns` sums over `depth` on Hopper's tensor cores, of operands whose rows have these lengths; `None` when
    /// others are faster, when there is nothing to sum, when the results' rows are not whole pieces, or when that is more
    /// than a launch can name. (That the operands' rows are whole pieces, the caller has to see to.)
    pub fn hopper(rows: usize, columns: usize, depth: usize, lengths: [usize; 2]) -> Option<Self> {
        let unaligned = lengths.map(unaligned);
        let cuts = Self::hopper_cuts(rows, columns, depth)?;
        cuts.min_by_key(|(kind, plan)| plan.hopper_time(kind, unaligned)).map(|(_, plan)| plan)
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

    /// What the model says that it takes, but for what any launch does.
    fn hopper_time(&self, kind: &Kind, unaligned: [u64; 2]) -> u64 {
        let Self { splits, shape, .. } = *self;
        let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(u64::from);
        let slices = u64::from(shape.depth_per_split.min(shape.depth).div_ceil(DEPTH));
        let blocks = self.hopper_blocks();
        let at_once = if kind.together == 4 { IN_FOURS } else { MULTIPROCESSORS.into() };
        let sharing = wgmma::sharing(kind.columns, kind.across, kind.together);
        let [tile_rows, tile_columns] = wgmma::tile(kind.columns, kind.across).map(u64::from);
        let added = |thousandths: [u64; 2]| [0, 1].map(|i| thousandths[i] * unaligned[i] / 1000);
        let [a, b] = added(UNALIGNED_SLICE[sharing as usize - 1]);
        let multiply = kind.slice.map(|slice| slice * (1000 + a + b) / 1000);
        // What is outside of the matrix is not fetched.
        let [a, b] = added(UNALIGNED_BYTES);
        let of_rows = rows * (1000 + a) / rows.div_ceil(tile_rows);
        let of_columns = columns * (1000 + b) / columns.div_ceil(tile_columns) / u64::from(sharing);
        // Of 2 bytes each.
        let first_read = (rows + columns) * depth / blocks * 2;
        let [across, down] = [columns.div_ceil(tile_columns), rows.div_ceil(tile_rows * u64::from(sharing))];
        let below = down.min(u64::from(BELOW / sharing));
        let wave = |running: u64| {
            let beside = (running / below / u64::from(sharing)).clamp(1, across);
            let wanted =
                of_rows * WANTED_ROWS[beside.ilog2() as usize] + of_columns * WANTED_COLUMNS[below.ilog2() as usize];
            let bytes = wanted / 1000 * u64::from(DEPTH * 2) / 1000;
            let multiply = multiply[usize::from(running > PAIRS)];
            let slices = slices * multiply.max(running * bytes / L2_BYTES);
            let memory = first_read * running / MEMORY_BYTES;
            // Where memory takes longest, cuts are not all alike.
            slices.max(memory) + slices.min(memory) / 8 + kind.between
        };
        let waves = |count: u64, running: u64| if count == 0 { 0 } else { count * wave(running) };
        let (full, rest) = (blocks / at_once, blocks % at_once);
        let last = waves(rest.min(1), rest);
        let [finish, part, elements] = FINISH;
        let parts = match u64::from(splits) {
            1 => 0,
            n => finish + n * part + n * rows * columns / elements,
        };
        waves(full, at_once) + last + kind.ends + parts
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

/// How much of what rows that do not begin at multiples of 128 bytes add is added for rows of such a length, in thousandths.
fn unaligned(length: usize) -> u64 {
    match length % 64 {
        0 => 0,
        32 => OF_32,
        16 | 48 => OF_16,
        _ => 1000,
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
        assert_eq!(cut([1536, 1536, 1536]), ([128, 192], 1, 1));
        assert_eq!(cut([4160, 4160, 4160]), ([128, 192], 1, 1));
        assert_eq!(cut([512, 4096, 11_008]), ([128, 128], 1, 1));
        assert_eq!(cut([1024, 1024, 1024]), ([64, 128], 1, 1));
        assert_eq!(cut([1000, 1000, 1000]), ([128, 128], 1, 1));
        assert_eq!(cut([8192, 8192, 8192]), ([128, 256], 1, 1));
        assert_eq!(cut([512, 512, 512]), ([64, 128], 2, 1));
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
        assert_eq!(cut([8, 8, 8]), ([64, 128], 1, 1));
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
