//! How an f32 product is cut up for Hopper's kernel by FFMA: whether it is, which tiles blocks take whole, and which they share.
//!
//! The time is a model's, in nanoseconds on an H200 (`docs/perf/dense.md` has what it was made from). Any choice is right, and
//! the same sizes get the same one on every GPU that has this kernel.

use cuda_std::launch::LaunchDims;
use kernels::dense::Shape;
use kernels::dense::ffma::{self, COLUMNS, DEPTH, PIECE, ROWS, SUMS, Work};

use super::{MULTIPROCESSORS, Plan, Tile};
use crate::ops::dense::gpu::Product;

/// A slice of a tile, and what a tile takes besides.
const SLICE: u64 = 5210;
const TILE: u64 = 2300;
/// What a product takes besides.
const START: u64 = 4800;
/// What the kernel takes that adds pieces, and how many bytes of pieces it goes through in a nanosecond: what is not hidden behind the products,
/// as fitted.
const FINISH: u64 = 8150;
const PIECE_BYTES: u64 = 92_600;
/// What turning an operand takes: at all, and how many elements it goes through in a nanosecond.
const TURN: [u64; 2] = [1870, 454];
/// Elements of an operand: of larger ones no turned one is made, for the workspace's sake.
const MOST_ELEMENTS: u64 = 1 << 30;

impl Plan {
    /// For a product of `rows × columns` sums over `depth`; `None` where rows in memory are not whole pieces, where there is nothing to
    /// sum or to be made, where that is more than a launch can name, or where smaller tiles should take less time.
    pub fn ffma(product: Product, sizes: [usize; 3]) -> Option<Self> {
        let plan = Self::all_of_ffma(product, sizes).into_iter().min_by_key(Self::ffma_time)?;
        let turned = turned(product, super::small_enough(sizes)?);
        let turning: u64 = turned.map(|elements| TURN[0] + elements / TURN[1]).sum();
        let otherwise = Self::new(product, sizes)?;
        (turning + plan.ffma_time() < otherwise.cores_time(product)).then_some(plan)
    }

    /// All that are legal and tried, in no order.
    pub(super) fn all_of_ffma(product: Product, sizes: [usize; 3]) -> Vec<Self> {
        let Some(sizes @ [rows, columns, depth]) = super::small_enough(sizes) else { return Vec::new() };
        let whole = |length: u32| length.is_multiple_of(PIECE);
        // Turned operands have whole pieces as rows.
        let is_whole = match product {
            Product::Forward => true,
            Product::Dx => whole(columns),
            Product::Dw => whole(rows) && whole(columns),
        };
        let tiles = u64::from(rows.div_ceil(ROWS)) * u64::from(columns.div_ceil(COLUMNS));
        let slices = tiles * u64::from(depth.div_ceil(DEPTH));
        let too_large = turned(product, sizes).any(|elements| elements > MOST_ELEMENTS);
        if sizes.contains(&0) || !is_whole || slices >= 1 << 31 || too_large {
            return Vec::new();
        }
        let tiles = tiles as u32;
        let shape = Shape { rows, columns, depth, depth_per_split: depth };
        let cut = |alone: u32, blocks: u32| Self {
            tile: Tile::Ffma { alone, shared: tiles - alone, blocks },
            splits: 1,
            shape,
        };
        let most = MULTIPROCESSORS;
        // All tiles whole; those shared that do not fill all blocks evenly, with as many more as there are blocks; or, of few tiles, each by
        // as many blocks as the others.
        let mut cuts = vec![cut(tiles, tiles.min(most))];
        cuts.push(cut((tiles / most).saturating_sub(1) * most, most.min(slices as u32)));
        if tiles < most {
            cuts.push(cut(0, (most / tiles).min(depth.div_ceil(DEPTH)) * tiles));
        }
        cuts
    }

    /// What the model says that the product takes.
    fn ffma_time(&self) -> u64 {
        let (alone, shared, blocks) = self.ffma_cut();
        let slices = u64::from(self.shape.depth.div_ceil(DEPTH));
        let whole = START + u64::from(alone.div_ceil(blocks)) * (slices * SLICE + TILE);
        let Work { share, more, .. } = self.ffma_work();
        let share = u64::from(share + u32::from(more > 0));
        if shared == 0 {
            return whole;
        }
        let pieces = u64::from(blocks + shared.min(blocks));
        // Each is written and read.
        whole + share * SLICE + TILE + FINISH + 2 * 4 * pieces * u64::from(SUMS) / PIECE_BYTES
    }

    /// Tiles that blocks take whole, those that they share, and how many blocks.
    fn ffma_cut(&self) -> (u32, u32, u32) {
        match self.tile {
            Tile::Ffma { alone, shared, blocks } => (alone, shared, blocks),
            tile => unreachable!("{tile:?} is not by FFMA"),
        }
    }

    /// Whether it is made by this kernel.
    pub fn is_ffma(&self) -> bool {
        matches!(self.tile, Tile::Ffma { .. })
    }

    /// Blocks of the launch.
    pub fn ffma_blocks(&self) -> u32 {
        self.ffma_cut().2
    }

    /// Which block does what.
    pub fn ffma_work(&self) -> Work {
        let (alone, shared, blocks) = self.ffma_cut();
        let Shape { rows, columns, depth, .. } = self.shape;
        let slices = shared * depth.div_ceil(DEPTH);
        Work { rows, columns, depth, alone, share: slices / blocks, more: slices % blocks }
    }

    /// The grid and the block.
    pub fn ffma_dims(&self) -> LaunchDims {
        LaunchDims::new(self.ffma_blocks(), ffma::BLOCK).with_shared(ffma::shared_bytes())
    }

    /// Elements of the pieces of shared tiles.
    pub(super) fn pieces(&self) -> usize {
        match self.tile {
            Tile::Ffma { shared: 1.., blocks, .. } => 2 * blocks as usize * SUMS as usize,
            _ => 0,
        }
    }
}

/// Elements of each operand that is turned.
fn turned(product: Product, [rows, columns, depth]: [u32; 3]) -> impl Iterator<Item = u64> {
    let operands = match product {
        Product::Forward => 2,
        Product::Dx => 1,
        Product::Dw => 0,
    };
    [rows, columns].into_iter().take(operands).map(move |across| u64::from(across) * u64::from(depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles that are taken whole and that are shared, and blocks.
    fn cut(product: Product, sizes: [usize; 3]) -> Option<(u32, u32, u32)> {
        let plan = Plan::ffma(product, sizes)?;
        let cut @ (alone, shared, blocks) = plan.ffma_cut();
        let Work { share, more, .. } = plan.ffma_work();
        let [rows, columns, depth] = sizes.map(|n| n as u32);
        assert_eq!(alone + shared, rows.div_ceil(ROWS) * columns.div_ceil(COLUMNS), "{plan:?}");
        assert_eq!(blocks * share + more, shared * depth.div_ceil(DEPTH), "{plan:?}");
        assert!(alone % blocks == 0 || shared == 0, "{plan:?}");
        assert!((1..=MULTIPROCESSORS).contains(&blocks), "{plan:?}");
        Some(cut)
    }

    #[test]
    fn tiles_that_do_not_fill_all_blocks_are_shared() {
        for product in [Product::Forward, Product::Dx, Product::Dw] {
            assert_eq!(cut(product, [4096, 4096, 4096]), Some((264, 248, 132)));
        }
        assert_eq!(cut(Product::Dw, [2048, 2048, 2048]), Some((128, 0, 128)));
        assert_eq!(cut(Product::Dw, [128 * 132, 256, 4096]), Some((132, 0, 132)));
    }

    #[test]
    fn leaves_small_ones_and_rows_that_are_no_whole_pieces_to_others() {
        assert_eq!(cut(Product::Forward, [64, 64, 64]), None);
        assert_eq!(cut(Product::Dx, [4096, 4095, 4096]), None);
        assert_eq!(cut(Product::Dw, [4095, 4096, 4096]), None);
        assert!(cut(Product::Dw, [4096, 4096, 4095]).is_some());
        assert!(cut(Product::Forward, [4095, 4093, 4095]).is_some());
        for sizes in [[0, 8, 8], [8, 0, 8], [8, 8, 0], [1 << 31, 8, 8]] {
            assert_eq!(cut(Product::Forward, sizes), None);
        }
    }
}
