//! Slices of 16 bits to what arithmetic takes and back, by the processor's own instructions where it has them. Bits are those
//! of the conversions of one element, NaN's too.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use multiversion::multiversion;
use multiversion::target::match_target;

use super::Real;

/// [`Real::widen`] for each.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn widen_each<T: Real>(values: &[T], out: &mut [T::Compute]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out = value.widen());
}

/// [`Real::narrow`] for each.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn narrow_each<T: Real>(values: &[T::Compute], out: &mut [T]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out = T::narrow(*value));
}

/// Elements that are converted at once.
const BLOCK: usize = 16;

/// [`widen_each`], some at a time.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+f16c"))]
pub(super) fn widen_f16(values: &[f16], out: &mut [f32]) {
    let whole = values.len() / BLOCK * BLOCK;
    let (blocks, _) = values.reinterpret_cast().as_chunks::<BLOCK>();
    for (out, block) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
        // NaNs keep digits of their own in the processor's conversions.
        *out = match_target! {
            "x86_64+avx512f+avx512bw+avx512dq+avx512vl" => {
                let values = _mm512_cvtph_ps(bytemuck::cast(*block));
                let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
                bytemuck::cast(_mm512_mask_blend_ps(is_nan, values, _mm512_set1_ps(WIDE_NAN)))
            },
            "x86_64+avx2+f16c" => {
                let halves: [[u16; BLOCK / 2]; 2] = bytemuck::cast(*block);
                bytemuck::cast(halves.map(|half| {
                    let values = _mm256_cvtph_ps(bytemuck::cast(half));
                    let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
                    _mm256_blendv_ps(values, _mm256_set1_ps(WIDE_NAN), is_nan)
                }))
            },
            _ => block.map(|bits| f16::from_bits(bits).widen()),
        };
    }
    widen_each(&values[whole..], &mut out[whole..]);
}

/// [`narrow_each`], some at a time.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+f16c"))]
pub(super) fn narrow_f16(values: &[f32], out: &mut [f16]) {
    let whole = values.len() / BLOCK * BLOCK;
    let (blocks, _) = values.as_chunks::<BLOCK>();
    for (out, block) in out.reinterpret_cast_mut().as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
        *out = match_target! {
            "x86_64+avx512f+avx512bw+avx512dq+avx512vl" => {
                let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(*block));
                let magnitudes = _mm256_and_si256(bits, _mm256_set1_epi16(NAN));
                let is_nan = _mm256_cmpgt_epi16_mask(magnitudes, _mm256_set1_epi16(INFINITY));
                bytemuck::cast(_mm256_mask_blend_epi16(is_nan, bits, _mm256_set1_epi16(NAN)))
            },
            "x86_64+avx2+f16c" => {
                let halves: [[f32; TOGETHER]; 2] = bytemuck::cast(*block);
                bytemuck::cast(halves.map(f16c_to_halves!()))
            },
            _ => block.map(|value| f16::narrow(value).to_bits()),
        };
    }
    narrow_each(&values[whole..], &mut out[whole..]);
}

/// Elements that [`halves!`] converts at once.
pub const TOGETHER: usize = 8;

/// Makes `f32` of the bits of f16, some at once.
pub trait Halves: Fn([u16; TOGETHER]) -> [f32; TOGETHER] + Copy {}

impl<F: Fn([u16; TOGETHER]) -> [f32; TOGETHER] + Copy> Halves for F {}

/// In a function of several targets, `x86_64+avx2+f16c` among them: what this one has for [`Halves`]. As [`Real::widen`], but for NaNs'
/// digits, which are their own.
macro_rules! halves {
    () => {
        multiversion::target::match_target! {
            // Which has F16C.
            "x86_64+avx512f" | "x86_64+avx2+f16c" => {
                |bits: [u16; 8]| -> [f32; 8] { bytemuck::cast(std::arch::x86_64::_mm256_cvtph_ps(bytemuck::cast(bits))) }
            },
            _ => |bits: [u16; 8]| bits.map(|bits| half::f16::from_bits(bits).widen()),
        }
    };
}
pub(crate) use halves;

/// Makes bits of f16 of `f32`, some at once.
pub trait ToHalves: Fn([f32; TOGETHER]) -> [u16; TOGETHER] + Copy {}

impl<F: Fn([f32; TOGETHER]) -> [u16; TOGETHER] + Copy> ToHalves for F {}

/// In a function of several targets, as [`halves!`]: what this one has for [`ToHalves`]. Bits are those of [`Real::narrow`].
macro_rules! to_halves {
    () => {
        multiversion::target::match_target! {
            "x86_64+avx512f" | "x86_64+avx2+f16c" => $crate::element::convert::f16c_to_halves!(),
            _ => |values: [f32; 8]| values.map(|value| half::f16::narrow(value).to_bits()),
        }
    };
}
pub(crate) use to_halves;

/// Of [`to_halves!`], with F16C and AVX2.
macro_rules! f16c_to_halves {
    () => {
        |values: [f32; 8]| -> [u16; 8] {
            use std::arch::x86_64::*;
            let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(values));
            let magnitudes = _mm_and_si128(bits, _mm_set1_epi16($crate::element::convert::NAN));
            let is_nan = _mm_cmpgt_epi16(magnitudes, _mm_set1_epi16($crate::element::convert::INFINITY));
            bytemuck::cast(_mm_blendv_epi8(bits, _mm_set1_epi16($crate::element::convert::NAN), is_nan))
        }
    };
}
pub(crate) use f16c_to_halves;

/// [`Real::widen_together`] of f16.
#[inline(always)]
pub fn f16_together(values: [f16; TOGETHER], halves: impl Halves) -> [f32; TOGETHER] {
    halves(values.map(f16::to_bits))
}

/// [`Real::widen_together`] of bf16.
#[inline(always)]
pub fn bf16_together(values: [bf16; TOGETHER], _: impl Halves) -> [f32; TOGETHER] {
    values.map(bf16::widen)
}

/// [`Real::narrow_together`] to f16.
#[inline(always)]
pub fn f16_of(values: [f32; TOGETHER], to_halves: impl ToHalves) -> [f16; TOGETHER] {
    to_halves(values).map(f16::from_bits)
}

/// [`Real::narrow_together`] to bf16.
#[inline(always)]
pub fn bf16_of(values: [f32; TOGETHER], _: impl ToHalves) -> [bf16; TOGETHER] {
    // No closure: it would not be compiled for the caller's target.
    let mut out = [bf16::ZERO; TOGETHER];
    for (out, value) in out.iter_mut().zip(values) {
        *out = bf16::narrow(value);
    }
    out
}

/// Of the first of `values` so many, each as [`Real::widen`] makes it; of f16 as `halves` do.
///
/// # Panics
/// When there are fewer.
#[inline(always)]
pub fn widen_some<const COUNT: usize, T: Real>(values: &[T], halves: impl Halves) -> [T::Compute; COUNT] {
    let values: &[T; COUNT] = values[..COUNT].as_array().expect("as many as that");
    let mut out = [T::Compute::of(0.0); COUNT];
    let ((blocks, rest), (of_blocks, of_rest)) = (values.as_chunks(), out.as_chunks_mut());
    of_blocks.iter_mut().zip(blocks).for_each(|(out, block)| *out = T::widen_together(*block, halves));
    of_rest.iter_mut().zip(rest).for_each(|(out, value)| *out = value.widen());
    out
}

/// The one NaN that conversions give, which is all digits of a magnitude, too.
#[cfg(target_arch = "x86_64")]
pub(crate) const NAN: i16 = 0x7fff;
#[cfg(target_arch = "x86_64")]
const WIDE_NAN: f32 = f32::from_bits(0x7fff_ffff);
#[cfg(target_arch = "x86_64")]
pub(crate) const INFINITY: i16 = f16::INFINITY.to_bits().cast_signed();

#[cfg(test)]
mod tests {
    use super::*;

    #[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+f16c"))]
    fn narrow_together<T: Real<Compute = f32>>(values: &[f32], out: &mut [T]) {
        let to_halves = to_halves!();
        for (out, values) in out.as_chunks_mut().0.iter_mut().zip(values.as_chunks().0) {
            *out = T::narrow_together(*values, to_halves);
        }
    }

    /// All of 16 bits, and of 32 those next to where rounding changes: the bits of one element's conversions, in any place of a
    /// slice.
    #[test]
    fn bits_are_those_of_one_element() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for first in 0..17 {
            let (values, mut wide) = (&all[first..], vec![0.0; all.len() - first]);
            f16::widen_all(values, &mut wide);
            let same = values.iter().zip(&wide).all(|(value, wide)| value.widen().to_bits() == wide.to_bits());
            assert!(same, "widened from element {first} on");
        }
        let near = |bits: u32| [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff].map(|more| f32::from_bits((bits << 13) + more));
        let values: Vec<f32> = (0..1 << 19).flat_map(near).collect();
        let mut narrow = vec![f16::ZERO; values.len()];
        f16::narrow_all(&values, &mut narrow);
        let mut together = narrow.clone();
        together.fill(f16::ONE);
        narrow_together(&values, &mut together);
        for (value, narrow) in values.iter().zip(narrow.iter().zip(together)) {
            let expected = f16::narrow(*value).to_bits();
            assert_eq!(
                [narrow.0, &narrow.1].map(|narrow| narrow.to_bits()),
                [expected; 2],
                "{value:e}, {:#x}",
                value.to_bits()
            );
        }
        let mut together = vec![bf16::ONE; values.len()];
        narrow_together(&values, &mut together);
        for (value, narrow) in values.iter().zip(together) {
            assert_eq!(bf16::narrow(*value).to_bits(), narrow.to_bits(), "{value:e}, {:#x}", value.to_bits());
        }
    }
}
