//! What four windows give whose weights are all at hand.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::elements::{Elements, Source};
use super::{state, uniform, uniform_of};
use crate::philox::Pass;
use crate::window::Order;

/// Windows that are worked with together: chains of products that do not wait for each other.
pub(super) const TOGETHER: usize = 4;

/// The weights of as many windows.
pub(super) type Weights<const SIZE: usize> = [[[f32; SIZE]; SIZE]; TOGETHER];

/// What they give.
#[derive(Clone, Copy)]
pub(super) struct Four {
    pub values: [f32; TOGETHER],
    /// The positions, in the lower bytes.
    positions: [u32; TOGETHER],
    /// Which windows are of the few that want looking at again, by their [`Elements`].
    pub again: [bool; TOGETHER],
}

impl Four {
    #[device_inline]
    fn of(windows: [Given; TOGETHER]) -> Self {
        Self {
            values: windows.map(|window| window.value),
            positions: windows.map(|window| window.position),
            again: windows.map(|window| window.again),
        }
    }

    /// The positions, a byte each.
    #[device_inline]
    fn bytes(&self) -> u32 {
        let ([a, b, c, d], lower) = (self.positions, integer::bytes::<0x0040>);
        integer::bytes::<0x5410>(lower(a, b), lower(c, d))
    }
}

/// What is made of windows: [`Draws`] or [`Means`].
pub(super) trait Make: Copy {
    /// Of the windows of the outputs with these indices.
    fn of_weights<const SIZE: usize>(&self, indices: [u32; TOGETHER], weights: &Weights<SIZE>) -> Four;

    /// Of any window: the position, and the value.
    fn of_elements<L: Order, S: Source>(&self, index: u32, elements: &Elements<L, S>) -> (u32, f32);

    /// Stores one of the positions, if so.
    ///
    /// # Safety
    /// The output exists if so.
    unsafe fn store_if(&self, is: bool, output: usize, four: &Four, which: usize);

    /// Stores all, of neighbours of which the first is a multiple of four.
    ///
    /// # Safety
    /// The outputs exist.
    unsafe fn store_four(&self, number: usize, four: &Four);

    /// Stores two of them, `first` and the next, of neighbours of which the first is an even one.
    ///
    /// # Safety
    /// The outputs exist if so.
    unsafe fn store_two(&self, is: bool, number: usize, four: &Four, first: usize);

    /// As [`store_four`](Self::store_four), of eight.
    ///
    /// # Safety
    /// The outputs exist.
    unsafe fn store_eight(&self, number: usize, fours: [&Four; 2]);

    /// Stores what [`of_elements`](Self::of_elements) gave.
    ///
    /// # Safety
    /// The output exists.
    unsafe fn store(&self, output: usize, position: u32);
}

/// Draws of a position.
#[derive(Clone, Copy)]
pub(super) struct Draws {
    indices: GlobalMut<u8>,
    counter: [u64; 2],
    pass: Pass,
}

impl Draws {
    /// # Safety
    /// The module's.
    #[device_inline]
    pub unsafe fn new(indices: GlobalMut<u8>, state: Global<u64>) -> Self {
        // SAFETY: the caller's.
        let counter = unsafe { [state.load(state::SEED), state.load(state::OFFSET)] };
        Self { indices, counter, pass: Pass::new(counter[0], counter[1]) }
    }
}

impl Make for Draws {
    #[device_inline]
    fn of_weights<const SIZE: usize>(&self, indices: [u32; TOGETHER], weights: &Weights<SIZE>) -> Four {
        let of = |which: usize| Given::drawn(&weights[which], uniform_of(self.pass.number(indices[which])));
        Four::of([of(0), of(1), of(2), of(3)])
    }

    #[device_inline]
    fn of_elements<L: Order, S: Source>(&self, index: u32, elements: &Elements<L, S>) -> (u32, f32) {
        let [seed, offset] = self.counter;
        elements.draw(uniform(seed, offset, index.into()))
    }

    #[device_inline]
    unsafe fn store_if(&self, is: bool, output: usize, four: &Four, which: usize) {
        // SAFETY: the caller's.
        unsafe { self.indices.store_if(is, output, four.positions[which] as u8) };
    }

    #[device_inline]
    unsafe fn store_four(&self, number: usize, four: &Four) {
        // SAFETY: the caller's.
        unsafe { self.indices.cast().store(number, four.bytes()) };
    }

    #[device_inline]
    unsafe fn store_two(&self, is: bool, number: usize, four: &Four, first: usize) {
        let two = integer::bytes::<0x0040>(four.positions[first], four.positions[first + 1]);
        // SAFETY: the caller's.
        unsafe { self.indices.cast::<u16>().store_if(is, number, two as u16) };
    }

    #[device_inline]
    unsafe fn store_eight(&self, number: usize, fours: [&Four; 2]) {
        // SAFETY: the caller's.
        unsafe { self.indices.cast().store2(number * 2, Vec2::from(fours.map(Four::bytes))) };
    }

    #[device_inline]
    unsafe fn store(&self, output: usize, position: u32) {
        // SAFETY: the caller's.
        unsafe { self.indices.store(output, position as u8) };
    }
}

/// What is expected of a draw.
#[derive(Clone, Copy)]
pub(super) struct Means;

impl Make for Means {
    #[device_inline]
    fn of_weights<const SIZE: usize>(&self, _: [u32; TOGETHER], weights: &Weights<SIZE>) -> Four {
        let of = |which: usize| Given::mean(&weights[which]);
        Four::of([of(0), of(1), of(2), of(3)])
    }

    #[device_inline]
    fn of_elements<L: Order, S: Source>(&self, _: u32, elements: &Elements<L, S>) -> (u32, f32) {
        (0, elements.mean())
    }

    #[device_inline]
    unsafe fn store_if(&self, _: bool, _: usize, _: &Four, _: usize) {}

    #[device_inline]
    unsafe fn store_four(&self, _: usize, _: &Four) {}

    #[device_inline]
    unsafe fn store_two(&self, _: bool, _: usize, _: &Four, _: usize) {}

    #[device_inline]
    unsafe fn store_eight(&self, _: usize, _: [&Four; 2]) {}

    #[device_inline]
    unsafe fn store(&self, _: usize, _: u32) {}
}

/// What is counted from: a 1 that is added is the last bit's.
const COUNTED: f32 = (1 << 23) as f32;

/// What a window gives.
#[derive(Clone, Copy)]
struct Given {
    /// In the lower byte.
    position: u32,
    value: f32,
    again: bool,
}

impl Given {
    /// As [`Elements::draw`]. Sums of what is not negative never fall: as many elements lie before the drawn one as
    /// have sums so far that do not pass. Where none has a weight, no sum passes, and the last weight is the value.
    #[device_inline]
    fn drawn<const SIZE: usize>(weights: &[[f32; SIZE]; SIZE], uniform: f32) -> Self {
        let (sums, sum) = sums(weights);
        let until = uniform * sum;
        let (mut count, mut value, mut before) = (COUNTED, weights[0][0], sums[0][0]);
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE && (I, J) != (0, 0) {
                let passed_over = before <= until;
                count = float::add_if(passed_over, count, 1.0);
                value = if passed_over { weights[I][J] } else { value };
                before = sums[I][J];
            }
        }); });
        let passes = before > until;
        let count = float::add_if(!passes, count, 1.0);
        // No element is above zero, or rounding keeps the sum from passing, or it is not finite.
        Self { position: count.to_bits(), value, again: !passes & (sum != 0.0) }
    }

    /// As [`Elements::mean`].
    #[device_inline]
    fn mean<const SIZE: usize>(weights: &[[f32; SIZE]; SIZE]) -> Self {
        let (_, sum) = sums(weights);
        // Of sums near 1 the squares' sum is neither too large nor too small.
        let near = (1.0 / NEAR..=NEAR).contains(&sum);
        let mut squares = 0.0;
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE { squares = float::fma(weights[I][J], weights[I][J], squares); }
        }); });
        let mean = squares * reciprocal(if near { sum } else { 1.0 });
        Self { position: 0, value: mean, again: !near & (sum != 0.0) }
    }
}

/// Sums up to this, and down to its reciprocal, are divided by as they are.
pub(super) const NEAR: f32 = (1u64 << 60) as f32;

/// The reciprocal of a number near 1, off by less than two units in the last place: three of Newton's steps from one
/// off by an eighth at most. No branch, where a division has one.
#[device_inline]
pub(super) fn reciprocal(x: f32) -> f32 {
    let mut reciprocal = f32::from_bits(0x7ef3_11c7u32.wrapping_sub(x.to_bits()));
    unrolled!(_STEP in [0 1 2] { reciprocal = float::fma(reciprocal, float::fma(-x, reciprocal, 1.0), reciprocal); });
    reciprocal
}

/// The sums of weights up to each, and of all.
#[device_inline]
fn sums<const SIZE: usize>(weights: &[[f32; SIZE]; SIZE]) -> ([[f32; SIZE]; SIZE], f32) {
    let (mut sums, mut sum) = ([[0.0; SIZE]; SIZE], 0.0);
    unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE {
            sum = if (I, J) == (0, 0) { weights[I][J] } else { sum + weights[I][J] };
            sums[I][J] = sum;
        }
    }); });
    (sums, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_are_near() {
        for exponent in [-60, -59, -1, 0, 1, 30, 59] {
            for step in 0..4096 {
                let x = (1.0 + step as f32 / 4096.0) * 2f32.powi(exponent);
                let (got, expected) = (f64::from(reciprocal(x)), 1.0 / f64::from(x));
                assert!(
                    (got / expected - 1.0).abs() < 2.0 * f64::from(f32::EPSILON),
                    "{x}: {got}, expected {expected}"
                );
            }
        }
    }
}
