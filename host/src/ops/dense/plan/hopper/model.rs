//! What a cut of a product of 16-bit floats should take on an H200: a model's nanoseconds.
//!
//! A wave of tiles takes its slices, or what memory takes for the bytes that the wave is the first to read, and what is between two
//! tiles. A slice takes the longest of these:
//!
//! - what the tensor cores and shared memory take;
//! - a multiprocessor's copies, row of 128 bytes by row: one that does not begin at a line of the L2 cache is two lines;
//! - the copies of two multiprocessors that share their way to the L2 cache, where each has a block. How long a row is
//!   on its way depends on how many blocks want it at the time;
//! - the L2 cache for the bytes of all blocks that run;
//! - rows of copies that lie outside of the matrix: they come as zeros, and more slowly than others.
//!
//! The numbers are fitted to measured times so that they rank well; none is the time of a part by itself.

use kernels::dense::wgmma::{self, DEPTH};

use super::super::{MULTIPROCESSORS, Plan};

/// A warpgroup's columns, how many warpgroups stand side by side in a tile, how many blocks share its depth, and the model's
/// times: of a slice, in picoseconds, where a multiprocessor's neighbour is idle, and what is added where it is not, in
/// thousandths; of what is between a tile's last product and the next one's first; and of what is before the first and after
/// the last, but for what any launch takes.
pub(super) struct Kind {
    pub columns: u32,
    pub across: u32,
    pub together: u32,
    slice: [u64; 2],
    between: u64,
    ends: u64,
}

const fn kind([columns, across, together]: [u32; 3], slice: [u64; 2], between: u64, ends: u64) -> Kind {
    Kind { columns, across, together, slice, between, ends }
}

pub(super) const KINDS: [Kind; 11] = [
    kind([256, 1, 1], [576_484, 9], 2364, 40),
    kind([192, 1, 1], [429_720, 75], 1677, 152),
    kind([128, 1, 1], [294_102, 164], 1211, 259),
    kind([128, 1, 2], [238_130, 420], 30, 2349),
    kind([128, 1, 4], [303_286, 218], 428, 2232),
    kind([64, 1, 1], [158_376, 416], 679, 246),
    kind([64, 1, 2], [148_311, 46], 157, 1374),
    kind([64, 1, 4], [140_674, 3], 777, 1138),
    kind([64, 2, 1], [169_242, 6], 768, 90),
    kind([64, 2, 2], [151_882, 5], 131, 1372),
    kind([64, 2, 4], [139_565, 642], 63, 1636),
];

/// Blocks that run while each has the way to the L2 cache for itself: of more, two share it.
const PAIRS: u64 = MULTIPROCESSORS as u64 / 2;
/// How many fewer they are where two and four blocks are a cluster, whose places are not free to choose: from there on, ever
/// more share.
const FEWER: [u64; 2] = [9, 15];
/// Blocks that run at once where four are a cluster: not all multiprocessors are in fours.
const IN_FOURS: u64 = 120;
/// Rows of tiles that blocks take which run at the same time, as the kernels' `order.rs` has it.
const BELOW: u64 = 16;
/// A copied row of 128 bytes, in picoseconds: on a multiprocessor's way, and on that of two.
const ROW: u64 = 728;
const ROW_OF_PAIR: u64 = 1466;
/// How much of that a row takes which 1, 2, 4 and so on of the blocks that run want, in thousandths: as fitted, and what 1 and
/// more than 16 have is less sure than the fall between.
const WANTED: [u64; 7] = [699, 1062, 890, 663, 606, 793, 846];
/// Bytes that the L2 cache gives to all multiprocessors in a nanosecond, and memory to the L2 cache.
const L2_BYTES: u64 = 14_981;
const MEMORY_BYTES: u64 = 4080;
/// What counts of the shorter of what slices and memory take, in thousandths: the longer does not hide all of it.
const NOT_HIDDEN: u64 = 157;
/// A row outside of the matrix, of any block, in picoseconds; and one of the rows' operand and of the columns', at the edge of a
/// single wave, where two multiprocessors share their way.
const OUTSIDE: u64 = 69;
const AT_EDGE: [u64; 2] = [315, 352];
/// What rows that do not begin at multiples of 128 bytes add, in thousandths: to each copied row, where the depth is not what
/// lies in a row of the matrix and where it is; to a slice of the tensor cores, of the rows' and the columns' operand; to the bytes.
const UNALIGNED_ROWS: [u64; 2] = [1428, 1052];
const UNALIGNED_SLICE: [u64; 2] = [80, 66];
const UNALIGNED_BYTES: u64 = 1042;
/// How much of that rows add whose length is an odd multiple of 64 bytes, and of 32, in thousandths.
const OF_32: u64 = 14;
const OF_16: u64 = 301;
/// Of what is between two tiles, in thousandths: what goes with the columns that there are in a tile; what is saved where one of
/// its warpgroups has nothing to store; what sums in f32 add, that are parts.
const BY_COLUMNS: u64 = 647;
const ONE_IDLE: u64 = 199;
const IN_PARTS: u64 = 19;
/// What the kernel takes that adds the parts: at all, for each part, and how many elements of parts it goes through in a
/// nanosecond.
const FINISH: [u64; 3] = [701, 207, 566];

/// An operand, as the copies of slices see it.
struct Operand {
    /// Rows of the product, or columns, and those of a tile.
    side: u64,
    tile: u64,
    /// Whether the depth lies in a row of its matrix, as its rows' length says: of a side as long as the depth that is a guess.
    /// Otherwise a copy brings 64 of `side` for each of the depth.
    depth_inner: bool,
    /// How much of what unaligned rows add is added, in thousandths.
    unaligned: u64,
}

impl Operand {
    /// Rows of copies for so many of `side`: in the matrix, and outside, where only whole copies count.
    fn inside(&self, count: u64) -> u64 {
        if self.depth_inner { count } else { count.next_multiple_of(64) }
    }

    fn outside(&self, count: u64) -> u64 {
        if self.depth_inner { count } else { count / 64 * 64 }
    }

    /// Thousandths of a slice's rows of a tile's copies, those counted more that are unaligned.
    fn rows(&self, sharing: u64) -> u64 {
        let more = UNALIGNED_ROWS[usize::from(self.depth_inner)] * self.unaligned / 1000;
        self.inside(self.side.min(self.tile)) / sharing * (1000 + more)
    }

    /// Thousandths of a slice's bytes, in all of the matrix.
    fn bytes(&self) -> u64 {
        self.side * u64::from(2 * DEPTH) * (1000 + UNALIGNED_BYTES * self.unaligned / 1000)
    }

    /// Rows outside of the matrix of the last tile's copies.
    fn at_edge(&self) -> u64 {
        self.outside(self.side.next_multiple_of(self.tile) - self.side)
    }
}

/// What the model says that it takes, but for what any launch does. Rows of the operands have these lengths.
pub(super) fn time(plan: &Plan, kind: &Kind, lengths: [usize; 2]) -> u64 {
    let Plan { splits, shape, .. } = *plan;
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(u64::from);
    let slices = u64::from(shape.depth_per_split.min(shape.depth).div_ceil(DEPTH));
    let blocks = plan.hopper_blocks();
    let at_once = if kind.together == 4 { IN_FOURS } else { MULTIPROCESSORS.into() };
    let sharing = u64::from(wgmma::sharing(kind.columns, kind.across, kind.together));
    let tile = wgmma::tile(kind.columns, kind.across).map(u64::from);
    let operands = [0, 1].map(|i| Operand {
        side: [rows, columns][i],
        tile: tile[i],
        depth_inner: lengths[i] as u64 == depth,
        unaligned: unaligned(lengths[i]),
    });
    let [left, right] = &operands;
    // Of clusters' tiles that share the columns' slices.
    let (down, across) = (rows.div_ceil(tile[0] * sharing), columns.div_ceil(tile[1]));
    let copied = [left.rows(1), right.rows(sharing)];
    let added: u64 = [0, 1].map(|i| UNALIGNED_SLICE[i] * operands[i].unaligned / 1000).iter().sum();
    let bytes = left.bytes() / (down * sharing) + right.bytes() / (across * sharing);
    let outside =
        left.outside(down * sharing * tile[0] - rows) * across + right.outside(across * tile[1] - columns) * down;
    // Of 2 bytes each.
    let first_read = (rows + columns) * depth / blocks * 2;
    let (full, rest) = (blocks / at_once, blocks % at_once);
    let single = blocks <= at_once;

    let of_columns = BY_COLUMNS * columns.min(kind.columns.into()) / u64::from(kind.columns);
    let mut between = kind.between * (1000 - BY_COLUMNS + of_columns) / 1000;
    let one_idle = if kind.across == 1 { rows <= 64 } else { columns <= kind.columns.into() };
    if one_idle {
        between = between * (1000 - ONE_IDLE) / 1000;
    }
    if splits > 1 {
        between = between * (1000 + IN_PARTS) / 1000;
    }

    let wave = |running: u64| {
        let alone = match kind.together {
            1 => PAIRS,
            together => PAIRS - FEWER[(together / 4) as usize],
        };
        // How many of the pairs are busy, in thousandths.
        let paired = (running.saturating_sub(alone) * 1000 / (PAIRS + 1 - alone)).min(1000);
        let [multiply, more] = kind.slice;
        let multiply = multiply * (1000 + added) / 1000;
        let multiply = multiply + multiply * more / 1000 * paired / 1000;
        let below = down.min(BELOW / sharing);
        let want = [(running / below / sharing).clamp(1, across), below.min((running / sharing).max(1))];
        let of_pair = (copied[0] * wanted(want[0]) + copied[1] * wanted(want[1])) / 1000;
        let slice = multiply
            .max((copied[0] + copied[1]) * ROW / 1000)
            .max(of_pair * ROW_OF_PAIR / 1000 * paired / 1000)
            .max(running * bytes / L2_BYTES)
            .max(running * outside * OUTSIDE / (across * down * sharing));
        let edge = if single { left.at_edge() * AT_EDGE[0] + right.at_edge() * AT_EDGE[1] } else { 0 };
        let slices = slices * (slice + edge * paired / 1000) / 1000;
        let memory = first_read * running / MEMORY_BYTES;
        slices.max(memory) + slices.min(memory) * NOT_HIDDEN / 1000 + between
    };
    let waves = |count: u64, running: u64| if count == 0 { 0 } else { count * wave(running) };
    let [finish, part, elements] = FINISH;
    let parts = match u64::from(splits) {
        1 => 0,
        n => finish + n * part + n * rows * columns / elements,
    };
    waves(full, at_once) + waves(rest.min(1), rest) + kind.ends + parts
}

/// [`WANTED`], between powers of two in proportion.
fn wanted(blocks: u64) -> u64 {
    let power = (blocks.ilog2() as usize).min(WANTED.len() - 2);
    let (from, to) = (1 << power, 2 << power);
    let blocks = blocks.min(to);
    (WANTED[power] * (to - blocks) + WANTED[power + 1] * (blocks - from)) / from
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
