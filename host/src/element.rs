//! Element types of tensors.

use std::fmt::{Debug, Display};
use std::iter::Sum;

/// The name of an element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
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
}

impl Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
        })
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
    f32 => F32, f32::from_bits(u32::MAX), |v| v.to_bits().into();
    f64 => F64, f64::from_bits(u64::MAX), f64::to_bits;
    u8 => U8, u8::MAX, u64::from;
    u16 => U16, u16::MAX, u64::from;
    u32 => U32, u32::MAX, u64::from;
}

/// An element type that layers compute with: `f32` everywhere, `f64` on the CPU (for gradient checks).
pub trait Real:
    Element + num_traits::Float + num_traits::NumAssign + num_traits::FromPrimitive + Sum + Display
{
    /// The nearest value to `v`.
    fn of(v: f64) -> Self;
    /// The same value as `f64`.
    fn f64(self) -> f64;
}

impl Real for f32 {
    #[inline(always)]
    fn of(v: f64) -> Self {
        v as f32
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn of(v: f64) -> Self {
        v
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
}
