//! Arithmetic and conversions, against f64 and the crate `half`.

use cuda_std::prelude::*;

/// Every 101st bit pattern: all exponents, signs, infinities, NaNs, subnormals.
fn many_floats() -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(10_007).map(f32::from_bits)
}

#[test]
fn every_f16_to_f32() {
    for bits in 0..=u16::MAX {
        let half = f16::from_bits(bits);
        let value = float::f16_to_f32(half);
        if half.is_nan() {
            assert_eq!(value.to_bits(), 0x7fff_ffff);
        } else {
            assert_eq!(value.to_bits(), half.to_f32().to_bits(), "{bits:#x}");
            assert_eq!(float::f32_to_f16(value).to_bits(), bits);
        }
    }
}

#[test]
fn every_bf16_to_f32() {
    for bits in 0..=u16::MAX {
        let half = bf16::from_bits(bits);
        let value = float::bf16_to_f32(half);
        assert_eq!(value.to_bits(), u32::from(bits) << 16);
        if !half.is_nan() {
            assert_eq!(float::f32_to_bf16(value).to_bits(), bits);
        }
    }
}

#[test]
fn f32_to_halves() {
    // Ties and their neighbours for every half, and patterns from everywhere.
    let ties16 = (0..=u16::MAX).flat_map(|bits| {
        let value = f16::from_bits(bits).to_f32().to_bits();
        [0x0fff, 0x1000, 0x1001].map(|low| f32::from_bits(value.wrapping_add(low)))
    });
    let ties_b16 =
        (0..=u16::MAX).flat_map(|bits| [0x7fff, 0x8000, 0x8001].map(|low| f32::from_bits(u32::from(bits) << 16 | low)));
    let ties_subnormal = (0..2048u16).map(|digit| (f32::from(digit) + 0.5) * f16::from_bits(1).to_f32());
    for x in ties16.chain(ties_b16).chain(ties_subnormal).chain(many_floats()) {
        let (half, brain) = (float::f32_to_f16(x).to_bits(), float::f32_to_bf16(x).to_bits());
        if x.is_nan() {
            assert_eq!((half, brain), (0x7fff, 0x7fff));
        } else {
            assert_eq!(half, f16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(brain, bf16::from_f32(x).to_bits(), "{x:e}");
        }
    }
}

/// The largest error of `f` against `exact` in units of the last place of the exact value, and where.
fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for x in many_floats() {
        let (found, exact) = (f(x), exact(f64::from(x)));
        if exact.is_nan() || (exact as f32).is_infinite() {
            assert_eq!(exact.is_nan(), found.is_nan(), "{x:e}");
            if !exact.is_nan() {
                assert_eq!(found, exact as f32, "{x:e}");
            }
            continue;
        }
        let exponent = (exact.abs().log2().floor() as i32).clamp(-126, 127);
        let unit = f64::from(exponent - 23).exp2();
        let error = (f64::from(found) - exact).abs() / unit;
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn functions_are_within_a_unit_in_the_last_place() {
    type Case = (&'static str, fn(f32) -> f32, fn(f64) -> f64);
    let cases: [Case; 11] = [
        ("exp", float::exp, f64::exp),
        ("exp2", float::exp2, f64::exp2),
        ("exp_m1", float::exp_m1, f64::exp_m1),
        ("ln", float::ln, f64::ln),
        ("ln_1p", float::ln_1p, f64::ln_1p),
        ("log2", float::log2, f64::log2),
        ("sqrt", float::sqrt, f64::sqrt),
        ("sin", float::sin, f64::sin),
        ("cos", float::cos, f64::cos),
        ("floor", float::floor, f64::floor),
        ("ceil", float::ceil, f64::ceil),
    ];
    for (name, f, exact) in cases {
        let (error, x) = worst(f, exact);
        assert!(error < 1.0, "{name}({x:e}) is off by {error} units");
    }
}

#[test]
fn tanh_is_within_three_units() {
    let (error, x) = worst(float::tanh, f64::tanh);
    assert!(error < 3.0, "tanh({x:e}) is off by {error} units");
}

#[test]
fn fma_rounds_once() {
    let a = 1.0 + f32::EPSILON;
    assert_eq!(float::fma(a, a, -1.0 - 2.0 * f32::EPSILON), f32::EPSILON * f32::EPSILON);
    assert_eq!(a * a - 1.0 - 2.0 * f32::EPSILON, 0.0);
}

#[test]
fn known_values() {
    assert_eq!(float::pow(2.0, 10.0), 1024.0);
    assert!((float::erf(0.5) - 0.520_499_9).abs() < 1e-7);
    assert_eq!(float::exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(float::ln(0.0), f32::NEG_INFINITY);
}
