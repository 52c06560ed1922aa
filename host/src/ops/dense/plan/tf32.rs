//! How a product of f32 is cut up that Hopper's tensor cores make as tf32: which ways are legal, and what should take the least time.
//!
//! The time is a model's, in nanoseconds on an H200: the slices of the block that has the most tiles, and what it costs to add parts
//! and to turn an operand. Its numbers are fitted to measured times so that it ranks well (`docs/perf/dense.md` says how well); none
//! is the time of a part by itself. Any choice is right; the same sizes get the same one on every GPU that has these kernels.

use cuda_std::launch::LaunchDims;
use kernels::dense::Shape;
use kernels::dense::tf32::{DEPTH, PIECE};
use kernels::dense::wgmma::{self, ROWS};

use super::tensor::MOST_SPLITS;
use super::{MULTIPROCESSORS, Plan, Tile};
use crate::ops::dense::gpu::Product;

/// Which operand goes by registers, to be multiplied with its depth outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// None: both have it innermost.
    Neither,
    /// The left one; of the right one's, turned, it is innermost.
    Left,
    /// The right one, and the kernel makes the turned result. Of the left one's depth is innermost, after it was turned for `dw`.
    Right,
    /// As the left one, but that the kernel turns the other one itself, in shared memory.
    LeftWithin,
    /// As the right one, in the same way.
    RightWithin,
}

impl Way {
    /// Whether the right one goes by registers.
    pub fn is_right(self) -> bool {
        matches!(self, Self::Right | Self::RightWithin)
    }

    /// Whether the kernel turns the other one.
    pub fn is_within(self) -> bool {
        matches!(self, Self::LeftWithin | Self::RightWithin)
    }
}

/// Elements of an operand: of larger ones no turned one is made, for the workspace's sake.
const MOST_ELEMENTS: u64 = 1 << 31;
/// The least depth of a split: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: u32 = 128;
/// The greatest: tensor cores cut off what does not fit into a sum, and the error grows with the depth.
const LONGEST: u32 = 8192;
/// Rows below which f32 arithmetic takes less time: of a tile most would be empty.
const LEAST_ROWS: u32 = 16;

/// A tile's columns, how many blocks share its depth, and the model's times: of a slice, and of what is between a tile's last
/// product and the next one's first.
type Kind = [u32; 4];

const NEITHER: &[Kind] = &[
    [256, 1, 588, 3896],
    [192, 1, 445, 3259],
    [128, 1, 309, 3088],
    [128, 2, 309, 3902],
    [128, 4, 309, 4165],
    [64, 1, 215, 2221],
    [64, 2, 215, 2912],
    [64, 4, 215, 2940],
];
const EITHER: &[Kind] = &[[256, 1, 588, 4397], [192, 1, 446, 3630], [128, 1, 321, 2883], [64, 1, 307, 1489]];
const WITHIN: &[Kind] = &[[128, 1, 540, 2000], [64, 1, 360, 1000]];
/// What the kernel takes that adds the parts: at all, for each part, and how many elements of parts it goes through in a nanosecond.
const FINISH: [u64; 3] = [140, 275, 510];
/// What turning takes: at all, and how many elements it goes through in a nanosecond.
const TURN: [u64; 2] = [2000, 430];
/// Blocks that run at once where four are a cluster: not all multiprocessors are in fours.
const IN_FOURS: u64 = 120;

impl Plan {
    /// For a product of `rows × columns` sums over `depth`; `None` when rows of an operand or of the result are not whole pieces, when
    /// others are faster, when there is nothing to sum, or when that is more than a launch can name.
    pub fn tf32(product: Product, sizes: [usize; 3]) -> Option<Self> {
        Self::tf32_cuts(product, sizes)?.min_by_key(|&(time, _)| time).map(|(_, plan)| plan)
    }

    /// All that are legal, in no order.
    pub(super) fn all_of_tf32(product: Product, sizes: [usize; 3]) -> impl Iterator<Item = Self> {
        Self::tf32_cuts(product, sizes).into_iter().flatten().map(|(_, plan)| plan)
    }

    /// All that are legal, each with what it takes, as the model says.
    fn tf32_cuts(product: Product, sizes: [usize; 3]) -> Option<impl Iterator<Item = (u64, Self)>> {
        let [rows, columns, depth] = super::small_enough(sizes)?;
        let whole = |length: u32| length.is_multiple_of(PIECE);
        // The turned operand has whole pieces as rows.
        let depth = if product == Product::Dw { depth.next_multiple_of(PIECE) } else { depth };
        let too_large = u64::from(rows.max(columns)) * u64::from(depth) > MOST_ELEMENTS;
        if rows < LEAST_ROWS || columns == 0 || depth == 0 || !whole(columns) || !whole(depth) || too_large {
            return None;
        }
        let turn = |across: u32| TURN[0] + u64::from(across) * u64::from(depth) / TURN[1];
        let ways = match product {
            Product::Forward => vec![(Way::Neither, 0)],
            Product::Dx => vec![(Way::Right, 0)],
            Product::Dw if whole(rows) => {
                vec![(Way::Right, turn(rows)), (Way::Left, turn(columns)), (Way::RightWithin, 0), (Way::LeftWithin, 0)]
            }
            Product::Dw => vec![(Way::Right, turn(rows))],
        };
        let legal = ways.into_iter().flat_map(move |(way, before)| {
            let kinds = match way {
                Way::Neither => NEITHER,
                Way::Left | Way::Right => EITHER,
                Way::LeftWithin | Way::RightWithin => WITHIN,
            };
            kinds.iter().flat_map(move |&[side, together, slice, store]| {
                let tile = Tile::Tf32 { side, together, way };
                let cut = move |parts: u32| {
                    let plan = Self::cut(tile, [rows, columns, depth], parts, DEPTH);
                    // What a cluster's parts are, no other kernel has to add.
                    if together == 1 { plan } else { Self { splits: 1, ..plan } }
                };
                let least = depth.div_ceil(LONGEST).clamp(1, MOST_SPLITS);
                let parts = if together == 1 {
                    // More parts than fill the GPU win nothing.
                    let room = u64::from(MULTIPROCESSORS) / cut(1).tf32_blocks();
                    let most = u64::from(depth / LEAST_DEPTH).min(room).min(MOST_SPLITS.into()) as u32;
                    least..=most.max(least)
                } else {
                    let room = u64::from(MULTIPROCESSORS) / cut(1).tf32_blocks() * u64::from(together);
                    let legal = least <= together && depth >= together * DEPTH && room >= together.into();
                    together..=if legal { together } else { 0 }
                };
                parts.map(cut).map(move |plan| (before + plan.tf32_time([slice, store]), plan))
            })
        });
        Some(legal.filter(|(_, plan)| plan.tf32_blocks() < 1 << 31))
    }

    /// What the model says that the product takes, but for what any launch does.
    fn tf32_time(&self, [slice, store]: [u32; 2]) -> u64 {
        let Self { splits, shape, .. } = *self;
        let slices = u64::from(shape.depth_per_split.min(shape.depth).div_ceil(DEPTH));
        let at_once =
            if matches!(self.tile, Tile::Tf32 { together: 4, .. }) { IN_FOURS } else { MULTIPROCESSORS.into() };
        let [finish, part, elements] = FINISH;
        let parts = match u64::from(splits) {
            1 => 0,
            n => finish + n * part + n * u64::from(shape.rows) * u64::from(shape.columns) / elements,
        };
        self.tf32_blocks().div_ceil(at_once) * (slices * u64::from(slice) + u64::from(store)) + parts
    }

    /// The sizes as the kernel has them.
    pub fn tf32_shape(&self) -> Shape {
        let Shape { rows, columns, .. } = self.shape;
        match self.tile {
            Tile::Tf32 { way, .. } if way.is_right() => Shape { rows: columns, columns: rows, ..self.shape },
            _ => self.shape,
        }
    }

    /// The blocks that tiles would have, each one of its own.
    fn tf32_blocks(&self) -> u64 {
        let Tile::Tf32 { side, together, .. } = self.tile else { return 0 };
        let Shape { rows, columns, .. } = self.tf32_shape();
        let down = u64::from(rows.div_ceil(ROWS * tf32_sharing(side, together)));
        let cluster = together.max(tf32_sharing(side, together));
        down * u64::from(columns.div_ceil(side)) * u64::from(self.splits) * u64::from(cluster)
    }

    /// The grid and the block, on a GPU of so many multiprocessors: each has one block, which takes tile after tile; but
    /// clusters that share a tile's depth take one.
    pub fn tf32_dims(&self, multiprocessors: u32) -> LaunchDims {
        let Tile::Tf32 { side, together, .. } = self.tile else { unreachable!("{:?} is not of tf32", self.tile) };
        let cluster = together.max(tf32_sharing(side, together));
        let room = if together == 1 { (multiprocessors / cluster).max(1) * cluster } else { u32::MAX };
        let blocks = self.tf32_blocks().min(room.into()) as u32;
        let dims = LaunchDims::new(blocks, wgmma::BLOCK).with_cluster(cluster);
        dims.with_shared(wgmma::shared_bytes(side, 2, together))
    }
}

/// Blocks that take tiles one below the other, and bring the columns' slices together.
pub(in super::super) fn tf32_sharing(side: u32, together: u32) -> u32 {
    if together == 1 && (side == 128 || side == 256) { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tile's side, blocks that share its depth, its way, and splits.
    fn cut(product: Product, sizes @ [_, _, depth]: [usize; 3]) -> (u32, u32, Way, u32) {
        let plan = Plan::tf32(product, sizes).unwrap();
        let Tile::Tf32 { side, together, way } = plan.tile else { panic!("{plan:?}") };
        let (part, parts) = (plan.shape.depth_per_split as usize, plan.splits.max(together) as usize);
        assert!(part * parts >= depth && part.is_multiple_of(DEPTH as usize), "{plan:?}");
        assert!((part * parts) - (plan.shape.depth as usize) < part || together > 1, "{plan:?}");
        assert!(part <= LONGEST as usize, "{plan:?}");
        (side, together, way, plan.splits)
    }

    #[test]
    fn what_was_measured_to_be_best_is_chosen() {
        use Product::{Dw, Dx, Forward};
        use Way::{Left, Neither, Right};
        assert_eq!(cut(Forward, [4096, 4096, 4096]), (256, 1, Neither, 1));
        assert_eq!(cut(Forward, [8192, 8192, 8192]), (192, 1, Neither, 1));
        assert_eq!(cut(Forward, [1000, 1000, 1000]), (128, 2, Neither, 1));
        assert_eq!(cut(Forward, [128, 4096, 4096]), (64, 2, Neither, 1));
        assert_eq!(cut(Forward, [1536, 1536, 1536]), (192, 1, Neither, 1));
        assert_eq!(cut(Dx, [4096, 4096, 4096]), (256, 1, Right, 1));
        assert_eq!(cut(Dx, [512, 11_008, 4096]), (192, 1, Right, 1));
        // Of small ones either is turned by the kernel.
        assert_eq!(cut(Dw, [1024, 1024, 1024]), (64, 1, Way::RightWithin, 1));
        assert!(cut(Dw, [256, 256, 256]).2.is_within());
        assert!(cut(Dw, [1000, 1000, 1001]).2.is_within());
        assert_eq!(cut(Dw, [1023, 1024, 1024]).2, Right);
        // Whichever is smaller is turned.
        assert_eq!(cut(Dw, [5568, 128, 5311]).2, Left);
        assert_eq!(cut(Dw, [128, 5568, 5311]).2, Right);
        assert_eq!(cut(Dw, [5567, 128, 5311]).2, Right);
    }

    #[test]
    fn no_part_is_longer_than_its_error_allows() {
        for product in [Product::Forward, Product::Dx, Product::Dw] {
            for depth in [8192, 8196, 1 << 18] {
                cut(product, [4096, 4096, depth]);
            }
        }
    }

    #[test]
    fn what_others_are_for_is_left_to_them() {
        let too_large = [16, 1 << 16, 1 << 16];
        for sizes in [[0, 8, 8], [15, 8, 8], [16, 0, 8], [16, 8, 0], [16, 6, 8], [16, 8, 6], [1 << 31, 8, 8], too_large]
        {
            for product in [Product::Forward, Product::Dx] {
                assert!(Plan::tf32(product, sizes).is_none(), "{sizes:?}");
            }
        }
        for product in [Product::Forward, Product::Dx, Product::Dw] {
            assert!(Plan::tf32(product, [16, 4, 4]).is_some());
        }
        assert!(Plan::tf32(Product::Dw, [17, 4, 3]).is_some());
    }

    #[test]
    fn blocks_are_no_more_than_there_is_room_or_work_for() {
        let blocks = |product, sizes| Plan::tf32(product, sizes).unwrap().tf32_dims(132).grid;
        assert_eq!(blocks(Product::Forward, [8192, 8192, 8192]), [132, 1, 1]);
        assert_eq!(blocks(Product::Dx, [8192, 8192, 8192]), [132, 1, 1]);
        assert_eq!(blocks(Product::Dx, [16, 4, 4]), [1, 1, 1]);
    }
}
