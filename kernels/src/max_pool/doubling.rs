//! Maxima of so many rows, one after the other, from those of single rows: of two, then of two such pairs, and so on, so that 13 rows take four
//! comparisons.

use cuda_std::prelude::*;

/// What has been found in a row, or in rows one after the other.
pub(super) trait Found: Copy {
    /// The greater of each, and the first of equals.
    fn or(self, later: Self) -> Self;
}

/// Where there is room for what was found in the rows before.
pub(super) trait Kept<F> {
    /// Keeps what was found in four rows, and gives what was four rows ago.
    fn four(&mut self, found: F) -> F;
    /// Keeps what was found in eight rows, and gives what was five rows ago.
    fn eight(&mut self, found: F) -> F;
}

/// Of one, two, four and eight rows, those that windows to come are made of; the last first.
pub(super) struct Doubling<F> {
    one: F,
    twos: [F; 2],
    fours: [F; 4],
    eights: [F; 5],
}

impl<F: Found> Doubling<F> {
    #[device_inline]
    pub fn new(none: F) -> Self {
        Self { one: none, twos: [none; 2], fours: [none; 4], eights: [none; 5] }
    }

    /// Of the `SIZE` rows, 3, 5, 7, 9 or 13, that end with the one that comes now.
    #[device_inline]
    pub fn next<const SIZE: usize>(&mut self, one: F) -> F {
        let two = self.one.or(one);
        let mut found = self.twos[0].or(two);
        if SIZE >= 5 {
            let four = self.twos[1].or(two);
            found = self.fours[if SIZE == 5 { 0 } else { 2 }].or(four);
            if SIZE >= 9 {
                let eight = self.fours[3].or(four);
                found = self.eights[if SIZE == 9 { 0 } else { 4 }].or(eight);
                let [a, b, c, d, _] = self.eights;
                self.eights = [eight, a, b, c, d];
            }
            let [a, b, c, _] = self.fours;
            self.fours = [four, a, b, c];
        }
        self.twos = [two, self.twos[0]];
        self.one = one;
        found
    }

    /// The same of 9 or 13 rows, where what is to come round of four rows, and of eight, is kept elsewhere.
    #[device_inline]
    pub fn next_kept<const SIZE: usize>(&mut self, one: F, kept: &mut impl Kept<F>) -> F {
        let two = self.one.or(one);
        let four = self.twos[1].or(two);
        let eight = kept.four(four).or(four);
        let before = if SIZE == 9 { self.eights[0] } else { kept.eight(eight) };
        self.eights[0] = eight;
        self.twos = [two, self.twos[0]];
        self.one = one;
        before.or(eight)
    }
}
