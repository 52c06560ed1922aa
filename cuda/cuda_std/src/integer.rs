//! Arithmetic of integers that operators alone do not make one instruction of.

/// The whole product. PTX: `mul.wide.u32`.
///
/// Of a product of two `u64`s that came from `u32`s the compiler often makes one of 64 bits by 64 bits: it takes several
/// instructions, some of which add zeros.
#[inline(always)]
pub fn mul_wide(a: u32, b: u32) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    {
        let product: u64;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("mul.wide.u32 {product}, {a}, {b};", product = out(reg64) product, a = in(reg32) a,
                b = in(reg32) b, options(pure, nomem, nostack, preserves_flags));
        }
        product
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        u64::from(a) * u64::from(b)
    }
}

/// The bytes that `SELECTOR` names, its lowest hexadecimal digit that of the lowest: 0 to 3 are those of `a`, 4 to 7 those of `b`.
/// PTX: `prmt.b32` (PTX ISA, Data Movement: `prmt`).
#[inline(always)]
pub fn bytes<const SELECTOR: u32>(a: u32, b: u32) -> u32 {
    const { assert!(SELECTOR & !0x7777 == 0, "four digits of 0 to 7") };
    #[cfg(target_arch = "nvptx64")]
    {
        let chosen: u32;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("prmt.b32 {chosen}, {a}, {b}, {selector};", chosen = out(reg32) chosen, a = in(reg32) a,
                b = in(reg32) b, selector = const SELECTOR, options(pure, nomem, nostack, preserves_flags));
        }
        chosen
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let all = u64::from(a) | u64::from(b) << 32;
        let byte = |digit: u32| ((all >> (8 * (SELECTOR >> (4 * digit) & 7))) & 0xff) << (8 * digit);
        (byte(0) | byte(1) | byte(2) | byte(3)) as u32
    }
}

/// The 32 bits from bit `from` on, below 32, of those of `a` and, above them, `b`. PTX makes one shift of it.
#[inline(always)]
pub fn shifted(a: u32, b: u32, from: u32) -> u32 {
    ((u64::from(a) | u64::from(b) << 32) >> (from & 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::{bytes, shifted};

    #[test]
    fn words_are_shifted_over_their_border() {
        assert_eq!(shifted(0x0302_0100, 0x0706_0504, 0), 0x0302_0100);
        assert_eq!(shifted(0x0302_0100, 0x0706_0504, 8), 0x0403_0201);
        assert_eq!(shifted(0x0302_0100, 0x0706_0504, 24), 0x0605_0403);
    }

    #[test]
    fn bytes_are_chosen_by_digits() {
        let (a, b) = (0x0302_0100, 0x0706_0504);
        assert_eq!(bytes::<0x3210>(a, b), a);
        assert_eq!(bytes::<0x4160>(a, b), 0x0401_0600);
    }
}
