//! The numbers that the model goes by.

/// A kind of tile, and the model's times.
#[derive(Clone, Debug)]
pub struct Kind {
    /// A warpgroup's columns, how many of them stand one below the other in a tile (1: two side by side), and how many blocks share its depth.
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
    pub kinds: [Kind; 15],
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
        Kind { columns: 256, height: 2, together: 1, slice: [448_557, 460_317, 515_519], between: 1928, ends: 30 },
        Kind { columns: 192, height: 3, together: 1, slice: [559_303, 609_242, 620_295], between: 2299, ends: 30 },
        Kind { columns: 128, height: 3, together: 1, slice: [366_787, 375_289, 375_335], between: 1255, ends: 30 },
        Kind { columns: 224, height: 2, together: 1, slice: [409_495, 424_260, 511_894], between: 1688, ends: 30 },
        Kind { columns: 192, height: 2, together: 1, slice: [349_044, 370_922, 439_709], between: 1259, ends: 32 },
        Kind { columns: 168, height: 2, together: 1, slice: [351_638, 349_255, 341_375], between: 1422, ends: 30 },
        Kind { columns: 144, height: 2, together: 1, slice: [328_369, 301_324, 300_300], between: 1210, ends: 30 },
        Kind { columns: 128, height: 2, together: 1, slice: [262_990, 242_094, 267_950], between: 927, ends: 30 },
        Kind { columns: 96, height: 2, together: 1, slice: [226_616, 221_822, 233_402], between: 829, ends: 30 },
        Kind { columns: 64, height: 2, together: 1, slice: [263_376, 173_261, 210_515], between: 635, ends: 89 },
        Kind { columns: 64, height: 2, together: 2, slice: [181_260, 169_230, 153_464], between: 340, ends: 1086 },
        Kind { columns: 64, height: 2, together: 4, slice: [144_062, 150_817, 148_883], between: 565, ends: 1209 },
        Kind { columns: 64, height: 1, together: 1, slice: [231_938, 204_783, 225_730], between: 412, ends: 139 },
        Kind { columns: 64, height: 1, together: 2, slice: [171_152, 202_517, 200_808], between: 24, ends: 1167 },
        Kind { columns: 64, height: 1, together: 4, slice: [142_156, 143_554, 133_549], between: 246, ends: 1399 },
    ],
    sharings: [
        Sharing { blocks: [1, 1], slice: 932, between: 1181, byte: 1145, ends: 0 },
        Sharing { blocks: [2, 1], slice: 1200, between: 1335, byte: 735, ends: 103 },
        Sharing { blocks: [1, 2], slice: 1265, between: 1210, byte: 819, ends: 103 },
        Sharing { blocks: [2, 2], slice: 1166, between: 1304, byte: 756, ends: 99 },
        Sharing { blocks: [4, 1], slice: 1194, between: 1138, byte: 824, ends: 95 },
    ],
    row: [900, 1471],
    wanted: [928, 1010, 993, 747, 649, 620, 587],
    bytes: [17_898, 6218],
    unaligned_rows: [1079, 1052],
    unaligned_slice: [192, 76],
    unaligned_bytes: 3014,
    partly_aligned: [228, 290],
    by_columns: 731,
    one_idle: 460,
    in_parts: 76,
    one_for_nothing: 1016,
    finish: [1324, 164, 374],
};
