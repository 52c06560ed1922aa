//! How a product of 16-bit floats is cut up for Hopper's tensor cores: what is legal, and what should take the least time.
//!
//! The time is a model's (`hopper/model.rs`; `docs/perf/dense.md` says how well it ranks). Any choice is right; the same sizes get the
//! same one on every GPU that has these kernels.

mod fit;
mod model;

use cuda_std::launch::LaunchDims;
use kernels::dense::Shape;
use kernels::dense::wgmma::{self, DEPTH, PIECE};

pub use self::fit::{Fit, Measured, Score};
use self::model::{FITTED, FORMS, Form, Operands, Sharing};
use super::tensor::{LONGEST, MOST_SPLITS};
use super::{MULTIPROCESSORS, Plan, Tile};
use crate::ops::dense::gpu::Product;

/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 256;
/// Rows below which `mma.sync` in tiles of 64 × 64 is chosen: with 8 it takes less time for 3 of 21 shapes, with fewer nothing was
/// measured.
const LEAST_ROWS: u32 = 8;

impl Plan {
    /// For `rows × columns` sums over `depth`, of this product, on Hopper's tensor cores, of operands whose rows have these lengths; `None` when
    /// others are faster, when there is nothing to sum, when the results' rows are not whole pieces, or when that is more
    /// than a launch can name. (That the operands' rows are whole pieces, the caller has to see to.)
    pub fn hopper(product: Product, [rows, columns, depth]: [usize; 3], lengths: [usize; 2]) -> Option<Self> {
        let operands = Operands::of(product, lengths);
        let cuts = Self::hopper_cuts(product, [rows, columns, depth])?;
        let (.., plan) =
            cuts.min_by_key(|(form, sharing, plan)| model::time(&FITTED, plan, form, sharing, operands))?;
        Some(plan)
    }

    /// All that are legal.
    fn hopper_cuts(
        product: Product,
        [rows, columns, depth]: [usize; 3],
    ) -> Option<impl Iterator<Item = (&'static Form, &'static Sharing, Self)>> {
        let [rows, columns, depth] = super::small_enough([rows, columns, depth])?;
        if rows < LEAST_ROWS || columns == 0 || depth == 0 || !columns.is_multiple_of(PIECE) {
            return None;
        }
        let least = depth.div_ceil(LONGEST).clamp(1, MOST_SPLITS);
        let forms =
            FORMS.iter().filter(move |form| !form.of_dx || product == Product::Dx && is_narrowest(form, columns));
        let pairs = forms.flat_map(|form| FITTED.sharings.iter().map(move |sharing| (form, sharing)));
        let shared = pairs.filter(move |&(form, sharing)| may_share(form, sharing.blocks, [rows, columns]));
        let legal = shared.flat_map(move |(form, sharing)| {
            let cut = move |splits| {
                let &Form { columns: each, height, together, .. } = form;
                let tile = Tile::Hopper { columns: each, height, together, sharing: sharing.blocks };
                let plan = Self::cut(tile, [rows, columns, depth], splits, DEPTH);
                // What a cluster's parts are, no other kernel has to add.
                let plan = if form.together == 1 { plan } else { Self { splits: 1, ..plan } };
                (form, sharing, plan)
            };
            // More parts than fill the GPU win nothing.
            let room = u64::from(MULTIPROCESSORS) / tiles(form, rows, columns);
            let parts = if form.together == 1 {
                let most = u64::from(depth / LEAST_DEPTH).min(room).min(MOST_SPLITS.into()) as u32;
                least..=most.max(least)
            } else {
                let legal = least <= form.together && depth >= form.together * DEPTH && room >= form.together.into();
                form.together..=if legal { form.together } else { 0 }
            };
            parts.map(cut)
        });
        Some(legal.filter(|(.., plan)| plan.hopper_blocks() < 1 << 31))
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_hopper(product: Product, sizes: [usize; 3]) -> impl Iterator<Item = Self> {
        Self::hopper_cuts(product, sizes).into_iter().flatten().map(|(.., plan)| plan)
    }

    /// The blocks that tiles would have, each one of its own.
    fn hopper_blocks(&self) -> u64 {
        let Tile::Hopper { together, sharing: [down, beside], .. } = self.tile else { return 0 };
        let Shape { rows, columns, .. } = self.shape;
        let clusters = [rows.div_ceil(self.tile.rows() * down), columns.div_ceil(self.tile.columns() * beside)];
        clusters.map(u64::from).iter().product::<u64>() * u64::from(self.splits * together * down * beside)
    }

    /// The grid and the block, on a GPU of so many multiprocessors: each has one block, which takes tile after tile; but
    /// clusters that share a tile's depth take one.
    pub fn hopper_dims(&self, multiprocessors: u32) -> LaunchDims {
        let Tile::Hopper { columns, height, together, sharing: [down, beside] } = self.tile else {
            unreachable!("{:?} is no tile of Hopper's", self.tile)
        };
        let cluster = together * down * beside;
        let room = if together == 1 { (multiprocessors / cluster).max(1) * cluster } else { u32::MAX };
        let blocks = self.hopper_blocks().min(room.into()) as u32;
        let dims = LaunchDims::new((blocks / beside, beside), wgmma::block(height))
            .with_cluster((cluster / beside, beside))
            .with_shared(wgmma::shared_bytes(columns, height, together));
        // Of larger clusters fewer run than there are multiprocessors for.
        if together == 1 && cluster > 2 { dims.resident() } else { dims }
    }
}

/// Widths whose columns begin at whole pieces of 64 bytes, and so may be as good as narrower ones where these need as many tiles.
const WHOLE: u32 = 32;

/// Whether narrower tiles would be more, so that none of these is there for nothing; or whether they begin at whole pieces.
fn is_narrowest(&Form { columns: each, .. }: &Form, columns: u32) -> bool {
    each.is_multiple_of(WHOLE) || columns.div_ceil(each) < columns.div_ceil(each - PIECE)
}

/// Whether there are tiles for all blocks that share, which share nothing else, and the kernel allows it.
fn may_share(form: &Form, sharing: [u32; 2], sizes: [u32; 2]) -> bool {
    let &Form { columns, height, together, .. } = form;
    let tile = wgmma::tile(columns, height);
    let there = (0..2).all(|i| sizes[i].div_ceil(tile[i]) >= sharing[i]);
    sharing == [1, 1] || together == 1 && there && wgmma::may_share(columns, height, sharing, sizes)
}

fn tiles(form: &Form, rows: u32, columns: u32) -> u64 {
    let [rows_of_tile, columns_of_tile] = wgmma::tile(form.columns, form.height);
    u64::from(rows.div_ceil(rows_of_tile)) * u64::from(columns.div_ceil(columns_of_tile))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sizes: [usize; 3]) -> Plan {
        Plan::hopper(Product::Forward, sizes, [sizes[2]; 2]).unwrap()
    }

    /// Rows and columns of a tile, blocks that share its depth, and splits.
    fn cut(sizes: [usize; 3]) -> ([u32; 2], u32, u32) {
        let plan = plan(sizes);
        let Tile::Hopper { columns, height, together, .. } = plan.tile else { panic!("{plan:?}") };
        let (part, parts) = (plan.shape.depth_per_split as usize, plan.splits.max(together) as usize);
        assert!(part * parts >= sizes[2] && part.is_multiple_of(DEPTH as usize), "{plan:?}");
        assert!(part * parts - sizes[2] < part || together > 1, "{plan:?}");
        (wgmma::tile(columns, height), together, plan.splits)
    }

    #[test]
    fn what_was_measured_to_be_best_is_chosen() {
        assert_eq!(cut([4096, 4096, 4096]), ([128, 256], 1, 1));
        assert_eq!(cut([2048, 2048, 2048]), ([128, 256], 1, 1));
        assert_eq!(cut([1536, 1536, 1536]), ([128, 144], 1, 1));
        assert_eq!(cut([512, 11_008, 4096]), ([128, 168], 1, 1));
        assert_eq!(cut([512, 4096, 11_008]), ([128, 128], 1, 1));
        assert_eq!(cut([8192, 8192, 8192]), ([192, 128], 1, 1));
        assert_eq!(cut([128, 4096, 4096]), ([128, 64], 2, 1));
        assert_eq!(cut([128, 640, 1024]), ([64, 128], 4, 1));
        // Products of `dx`, by a kernel that is told the width; a short one by one of its own.
        let tile = |[rows, columns, depth]: [usize; 3]| {
            let plan = Plan::hopper(Product::Dx, [rows, columns, depth], [depth, columns]).unwrap();
            [plan.tile.rows(), plan.tile.columns()]
        };
        assert_eq!(tile([4328, 456, 1696]), [128, 160]);
        assert_eq!(tile([4248, 800, 5104]), [192, 160]);
        assert_eq!(tile([824, 3560, 80]), [128, 128]);
    }

    /// What kernels are told are numbers that they have, of `dx` alone.
    #[test]
    fn widths_are_those_of_kernels() {
        for product in [Product::Forward, Product::Dx, Product::Dw] {
            let told = Plan::all_of_hopper(product, [4096, 1000, 4096]).filter_map(|plan| match plan.tile {
                Tile::Hopper { columns, height, .. } => Some((columns, height)),
                _ => None,
            });
            let told: Vec<_> =
                told.filter(|&(columns, height)| (columns, height) == (176, 3) || columns == 160).collect();
            assert_eq!(!told.is_empty(), product == Product::Dx, "{product:?}");
        }
        for form in FORMS.iter().filter(|form| form.of_dx) {
            let most = wgmma::widths(form.height)[1];
            assert!(wgmma::in_widths(form.columns, most, form.height) && form.together == 1, "{form:?}");
        }
    }

    /// Of a square rows' lengths say nothing.
    #[test]
    fn products_of_a_square_are_told_apart() {
        let tile = |product| Plan::hopper(product, [1536; 3], [1536; 2]).unwrap().tile;
        assert_ne!(tile(Product::Forward), tile(Product::Dw));
    }

    /// At the matrix's corner clusters that share both sides have more than one tile.
    #[test]
    fn clusters_have_no_corner_alone() {
        let cuts = |rows, columns| {
            let twice = |plan: &Plan| matches!(plan.tile, Tile::Hopper { sharing: [2, 2], .. });
            Plan::all_of_hopper(Product::Dw, [rows, columns, 4096])
                .filter(twice)
                .map(|plan| plan.tile)
                .collect::<Vec<_>>()
        };
        // Three and four tiles of 128, in both directions.
        let tile = |tile: &Tile| (tile.rows(), tile.columns()) == (128, 128);
        assert!(!cuts(3 * 128, 3 * 128).iter().any(tile));
        for (rows, columns) in [(3 * 128, 4 * 128), (4 * 128, 3 * 128), (4 * 128, 4 * 128)] {
            assert!(cuts(rows, columns).iter().any(tile), "{rows} x {columns}");
        }
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
        for sizes in [[0, 8, 8], [7, 8, 8], [16, 0, 8], [16, 8, 0], [16, 12, 8], [1 << 31, 8, 8], [16, 8, 1 << 31]] {
            assert!(Plan::hopper(Product::Forward, sizes, [sizes[2]; 2]).is_none());
        }
        assert_eq!(plan([8, 8, 8]).hopper_blocks(), 1);
    }

    #[test]
    fn blocks_are_no_more_than_there_is_room_or_work_for() {
        let blocks = |sizes, multiprocessors| plan(sizes).hopper_dims(multiprocessors).grid;
        assert_eq!(blocks([8192, 8192, 8192], 132), [132, 1, 1]);
        assert_eq!(blocks([8192, 8192, 8192], 79), [79, 1, 1]);
        assert_eq!(blocks([16, 8, 8], 132), [1, 1, 1]);
        // Two blocks for each of 64 tiles, whatever the GPU.
        assert_eq!(blocks([128, 4096, 4096], 78), [128, 1, 1]);
    }

    #[test]
    fn clusters_are_whole() {
        let dims = |sharing, multiprocessors| {
            let tile = Tile::Hopper { columns: 192, height: 2, together: 1, sharing };
            Plan { tile, ..plan([8192, 8192, 8192]) }.hopper_dims(multiprocessors)
        };
        for (sharing, grid) in
            [([1, 1], [79, 1]), ([2, 1], [78, 1]), ([1, 2], [39, 2]), ([2, 2], [38, 2]), ([4, 1], [76, 1])]
        {
            let [x, y] = sharing;
            let LaunchDims { grid: [columns, rows, _], cluster, resident, .. } = dims(sharing, 79);
            assert_eq!(([columns, rows], cluster, resident), (grid, [x, y, 1], x * y > 2));
        }
    }

    /// Where rows begin at odd multiples of 16 bytes, each of a copy counts as two.
    #[test]
    fn unaligned_rows_are_shared() {
        let sharing = |sizes, lengths| match Plan::hopper(Product::Dx, sizes, lengths) {
            Some(Plan { tile: Tile::Hopper { sharing, .. }, .. }) => sharing,
            plan => panic!("{plan:?}"),
        };
        assert_ne!(sharing([1120, 2040, 12_776], [12_776, 2040]), [1, 1]);
    }

    /// As much as a block can have, and no more.
    #[test]
    fn shared_memory_suffices() {
        for &Form { columns, height, together, .. } in FORMS.iter() {
            let (bytes, stages) =
                (wgmma::shared_bytes(columns, height, together), wgmma::stages(columns, height, together));
            assert!(bytes <= 227 * 1024 && stages >= 3, "{columns}, {height}, {together}: {bytes}");
        }
    }
}
