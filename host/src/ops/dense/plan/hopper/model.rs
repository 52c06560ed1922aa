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
//! The numbers are fitted to measured times so that they rank well; none is the time of a part by itself.

use kernels::dense::wgmma::{self, DEPTH};

use super::super::{MULTIPROCESSORS, Plan};

/// A warpgroup's columns, how many warpgroups stand side by side in a tile, how many blocks share its depth, and the model's
/// times: of a slice of the tensor cores, in picoseconds, where no operand has its depth innermost, one, and both; of what is between a
/// tile's last product and the next one's first; and of what is before the first and after the last, but for what any launch takes.
pub(super) struct Kind {
    pub columns: u32,
    pub across: u32,
    pub together: u32,
    slice: [u64; 3],
    between: u64,
    ends: u64,
}

const fn kind([columns, across, together]: [u32; 3], slice: [u64; 3], between: u64, ends: u64) -> Kind {
    Kind { columns, across, together, slice, between, ends }
}

pub(super) const KINDS: [Kind; 15] = [
    kind([256, 1, 1], [475_141, 494_380, 557_335], 2147, 30),
    kind([224, 1, 1], [414_522, 437_070, 532_277], 1812, 30),
    kind([192, 1, 1], [362_487, 384_600, 430_867], 1343, 32),
    kind([168, 1, 1], [351_638, 349_255, 346_030], 1434, 30),
    kind([144, 1, 1], [327_652, 305_608, 325_882], 1235, 30),
    kind([128, 1, 1], [276_636, 250_446, 280_949], 979, 30),
    kind([128, 1, 2], [208_016, 208_492, 208_414], 17, 3468),
    kind([128, 1, 4], [377_634, 347_527, 388_764], 892, 2246),
    kind([96, 1, 1], [254_129, 220_278, 243_949], 889, 30),
    kind([64, 1, 1], [261_748, 184_200, 213_726], 625, 89),
    kind([64, 1, 2], [180_087, 168_175, 154_078], 338, 1064),
    kind([64, 1, 4], [144_638, 151_240, 150_296], 558, 1184),
    kind([64, 2, 1], [238_618, 221_728, 229_860], 477, 146),
    kind([64, 2, 2], [173_922, 207_790, 195_200], 24, 1226),
    kind([64, 2, 4], [142_766, 141_846, 134_895], 245, 1371),
];

/// Blocks that share what they copy, one below the other and side by side, and what they take, in thousandths of what one by itself does: a slice
/// of the tensor cores, what is between tiles, the L2 cache for a byte; and what is before the first and after the last besides.
pub(super) struct Sharing {
    pub blocks: [u32; 2],
    slice: u64,
    between: u64,
    byte: u64,
    ends: u64,
}

const fn sharing(blocks: [u32; 2], [slice, between, byte]: [u64; 3], ends: u64) -> Sharing {
    Sharing { blocks, slice, between, byte, ends }
}

pub(super) const SHARINGS: [Sharing; 5] = [
    sharing([1, 1], [895, 1197, 1022], 0),
    sharing([2, 1], [1153, 1186, 717], 101),
    sharing([1, 2], [1266, 1161, 803], 101),
    sharing([2, 2], [1140, 1408, 824], 99),
    sharing([4, 1], [1174, 1120, 823], 97),
];

/// Blocks that run while each has the way to the L2 cache for itself: of more, two share it.
const PAIRS: u64 = MULTIPROCESSORS as u64 / 2;
/// How many fewer they are where two and four blocks are a cluster, whose places are not free to choose: from there on, ever
/// more share.
const FEWER: [u64; 2] = [3, 14];
/// Blocks that run at once where four are a cluster: not all multiprocessors are in fours.
const IN_FOURS: u64 = 120;
/// Rows of tiles that blocks take which run at the same time, as the kernels' `order.rs` has it.
const BELOW: u64 = 16;
/// A copied row of 128 bytes, in picoseconds: on a multiprocessor's way, and on that of two.
const ROW: u64 = 1000;
const ROW_OF_PAIR: u64 = 1530;
/// How much of that a row takes which 1, 2, 4 and so on of the blocks that run want, in thousandths: as fitted, and what 1 and
/// more than 16 have is less sure than the fall between.
const WANTED: [u64; 7] = [905, 982, 998, 792, 654, 628, 579];
/// Bytes that the L2 cache gives to all multiprocessors in a nanosecond, and memory to the L2 cache.
const L2_BYTES: u64 = 19_237;
const MEMORY_BYTES: u64 = 5441;
/// What rows that do not begin at multiples of 128 bytes add, in thousandths: to each copied row, where the depth is not what
/// lies in a row of the matrix and where it is; to a slice of the tensor cores, of the rows' and the columns' operand; to the bytes.
const UNALIGNED_ROWS: [u64; 2] = [1101, 1090];
const UNALIGNED_SLICE: [u64; 2] = [192, 76];
const UNALIGNED_BYTES: u64 = 2652;
/// How much of that rows add whose length is an odd multiple of 64 bytes, and of 32, in thousandths.
const OF_32: u64 = 216;
const OF_16: u64 = 280;
/// Of what is between two tiles, in thousandths: what goes with the columns that there are in a tile; what is saved where one of
/// its warpgroups has nothing to store; what sums in f32 add, that are parts.
const BY_COLUMNS: u64 = 763;
const ONE_IDLE: u64 = 482;
/// What a slice takes where one of a tile's warpgroups multiplies nothing that is stored, in thousandths.
const ONE_FOR_NOTHING: u64 = 934;
const IN_PARTS: u64 = 76;
/// What the kernel takes that adds the parts: at all, for each part, and how many elements of parts it goes through in a
/// nanosecond.
const FINISH: [u64; 3] = [1404, 161, 370];

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
    /// Thousandths of a slice's rows of a tile's copies, which reach as far as the matrix does, those counted more that are unaligned.
    fn rows(&self, sharing: u64) -> u64 {
        let more = UNALIGNED_ROWS[usize::from(self.depth_inner)] * self.unaligned / 1000;
        let rows = self.side.min(self.tile).next_multiple_of(if self.depth_inner { 8 } else { 64 });
        rows * (1000 + more) / sharing
    }

    /// Thousandths of a slice's bytes, in all of the matrix.
    fn bytes(&self) -> u64 {
        self.side * u64::from(2 * DEPTH) * (1000 + UNALIGNED_BYTES * self.unaligned / 1000)
    }
}

/// Clusters of so many blocks that run at once.
pub(super) fn at_once(blocks: u32) -> u32 {
    if blocks == 4 { IN_FOURS as u32 / 4 } else { MULTIPROCESSORS / blocks }
}

/// What the model says that it takes, but for what any launch does. Rows of the operands have these lengths.
pub(super) fn time(plan: &Plan, kind: &Kind, sharing: &Sharing, lengths: [usize; 2]) -> u64 {
    let Plan { splits, shape, .. } = *plan;
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(u64::from);
    let slices = u64::from(shape.depth_per_split.min(shape.depth).div_ceil(DEPTH));
    let blocks = plan.hopper_blocks();
    let shared = sharing.blocks.map(u64::from);
    let cluster = u64::from(kind.together) * shared[0] * shared[1];
    let at_once = if cluster == 4 { IN_FOURS } else { MULTIPROCESSORS.into() };
    let tile = wgmma::tile(kind.columns, kind.across).map(u64::from);
    let operands = [0, 1].map(|i| Operand {
        side: [rows, columns][i],
        tile: tile[i],
        depth_inner: lengths[i] as u64 == depth,
        // Where the depth is not innermost, a tile's columns begin where they begin, too.
        unaligned: unaligned(lengths[i]).max(if lengths[i] as u64 == depth { 0 } else { unaligned(tile[i] as usize) }),
    });
    let [left, right] = &operands;
    // Of clusters' tiles that share the columns' slices.
    let (down, across) = (rows.div_ceil(tile[0] * shared[0]), columns.div_ceil(tile[1] * shared[1]));
    let copied = [left.rows(shared[1]), right.rows(shared[0])];
    let added: u64 = [0, 1].map(|i| UNALIGNED_SLICE[i] * operands[i].unaligned / 1000).iter().sum();
    let bytes = left.bytes() / (down * shared[0] * shared[1]) + right.bytes() / (across * shared[0] * shared[1]);
    // Of 2 bytes each.
    let first_read = (rows + columns) * depth / blocks * 2;
    let (full, rest) = (blocks / at_once, blocks % at_once);

    let of_columns = BY_COLUMNS * columns.min(kind.columns.into()) / u64::from(kind.columns);
    let mut between = kind.between * (1000 - BY_COLUMNS + of_columns) / 1000 * sharing.between / 1000;
    let one_idle = if kind.across == 1 { rows <= 64 } else { columns <= kind.columns.into() };
    if one_idle {
        between = between * (1000 - ONE_IDLE) / 1000;
    }
    if splits > 1 {
        between = between * (1000 + IN_PARTS) / 1000;
    }

    let wave = |running: u64| {
        let alone = match cluster {
            1 => PAIRS,
            cluster => PAIRS - FEWER[(cluster / 4) as usize],
        };
        // How many of the pairs are busy, in thousandths.
        let paired = (running.saturating_sub(alone) * 1000 / (PAIRS + 1 - alone)).min(1000);
        let inner = operands.iter().filter(|operand| operand.depth_inner).count();
        let multiply = kind.slice[inner] * (1000 + added) / 1000 * sharing.slice / 1000;
        let multiply = if one_idle { multiply * ONE_FOR_NOTHING / 1000 } else { multiply };
        let below = down.min(BELOW / shared[0]);
        let clusters = (running / shared[0] / shared[1]).max(1);
        let want = [(clusters / below).clamp(1, across), below.min(clusters)];
        let of_pair = (copied[0] * wanted(want[0]) + copied[1] * wanted(want[1])) / 1000;
        let bounds = [
            multiply,
            (copied[0] + copied[1]) * ROW / 1000,
            of_pair * ROW_OF_PAIR / 1000 * paired / 1000,
            running * bytes / L2_BYTES * sharing.byte / 1000,
        ];
        let slice = bounds.into_iter().map(|bound| u128::from(bound).pow(4)).sum::<u128>().isqrt().isqrt() as u64;
        let slices = slices * slice / 1000;
        let memory = first_read * running / MEMORY_BYTES;
        slices.max(memory) + between
    };
    let waves = |count: u64, running: u64| if count == 0 { 0 } else { count * wave(running) };
    let [finish, part, elements] = FINISH;
    let parts = match u64::from(splits) {
        1 => 0,
        n => finish + n * part + n * rows * columns / elements,
    };
    waves(full, at_once) + waves(rest.min(1), rest) + kind.ends + sharing.ends + parts
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
