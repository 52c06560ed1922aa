//! Pairs of 16-bit floats, the first in the lower half of a 32-bit word: one instruction works with both.

use crate::element::Storage;
use half::{bf16, f16};

/// A 16-bit float whose pairs are worked with at once: `f16` or `bf16`.
pub trait Paired: Storage {
    /// The pair's numbers, exactly.
    fn split(pair: u32) -> [f32; 2];

    /// The pair of the nearest that 16 bits can hold, ties to even, as by [`Storage::from_two_f32`].
    fn join(numbers: [f32; 2]) -> u32;

    /// The sums of two pairs, rounded once: what the sum in `f32`, which has twice the digits and more, is rounded to. PTX:
    /// `add.rn.f16x2`; `fma.rn.bf16x2`, by 1, for sm_80 adds no `bf16` (PTX ISA, Half Precision Floating Point
    /// Instructions).
    fn sum(a: u32, b: u32) -> u32;

    /// Of each two numbers the greater, or NaN if one is. PTX: `max.NaN.f16x2` or `.bf16x2`.
    fn maximum(a: u32, b: u32) -> u32;

    /// Of each number the greater of it and +0; NaN of NaN. PTX: `fma.rn.relu.f16x2` or `.bf16x2`, by 1.
    fn rectified(pair: u32) -> u32;

    /// All bits of each half in which `a` is greater than `b`, none in the others: with a NaN none. PTX: `set.gt.u32.f16x2`,
    /// `set.gt.u32.bf16x2` (PTX ISA, Half Precision Comparison Instructions: `set`), of which the latter is sm_90's.
    fn where_greater(a: u32, b: u32) -> u32;
}

/// A word of two halves.
#[inline(always)]
fn word(halves: [u16; 2]) -> u32 {
    u32::from(halves[0]) | u32::from(halves[1]) << 16
}

/// A word's halves.
#[inline(always)]
fn halves(word: u32) -> [u16; 2] {
    [word as u16, (word >> 16) as u16]
}

/// [`Paired::where_greater`] by numbers in `f32`.
#[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_90")))]
#[inline(always)]
fn greater_of<T: Paired>(a: u32, b: u32) -> u32 {
    let (a, b) = (T::split(a), T::split(b));
    (if a[0] > b[0] { 0xffff } else { 0 }) | (if a[1] > b[1] { 0xffff_0000 } else { 0 })
}

macro_rules! paired {
    ($($t:ty, $sum:literal, $maximum:literal, $rectified:literal, $greater:literal, $cfg:meta;)*) => {$(
        impl Paired for $t {
            #[inline(always)]
            fn split(pair: u32) -> [f32; 2] {
                halves(pair).map(|half| <Self as Storage>::to_f32(Self::from_bits(half)))
            }

            #[inline(always)]
            fn join(numbers: [f32; 2]) -> u32 {
                word(<Self as Storage>::from_two_f32(numbers).map(Self::to_bits))
            }

            #[inline(always)]
            fn sum(a: u32, b: u32) -> u32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let sum: u32;
                    // SAFETY: arithmetic.
                    unsafe {
                        core::arch::asm!($sum, sum = out(reg32) sum, a = in(reg32) a, b = in(reg32) b,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    sum
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    let (a, b) = (Self::split(a), Self::split(b));
                    Self::join([a[0] + b[0], a[1] + b[1]])
                }
            }

            #[inline(always)]
            fn maximum(a: u32, b: u32) -> u32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let maximum: u32;
                    // SAFETY: arithmetic.
                    unsafe {
                        core::arch::asm!($maximum, maximum = out(reg32) maximum, a = in(reg32) a, b = in(reg32) b,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    maximum
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    let (a, b) = (Self::split(a), Self::split(b));
                    Self::join([0, 1].map(|which| crate::float::maximum(a[which], b[which])))
                }
            }

            #[inline(always)]
            fn rectified(pair: u32) -> u32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let rectified: u32;
                    // SAFETY: arithmetic.
                    unsafe {
                        core::arch::asm!($rectified, rectified = out(reg32) rectified, pair = in(reg32) pair,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    rectified
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    Self::join(Self::split(pair).map(|number| if number <= 0.0 { 0.0 } else { number }))
                }
            }

            #[inline(always)]
            fn where_greater(a: u32, b: u32) -> u32 {
                #[cfg($cfg)]
                {
                    let mask: u32;
                    // SAFETY: arithmetic.
                    unsafe {
                        core::arch::asm!(concat!($greater, " {mask}, {a}, {b};"), mask = out(reg32) mask, a = in(reg32) a,
                            b = in(reg32) b, options(pure, nomem, nostack, preserves_flags));
                    }
                    mask
                }
                #[cfg(not($cfg))]
                {
                    greater_of::<Self>(a, b)
                }
            }
        }
    )*};
}
paired! {
    f16, "add.rn.f16x2 {sum}, {a}, {b};", "max.NaN.f16x2 {maximum}, {a}, {b};",
        "{{ .reg .b32 one, zero; mov.b32 one, 0x3c003c00; mov.b32 zero, 0; fma.rn.relu.f16x2 {rectified}, {pair}, one, zero; }}",
        "set.gt.u32.f16x2", target_arch = "nvptx64";
    bf16, "{{ .reg .b32 one; mov.b32 one, 0x3f803f80; fma.rn.bf16x2 {sum}, {a}, one, {b}; }}", "max.NaN.bf16x2 {maximum}, {a}, {b};",
        "{{ .reg .b32 one, zero; mov.b32 one, 0x3f803f80; mov.b32 zero, 0; fma.rn.relu.bf16x2 {rectified}, {pair}, one, zero; }}",
        "set.gt.u32.bf16x2", all(target_arch = "nvptx64", target_feature = "sm_90");
}

/// All bits of each half in which two words are equal, none in the others, where halves are below `0x7C00`: as subnormal and other
/// positive `f16`s they are compared at once. PTX: `set.eq.u32.f16x2`.
#[inline(always)]
pub fn where_equal_halves(a: u32, b: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let mask: u32;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("set.eq.u32.f16x2 {mask}, {a}, {b};", mask = out(reg32) mask, a = in(reg32) a, b = in(reg32) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        mask
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (a, b) = (halves(a), halves(b));
        word([0, 1].map(|which| if a[which] == b[which] { u16::MAX } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs<T: Paired>(from: impl Fn(f32) -> u16) {
        let numbers = [0.0, -0.0, 1.0, -1.0, 1.5, 1e-7, -1e-7, 3e4, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for a in numbers {
            for b in numbers {
                let (x, y) = (word([from(a), from(b)]), word([from(b), from(a)]));
                let [first, second] = T::split(x);
                let mask = word([first > second, second > first].map(|is| if is { u16::MAX } else { 0 }));
                assert_eq!(T::where_greater(x, y), mask, "{a} {b}");
                assert_eq!(T::join([first, second]), x, "{a} {b}");
                let sum = from(first + second);
                assert_eq!(T::sum(x, y), word([sum; 2]), "{a} {b}");
                let rectified = [a, b].map(|number| from(if number.is_nan() { number } else { number.max(0.0) + 0.0 }));
                assert_eq!(T::rectified(x), word(rectified), "{a} {b}");
                let maximum = if a.is_nan() || a > b || (a == b && a.is_sign_positive()) { a } else { b };
                assert_eq!(T::maximum(x, y), word([from(maximum); 2]), "{a} {b}");
            }
        }
    }

    #[test]
    fn pairs_are_their_numbers() {
        pairs::<f16>(|x| crate::float::f32_to_f16(x).to_bits());
        pairs::<bf16>(|x| crate::float::f32_to_bf16(x).to_bits());
    }

    #[test]
    fn halves_are_equal_one_by_one() {
        assert_eq!(where_equal_halves(0x0007_0003, 0x0007_0004), 0xffff_0000);
        assert_eq!(where_equal_halves(0x00ff_0003, 0x0007_0003), 0x0000_ffff);
    }
}
