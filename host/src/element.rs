//! Element types of tensors.

pub(crate) mod convert;

use std::fmt::{Debug, Display};
use std::iter::Sum;

use cuda_std::float;
use half::{bf16, f16};

use convert::{Halves, TOGETHER, ToHalves};

/// The name of an element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// `f16`: IEEE half precision
    F16,
    /// `bf16`: the upper half of an `f32`
    Bf16,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
}

impl DType {
    /// As Rust writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// The bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 | Self::U16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::F64 | Self::U64 => 8,
        }
    }
}

impl Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What a [`Tensor`](crate::Tensor) can hold: plain numbers, for which every bit pattern is a value.
pub trait Element: sealed::Sealed + Copy + Default + Debug + PartialEq + Send + Sync + 'static {
    /// The type's name at run time.
    const DTYPE: DType;
    /// The value whose every bit is set: NaN for floating point, the largest integer otherwise.
    ///
    /// What outputs hold before a pass on a device that poisons them.
    const POISON: Self;

    /// The value's bits: two values with the same are the same, NaN and signed zeros included.
    fn bits(self) -> u64;
}

macro_rules! element {
    ($($t:ty => $dtype:ident, $poison:expr, $bits:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            const POISON: Self = $poison;
            fn bits(self) -> u64 {
                let bits: fn(Self) -> u64 = $bits;
                bits(self)
            }
        }
    )*};
}

element! {
    f16 => F16, f16::from_bits(u16::MAX), |v| v.to_bits().into();
    bf16 => Bf16, bf16::from_bits(u16::MAX), |v| v.to_bits().into();
    f32 => F32, f32::from_bits(u32::MAX), |v| v.to_bits().into();
    f64 => F64, f64::from_bits(u64::MAX), f64::to_bits;
    u8 => U8, u8::MAX, u64::from;
    u16 => U16, u16::MAX, u64::from;
    u32 => U32, u32::MAX, u64::from;
    u64 => U64, u64::MAX, |v| v;
}

/// An element type of layers' inputs and outputs: `f32`, and `f16` and `bf16`, which are computed with in `f32` and
/// rounded once, when a result is stored; on the CPU also `f64`, for gradient checks.
pub trait Real: Element + Display {
    /// What arithmetic takes it as. Parameters that are few and read often (slopes, means, variances) are of this type.
    type Compute: Compute + ParameterOf<Self>;
    /// The distance from 1 to the next larger value.
    const EPSILON: f64;
    /// The smallest normal value above 0.
    const MIN_POSITIVE: f64;

    /// The same value, to compute with.
    fn widen(self) -> Self::Compute;
    /// The nearest value, ties to even.
    fn narrow(v: Self::Compute) -> Self;
    /// The nearest value to `v`.
    fn of(v: f64) -> Self;
    /// The same value as `f64`.
    fn f64(self) -> f64;
    /// [`Real::widen`] for each of `values`, which are as many as `out`: quicker than one by one.
    fn widen_all(values: &[Self], out: &mut [Self::Compute]);
    /// [`Real::widen`] for each of a few, of f16 as `halves` do.
    #[doc(hidden)]
    fn widen_together(values: [Self; TOGETHER], halves: impl Halves) -> [Self::Compute; TOGETHER];
    /// [`Real::narrow`] for each of `values`, which are as many as `out`: quicker than one by one.
    fn narrow_all(values: &[Self::Compute], out: &mut [Self]);
    /// [`Real::narrow`] for each of a few, to f16 as `to_halves` do.
    #[doc(hidden)]
    fn narrow_together(values: [Self::Compute; TOGETHER], to_halves: impl ToHalves) -> [Self; TOGETHER];
    /// The same memory as what arithmetic takes, where that is this very type: nothing to convert, nothing to copy.
    fn as_compute(values: &[Self]) -> Option<&[Self::Compute]>;
    /// As [`Real::as_compute`], to be written.
    fn as_compute_mut(values: &mut [Self]) -> Option<&mut [Self::Compute]>;
}

/// A type that parameters of a pass over `T` may have: `T` itself, or what arithmetic takes it as.
pub trait ParameterOf<T: Real>: Real<Compute = T::Compute> {}

impl<T: Real> ParameterOf<T> for T {}
impl ParameterOf<f16> for f32 {}
impl ParameterOf<bf16> for f32 {}

/// A type that arithmetic is done in: `f32` or `f64`.
pub trait Compute:
    Real<Compute = Self> + num_traits::Float + num_traits::NumAssign + num_traits::FromPrimitive + Sum
{
}

macro_rules! compute {
    ($($t:ident)*) => {$(
        impl Real for $t {
            type Compute = Self;
            const EPSILON: f64 = $t::EPSILON as f64;
            const MIN_POSITIVE: f64 = $t::MIN_POSITIVE as f64;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(v: Self) -> Self {
                v
            }
            #[inline(always)]
            fn of(v: f64) -> Self {
                v as Self
            }
            #[inline(always)]
            fn f64(self) -> f64 {
                self.into()
            }
            fn widen_all(values: &[Self], out: &mut [Self]) {
                out.copy_from_slice(values);
            }
            #[inline(always)]
            fn widen_together(values: [Self; TOGETHER], _: impl Halves) -> [Self; TOGETHER] {
                values
            }
            fn narrow_all(values: &[Self], out: &mut [Self]) {
                out.copy_from_slice(values);
            }
            #[inline(always)]
            fn narrow_together(values: [Self; TOGETHER], _: impl ToHalves) -> [Self; TOGETHER] {
                values
            }
            fn as_compute(values: &[Self]) -> Option<&[Self]> {
                Some(values)
            }
            fn as_compute_mut(values: &mut [Self]) -> Option<&mut [Self]> {
                Some(values)
            }
        }

        impl Compute for $t {}
    )*};
}
compute!(f32 f64);

macro_rules! half {
    ($($t:ident: $widen:path, $narrow:path, $widen_all:path, $widen_together:path, $narrow_all:path, $narrow_together:path, $epsilon:expr, $min_positive:expr;)*) => {$(
        impl Real for $t {
            type Compute = f32;
            const EPSILON: f64 = $epsilon;
            const MIN_POSITIVE: f64 = $min_positive;

            // The kernels' conversions: the same bits on every device, NaN's included.
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(v: f32) -> Self {
                $narrow(v)
            }
            #[inline(always)]
            fn of(v: f64) -> Self {
                Self::from_f64(v)
            }
            #[inline(always)]
            fn f64(self) -> f64 {
                self.to_f64()
            }
            fn widen_all(values: &[Self], out: &mut [f32]) {
                assert_eq!(values.len(), out.len(), "one for each");
                $widen_all(values, out);
            }
            #[inline(always)]
            fn widen_together(values: [Self; TOGETHER], halves: impl Halves) -> [f32; TOGETHER] {
                $widen_together(values, halves)
            }
            fn narrow_all(values: &[f32], out: &mut [Self]) {
                assert_eq!(values.len(), out.len(), "one for each");
                $narrow_all(values, out);
            }
            #[inline(always)]
            fn narrow_together(values: [f32; TOGETHER], to_halves: impl ToHalves) -> [Self; TOGETHER] {
                $narrow_together(values, to_halves)
            }
            fn as_compute(_: &[Self]) -> Option<&[f32]> {
                None
            }
            fn as_compute_mut(_: &mut [Self]) -> Option<&mut [f32]> {
                None
            }
        }
    )*};
}
half! {
    f16: float::f16_to_f32, float::f32_to_f16, convert::widen_f16,
        convert::f16_together, convert::narrow_f16, convert::f16_of, 1.0 / 1024.0, 6.103515625e-5;
    bf16: float::bf16_to_f32, float::f32_to_bf16, convert::widen_each,
        convert::bf16_together, convert::narrow_each, convert::bf16_of, 1.0 / 128.0,
        f32::MIN_POSITIVE as f64;
}
