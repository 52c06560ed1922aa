//! Sums over a window of which what is expected of a draw is a quotient.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::elements::{Elements, Source};
use super::four::{NEAR, reciprocal};
use crate::vectors::{Found, LANES, Lanes, Numbers, Words};
use crate::window::Order;

/// From this sum on the sum of the squares is as accurate as any: of so few positions as there can be, the greatest square is no
/// subnormal number.
const LEAST: f32 = 1.0 / (1u64 << 40) as f32;

/// The sums of the weights, and of their squares.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    pub sum: f32,
    pub squares: f32,
}

impl Sums {
    /// Of no element.
    pub const NONE: Self = Self { sum: 0.0, squares: 0.0 };

    /// Of one.
    #[device_inline]
    pub fn of(x: f32) -> Self {
        let weight = float::maximum(x, 0.0);
        Self { sum: weight, squares: weight * weight }
    }

    /// Of these, and one more.
    #[device_inline]
    pub fn and(self, x: f32) -> Self {
        let weight = float::maximum(x, 0.0);
        Self { sum: self.sum + weight, squares: float::fma(weight, weight, self.squares) }
    }

    /// Of both.
    #[device_inline]
    pub fn with(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    /// Of both, of which the lane that is a step away has the other.
    #[device_inline]
    pub fn with_lane(self, step: u32) -> Self {
        let [sum, squares] = [self.sum, self.squares].map(|sum| warp::shuffle_xor(sum, step));
        self.with(Self { sum, squares })
    }

    /// Of the rows of a window, or the columns.
    #[device_inline]
    pub fn of_all<const SIZE: usize>(all: [Self; SIZE]) -> Self {
        let mut sums = all[0];
        unrolled!(I in [1 2] { if I < SIZE { sums = sums.with(all[I]); } });
        sums
    }

    /// `sum p_i a_i`, and whether it is not that: of a sum that is too small, too large or none, by [`Elements::mean`] it is.
    #[device_inline]
    pub fn mean(self) -> (f32, bool) {
        let near = (LEAST..=NEAR).contains(&self.sum);
        let sum = if near { self.sum } else { 1.0 };
        let of_one = reciprocal(sum);
        let mean = self.squares * of_one;
        // What is left over is shared out: windows of one number give that number.
        let mean = float::fma(float::fma(-mean, sum, self.squares), of_one, mean);
        (mean, !near & (self.sum != 0.0))
    }

    /// `sum p_i a_i` of a window, of whose elements these are the sums.
    #[device_inline]
    pub fn mean_of<L: Order, S: Source>(self, elements: &Elements<L, S>) -> f32 {
        let (mean, again) = self.mean();
        if again { elements.mean() } else { mean }
    }
}

/// The sums of each channel of a vector.
#[derive(Clone, Copy)]
pub(super) struct SumsOfLanes {
    sums: Numbers,
    squares: Numbers,
}

impl SumsOfLanes {
    /// Of no element.
    pub const NONE: Self = Self { sums: [0.0; LANES], squares: [0.0; LANES] };

    /// Of these, and one more each.
    #[device_inline]
    pub fn and<T: Lanes>(mut self, words: Words) -> Self {
        let numbers = T::numbers(words);
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            let Sums { sum, squares } = Sums { sum: self.sums[K], squares: self.squares[K] }.and(numbers[K]);
            (self.sums[K], self.squares[K]) = (sum, squares);
        });
        self
    }

    /// What [`Sums::mean`] gives of each: the means, and a bit for each that is not that.
    #[device_inline]
    pub fn means(&self) -> (Numbers, u32) {
        let (mut means, mut again) = ([0.0; LANES], 0);
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            let (mean, is) = Sums { sum: self.sums[K], squares: self.squares[K] }.mean();
            means[K] = mean;
            again |= if is { 1 << K } else { 0 };
        });
        (means, again)
    }
}

impl Found for SumsOfLanes {
    #[device_inline]
    unsafe fn put(self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) {
        // SAFETY: the caller's.
        unsafe {
            self.sums.put(lanes, shared, at, step);
            self.squares.put(lanes, shared, at + lanes as u32 * step, step);
        }
    }

    #[device_inline]
    unsafe fn with(self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) -> Self {
        // SAFETY: the caller's.
        unsafe {
            Self {
                sums: self.sums.with(lanes, shared, at, step),
                squares: self.squares.with(lanes, shared, at + lanes as u32 * step, step),
            }
        }
    }
}
