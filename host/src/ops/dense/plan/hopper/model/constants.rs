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
    pub sharings: [Sharing; 5],
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
        Kind { columns: 256, height: 2, together: 1, slice: [475_141, 494_380, 557_335], between: 2147, ends: 30 },
        Kind { columns: 192, height: 3, together: 1, slice: [579_268, 721_338, 664_563], between: 2954, ends: 30 },
        Kind { columns: 128, height: 3, together: 1, slice: [379_330, 402_292, 407_266], between: 1487, ends: 30 },
        Kind { columns: 224, height: 2, together: 1, slice: [414_522, 437_070, 532_277], between: 1812, ends: 30 },
        Kind { columns: 192, height: 2, together: 1, slice: [362_487, 384_600, 430_867], between: 1343, ends: 32 },
        Kind { columns: 168, height: 2, together: 1, slice: [351_638, 349_255, 346_030], between: 1434, ends: 30 },
        Kind { columns: 144, height: 2, together: 1, slice: [344_568, 326_110, 325_882], between: 1235, ends: 30 },
        Kind { columns: 128, height: 2, together: 1, slice: [276_636, 250_446, 280_949], between: 979, ends: 30 },
        Kind { columns: 128, height: 2, together: 2, slice: [208_016, 208_492, 208_414], between: 17, ends: 3468 },
        Kind { columns: 128, height: 2, together: 4, slice: [377_634, 347_527, 388_764], between: 892, ends: 2246 },
        Kind { columns: 96, height: 2, together: 1, slice: [254_129, 220_278, 243_949], between: 889, ends: 30 },
        Kind { columns: 64, height: 2, together: 1, slice: [261_748, 202_000, 213_726], between: 625, ends: 89 },
        Kind { columns: 64, height: 2, together: 2, slice: [180_087, 168_175, 154_078], between: 338, ends: 1064 },
        Kind { columns: 64, height: 2, together: 4, slice: [144_638, 151_240, 150_296], between: 558, ends: 1184 },
        Kind { columns: 64, height: 1, together: 1, slice: [238_618, 221_728, 229_860], between: 477, ends: 146 },
        Kind { columns: 64, height: 1, together: 2, slice: [173_922, 207_790, 195_200], between: 24, ends: 1226 },
        Kind { columns: 64, height: 1, together: 4, slice: [142_766, 141_846, 134_895], between: 245, ends: 1371 },
    ],
    sharings: [
        Sharing { blocks: [1, 1], slice: 895, between: 1197, byte: 1022, ends: 0 },
        Sharing { blocks: [2, 1], slice: 1153, between: 1186, byte: 717, ends: 101 },
        Sharing { blocks: [1, 2], slice: 1266, between: 1161, byte: 803, ends: 101 },
        Sharing { blocks: [2, 2], slice: 1140, between: 1408, byte: 824, ends: 99 },
        Sharing { blocks: [4, 1], slice: 1174, between: 1120, byte: 823, ends: 97 },
    ],
    row: [1000, 1530],
    wanted: [905, 982, 998, 792, 654, 628, 579],
    bytes: [19_237, 5441],
    unaligned_rows: [1101, 1090],
    unaligned_slice: [192, 76],
    unaligned_bytes: 2652,
    partly_aligned: [216, 280],
    by_columns: 763,
    one_idle: 482,
    in_parts: 76,
    one_for_nothing: 934,
    finish: [1404, 161, 370],
};
