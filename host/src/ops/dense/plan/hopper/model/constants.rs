//! The numbers that the model goes by.

/// A kind of tile, and the model's times.
#[derive(Clone, Debug)]
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
    pub kinds: [Kind; 17],
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
}

impl Constants {
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
        } = self;
        let mut all: Vec<&mut u64> = Vec::new();
        for Kind { slice, between, ends, .. } in kinds {
            all.extend(slice);
            all.extend([between, ends]);
        }
        for Sharing { slice, between, byte, ends, .. } in sharings {
            all.extend([slice, between, byte, ends]);
        }
        let arrays: [&mut [u64]; 7] = [row, wanted, bytes, unaligned_rows, unaligned_slice, partly_aligned, finish];
        all.extend(arrays.into_iter().flatten());
        all.extend([unaligned_bytes, by_columns, one_idle, in_parts, one_for_nothing]);
        all
    }
}

/// `docs/perf/dense.md` says to what they are fitted; `benches/ops --fit` prints such, which go here.
pub static FITTED: Constants = Constants {
    kinds: [
        Kind { columns: 256, height: 2, together: 1, slice: [539_525, 566_435, 642_752], between: 2232, ends: 30 },
        Kind { columns: 192, height: 3, together: 1, slice: [612_930, 745_341, 736_280], between: 2835, ends: 30 },
        Kind { columns: 128, height: 3, together: 1, slice: [405_342, 442_951, 438_200], between: 1111, ends: 32 },
        Kind { columns: 224, height: 2, together: 1, slice: [452_350, 494_707, 549_889], between: 2028, ends: 30 },
        Kind { columns: 192, height: 2, together: 1, slice: [393_762, 401_931, 447_734], between: 1559, ends: 33 },
        Kind { columns: 168, height: 2, together: 1, slice: [355_271, 345_312, 369_743], between: 1775, ends: 30 },
        Kind { columns: 144, height: 2, together: 1, slice: [348_196, 365_083, 338_468], between: 1612, ends: 30 },
        Kind { columns: 128, height: 2, together: 1, slice: [284_669, 292_121, 288_366], between: 1016, ends: 27 },
        Kind { columns: 128, height: 2, together: 2, slice: [209_797, 217_992, 210_197], between: 17, ends: 4302 },
        Kind { columns: 128, height: 2, together: 4, slice: [396_133, 353_967, 429_822], between: 1010, ends: 3286 },
        Kind { columns: 96, height: 2, together: 1, slice: [251_774, 238_524, 258_954], between: 855, ends: 31 },
        Kind { columns: 64, height: 2, together: 1, slice: [234_053, 189_194, 182_389], between: 800, ends: 80 },
        Kind { columns: 64, height: 2, together: 2, slice: [219_348, 129_976, 190_619], between: 342, ends: 1148 },
        Kind { columns: 64, height: 2, together: 4, slice: [172_179, 128_007, 162_109], between: 659, ends: 1553 },
        Kind { columns: 64, height: 1, together: 1, slice: [241_200, 244_970, 242_388], between: 421, ends: 105 },
        Kind { columns: 64, height: 1, together: 2, slice: [197_798, 243_472, 232_452], between: 24, ends: 1236 },
        Kind { columns: 64, height: 1, together: 4, slice: [124_972, 160_656, 120_089], between: 262, ends: 1778 },
    ],
    sharings: [
        Sharing { blocks: [1, 1], slice: 1398, between: 1007, byte: 1390, ends: 0 },
        Sharing { blocks: [2, 1], slice: 1816, between: 1607, byte: 684, ends: 127 },
        Sharing { blocks: [1, 2], slice: 1820, between: 1572, byte: 688, ends: 119 },
        Sharing { blocks: [2, 2], slice: 1801, between: 1681, byte: 771, ends: 110 },
        Sharing { blocks: [4, 1], slice: 1744, between: 1341, byte: 1087, ends: 69 },
        Sharing { blocks: [1, 4], slice: 1828, between: 1441, byte: 672, ends: 130 },
    ],
    row: [1321, 1906],
    wanted: [1036, 1085, 1153, 762, 755, 614, 416],
    bytes: [17_554, 5441],
    unaligned_rows: [1495, 1490],
    unaligned_slice: [188, 85],
    unaligned_bytes: 3959,
    partly_aligned: [295, 303],
    by_columns: 989,
    one_idle: 434,
    in_parts: 78,
    one_for_nothing: 1295,
    finish: [2837, 251, 246],
};
