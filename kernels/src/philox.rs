//! Random numbers of a counter: Philox4x32-10 (Salmon, Moraes, Dror & Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3*,
//! SC 2011), for kernels and for the CPU.
//!
//! A thread asks for the numbers of its own counter: there is no state to share, and every device and every order of
//! threads draws the same.

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
}
