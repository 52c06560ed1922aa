//! What a cut of a product of 16-bit floats should take on an H200: a model's nanoseconds.
//!
//! A wave of tiles takes its slices, or what memory takes for the bytes that the wave is the first to read, and what is between two
//! tiles. A slice takes the longest of these:
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
/// times: of a slice, in picoseconds, where a multiprocessor's neighbour is idle, and what is added where it is not, in
/// thousandths; of what is between a tile's last product and the next one's first; and of what is before the first and after
/// the last, but for what any launch takes. `doubt` is what is added to all of it, in thousandths, where the times are not fitted but
/// lie between those of others, so that such a kind is chosen where much is promised: where the depth is not what lies in a row of the
/// columns' matrix, and where it is.
pub(super) struct Kind {
    pub columns: u32,
    pub across: u32,
    pub together: u32,
    slice: [u64; 2],
    between: u64,
    ends: u64,
    doubt: [u64; 2],
}

const fn kind([columns, across, together]: [u32; 3], slice: [u64; 2], between: u64, ends: u64) -> Kind {
    Kind { columns, across, together, slice, between, ends, doubt: [0, 0] }
}

/// Of tiles between the narrower and the wider ones: one block for a tile, times in proportion.
const fn between([narrower, wider]: [&Kind; 2], columns: u32) -> Kind {
    let part = 1000 * (columns - narrower.columns) as u64 / (wider.columns - narrower.columns) as u64;
    macro_rules! of {
        ($($field:tt)+) => { (narrower.$($field)+ * (1000 - part) + wider.$($field)+ * part) / 1000 };
    }
    let slice = [of!(slice[0]), of!(slice[1])];
    Kind { columns, across: 1, together: 1, slice, between: of!(between), ends: 0, doubt: DOUBT }
}

/// Of 300 random layers, where the model promised so much forward was 5 to 16 % faster, and `dx` and `dw`, whose columns are copied 64 at a
/// time, 1 to 38 %; where it promised less, these were 2 to 6 % slower.
const DOUBT: [u64; 2] = [160, 80];

const OF_256: Kind = kind([256, 1, 1], [599_290, 0], 2130, 0);
const OF_192: Kind = kind([192, 1, 1], [441_449, 66], 1602, 2);
const OF_128: Kind = kind([128, 1, 1], [299_597, 84], 1207, 0);
const OF_64: Kind = kind([64, 1, 1], [169_214, 0], 662, 59);

pub(super) const KINDS: [Kind; 15] = [
    OF_256,
    between([&OF_192, &OF_256], 224),
    OF_192,
    between([&OF_128, &OF_192], 168),
    between([&OF_128, &OF_192], 144),
    OF_128,
    kind([128, 1, 2], [229_776, 517], 0, 3588),
    kind([128, 1, 4], [343_142, 148], 991, 2086),
    between([&OF_64, &OF_128], 96),
    OF_64,
    kind([64, 1, 2], [201_753, 0], 366, 1024),
    kind([64, 1, 4], [161_164, 361], 612, 1158),
    kind([64, 2, 1], [172_463, 313], 614, 127),
    kind([64, 2, 2], [185_443, 6], 8, 1399),
    kind([64, 2, 4], [153_861, 601], 265, 1413),
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
const ROW: u64 = 829;
const ROW_OF_PAIR: u64 = 1568;
/// How much of that a row takes which 1, 2, 4 and so on of the blocks that run want, in thousandths: as fitted, and what 1 and
/// more than 16 have is less sure than the fall between.
const WANTED: [u64; 7] = [862, 939, 880, 796, 693, 667, 636];
/// Bytes that the L2 cache gives to all multiprocessors in a nanosecond, and memory to the L2 cache.
const L2_BYTES: u64 = 17_860;
const MEMORY_BYTES: u64 = 5077;
/// What rows that do not begin at multiples of 128 bytes add, in thousandths: to each copied row, where the depth is not what
/// lies in a row of the matrix and where it is; to a slice of the tensor cores, of the rows' and the columns' operand; to the bytes.
const UNALIGNED_ROWS: [u64; 2] = [994, 995];
const UNALIGNED_SLICE: [u64; 2] = [230, 77];
const UNALIGNED_BYTES: u64 = 2318;
/// How much of that rows add whose length is an odd multiple of 64 bytes, and of 32, in thousandths.
const OF_32: u64 = 226;
const OF_16: u64 = 288;
/// Of what is between two tiles, in thousandths: what goes with the columns that there are in a tile; what is saved where one of
/// its warpgroups has nothing to store; what sums in f32 add, that are parts.
const BY_COLUMNS: u64 = 990;
const ONE_IDLE: u64 = 484;
/// What a slice takes where one of a tile's warpgroups multiplies nothing that is stored, in thousandths.
const ONE_FOR_NOTHING: u64 = 933;
const IN_PARTS: u64 = 76;
/// What the kernel takes that adds the parts: at all, for each part, and how many elements of parts it goes through in a
/// nanosecond.
const FINISH: [u64; 3] = [1356, 171, 367];

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
    // Of 2 bytes each.
    let first_read = (rows + columns) * depth / blocks * 2;
    let (full, rest) = (blocks / at_once, blocks % at_once);

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
        let multiply = if one_idle { multiply * ONE_FOR_NOTHING / 1000 } else { multiply };
        let multiply = multiply + multiply * more / 1000 * paired / 1000;
        let below = down.min(BELOW / sharing);
        let want = [(running / below / sharing).clamp(1, across), below.min((running / sharing).max(1))];
        let of_pair = (copied[0] * wanted(want[0]) + copied[1] * wanted(want[1])) / 1000;
        let slice = multiply
            .max((copied[0] + copied[1]) * ROW / 1000)
            .max(of_pair * ROW_OF_PAIR / 1000 * paired / 1000)
            .max(running * bytes / L2_BYTES);
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
    let time = waves(full, at_once) + waves(rest.min(1), rest) + kind.ends + parts;
    time * (1000 + kind.doubt[usize::from(right.depth_inner)]) / 1000
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
