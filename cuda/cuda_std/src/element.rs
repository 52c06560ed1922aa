//! What memory holds: the types that one load or store instruction moves.
//!
//! The traits are sealed: each type has its own instructions. Structures go through
//! [`Global::load`](crate::global::Global::load), which takes any `Copy` type.

use half::{bf16, f16};

/// A type that `ld` and `st` move: integers and floats of 8 to 64 bits, `f16`, `bf16`.
pub trait Element: machine::Access + Copy + Send + Sync + 'static {}

/// An [`Element`] of which two make one vector access: all.
pub trait Vector2: Element + machine::Access2 {}

/// An [`Element`] of which four make one vector access, of at most 16 bytes: those of up to 32 bits.
pub trait Vector4: Vector2 + machine::Access4 {}

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
