//! How a product is cut up that f32 arithmetic makes from operands as they lie, on any GPU: tiles of three sizes, and the depth in parts.
//!
//! What is legal is enumerated, and the time of each reckoned, in picoseconds on an H200 (`docs/perf/dense.md` has what it was made from): the
//! busiest multiprocessor takes as many blocks as it holds at a time, and each takes the longer the more of them there are; then parts of the
//! depth are added. Any choice is right, and the same sizes get the same one on every GPU, so that results do not depend on which it is.

use kernels::dense::{DEPTH, LARGE, MAX_GRID_Y, SLICED, SMALL, Shape, per_multiprocessor};

use super::{MULTIPROCESSORS, Plan, Tile};
use crate::ops::dense::gpu::Product;

/// What is known of a kind of tile.
struct Kind {
    tile: Tile,
    side: u32,
    /// The least depth of a part, and the most parts.
    least: u32,
    most: u32,
    /// What depth counts as: its multiples.
    slice: u32,
    /// What a product takes at all, and a block besides its depth.
    start: u64,
    block: u64,
    /// What a block takes for each of its depth, of forward, `dx` and `dw`, where a multiprocessor has one, two and so on at a time.
    each: [&'static [u64]; 3],
}

/// The kinds; the numbers are fitted.
static KINDS: [Kind; 3] = [
    Kind {
        tile: Tile::Large,
        side: LARGE,
        least: 256,
        most: u32::MAX,
        slice: DEPTH,
        start: 0,
        block: 3_911_000,
        each: [&[104_670, 100_070], &[93_170, 89_020], &[92_890, 88_660]],
    },
    Kind {
        tile: Tile::Small,
        side: SMALL,
        least: 128,
        most: u32::MAX,
        slice: 2 * DEPTH,
        start: 0,
        block: 2_695_000,
        each: [&[30_970, 28_830, 25_410, 24_440], &[30_690, 28_320, 26_340, 25_410], &[30_800, 27_990, 26_830, 25_670]],
    },
    Kind {
        tile: Tile::Sliced,
        side: SLICED,
        least: 64,
        most: 32,
        slice: 8 * DEPTH,
        start: 1_455_000,
        block: 1_103_000,
        each: [&[11_580, 10_950], &[10_290, 9410], &[9690, 8410]],
    },
];

/// What it takes that parts of the depth are added: at all, for each part, and bytes of them in a nanosecond, each written and read.
const FINISH: [u64; 2] = [641_000, 83_300];
const PART_BYTES: u64 = 4874;
/// Bytes of operands that all blocks get out of the L2 cache in a nanosecond.
const CACHE_BYTES: u64 = 5500;

impl Plan {
    /// For a product of `rows × columns` sums over `depth`; `None` when that is more than a launch can name.
    pub fn new(product: Product, sizes: [usize; 3]) -> Option<Self> {
        Self::all_of_cores(sizes).min_by_key(|plan| plan.cores_time(product))
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_cores(sizes: [usize; 3]) -> impl Iterator<Item = Self> {
        super::small_enough(sizes).into_iter().flat_map(|sizes @ [rows, columns, depth]| {
            // Only small tiles may have their columns along the grid's x.
            let legal = KINDS.iter().filter(move |kind| kind.side == SMALL || columns <= MAX_GRID_Y * kind.side);
            legal.flat_map(move |&Kind { tile, side, least, most, .. }| {
                let blocks = u64::from(rows.div_ceil(side)) * u64::from(columns.div_ceil(side));
                // As many parts as fill the GPU once, where the depth is worth that many.
                let room = u64::from(MULTIPROCESSORS * per_multiprocessor(side)) / blocks.max(1);
                let most = room.min((depth / least).into()).clamp(1, most.into()) as u32;
                (1..=most).map(move |splits| Self::cut(tile, sizes, splits, DEPTH))
            })
        })
    }

    /// The kind of its tiles; `None` of a plan that is by no such tiles.
    fn kind(&self) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.tile == self.tile)
    }

    /// Whether it is by such tiles.
    pub fn is_by_cores(&self) -> bool {
        self.kind().is_some()
    }

    /// What the model says that the product takes, in nanoseconds.
    pub(super) fn cores_time(&self, product: Product) -> u64 {
        let Some(Kind { side, slice, start, block, each, .. }) = self.kind() else {
            unreachable!("{:?} is not by f32 arithmetic", self.tile)
        };
        let (&side, each) = (side, each[product as usize]);
        let Shape { rows, columns, depth, depth_per_split } = self.shape;
        let depth = u128::from(depth_per_split.min(depth).next_multiple_of(*slice));
        let tiles = u128::from(rows.div_ceil(side)) * u128::from(columns.div_ceil(side));
        let blocks = tiles * u128::from(self.splits);
        let busiest = blocks.div_ceil(MULTIPROCESSORS.into());
        let at_once = each.len() as u128;
        let time = |blocks: u128| match blocks {
            0 => 0,
            n => u128::from(*block) + n * depth * u128::from(each[n as usize - 1]),
        };
        let multiplied = busiest / at_once * time(at_once) + time(busiest % at_once);
        let copied = 1000 * blocks * 8 * u128::from(side) * depth / u128::from(CACHE_BYTES);
        let [finish, part] = FINISH.map(u128::from);
        let added = match u128::from(self.splits) {
            1 => 0,
            n => finish + n * part + 1000 * 8 * n * u128::from(rows) * u128::from(columns) / u128::from(PART_BYTES),
        };
        ((u128::from(*start) + multiplied.max(copied) + added) / 1000).try_into().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::launch::LaunchDims;

    use super::*;

    fn cut(product: Product, sizes @ [.., depth]: [usize; 3]) -> (Tile, u32) {
        let plan = Plan::new(product, sizes).unwrap();
        let covered = plan.splits as usize * plan.shape.depth_per_split as usize;
        assert!(covered >= depth && covered - depth < plan.shape.depth_per_split as usize || depth == 0);
        assert_eq!(plan.shape.depth_per_split % DEPTH, 0);
        (plan.tile, plan.splits)
    }

    /// The fastest by measurement, where no other is within 3 %.
    #[test]
    fn chooses_what_was_measured_to_be_fastest() {
        for (product, sizes, fastest) in [
            (Product::Dx, [2752, 4328, 232], (Tile::Large, 1)),
            (Product::Dw, [200, 2632, 1016], (Tile::Large, 3)),
            (Product::Forward, [384, 384, 384], (Tile::Small, 3)),
            (Product::Forward, [624, 600, 2160], (Tile::Small, 5)),
            (Product::Dx, [712, 1408, 312], (Tile::Small, 1)),
            (Product::Forward, [104, 80, 7920], (Tile::Sliced, 11)),
            (Product::Dx, [1648, 72, 128], (Tile::Sliced, 1)),
            (Product::Dw, [72, 2008, 88], (Tile::Sliced, 1)),
        ] {
            assert_eq!(cut(product, sizes), fastest, "{product:?} {sizes:?}");
        }
    }

    #[test]
    fn there_is_a_time_for_each_number_of_blocks_at_a_time() {
        for Kind { side, each, .. } in &KINDS {
            assert!(each.iter().all(|times| times.len() == per_multiprocessor(*side) as usize), "{side}");
        }
    }

    /// Many rows, few columns: most of each larger tile would be empty.
    #[test]
    fn narrow_products_go_by_narrow_tiles() {
        for product in Product::ALL {
            assert_eq!(cut(product, [1_000_000, 10, 784]).0, Tile::Sliced, "{product:?}");
        }
    }

    #[test]
    fn small_and_empty_products_are_one_part() {
        for sizes in [[1, 1, 1], [10, 20, 0], [10, 20, 127], [0, 20, 300]] {
            for product in Product::ALL {
                assert_eq!(cut(product, sizes).1, 1, "{product:?} {sizes:?}");
            }
        }
    }

    #[test]
    fn refuses_what_32_bits_do_not_count() {
        for sizes in [[1 << 31, 1, 1], [1, 1 << 31, 1], [1, 1, 1 << 31]] {
            assert!(Plan::new(Product::Forward, sizes).is_none());
        }
    }

    /// A grid has 2³¹ - 1 blocks along x and 65,535 along y and z.
    #[test]
    fn any_number_of_rows_or_columns_fits_into_a_grid() {
        let most = (1 << 31) - 1;
        for product in Product::ALL {
            for (rows, columns) in [(most, 1), (1, most), (100_000, 8_000_000), (8_000_000, 100_000), (129, 9_000_000)]
            {
                for depth in [64, most] {
                    let plan = Plan::new(product, [rows, columns, depth]).unwrap();
                    let LaunchDims { grid: [x, y, z], .. } = plan.dims();
                    assert!(x < 1 << 31 && y <= MAX_GRID_Y && z <= MAX_GRID_Y, "{plan:?}: {x} {y} {z}");
                }
            }
        }
        assert_eq!(cut(Product::Forward, [8_000_000, 200, 64]).0, Tile::Large);
    }
}
