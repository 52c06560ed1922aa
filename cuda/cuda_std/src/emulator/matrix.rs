//! What the lanes of a warp do with matrices: each gives some words, and gets four.
//!
//! The last lane that comes works it out for all: one exchange for a whole product, however many lanes' words an element
//! is made of.

use half::{bf16, f16};

/// The most words that a lane gives: four of `a`, two of `b`, four of `c`.
pub const WORDS: usize = 10;

/// What they can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Four words, a row, to each lane's part of four matrices.
    Load,
    LoadTransposed,
    ProductF16,
    ProductBf16,
}

impl Operation {
    pub const ALL: [Self; 4] = [Self::Load, Self::LoadTransposed, Self::ProductF16, Self::ProductBf16];

    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "ldmatrix_x4",
            Self::LoadTransposed => "ldmatrix_x4_trans",
            Self::ProductF16 | Self::ProductBf16 => "mma_m16n8k16",
        }
    }

    /// What the lanes get for the words that they gave.
    pub fn results(self, given: &[[u32; WORDS]; 32]) -> [[u32; 4]; 32] {
        match self {
            Self::Load => {
                std::array::from_fn(|lane| std::array::from_fn(|matrix| given[8 * matrix + lane / 4][lane % 4]))
            }
            Self::LoadTransposed => std::array::from_fn(|lane| {
                let (column, row) = (lane / 4, lane % 4 * 2);
                std::array::from_fn(|matrix| {
                    let [low, high] = [row, row + 1].map(|row| element(&given[8 * matrix + row], column));
                    u32::from(high) << 16 | u32::from(low)
                })
            }),
            Self::ProductF16 => product(given, |bits| f16::from_bits(bits).to_f64()),
            Self::ProductBf16 => product(given, |bits| bf16::from_bits(bits).to_f64()),
        }
    }
}

/// Element `i` of those that lie in words.
fn element(words: &[u32], i: usize) -> u16 {
    (words[i / 2] >> (i % 2 * 16)) as u16
}

/// `a · b + c`, the fragments as `arch::sm_80::matrix` says.
fn product(given: &[[u32; WORDS]; 32], widen: fn(u16) -> f64) -> [[u32; 4]; 32] {
    let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 16]; 8]);
    for (lane, words) in given.iter().enumerate() {
        let (g, c) = (lane / 4, lane % 4);
        for i in 0..8 {
            a[g + 8 * (i / 2 % 2)][2 * c + 8 * (i / 4) + i % 2] = widen(element(words, i));
        }
        for i in 0..4 {
            b[g][2 * c + 8 * (i / 2) + i % 2] = widen(element(&words[4..], i));
        }
    }
    std::array::from_fn(|lane| {
        std::array::from_fn(|j| {
            let (row, column) = (lane / 4 + 8 * (j / 2), lane % 4 * 2 + j % 2);
            let start = f64::from(f32::from_bits(given[lane][6 + j]));
            let sum = a[row].iter().zip(&b[column]).fold(start, |sum, (a, b)| sum + a * b);
            (sum as f32).to_bits()
        })
    })
}
