//! Arithmetic beyond `+ - * /`: single precision, and conversions of half precision.
//!
//! All functions are accurate (errors below one unit in the last place unless said) and give the same bits on the
//! device and on the emulated grid: rounding is IEEE's, subnormals are kept, and what PTX has no accurate
//! instruction for is Rust, compiled for both. The two whose names end in `_approx` are neither: they are the GPU's own instructions,
//! for where a few digits less are enough. Nothing is contracted: `a * b + c` rounds twice, [`fma`] once. On the host
//! conversions have no branches and ask for no instructions that a processor may lack, so that loops of them become vector
//! instructions; `half`'s own have both.

use half::{bf16, f16};

/// `a · b + c` with one rounding. PTX: `fma.rn.f32` (PTX ISA, Floating Point Instructions: `fma`).
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::fmaf32(a, b, c)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        a.mul_add(b, c)
    }
}

/// The square root, correctly rounded. PTX: `sqrt.rn.f32` (PTX ISA, Floating Point Instructions: `sqrt`).
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::sqrtf32(x)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        x.sqrt()
    }
}

/// The greatest integer not above `x`. PTX: `cvt.rmi.f32.f32` (PTX ISA, Data Movement: `cvt`).
#[inline(always)]
pub fn floor(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::floorf32(x)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        x.floor()
    }
}

/// The least integer not below `x`. PTX: `cvt.rpi.f32.f32`.
#[inline(always)]
pub fn ceil(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::ceilf32(x)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        x.ceil()
    }
}

/// `a + b` if the predicate is true, else `a`: one instruction, of the units that add, where a selection takes those that compare.
/// PTX: `@p add.rn.f32`.
#[inline(always)]
pub fn add_if(predicate: bool, a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut sum = a;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("{{ .reg .pred p; setp.ne.u32 p, {p}, 0; @p add.rn.f32 {sum}, {sum}, {b}; }}",
                sum = inout(reg32) sum, b = in(reg32) b, p = in(reg32) predicate as u32,
                options(pure, nomem, nostack, preserves_flags));
        }
        sum
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if predicate { a + b } else { a }
    }
}

/// The larger of two numbers, or a NaN if either is one. PTX: `max.NaN.f32`.
#[inline(always)]
pub fn maximum(a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let larger: f32;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("max.NaN.f32 {larger}, {a}, {b};", larger = out(reg32) larger, a = in(reg32) a,
                b = in(reg32) b, options(pure, nomem, nostack, preserves_flags));
        }
        larger
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if a.is_nan() || a > b || (a == b && a.is_sign_positive()) { a } else { b }
    }
}

/// e to the power of x, without a branch: `x = n·ln 2 + r`, a polynomial for e to the power of r, and 2 to the power of
/// n in two factors, so that subnormal results are right too. 20 instructions.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// ln 2 in two parts; products of the first with a whole number up to 150 are exact.
    const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    /// Added and taken away it rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    /// Of (e^r - 1 - r) / r², interpolated at the Chebyshev nodes of |r| < 0.3466.
    const COEFFICIENTS: [f32; 6] = [0.5, 0.166_666_67, 4.166_646_5e-2, 8.333_311e-3, 1.393_364_8e-3, 1.989_098_8e-4];
    // Beyond these the result is infinite or 0. A NaN passes both.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = fma(x, core::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = fma(-n, LN_2[1], fma(-n, LN_2[0], x));
    let [c0, c1, c2, c3, c4, c5] = COEFFICIENTS;
    let tail = fma(fma(fma(fma(fma(c5, r, c4), r, c3), r, c2), r, c1), r, c0);
    let power = fma(fma(tail, r, 1.0), r, 1.0);
    // From -150 to 128: the sum's last bits. For a NaN anything: the product is a NaN.
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let two_to = |n: i32| f32::from_bits(n.wrapping_add(127).cast_unsigned() << 23);
    power * two_to(n >> 1) * two_to(n.wrapping_sub(n >> 1))
}

macro_rules! approximations {
    ($($(#[$doc:meta])* $name:ident($x:ident) = $ptx:literal, $host:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($x: f32) -> f32 {
            #[cfg(target_arch = "nvptx64")]
            {
                let result: f32;
                // SAFETY: arithmetic.
                unsafe {
                    core::arch::asm!(concat!($ptx, " {result}, {x};"), result = out(reg32) result, x = in(reg32) $x,
                        options(pure, nomem, nostack, preserves_flags));
                }
                result
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                /// Subnormals are zeros of their sign.
                fn flushed(x: f32) -> f32 {
                    if x.abs() < f32::MIN_POSITIVE { x * 0.0 } else { x }
                }
                let $x = flushed($x);
                flushed($host)
            }
        }
    )*};
}
approximations! {
    /// 2 to the power of x, in one instruction; subnormal results are 0. PTX: `ex2.approx.ftz.f32` (PTX ISA, Floating Point
    /// Instructions: `ex2`, which bounds its error). The emulated grid's is accurate: other bits.
    exp2_approx(x) = "ex2.approx.ftz.f32", libm::exp2f(x);
    /// 1 / x, in one instruction; subnormal numbers and results are zeros of their sign. PTX: `rcp.approx.ftz.f32` (PTX ISA, Floating
    /// Point Instructions: `rcp`, which bounds its error). The emulated grid's is accurate: other bits.
    reciprocal_approx(x) = "rcp.approx.ftz.f32", 1.0 / x;
}

macro_rules! from_libm {
    ($($name:ident($($x:ident),*) = $libm:ident: $what:literal;)*) => {$(
        #[doc = concat!($what, " `libm::", stringify!($libm), "`: no single instruction of PTX is as accurate.")]
        #[inline(always)]
        pub fn $name($($x: f32),*) -> f32 {
            libm::$libm($($x),*)
        }
    )*};
}
from_libm! {
    exp2(x) = exp2f: "2 to the power of x.";
    exp_m1(x) = expm1f: "e to the power of x, less 1, accurate near 0.";
    ln(x) = logf: "The natural logarithm.";
    ln_1p(x) = log1pf: "The natural logarithm of 1 + x, accurate near 0.";
    log2(x) = log2f: "The logarithm to base 2.";
    pow(x, y) = powf: "x to the power of y.";
    tanh(x) = tanhf: "The hyperbolic tangent.";
    sin(x) = sinf: "The sine of radians.";
    cos(x) = cosf: "The cosine of radians.";
    erf(x) = erff: "The error function.";
}

/// `f16` to `f32`, exactly; every NaN becomes the one NaN `0x7FFF_FFFF`. PTX: `cvt.f32.f16` (PTX ISA, Data Movement:
/// `cvt`).
#[inline(always)]
pub fn f16_to_f32(x: f16) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let value: f32;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("cvt.f32.f16 {value}, {x};", value = out(reg32) value, x = in(reg16) x.to_bits(),
                options(pure, nomem, nostack, preserves_flags));
        }
        value
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        const EXPONENT: u32 = f16::INFINITY.to_bits() as u32;
        /// 2^-14, the smallest normal `f16`.
        const SMALLEST: u32 = (127 - 14) << 23;
        let magnitude = u32::from(x.to_bits()) & 0x7fff;
        let sign = (u32::from(x.to_bits()) & 0x8000) << 16;
        // Exponent and digits where `f32` has them, the exponent by 112 too small; a subnormal's digits stand behind the 1
        // of the smallest normal, which is taken away again.
        let normal = (magnitude << 13) + (112 << 23);
        let subnormal = (f32::from_bits((magnitude << 13) | SMALLEST) - f32::from_bits(SMALLEST)).to_bits();
        let finite = if magnitude < f16::MIN_POSITIVE.to_bits().into() { subnormal } else { normal };
        let number = if magnitude == EXPONENT { f32::INFINITY.to_bits() } else { finite };
        f32::from_bits(if magnitude > EXPONENT { 0x7fff_ffff } else { number | sign })
    }
}

/// `f32` to the nearest `f16`, ties to even; every NaN becomes `0x7FFF`. PTX: `cvt.rn.f16.f32`.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> f16 {
    #[cfg(target_arch = "nvptx64")]
    {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("cvt.rn.f16.f32 {bits}, {x};", bits = out(reg16) bits, x = in(reg32) x,
                options(pure, nomem, nostack, preserves_flags));
        }
        f16::from_bits(bits)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        const INFINITY: u32 = f32::INFINITY.to_bits();
        /// 2^16, beyond all `f16`.
        const LARGE: u32 = (127 + 16) << 23;
        /// 2^-14, the smallest normal `f16`.
        const SMALLEST: u32 = (127 - 14) << 23;
        /// 2^-1, whose last digit is a subnormal's.
        const HALF: u32 = (127 - 1) << 23;
        let magnitude = x.to_bits() & 0x7fff_ffff;
        let sign = (x.to_bits() >> 16) & 0x8000;
        // Ties to even by adding just under one half, and the last digit that stays. What passes the largest number
        // becomes the infinity by its carry.
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        let subnormal = (f32::from_bits(magnitude) + f32::from_bits(HALF)).to_bits().wrapping_sub(HALF);
        let finite = if magnitude < SMALLEST { subnormal } else { normal };
        let number = if magnitude < LARGE { finite } else { f16::INFINITY.to_bits().into() };
        f16::from_bits(if magnitude > INFINITY { 0x7fff } else { (number | sign) as u16 })
    }
}

/// `bf16` to `f32`, exactly and with NaNs as they are: its bits are an `f32`'s upper half. PTX: `shl.b32`.
#[inline(always)]
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Two `f32` as [`f32_to_bf16`] rounds them, in a word; the first is below.
/// PTX: `cvt.rn.bf16x2.f32`, sm_80 and later.
#[inline(always)]
pub fn f32_to_bf16_pair(low: f32, high: f32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let word: u32;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("cvt.rn.bf16x2.f32 {word}, {high}, {low};", word = out(reg32) word, high = in(reg32) high,
                low = in(reg32) low, options(pure, nomem, nostack, preserves_flags));
        }
        word
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        u32::from(f32_to_bf16(high).to_bits()) << 16 | u32::from(f32_to_bf16(low).to_bits())
    }
}

/// `f32` to the nearest `bf16`, ties to even; every NaN becomes `0x7FFF`. PTX: `cvt.rn.bf16.f32`, sm_80 and later.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> bf16 {
    #[cfg(target_arch = "nvptx64")]
    {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("cvt.rn.bf16.f32 {bits}, {x};", bits = out(reg16) bits, x = in(reg32) x,
                options(pure, nomem, nostack, preserves_flags));
        }
        bf16::from_bits(bits)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        // Ties to even by adding just under one half, and the last digit that stays.
        let number = x.to_bits().wrapping_add(0x7fff + ((x.to_bits() >> 16) & 1)) >> 16;
        bf16::from_bits(if x.is_nan() { 0x7fff } else { number as u16 })
    }
}

macro_rules! two_at_once {
    ($($name:ident: $t:ty, $one:ident, $ptx:literal;)*) => {$(
        #[doc = concat!("[`", stringify!($one), "`] of two numbers. PTX: `", $ptx, "`, sm_80 and later.")]
        #[inline(always)]
        pub fn $name(x: [f32; 2]) -> [$t; 2] {
            #[cfg(target_arch = "nvptx64")]
            {
                let bits: u32;
                // SAFETY: arithmetic.
                unsafe {
                    core::arch::asm!(concat!($ptx, " {bits}, {second}, {first};"), bits = out(reg32) bits,
                        first = in(reg32) x[0], second = in(reg32) x[1],
                        options(pure, nomem, nostack, preserves_flags));
                }
                [<$t>::from_bits(bits as u16), <$t>::from_bits((bits >> 16) as u16)]
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                x.map($one)
            }
        }
    )*};
}
two_at_once! {
    two_f32_to_f16: f16, f32_to_f16, "cvt.rn.f16x2.f32";
    two_f32_to_bf16: bf16, f32_to_bf16, "cvt.rn.bf16x2.f32";
}

#[cfg(test)]
mod tests {
    use super::{exp2_approx, reciprocal_approx};

    #[test]
    fn approximations_keep_no_subnormals() {
        assert_eq!([0.0, 3.0, -126.0].map(exp2_approx), [1.0, 8.0, f32::MIN_POSITIVE]);
        assert_eq!([-126.5, -200.0, f32::NEG_INFINITY].map(exp2_approx), [0.0; 3]);
        assert_eq!(exp2_approx(200.0), f32::INFINITY);
        assert_eq!([4.0, f32::INFINITY, 3e38].map(reciprocal_approx), [0.25, 0.0, 0.0]);
        assert_eq!([0.0, -1e-40].map(reciprocal_approx), [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(exp2_approx(f32::NAN).is_nan() && reciprocal_approx(f32::NAN).is_nan());
    }
}
