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
