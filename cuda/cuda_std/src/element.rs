//! What memory holds: the types that one load or store instruction moves.
//!
//! The traits are sealed: each type has its own instructions. Structures go through
//! [`Global::load`](crate::global::Global::load), which takes any `Copy` type.

use half::{bf16, f16};

use crate::float;

/// A type that `ld` and `st` move: integers and floats of 8 to 64 bits, `f16`, `bf16`.
pub trait Element: machine::Access + Copy + Send + Sync + 'static {}

/// An [`Element`] of which two make one vector access: all.
pub trait Vector2: Element + machine::Access2 {}

/// An [`Element`] of which four make one vector access, of at most 16 bytes: those of up to 32 bits.
pub trait Vector4: Vector2 + machine::Access4 {}

/// How memory holds a number that arithmetic takes as `f32`: `f32` itself, `f16` or `bf16`.
pub trait Storage: Vector4 {
    /// The number, exactly.
    fn to_f32(self) -> f32;
    /// The nearest that memory can hold, ties to even.
    fn from_f32(value: f32) -> Self;
    /// [`from_f32`](Self::from_f32) of two, of 16 bits in one instruction. PTX: `cvt.rn.f16x2.f32`, `cvt.rn.bf16x2.f32`.
    fn from_two_f32(values: [f32; 2]) -> [Self; 2];
}

macro_rules! storage {
    ($($t:ty: $to:expr, $from:expr, $from_two:expr;)*) => {$(
        impl Storage for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $to(self)
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                $from(value)
            }
            #[inline(always)]
            fn from_two_f32(values: [f32; 2]) -> [Self; 2] {
                $from_two(values)
            }
        }
    )*};
}
storage! {
    f32: core::convert::identity, core::convert::identity, core::convert::identity;
    f16: float::f16_to_f32, float::f32_to_f16, float::two_f32_to_f16;
    bf16: float::bf16_to_f32, float::f32_to_bf16, float::two_f32_to_bf16;
}

macro_rules! elements {
    ($($t:ty)*) => {$(
        impl Element for $t {}
        impl Vector2 for $t {}
    )*};
}
elements!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 f16 bf16);

macro_rules! quads {
    ($($t:ty)*) => {$(impl Vector4 for $t {})*};
}
quads!(u8 i8 u16 i16 u32 i32 f32 f16 bf16);

#[cfg(target_arch = "nvptx64")]
pub(crate) use crate::device::memory as machine;

/// On the host memory is memory: the traits say nothing more.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) mod machine {
    use super::{bf16, f16};

    pub trait Access {}
    pub trait Access2 {}
    pub trait Access4 {}

    macro_rules! access {
        ($($t:ty)*) => {$(
            impl Access for $t {}
            impl Access2 for $t {}
            impl Access4 for $t {}
        )*};
    }
    access!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 f16 bf16);
}
