//! Slices of 16 bits to what arithmetic takes and back, by the processor's own instructions where it has them. Bits are those
//! of the conversions of one element, NaN's too.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

use half::f16;
use multiversion::multiversion;
use multiversion::target::match_target;

use super::Real;

/// [`Real::widen`] for each.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn widen_each<T: Real>(values: &[T], out: &mut [T::Compute]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out = value.widen());
}

/// [`Real::narrow`] for each.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn narrow_each<T: Real>(values: &[T::Compute], out: &mut [T]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out = T::narrow(*value));
}

/// [`widen_each`], eight at a time.
#[multiversion(targets("x86_64+avx2+f16c"))]
pub(super) fn widen_f16(values: &[f16], out: &mut [f32]) {
    let ((values, rest), (out, out_of_rest)) = (values.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (out, values) in out.iter_mut().zip(values) {
        *out = match_target! {
            "x86_64+avx2+f16c" => {
                let converted: [f32; 8] = bytemuck::cast(_mm256_cvtph_ps(bytemuck::cast(values.map(f16::to_bits))));
                // A NaN keeps digits of its own there.
                converted.map(|value| if value.is_nan() { f16::NAN.widen() } else { value })
            },
            _ => values.map(f16::widen),
        };
    }
    widen_each(rest, out_of_rest);
}

/// [`narrow_each`], eight at a time.
#[multiversion(targets("x86_64+avx2+f16c"))]
pub(super) fn narrow_f16(values: &[f32], out: &mut [f16]) {
    let ((values, rest), (out, out_of_rest)) = (values.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (out, values) in out.iter_mut().zip(values) {
        *out = match_target! {
            "x86_64+avx2+f16c" => {
                let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(*values));
                let bits: [u16; 8] = bytemuck::cast(bits);
                bits.map(|bits| f16::from_bits(if is_nan(bits) { NAN } else { bits }))
            },
            _ => values.map(f16::narrow),
        };
    }
    narrow_each(rest, out_of_rest);
}

/// The one NaN that rounding gives.
const NAN: u16 = 0x7fff;

/// Without a branch, which `f16`'s own has.
#[inline(always)]
fn is_nan(bits: u16) -> bool {
    bits & 0x7fff > f16::INFINITY.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of 16 bits, and of 32 those next to where rounding changes: the bits of one element's conversions, in any place of a
    /// slice.
    #[test]
    fn bits_are_those_of_one_element() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for first in 0..9 {
            let (values, mut wide) = (&all[first..], vec![0.0; all.len() - first]);
            f16::widen_all(values, &mut wide);
            let same = values.iter().zip(&wide).all(|(value, wide)| value.widen().to_bits() == wide.to_bits());
            assert!(same, "widened from element {first} on");
        }
        let near = |bits: u32| [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff].map(|more| f32::from_bits((bits << 13) + more));
        let values: Vec<f32> = (0..1 << 19).flat_map(near).collect();
        let mut narrow = vec![f16::ZERO; values.len()];
        f16::narrow_all(&values, &mut narrow);
        for (value, narrow) in values.iter().zip(narrow) {
            assert_eq!(f16::narrow(*value).to_bits(), narrow.to_bits(), "{value:e}, {:#x}", value.to_bits());
        }
    }
}
