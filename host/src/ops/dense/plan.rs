//! How a product is cut up for the GPU.

mod choice;
mod cores;
mod ffma;
mod hopper;
mod split;
mod tensor;
mod tf32;

use cuda_std::launch::LaunchDims;
use kernels::dense::{LARGE, SLICED, SMALL, Shape, block, columns_along_x, mma, wgmma};

pub(super) use self::choice::{Choice, Question};
pub use self::hopper::{Fit, Measured, Score};
pub(super) use self::tf32::{Way, tf32_sharing};
use crate::device::tiles;

/// Multiprocessors that a cut should keep busy: those of an H100 or H200. Any number is right; on a smaller GPU the
/// blocks come in more waves. Not asked of the GPU, so that results depend on its kernels alone.
const MULTIPROCESSORS: u32 = 132;

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
                    Tile::Large | Tile::Small => "f32 arithmetic",
                    Tile::Sliced => "f32 arithmetic, the depth shared by a block's warps,",
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
