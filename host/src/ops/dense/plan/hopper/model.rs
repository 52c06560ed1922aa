//! What a cut of a product of 16-bit floats should take on an H200: a model's nanoseconds.
//!
//! A wave of tiles takes its slices, or what memory takes for the bytes that the wave is the first to read, and what is between two
//! tiles. A slice takes the longest of these, and more where others are nearly as long (the fourth root of the sum of their fourth powers):
//!
//! - what the tensor cores and shared memory take;
//! - a multiprocessor's copies, row of 128 bytes by row: one that does not begin at a line of the L2 cache is two lines;
//! - the copies of two multiprocessors that share their way to the L2 cache, where each has a block. How long a row is
//!   on its way depends on how many blocks want it at the time;
//! - the L2 cache for the bytes of all blocks that run.
//!
//! The numbers ([`Constants`]) are fitted to measured times so that they rank well ([`fit`](super::fit)); none is the time of a part by itself.

mod constants;

use kernels::dense::wgmma::{self, DEPTH};

pub(super) use self::constants::{Constants, FITTED, FORMS, Form, Kind, Sharing};
use super::super::{MULTIPROCESSORS, Plan};
use crate::ops::dense::gpu::Product;

/// Blocks that run while each has the way to the L2 cache for itself: of more, two share it.
const PAIRS: u64 = MULTIPROCESSORS as u64 / 2;
/// How many fewer they are where two and four blocks are a cluster, whose places are not free to choose: from there on, ever
/// more share.
const FEWER: [u64; 2] = [3, 14];
/// Blocks that run at once where four are a cluster: not all multiprocessors are in fours.
const IN_FOURS: u64 = 120;
/// Rows of tiles that blocks take which run at the same time, as the kernels' `order.rs` has it.
const BELOW: u64 = 16;

/// How the operands lie in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    /// Of their matrices' rows.
    lengths: [usize; 2],
    /// Whether the depth lies in these. Otherwise a copy brings 64 of the product's rows, or columns, for each of the depth.
    depth_inner: [bool; 2],
}

impl Operands {
    pub fn of(product: Product, lengths: [usize; 2]) -> Self {
        let depth_inner = match product {
            Product::Forward => [true, true],
            Product::Dx => [true, false],
            Product::Dw => [false, false],
        };
        Self { lengths, depth_inner }
    }

    /// How many have the depth innermost.
    fn inner(&self) -> usize {
        self.depth_inner.into_iter().filter(|inner| *inner).count()
    }
}

/// An operand, as the copies of slices see it.
struct Operand {
    /// Rows of the product, or columns, and those of a tile.
    side: u64,
    tile: u64,
    /// As [`Operands`] has it.
    depth_inner: bool,
    /// How much of what unaligned rows add is added, in thousandths.
    unaligned: u64,
}

impl Operand {
    /// Thousandths of a slice's rows of a tile's copies, which reach as far as the matrix does, those counted more that are unaligned.
    fn rows(&self, constants: &Constants, sharing: u64) -> u64 {
        let more = constants.unaligned_rows[usize::from(self.depth_inner)] * self.unaligned / 1000;
        let rows = self.side.min(self.tile).next_multiple_of(if self.depth_inner { 8 } else { 64 });
        rows * (1000 + more) / sharing
    }

    /// Thousandths of a slice's bytes, in all of the matrix.
    fn bytes(&self, constants: &Constants) -> u64 {
        self.side * u64::from(2 * DEPTH) * (1000 + constants.unaligned_bytes * self.unaligned / 1000)
    }
}

/// What the model says that it takes, but for what any launch does. The operands are in these matrices.
pub(super) fn time(constants: &Constants, plan: &Plan, form: &Form, sharing: &Sharing, matrices: Operands) -> u64 {
    let [share, more] = if form.of_dx { constants.doubt } else { [0; 2] };
    time_of_kind(constants, plan, &constants.kind(form), sharing, matrices) * (1000 + share) / 1000 + more
}

/// [`time`], without doubts.
fn time_of_kind(constants: &Constants, plan: &Plan, kind: &Kind, sharing: &Sharing, matrices: Operands) -> u64 {
    let Plan { splits, shape, .. } = *plan;
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(u64::from);
    let slices = u64::from(shape.depth_per_split.min(shape.depth).div_ceil(DEPTH));
    let blocks = plan.hopper_blocks();
    let shared = sharing.blocks.map(u64::from);
    let cluster = u64::from(kind.together) * shared[0] * shared[1];
    let at_once = if cluster == 4 { IN_FOURS } else { MULTIPROCESSORS.into() };
    let tile = wgmma::tile(kind.columns, kind.height).map(u64::from);
    let operands = [0, 1].map(|i| Operand {
        side: [rows, columns][i],
        tile: tile[i],
        depth_inner: matrices.depth_inner[i],
        // Where the depth is not innermost, a tile's columns begin where they begin, too.
        unaligned: unaligned(constants, matrices.lengths[i]).max(if matrices.depth_inner[i] {
            0
        } else {
            unaligned(constants, tile[i] as usize)
        }),
    });
    let [left, right] = &operands;
    // Of clusters' tiles that share the columns' slices.
    let (down, across) = (rows.div_ceil(tile[0] * shared[0]), columns.div_ceil(tile[1] * shared[1]));
    let copied = [left.rows(constants, shared[1]), right.rows(constants, shared[0])];
    let added: u64 = [0, 1].map(|i| constants.unaligned_slice[i] * operands[i].unaligned / 1000).iter().sum();
    let bytes = left.bytes(constants) / (down * shared[0] * shared[1])
        + right.bytes(constants) / (across * shared[0] * shared[1]);
    // Of 2 bytes each.
    let first_read = (rows + columns) * depth / blocks * 2;
    let (full, rest) = (blocks / at_once, blocks % at_once);

    let by_columns = constants.by_columns.min(1000);
    let of_columns = by_columns * columns.min(kind.columns.into()) / u64::from(kind.columns);
    let mut between = kind.between * (1000 - by_columns + of_columns) / 1000 * sharing.between / 1000;
    let one_idle = if kind.height == 1 { columns <= kind.columns.into() } else { rows <= tile[0] - 64 };
    if one_idle {
        between = between * 1000u64.saturating_sub(constants.one_idle) / 1000;
    }
    if splits > 1 {
        between = between * (1000 + constants.in_parts) / 1000;
    }

    let ([row, row_of_pair], [l2_bytes, memory_bytes]) = (constants.row, constants.bytes);
    let wave = |running: u64| {
        let alone = match cluster {
            1 => PAIRS,
            cluster => PAIRS - FEWER[(cluster / 4) as usize],
        };
        // How many of the pairs are busy, in thousandths.
        let paired = (running.saturating_sub(alone) * 1000 / (PAIRS + 1 - alone)).min(1000);
        let multiply = kind.slice[matrices.inner()] * (1000 + added) / 1000 * sharing.slice / 1000;
        let multiply = if one_idle { multiply * constants.one_for_nothing / 1000 } else { multiply };
        let below = down.min(BELOW / shared[0]);
        let clusters = (running / shared[0] / shared[1]).max(1);
        let want = [(clusters / below).clamp(1, across), below.min(clusters)];
        let of_pair = (copied[0] * wanted(constants, want[0]) + copied[1] * wanted(constants, want[1])) / 1000;
        let bounds = [
            multiply,
            (copied[0] + copied[1]) * row / 1000,
            of_pair * row_of_pair / 1000 * paired / 1000,
            running * bytes / l2_bytes * sharing.byte / 1000,
        ];
        // Multiplied, added and rooted as IEEE has it, and so everywhere alike; in whole numbers it takes ten times as long.
        let fourth = |bound: u64| (bound as f64 * bound as f64) * (bound as f64 * bound as f64);
        let slice = bounds.into_iter().map(fourth).sum::<f64>().sqrt().sqrt() as u64;
        let slices = slices * slice / 1000;
        let memory = first_read * running / memory_bytes;
        slices.max(memory) + between
    };
    let waves = |count: u64, running: u64| if count == 0 { 0 } else { count * wave(running) };
    let [finish, part, elements] = constants.finish;
    let parts = match u64::from(splits) {
        1 => 0,
        n => finish + n * part + n * rows * columns / elements,
    };
    waves(full, at_once) + waves(rest.min(1), rest) + kind.ends + sharing.ends + parts
}

/// [`Constants::wanted`], between powers of two in proportion.
fn wanted(&Constants { wanted, .. }: &Constants, blocks: u64) -> u64 {
    let power = (blocks.ilog2() as usize).min(wanted.len() - 2);
    let (from, to) = (1 << power, 2 << power);
    let blocks = blocks.min(to);
    (wanted[power] * (to - blocks) + wanted[power + 1] * (blocks - from)) / from
}

/// How much of what rows that do not begin at multiples of 128 bytes add is added for rows of such a length, in thousandths.
fn unaligned(constants: &Constants, length: usize) -> u64 {
    let [of_32, of_16] = constants.partly_aligned;
    match length % 64 {
        0 => 0,
        32 => of_32,
        16 | 48 => of_16,
        _ => 1000,
    }
}
