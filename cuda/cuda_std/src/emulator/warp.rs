//! What the lanes of a warp exchange.

use super::matrix;
use crate::warp::{Shuffle, source_lane};

/// Of a shuffle from a lane that takes no part: undefined on a device.
const UNDEFINED: u32 = u32::MAX;

/// What lanes can do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Sync,
    Shuffle(Shuffle),
    Ballot,
    Any,
    All,
    Match,
    Matrix(matrix::Operation),
}

impl Operation {
    const ALL: [Self; 13] = [
        Self::Sync,
        Self::Shuffle(Shuffle::Index),
        Self::Shuffle(Shuffle::Up),
        Self::Shuffle(Shuffle::Down),
        Self::Shuffle(Shuffle::Xor),
        Self::Ballot,
        Self::Any,
        Self::All,
        Self::Match,
        Self::Matrix(matrix::Operation::Load),
        Self::Matrix(matrix::Operation::LoadTransposed),
        Self::Matrix(matrix::Operation::ProductF16),
        Self::Matrix(matrix::Operation::ProductBf16),
    ];

    /// As a number, for an atomic.
    pub fn code(self) -> u32 {
        Self::ALL.iter().position(|&other| other == self).map_or(0, |position| position as u32)
    }

    pub fn from_code(code: u32) -> Self {
        Self::ALL[code as usize]
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync_warp",
            Self::Shuffle(Shuffle::Index) => "shuffle",
            Self::Shuffle(Shuffle::Up) => "shuffle_up",
            Self::Shuffle(Shuffle::Down) => "shuffle_down",
            Self::Shuffle(Shuffle::Xor) => "shuffle_xor",
            Self::Ballot => "ballot",
            Self::Any => "any",
            Self::All => "all",
            Self::Match => "warp_match_any",
            Self::Matrix(operation) => operation.name(),
        }
    }

    /// What `lane` gets when the lanes `present` have given `values`.
    pub fn result(self, lane: u32, present: u32, values: &[u32; 32], operands: [u32; 2]) -> u32 {
        let lanes_where = |accept: &dyn Fn(u32) -> bool| {
            (0..32).filter(|&i| present >> i & 1 == 1 && accept(values[i as usize])).fold(0, |mask, i| mask | 1 << i)
        };
        match self {
            // What it gives is not one word.
            Self::Sync | Self::Matrix(_) => 0,
            Self::Shuffle(kind) => {
                let (source, _) = source_lane(kind, lane, operands[0], operands[1]);
                if present >> source & 1 == 1 { values[source as usize] } else { UNDEFINED }
            }
            Self::Ballot => lanes_where(&|value| value != 0),
            Self::Any => (lanes_where(&|value| value != 0) != 0).into(),
            Self::All => (lanes_where(&|value| value == 0) == 0).into(),
            Self::Match => lanes_where(&|value| value == values[lane as usize]),
        }
    }
}
