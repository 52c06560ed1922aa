//! Random numbers of a counter: Philox4x32-10 (Salmon, Moraes, Dror & Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3*,
//! SC 2011), for kernels and for the CPU.
//!
//! A thread asks for the numbers of its own counter: there is no state to share, and every device and every order of
//! threads draws the same. What the CPU asks for is inlined there too: its loops become vector code only so.

use cuda_std::device_inline;
use cuda_std::integer::mul_wide;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// The golden ratio and the square root of 3 less 1, by which the key grows from round to round.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// The four numbers of a counter.
#[inline(always)]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < ROUNDS {
        let products = [mul_wide(MULTIPLIERS[0], counter[0]), mul_wide(MULTIPLIERS[1], counter[2])];
        counter = [
            (products[1] >> 32) as u32 ^ counter[1] ^ key[0],
            products[1] as u32,
            (products[0] >> 32) as u32 ^ counter[3] ^ key[1],
            products[0] as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        round += 1;
    }
    counter
}

/// The numbers of element `index` in pass `offset` of a run with this seed: the key is the seed, the counter the offset and
/// the index, each with its lower half first.
#[inline(always)]
pub fn numbers(seed: u64, offset: u64, index: u64) -> [u32; 4] {
    let counter = [offset as u32, (offset >> 32) as u32, index as u32, (index >> 32) as u32];
    philox4x32(counter, [seed as u32, (seed >> 32) as u32])
}

/// The first number of each counter of one pass whose index is below 2³².
///
/// What the first three rounds make of the seed and the offset alone is the same for all of these, and is here once; of the
/// last two only what that number is made of is worked out: 16 wide products are left of twenty.
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    key: [u32; 2],
    /// What is added in round 1 to the index's product, in round 2 to both words, in round 3 to the first.
    same: [u32; 4],
}

impl Pass {
    /// Of a run with this seed.
    #[device_inline]
    pub fn new(seed: u64, offset: u64) -> Self {
        let key = [seed as u32, (seed >> 32) as u32];
        let [lower, upper] = product(0, offset as u32);
        let [lower_too, upper_too] = product(1, upper ^ key[1]);
        let [second, third] = [1, 2].map(|round| key_of(key, round));
        let same = [(offset >> 32) as u32 ^ key[0], upper_too ^ second[0], lower ^ second[1], lower_too ^ third[0]];
        Self { key, same }
    }

    /// As [`numbers`], the first.
    #[device_inline]
    pub fn number(&self, index: u32) -> u32 {
        let [lower, upper] = product(1, index);
        let [last, upper_too] = product(0, upper ^ self.same[0]);
        let ([first_lower, first_upper], [lower, upper]) =
            (product(0, lower ^ self.same[1]), product(1, upper_too ^ self.same[2]));
        let mut counter = [upper ^ self.same[3], lower, first_upper ^ last ^ key_of(self.key, 2)[1], first_lower];
        let mut round = 3;
        while round < ROUNDS - 2 {
            let key = key_of(self.key, round);
            let ([lower, upper], [lower_too, upper_too]) = (product(0, counter[0]), product(1, counter[2]));
            counter = [upper_too ^ counter[1] ^ key[0], lower_too, upper ^ counter[3] ^ key[1], lower];
            round += 1;
        }
        let upper = product(0, counter[0])[1] ^ counter[3] ^ key_of(self.key, ROUNDS - 2)[1];
        product(1, upper)[1] ^ counter[2].wrapping_mul(MULTIPLIERS[1]) ^ key_of(self.key, ROUNDS - 1)[0]
    }
}

/// The product by a multiplier, its lower half first.
#[device_inline]
fn product(by: usize, number: u32) -> [u32; 2] {
    let product = mul_wide(MULTIPLIERS[by], number);
    [product as u32, (product >> 32) as u32]
}

/// The key of a round, counted from 0.
#[device_inline]
fn key_of(key: [u32; 2], round: u32) -> [u32; 2] {
    [key[0].wrapping_add(WEYL[0].wrapping_mul(round)), key[1].wrapping_add(WEYL[1].wrapping_mul(round))]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random123's known answers (`kat_vectors` of release 1.14).
    #[test]
    fn gives_the_published_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn the_counter_is_offset_and_index() {
        let (seed, offset, index) = (0x299f_31d0_a409_3822, 0x85a3_08d3_243f_6a88, 0x0370_7344_1319_8a2e);
        assert_eq!(numbers(seed, offset, index), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn a_pass_gives_the_first_numbers() {
        for (seed, offset) in [(0, 0), (u64::MAX, u64::MAX), (0x299f_31d0_a409_3822, 0x85a3_08d3_243f_6a88)] {
            let pass = Pass::new(seed, offset);
            for index in [0, 1, 2, 0x1319_8a2e, 1 << 31, u32::MAX] {
                assert_eq!(pass.number(index), numbers(seed, offset, index.into())[0], "{seed:x} {offset:x} {index:x}");
            }
        }
    }
}
