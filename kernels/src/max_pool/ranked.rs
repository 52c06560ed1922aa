//! An element and its position, of which the greatest is looked for: of 16 bits both are a word, so that one instruction compares them.

use cuda_std::prelude::*;

/// What is compared, one element after the other: an element and its position.
pub trait Ranked: Storage {
    /// Both.
    type Greatest: Copy;

    /// Words of shared memory that they take.
    const WORDS: u32;

    /// An element as a word, from which [`at`](Self::at) makes both.
    fn word(self) -> u32;
    /// Of an element's word and its position, fewer than [`MOST_POSITIONS`].
    fn at(word: u32, position: u32) -> Self::Greatest;
    /// The same so many positions further on.
    fn further(this: Self::Greatest, by: u32) -> Self::Greatest;
    /// The greater, and of equals the first, which is `this`.
    fn or(this: Self::Greatest, later: Self::Greatest) -> Self::Greatest;
    /// The element, and its position.
    fn parts(this: Self::Greatest) -> (Self, u32);
    /// Stores to a slot of shared memory, of which there are so many, if `is`.
    ///
    /// # Safety
    /// There are, more than the first number, and nobody else uses that one, then.
    unsafe fn store_if(to: Shared<u32>, is: bool, at: (u32, u32), this: Self::Greatest);
    /// Loads from shared memory.
    ///
    /// # Safety
    /// As it was stored.
    unsafe fn load(from: Shared<u32>, at: (u32, u32)) -> Self::Greatest;
    /// Loads four of them, from a multiple of four on.
    ///
    /// # Safety
    /// As they were stored.
    unsafe fn load4(from: Shared<u32>, at: (u32, u32)) -> [Self::Greatest; 4];
}

/// Positions that are counted in a part, at most.
pub const MOST_POSITIONS: u32 = 1 << 15;

impl Ranked for f32 {
    type Greatest = (f32, u32);

    const WORDS: u32 = 2;

    #[device_inline]
    fn word(self) -> u32 {
        self.to_bits()
    }

    #[device_inline]
    fn at(word: u32, position: u32) -> (f32, u32) {
        (Self::from_bits(word), position)
    }

    #[device_inline]
    fn further((value, position): (f32, u32), by: u32) -> (f32, u32) {
        (value, position.wrapping_add(by))
    }

    #[device_inline]
    fn or(this: (f32, u32), later: (f32, u32)) -> (f32, u32) {
        if later.0 > this.0 { later } else { this }
    }

    #[device_inline]
    fn parts(this: (f32, u32)) -> (f32, u32) {
        this
    }

    #[device_inline]
    unsafe fn store_if(to: Shared<u32>, is: bool, (slot, room): (u32, u32), (value, position): (f32, u32)) {
        // SAFETY: the caller's.
        unsafe {
            to.store_if(is, slot, value.to_bits());
            to.store_if(is, room + slot, position);
        }
    }

    #[device_inline]
    unsafe fn load(from: Shared<u32>, (slot, room): (u32, u32)) -> (f32, u32) {
        // SAFETY: the caller's.
        unsafe { (Self::from_bits(from.load(slot)), from.load(room + slot)) }
    }

    #[device_inline]
    unsafe fn load4(from: Shared<u32>, (slot, room): (u32, u32)) -> [(f32, u32); 4] {
        // SAFETY: the caller's.
        let (values, positions) = unsafe { (from.load4(slot).to_array(), from.load4(room + slot).to_array()) };
        [0, 1, 2, 3].map(|i| (Self::from_bits(values[i]), positions[i]))
    }
}

/// An element of 16 bits and its position in a word, such that the greater word is the greater element, or of equals the first: the upper half is the element's
/// magnitude, negated where its sign is negative, the lower what is left of [`MOST_POSITIONS`] after the position, and the sign, by which zeros differ.
macro_rules! halves {
    ($($t:ty)*) => {$(
        impl Ranked for $t {
            type Greatest = i32;

            const WORDS: u32 = 1;

            #[device_inline]
            fn word(self) -> u32 {
                let word = u32::from(self.to_bits()) << 16;
                let sign = (word as i32 >> 31) as u32;
                ((word & 0x7fff_0000) ^ sign).wrapping_sub(sign).wrapping_sub(sign)
            }

            #[device_inline]
            fn at(word: u32, position: u32) -> i32 {
                word.wrapping_add(2 * (MOST_POSITIONS - 1 - position)) as i32
            }

            #[device_inline]
            fn further(this: i32, by: u32) -> i32 {
                this.wrapping_sub(by.wrapping_mul(2) as i32)
            }

            #[device_inline]
            fn or(this: i32, later: i32) -> i32 {
                if later > this { later } else { this }
            }

            #[device_inline]
            fn parts(this: i32) -> (Self, u32) {
                let bits = (this >> 16).unsigned_abs() | (this as u32 & 1) << 15;
                (Self::from_bits(bits as u16), (!this as u32 & 0xffff) >> 1)
            }

            #[device_inline]
            unsafe fn store_if(to: Shared<u32>, is: bool, (slot, _): (u32, u32), this: i32) {
                // SAFETY: the caller's.
                unsafe { to.store_if(is, slot, this as u32) };
            }

            #[device_inline]
            unsafe fn load(from: Shared<u32>, (slot, _): (u32, u32)) -> i32 {
                // SAFETY: the caller's.
                unsafe { from.load(slot) as i32 }
            }

            #[device_inline]
            unsafe fn load4(from: Shared<u32>, (slot, _): (u32, u32)) -> [i32; 4] {
                // SAFETY: the caller's.
                unsafe { from.load4(slot) }.to_array().map(|word| word as i32)
            }
        }
    )*};
}
halves!(f16 bf16);
