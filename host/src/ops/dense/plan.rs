//! How a product is cut up for the GPU.

mod choice;
mod ffma;
mod hopper;
mod split;
mod tensor;
mod tf32;

use cuda_std::launch::LaunchDims;
use kernels::dense::{
    DEPTH, LARGE, MAX_GRID_Y, SLICED, SMALL, Shape, block, columns_along_x, mma, per_multiprocessor, wgmma,
};

pub(super) use self::choice::{Choice, Question};
pub use self::hopper::{Fit, Measured, Score};
pub(super) use self::tf32::{Way, tf32_sharing};
use crate::device::tiles;

/// Multiprocessors that a cut should keep busy: those of an H100 or H200. Any number is right; on a smaller GPU the
/// blocks come in more waves. Not asked of the GPU, so that results depend on its kernels alone.
const MULTIPROCESSORS: u32 = 132;
/// The least depth of a split, of large and of small tiles: below, adding the parts costs more than the splits win.
const LEAST_DEPTH: [usize; 2] = [256, 128];
/// The same of sliced tiles, and the most splits that are tried.
const LEAST_SLICED: u32 = 64;
const MOST_SLICED: u32 = 32;
/// Nanoseconds of a product by sliced tiles on an H200: at all, for each that a multiprocessor has to make, and for each thousand of its depth;
/// where there are splits, and for each.
const SLICED_TIME: [u64; 5] = [2200, 300, 11_300, 1900, 50];

/// The tiles that there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    Large,
    Small,
    Sliced,
    TensorWide,
    TensorLarge,
    TensorSmall,
    /// Of warpgroups with so many columns each, so many of them one below the other ([`wgmma::tile`]); the depth shared by so many
    /// blocks, which are a cluster; or what is copied by so many one below the other and side by side.
    Hopper {
        columns: u32,
        height: u32,
        together: u32,
        sharing: [u32; 2],
    },
    /// Of operands in parts.
    Split,
    /// Of the left operand in parts, and of the right one, whose parts are made in registers: rows of the tile.
    SplitRegisters {
        rows: u32,
    },
    /// Of f32 on Hopper by FFMA: tiles that blocks take whole, those whose slices they share, and how many blocks.
    Ffma {
        alone: u32,
        shared: u32,
        blocks: u32,
    },
    /// Of f32 as tf32: a side, the depth shared by so many blocks, which are a cluster, and which operand goes by registers.
    Tf32 {
        side: u32,
        together: u32,
        way: Way,
    },
}

impl Tile {
    pub fn rows(self) -> u32 {
        match self {
            Self::Large | Self::TensorLarge | Self::TensorWide => LARGE,
            Self::Small | Self::TensorSmall => SMALL,
            Self::Sliced => SLICED,
            Self::Hopper { columns, height, .. } => wgmma::tile(columns, height)[0],
            Self::Split => wgmma::ROWS,
            Self::SplitRegisters { rows } => rows,
            Self::Ffma { .. } => kernels::dense::ffma::ROWS,
            Self::Tf32 { side, way, .. } if way.is_right() => side,
            Self::Tf32 { .. } => wgmma::ROWS,
        }
    }

    pub fn columns(self) -> u32 {
        match self {
            Self::TensorWide => mma::WIDE,
            Self::Large | Self::TensorLarge => LARGE,
            Self::Small | Self::TensorSmall => SMALL,
            Self::Sliced => SLICED,
            Self::Hopper { columns, height, .. } => wgmma::tile(columns, height)[1],
            Self::Split => kernels::dense::split::COLUMNS,
            Self::SplitRegisters { .. } => wgmma::ROWS,
            Self::Ffma { .. } => kernels::dense::ffma::COLUMNS,
            Self::Tf32 { way, .. } if way.is_right() => wgmma::ROWS,
            Self::Tf32 { side, .. } => side,
        }
    }

    /// Whether it is made by `mma.sync`.
    fn is_tensor(self) -> bool {
        matches!(self, Self::TensorWide | Self::TensorLarge | Self::TensorSmall)
    }

    /// Whether it is made by kernels for Hopper alone, of operands as they are.
    pub fn is_hopper(self) -> bool {
        matches!(self, Self::Hopper { .. } | Self::Tf32 { .. } | Self::Ffma { .. })
    }
}

/// Sizes as a launch names them, each below 2³¹.
fn small_enough<const N: usize>(sizes: [usize; N]) -> Option<[u32; N]> {
    let fits = sizes.iter().all(|&n| n < 1 << 31);
    fits.then(|| sizes.map(|n| n as u32))
}

/// A product's tiles, and the parts that its depth is split into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub tile: Tile,
    pub splits: u32,
    pub shape: Shape,
}

impl Plan {
    /// For `rows × columns` sums over `depth`; `None` when that is more than a launch can name.
    pub fn new(rows: usize, columns: usize, depth: usize) -> Option<Self> {
        let [r, c, d] = small_enough([rows, columns, depth])?;
        let blocks = |side: u32| rows.div_ceil(side as usize) * columns.div_ceil(side as usize);
        // As many splits as fill the GPU once, where the depth is worth that many.
        let splits = |side, least: usize| {
            let room = (MULTIPROCESSORS * per_multiprocessor(side)) as usize / blocks(side).max(1);
            room.min(depth / least).max(1)
        };
        let large = splits(LARGE, LEAST_DEPTH[0]);
        let large_fills = blocks(LARGE) * large >= MULTIPROCESSORS as usize;
        let large_fits = c <= MAX_GRID_Y * LARGE;
        let (tile, splits) = if large_fills && large_fits && rows.min(columns) > SMALL as usize {
            (Tile::Large, large)
        } else {
            (Tile::Small, splits(SMALL, LEAST_DEPTH[1]))
        };
        let larger = Self::cut(tile, [r, c, d], splits as u32, DEPTH);
        let sliced = Self::sliced([r, c, d]).min_by_key(Self::sliced_time);
        // These load more for each product, but wait less for memory.
        Some(sliced.filter(|sliced| sliced.sliced_time() < larger.f32_time_beside_parts()).unwrap_or(larger))
    }

    /// All that are legal by sliced tiles, in no order.
    fn sliced(sizes @ [rows, columns, depth]: [u32; 3]) -> impl Iterator<Item = Self> {
        let blocks = u64::from(rows.div_ceil(SLICED)) * u64::from(columns.div_ceil(SLICED));
        let room = u64::from(MULTIPROCESSORS * per_multiprocessor(SLICED)) / blocks.max(1);
        let most = room.min((depth / LEAST_SLICED).into()).clamp(1, MOST_SLICED.into()) as u32;
        let most = if columns <= MAX_GRID_Y * SLICED { most } else { 0 };
        (1..=most).map(move |splits| Self::cut(Tile::Sliced, sizes, splits, DEPTH))
    }

    /// All that are legal by f32 arithmetic in tiles of `product.rs`, in no order.
    fn all_of_cores(sizes @ [.., depth]: [usize; 3]) -> impl Iterator<Item = Self> {
        let tiles = [(LARGE, Tile::Large, LEAST_DEPTH[0]), (SMALL, Tile::Small, LEAST_DEPTH[1])];
        small_enough(sizes).into_iter().flat_map(move |sizes @ [rows, columns, _]| {
            let legal = tiles.into_iter().filter(move |&(side, ..)| side == SMALL || columns <= MAX_GRID_Y * LARGE);
            let larger = legal.flat_map(move |(side, tile, least)| {
                let blocks = u64::from(rows.div_ceil(side)) * u64::from(columns.div_ceil(side));
                let room = u64::from(MULTIPROCESSORS * per_multiprocessor(side)) / blocks.max(1);
                let most = room.min((depth / least) as u64).max(1) as u32;
                (1..=most).map(move |splits| Self::cut(tile, sizes, splits, DEPTH))
            });
            larger.chain(Self::sliced(sizes))
        })
    }

    /// What the model says that sliced tiles take, in nanoseconds.
    fn sliced_time(&self) -> u64 {
        let Shape { rows, columns, depth, depth_per_split } = self.shape;
        let [all, tile, each, split, part] = SLICED_TIME;
        let tiles = u64::from(rows.div_ceil(SLICED)) * u64::from(columns.div_ceil(SLICED)) * u64::from(self.splits);
        let depth = u64::from(depth_per_split.min(depth));
        let parts = if self.splits > 1 { split + part * u64::from(self.splits) } else { 0 };
        all + tiles.div_ceil(MULTIPROCESSORS.into()) * (tile + depth * each / 1000) + parts
    }

    /// Equal parts of whole slices; rounding up may leave fewer of them.
    fn cut(tile: Tile, [rows, columns, depth]: [u32; 3], splits: u32, slice: u32) -> Self {
        let depth_per_split = depth.div_ceil(splits).next_multiple_of(slice).max(slice);
        let splits = depth.div_ceil(depth_per_split).max(1);
        Self { tile, splits, shape: Shape { rows, columns, depth, depth_per_split } }
    }

    /// The grid and the block.
    pub fn dims(&self) -> LaunchDims {
        let Shape { rows, columns, .. } = self.shape;
        let side = self.tile.columns();
        if self.tile.is_tensor() {
            let dims = LaunchDims::new([self.tensor_blocks(), 1, self.splits], mma::block(side));
            return dims.with_shared(mma::shared_bytes(side));
        }
        let (x, y) = (tiles(rows as usize, side), tiles(columns as usize, side));
        let swapped = self.tile == Tile::Small && columns_along_x(columns);
        let [x, y] = if swapped { [y, x] } else { [x, y] };
        LaunchDims::new([x, y, self.splits], block(side))
    }

    /// What was chosen, and why.
    pub fn why(&self) -> String {
        let Shape { rows, columns, depth, depth_per_split } = self.shape;
        let tile = match self.tile {
            Tile::Large => format!("tiles of {LARGE}: they keep {MULTIPROCESSORS} multiprocessors busy"),
            Tile::Small if rows.min(columns) <= SMALL => format!("tiles of {SMALL}: larger ones would be half empty"),
            Tile::Small if columns > MAX_GRID_Y * LARGE => {
                format!("tiles of {SMALL}: only their grid has room for as many columns")
            }
            Tile::Small => format!("tiles of {SMALL}: larger ones would leave multiprocessors idle"),
            Tile::Sliced => {
                format!(
                    "tiles of {SLICED}, whose depth a block's warps share: larger ones would leave multiprocessors idle"
                )
            }
            Tile::Split | Tile::SplitRegisters { .. } => format!(
                "Hopper's tensor cores, each operand in three parts of bf16{}, in tiles of {}x{}: f32 arithmetic should take \
                 longer, and is there for what has no parts",
                if self.takes_both() { "" } else { ", the right one's made in registers" },
                self.tile.rows(),
                self.tile.columns()
            ),
            tile => {
                let (rows, columns) = (tile.rows(), tile.columns());
                let cores = match tile {
                    Tile::Hopper { .. } => "Hopper's tensor cores",
                    Tile::Tf32 { .. } => "Hopper's tensor cores, as tf32,",
                    Tile::Ffma { .. } => "Hopper's copies and f32 arithmetic",
                    _ => "tensor cores",
                };
                format!("{cores} in tiles of {rows}x{columns}: of all cuts this should take the least time")
            }
        };
        let parts = match (self.splits, self.tile) {
            (_, Tile::Hopper { together: n @ 2.., .. } | Tile::Tf32 { together: n @ 2.., .. }) => {
                format!("the depth shared by {n} blocks of a cluster, {depth_per_split} each, so that more blocks run")
            }
            (1, Tile::Hopper { sharing: [down, across], .. }) if down * across > 1 => {
                format!("the depth in one part, what is copied shared by clusters of {down}x{across} tiles")
            }
            (_, Tile::Ffma { shared: n @ 1.., .. }) => format!("the slices of the last {n} shared out evenly"),
            (1, _) => "the depth in one part".to_owned(),
            (n, _) => format!("the depth in {n} parts of {depth_per_split}, so that more blocks run"),
        };
        format!("{rows}x{columns} sums over {depth} by {tile}; {parts}")
    }

    /// Whether the depth is in more than one part, of all tiles or of some.
    pub fn is_split(&self) -> bool {
        self.splits > 1 || self.pieces() > 0
    }

    /// Elements of all parts; none where the depth is not split.
    pub fn parts(&self) -> usize {
        if self.splits == 1 {
            return self.pieces();
        }
        self.splits as usize * self.shape.rows as usize * self.shape.columns as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rows: usize, columns: usize, depth: usize) -> (Tile, u32) {
        let plan = Plan::new(rows, columns, depth).unwrap();
        let covered = plan.splits as usize * plan.shape.depth_per_split as usize;
        assert!(covered >= depth && covered - depth < plan.shape.depth_per_split as usize || depth == 0);
        assert_eq!(plan.shape.depth_per_split % DEPTH, 0);
        (plan.tile, plan.splits)
    }

    #[test]
    fn fills_the_gpu() {
        assert_eq!(cut(4096, 4096, 4096), (Tile::Large, 1));
        // 64 large tiles for 264 places.
        assert_eq!(cut(1024, 1024, 1024), (Tile::Large, 4));
        assert_eq!(cut(128, 4096, 4096), (Tile::Large, 8));
        // 144 small tiles; 64, and twice as many sliced ones as multiprocessors.
        assert_eq!(cut(768, 768, 768), (Tile::Small, 4));
        assert_eq!(cut(512, 512, 512), (Tile::Sliced, 1));
        // Eight of them; the depth is worth as many splits.
        assert_eq!(cut(64, 128, 512), (Tile::Sliced, 8));
        // Many rows, few columns: most of each larger tile would be empty.
        assert_eq!(cut(1_000_000, 10, 784).0, Tile::Sliced);
    }

    #[test]
    fn small_and_empty_products_are_one_part() {
        assert_eq!(cut(1, 1, 1), (Tile::Small, 1));
        assert_eq!(cut(10, 20, 0), (Tile::Small, 1));
        assert_eq!(cut(10, 20, 127), (Tile::Sliced, 1));
        assert_eq!(cut(0, 20, 300), (Tile::Sliced, 1));
    }

    #[test]
    fn refuses_what_32_bits_do_not_count() {
        for sizes in [[1 << 31, 1, 1], [1, 1 << 31, 1], [1, 1, 1 << 31]] {
            assert!(Plan::new(sizes[0], sizes[1], sizes[2]).is_none());
        }
    }

    /// A grid has 2³¹ - 1 blocks along x and 65,535 along y and z.
    #[test]
    fn any_number_of_rows_or_columns_fits_into_a_grid() {
        let most = (1 << 31) - 1;
        for (rows, columns) in [(most, 1), (1, most), (100_000, 8_000_000), (8_000_000, 100_000), (129, 9_000_000)] {
            let plan = Plan::new(rows, columns, 64).unwrap();
            let LaunchDims { grid: [x, y, z], .. } = plan.dims();
            assert!(x < 1 << 31 && y <= MAX_GRID_Y && z <= MAX_GRID_Y, "{plan:?}: {x} {y} {z}");
        }
        assert_eq!(cut(200, 8_000_000, 64).0, Tile::Large);
    }
}
