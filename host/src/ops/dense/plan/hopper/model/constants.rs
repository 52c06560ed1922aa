//! The numbers that the model goes by.

use std::sync::LazyLock;

use kernels::dense::wgmma;

/// A kind of tile, and the model's times.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// A warpgroup's columns, how many warpgroups stand one below the other in a tile (1: two side by side), and how many blocks share its
    /// depth.
    pub columns: u32,
    pub height: u32,
    pub together: u32,
    /// Of a slice of the tensor cores, in picoseconds, where no operand has its depth innermost, one, and both.
    pub slice: [u64; 3],
    /// Of what is between a tile's last product and the next one's first.
    pub between: u64,
    /// Of what is before the first and after the last, but for what any launch takes.
    pub ends: u64,
}

/// A tile that there is a kernel for: between which two kinds, and how far from the first, in thousandths of what they are apart.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// As [`Kind`] has them.
    pub columns: u32,
    pub height: u32,
    pub together: u32,
    /// Whether `dx` alone has it, by a kernel that is told the width.
    pub of_dx: bool,
    between: [usize; 2],
    part: u64,
}

/// Kinds that are none of a kernel's own: ends of the widths that kernels of `dx` are told.
const ENDS: [(u32, u32); 3] = [(32, 2), (104, 3), (200, 3)];

/// All of them.
pub static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let own = |(columns, height, together)| {
        FITTED.kinds.iter().any(|kind| {
            (kind.columns, kind.height, kind.together) == (columns, height, together)
                && !ENDS.contains(&(columns, height))
        })
    };
    let kinds = FITTED.kinds.iter().map(|kind| (kind.columns, kind.height, kind.together)).filter(|&kind| own(kind));
    let told = [2, 3].into_iter().flat_map(|height| {
        let [least, most, apart] = wgmma::widths(height);
        (least..=most).step_by(apart as usize).map(move |columns| (columns, height, 1))
    });
    let form = |(columns, height, together), of_dx| {
        let alike =
            || FITTED.kinds.iter().enumerate().filter(|(_, kind)| (kind.height, kind.together) == (height, together));
        let (first, below) =
            alike().filter(|(_, kind)| kind.columns <= columns).max_by_key(|(_, kind)| kind.columns)?;
        let (second, above) =
            alike().filter(|(_, kind)| kind.columns >= columns).min_by_key(|(_, kind)| kind.columns)?;
        let apart = (above.columns - below.columns).max(1);
        let part = u64::from(1000 * (columns - below.columns) / apart);
        Some(Form { columns, height, together, of_dx, between: [first, second], part })
    };
    let told = told.filter(|&kind| !own(kind)).filter_map(|kind| form(kind, true));
    kinds.filter_map(|kind| form(kind, false)).chain(told).collect()
});

/// Blocks that share what they copy, one below the other and side by side, and what they take, in thousandths of what one by itself does.
#[derive(Clone, Debug)]
pub struct Sharing {
    pub blocks: [u32; 2],
    /// A slice of the tensor cores.
    pub slice: u64,
    /// What is between tiles.
    pub between: u64,
    /// The L2 cache for a byte.
    pub byte: u64,
    /// Nanoseconds besides, before the first tile and after the last.
    pub ends: u64,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Constants {
    pub kinds: [Kind; 20],
    pub sharings: [Sharing; 6],
    /// A copied row of 128 bytes, in picoseconds: on a multiprocessor's way, and on that of two.
    pub row: [u64; 2],
    /// How much of that a row takes which 1, 2, 4 and so on of the blocks that run want, in thousandths: as fitted, and what 1 and
    /// more than 16 have is less sure than the fall between.
    pub wanted: [u64; 7],
    /// Bytes that the L2 cache gives to all multiprocessors in a nanosecond, and memory to the L2 cache.
    pub bytes: [u64; 2],
    /// What rows that do not begin at multiples of 128 bytes add, in thousandths: to each copied row, where the depth is not what
    /// lies in a row of the matrix and where it is;
    pub unaligned_rows: [u64; 2],
    /// to a slice of the tensor cores, of the rows' and the columns' operand;
    pub unaligned_slice: [u64; 2],
    /// to the bytes.
    pub unaligned_bytes: u64,
    /// How much of that rows add whose length is an odd multiple of 64 bytes, and of 32, in thousandths.
    pub partly_aligned: [u64; 2],
    /// Of what is between two tiles, in thousandths: what goes with the columns that there are in a tile;
    pub by_columns: u64,
    /// what is saved where one of its warpgroups has nothing to store;
    pub one_idle: u64,
    /// what sums in f32 add, that are parts.
    pub in_parts: u64,
    /// What a slice takes where one of a tile's warpgroups multiplies nothing that is stored, in thousandths.
    pub one_for_nothing: u64,
    /// What the kernel takes that adds the parts: at all, for each part, and how many elements of parts it goes through in a
    /// nanosecond.
    pub finish: [u64; 3],
    /// How much longer tiles are taken to need whose kernel is told the width, in thousandths, for there are many of these, and the one that the
    /// model is most wrong about seems the best; and besides, for short products took longer by them than it says.
    pub doubt: [u64; 2],
}

impl Constants {
    /// The times of a tile: of widths between two kinds' in proportion.
    pub fn kind(&self, form: &Form) -> Kind {
        let &Form { columns, height, together, between: [first, second], part, .. } = form;
        let (first, second) = (&self.kinds[first], &self.kinds[second]);
        let time = |first: u64, second: u64| (first * (1000 - part) + second * part) / 1000;
        Kind {
            columns,
            height,
            together,
            slice: [0, 1, 2].map(|i| time(first.slice[i], second.slice[i])),
            between: time(first.between, second.between),
            ends: time(first.ends, second.ends),
        }
    }

    /// Those that are fitted: all that say no tile and no cluster.
    pub fn fitted(&mut self) -> Vec<&mut u64> {
        let Self {
            kinds,
            sharings,
            row,
            wanted,
            bytes,
            unaligned_rows,
            unaligned_slice,
            unaligned_bytes,
            partly_aligned,
            by_columns,
            one_idle,
            in_parts,
            one_for_nothing,
            finish,
            doubt,
        } = self;
        let mut all: Vec<&mut u64> = Vec::new();
        for Kind { slice, between, ends, .. } in kinds {
            all.extend(slice);
            all.extend([between, ends]);
        }
        for Sharing { slice, between, byte, ends, .. } in sharings {
            all.extend([slice, between, byte, ends]);
        }
        let arrays: [&mut [u64]; 8] =
            [row, wanted, bytes, unaligned_rows, unaligned_slice, partly_aligned, finish, doubt];
        all.extend(arrays.into_iter().flatten());
        all.extend([unaligned_bytes, by_columns, one_idle, in_parts, one_for_nothing]);
        all
    }
}

/// `docs/perf/dense.md` says to what they are fitted; `benches/ops --fit` prints such, which go here.
pub static FITTED: Constants = Constants {
    kinds: [
        Kind { columns: 256, height: 2, together: 1, slice: [576_461, 568_722, 647_918], between: 2197, ends: 30 },
        Kind { columns: 200, height: 3, together: 1, slice: [670_000, 765_780, 800_000], between: 2950, ends: 30 },
        Kind { columns: 192, height: 3, together: 1, slice: [637_491, 714_684, 763_508], between: 2858, ends: 30 },
        Kind { columns: 104, height: 3, together: 1, slice: [360_000, 473_938, 390_000], between: 1066, ends: 33 },
        Kind { columns: 128, height: 3, together: 1, slice: [426_334, 467_349, 454_363], between: 1082, ends: 33 },
        Kind { columns: 224, height: 2, together: 1, slice: [451_701, 494_005, 559_131], between: 2119, ends: 30 },
        Kind { columns: 192, height: 2, together: 1, slice: [411_883, 419_668, 466_723], between: 1545, ends: 33 },
        Kind { columns: 168, height: 2, together: 1, slice: [363_492, 328_885, 388_700], between: 1879, ends: 30 },
        Kind { columns: 144, height: 2, together: 1, slice: [346_317, 343_505, 348_918], between: 1772, ends: 30 },
        Kind { columns: 128, height: 2, together: 1, slice: [292_360, 291_569, 304_397], between: 983, ends: 26 },
        Kind { columns: 128, height: 2, together: 2, slice: [225_937, 227_243, 219_952], between: 17, ends: 5037 },
        Kind { columns: 128, height: 2, together: 4, slice: [380_623, 348_268, 443_861], between: 1051, ends: 3835 },
        Kind { columns: 96, height: 2, together: 1, slice: [259_953, 252_958, 269_533], between: 829, ends: 31 },
        Kind { columns: 32, height: 2, together: 1, slice: [190_000, 168_193, 150_000], between: 727, ends: 76 },
        Kind { columns: 64, height: 2, together: 1, slice: [238_252, 186_877, 181_322], between: 799, ends: 76 },
        Kind { columns: 64, height: 2, together: 2, slice: [215_437, 136_465, 198_050], between: 352, ends: 1277 },
        Kind { columns: 64, height: 2, together: 4, slice: [176_447, 136_289, 162_054], between: 686, ends: 1741 },
        Kind { columns: 64, height: 1, together: 1, slice: [241_503, 238_713, 239_333], between: 420, ends: 98 },
        Kind { columns: 64, height: 1, together: 2, slice: [192_038, 232_750, 230_056], between: 24, ends: 1378 },
        Kind { columns: 64, height: 1, together: 4, slice: [120_362, 148_585, 119_194], between: 266, ends: 1986 },
    ],
    sharings: [
        Sharing { blocks: [1, 1], slice: 1588, between: 1044, byte: 1498, ends: 0 },
        Sharing { blocks: [2, 1], slice: 2014, between: 1701, byte: 641, ends: 136 },
        Sharing { blocks: [1, 2], slice: 2026, between: 1626, byte: 718, ends: 133 },
        Sharing { blocks: [2, 2], slice: 2023, between: 1789, byte: 838, ends: 109 },
        Sharing { blocks: [4, 1], slice: 1996, between: 1393, byte: 1068, ends: 63 },
        Sharing { blocks: [1, 4], slice: 2049, between: 1489, byte: 618, ends: 143 },
    ],
    row: [1526, 2097],
    wanted: [1054, 1079, 1136, 826, 764, 600, 407],
    bytes: [18_260, 5441],
    unaligned_rows: [1443, 1482],
    unaligned_slice: [183, 85],
    unaligned_bytes: 4533,
    partly_aligned: [272, 321],
    by_columns: 1000,
    one_idle: 452,
    in_parts: 79,
    one_for_nothing: 1155,
    finish: [3045, 290, 246],
    doubt: [50, 1000],
};
