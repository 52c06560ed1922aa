//! Loads and stores that plain Rust cannot express: shared memory, vectors, predicates.
//!
//! Loads are `pure, readonly`: LLVM may merge them and moves none over a store or a barrier. Stores clobber memory.

use half::{bf16, f16};

use crate::vector::{Vec2, Vec4};

/// The accesses of one element. `u32` addresses are of the shared window.
pub trait Access: Sized {
    unsafe fn load_shared(address: u32) -> Self;
    unsafe fn store_shared(address: u32, value: Self);
    unsafe fn load_shared_if(predicate: bool, address: u32, otherwise: Self) -> Self;
    unsafe fn store_shared_if(predicate: bool, address: u32, value: Self);
    unsafe fn load_global_if(predicate: bool, address: *const Self, otherwise: Self) -> Self;
    unsafe fn store_global_if(predicate: bool, address: *mut Self, value: Self);
}

/// The accesses of two elements in one instruction.
pub trait Access2: Sized {
    unsafe fn load2_shared(address: u32) -> Vec2<Self>;
    unsafe fn store2_shared(address: u32, value: Vec2<Self>);
    unsafe fn load2_global(address: *const Self) -> Vec2<Self>;
    unsafe fn store2_global(address: *mut Self, value: Vec2<Self>);
    unsafe fn load2_global_if(predicate: bool, address: *const Self, otherwise: Vec2<Self>) -> Vec2<Self>;
    unsafe fn store2_global_if(predicate: bool, address: *mut Self, value: Vec2<Self>);
}

/// The accesses of four elements in one instruction.
pub trait Access4: Sized {
    unsafe fn load4_shared(address: u32) -> Vec4<Self>;
    unsafe fn store4_shared(address: u32, value: Vec4<Self>);
    unsafe fn load4_shared_if(predicate: bool, address: u32, otherwise: Vec4<Self>) -> Vec4<Self>;
    unsafe fn load4_global(address: *const Self) -> Vec4<Self>;
    unsafe fn store4_global(address: *mut Self, value: Vec4<Self>);
    unsafe fn load4_global_if(predicate: bool, address: *const Self, otherwise: Vec4<Self>) -> Vec4<Self>;
    unsafe fn store4_global_if(predicate: bool, address: *mut Self, value: Vec4<Self>);
}

// LLVM's own vectors: one access stays one instruction, wherever its parts are used.
#[repr(simd)]
struct Simd2<T>([T; 2]);
#[repr(simd)]
struct Simd4<T>([T; 4]);

// `$carrier` is the type that goes into a register for `$t`, of the same bits.
macro_rules! access {
    ($($t:ty, $carrier:ty, $class:ident, $ptx:literal, $into:expr, $from:expr;)*) => {$(
        impl Access for $t {
            #[inline(always)]
            unsafe fn load_shared(address: u32) -> Self {
                let value: $carrier;
                // SAFETY: the caller's address.
                unsafe {
                    core::arch::asm!(concat!("ld.shared.", $ptx, " {v}, [{a}];"),
                        v = out($class) value, a = in(reg32) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $from(value)
            }

            #[inline(always)]
            unsafe fn store_shared(address: u32, value: Self) {
                // SAFETY: the caller's address.
                unsafe {
                    core::arch::asm!(concat!("st.shared.", $ptx, " [{a}], {v};"),
                        v = in($class) $into(value), a = in(reg32) address,
                        options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            unsafe fn load_shared_if(predicate: bool, address: u32, otherwise: Self) -> Self {
                let mut value: $carrier = $into(otherwise);
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; setp.ne.u32 p, {p}, 0;",
                        concat!("@p ld.shared.", $ptx, " {v}, [{a}]; }}"),
                        v = inout($class) value, a = in(reg32) address, p = in(reg32) predicate as u32,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $from(value)
            }

            #[inline(always)]
            unsafe fn store_shared_if(predicate: bool, address: u32, value: Self) {
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; setp.ne.u32 p, {p}, 0;",
                        concat!("@p st.shared.", $ptx, " [{a}], {v}; }}"),
                        v = in($class) $into(value), a = in(reg32) address, p = in(reg32) predicate as u32,
                        options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            unsafe fn load_global_if(predicate: bool, address: *const Self, otherwise: Self) -> Self {
                let mut value: $carrier = $into(otherwise);
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {p}, 0; cvta.to.global.u64 g, {a};",
                        concat!("@p ld.global.", $ptx, " {v}, [g]; }}"),
                        v = inout($class) value, a = in(reg64) address, p = in(reg32) predicate as u32,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $from(value)
            }

            #[inline(always)]
            unsafe fn store_global_if(predicate: bool, address: *mut Self, value: Self) {
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {p}, 0; cvta.to.global.u64 g, {a};",
                        concat!("@p st.global.", $ptx, " [g], {v}; }}"),
                        v = in($class) $into(value), a = in(reg64) address, p = in(reg32) predicate as u32,
                        options(nostack, preserves_flags));
                }
            }
        }

        impl Access2 for $t {
            #[inline(always)]
            unsafe fn load2_shared(address: u32) -> Vec2<Self> {
                let (x, y): ($carrier, $carrier);
                // SAFETY: the caller's address.
                unsafe {
                    core::arch::asm!(concat!("ld.shared.v2.", $ptx, " {{{x}, {y}}}, [{a}];"),
                        x = out($class) x, y = out($class) y, a = in(reg32) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                Vec2::new($from(x), $from(y))
            }

            #[inline(always)]
            unsafe fn store2_shared(address: u32, value: Vec2<Self>) {
                // SAFETY: the caller's address.
                unsafe {
                    core::arch::asm!(concat!("st.shared.v2.", $ptx, " [{a}], {{{x}, {y}}};"),
                        x = in($class) $into(value.x), y = in($class) $into(value.y), a = in(reg32) address,
                        options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            unsafe fn load2_global(address: *const Self) -> Vec2<Self> {
                // SAFETY: the caller's address, aligned to the vector; a vector is its elements in order.
                let [x, y]: [$carrier; 2] =
                    unsafe { core::mem::transmute(address.cast::<Simd2<$carrier>>().read()) };
                Vec2::new($from(x), $from(y))
            }

            #[inline(always)]
            unsafe fn store2_global(address: *mut Self, value: Vec2<Self>) {
                let value: [$carrier; 2] = [$into(value.x), $into(value.y)];
                // SAFETY: as above.
                unsafe { address.cast::<Simd2<$carrier>>().write(core::mem::transmute(value)) }
            }

            #[inline(always)]
            unsafe fn load2_global_if(
                predicate: bool,
                address: *const Self,
                otherwise: Vec2<Self>,
            ) -> Vec2<Self> {
                let (mut x, mut y): ($carrier, $carrier) = ($into(otherwise.x), $into(otherwise.y));
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {p}, 0; cvta.to.global.u64 g, {a};",
                        concat!("@p ld.global.v2.", $ptx, " {{{x}, {y}}}, [g]; }}"),
                        x = inout($class) x, y = inout($class) y, a = in(reg64) address,
                        p = in(reg32) predicate as u32,
                        options(pure, readonly, nostack, preserves_flags));
                }
                Vec2::new($from(x), $from(y))
            }

            #[inline(always)]
            unsafe fn store2_global_if(predicate: bool, address: *mut Self, value: Vec2<Self>) {
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {p}, 0; cvta.to.global.u64 g, {a};",
                        concat!("@p st.global.v2.", $ptx, " [g], {{{x}, {y}}}; }}"),
                        x = in($class) $into(value.x), y = in($class) $into(value.y),
                        a = in(reg64) address, p = in(reg32) predicate as u32,
                        options(nostack, preserves_flags));
                }
            }
        }
    )*};
}

// Predicated loads are of `$what`, between what goes before and after it. 16-bit floats go through two registers of 32 bits: of four of 16
// bits, `ptxas` packs what is there before, and unpacks what is loaded, one by one.
macro_rules! access4 {
    ($($t:ty, $carrier:ty, $class:ident, $ptx:literal, $into:expr, $from:expr,
        $before:literal, $what:literal, $after:literal;)*) => {$(
        impl Access4 for $t {
            #[inline(always)]
            unsafe fn load4_shared(address: u32) -> Vec4<Self> {
                let (x, y, z, w): ($carrier, $carrier, $carrier, $carrier);
                // SAFETY: the caller's address.
                unsafe {
                    core::arch::asm!(concat!("ld.shared.v4.", $ptx, " {{{x}, {y}, {z}, {w}}}, [{a}];"),
                        x = out($class) x, y = out($class) y, z = out($class) z, w = out($class) w,
                        a = in(reg32) address, options(pure, readonly, nostack, preserves_flags));
                }
                Vec4::new($from(x), $from(y), $from(z), $from(w))
            }

            #[inline(always)]
            unsafe fn store4_shared(address: u32, value: Vec4<Self>) {
                // SAFETY: the caller's address.
                unsafe {
                    core::arch::asm!(concat!("st.shared.v4.", $ptx, " [{a}], {{{x}, {y}, {z}, {w}}};"),
                        x = in($class) $into(value.x), y = in($class) $into(value.y),
                        z = in($class) $into(value.z), w = in($class) $into(value.w),
                        a = in(reg32) address, options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            unsafe fn load4_shared_if(predicate: bool, address: u32, otherwise: Vec4<Self>) -> Vec4<Self> {
                let [mut x, mut y, mut z, mut w]: [$carrier; 4] =
                    [$into(otherwise.x), $into(otherwise.y), $into(otherwise.z), $into(otherwise.w)];
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; setp.ne.u32 p, {p}, 0;",
                        concat!($before, "@p ld.shared.", $what, ", [{a}]; ", $after, "}}"),
                        x = inout($class) x, y = inout($class) y, z = inout($class) z, w = inout($class) w,
                        a = in(reg32) address, p = in(reg32) predicate as u32,
                        options(pure, readonly, nostack, preserves_flags));
                }
                Vec4::new($from(x), $from(y), $from(z), $from(w))
            }

            #[inline(always)]
            unsafe fn load4_global(address: *const Self) -> Vec4<Self> {
                // SAFETY: the caller's address, aligned to the vector; a vector is its elements in order.
                let [x, y, z, w]: [$carrier; 4] =
                    unsafe { core::mem::transmute(address.cast::<Simd4<$carrier>>().read()) };
                Vec4::new($from(x), $from(y), $from(z), $from(w))
            }

            #[inline(always)]
            unsafe fn store4_global(address: *mut Self, value: Vec4<Self>) {
                let value: [$carrier; 4] =
                    [$into(value.x), $into(value.y), $into(value.z), $into(value.w)];
                // SAFETY: as above.
                unsafe { address.cast::<Simd4<$carrier>>().write(core::mem::transmute(value)) }
            }

            #[inline(always)]
            unsafe fn load4_global_if(
                predicate: bool,
                address: *const Self,
                otherwise: Vec4<Self>,
            ) -> Vec4<Self> {
                let [mut x, mut y, mut z, mut w]: [$carrier; 4] =
                    [$into(otherwise.x), $into(otherwise.y), $into(otherwise.z), $into(otherwise.w)];
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {p}, 0; cvta.to.global.u64 g, {a};",
                        concat!($before, "@p ld.global.", $what, ", [g]; ", $after, "}}"),
                        x = inout($class) x, y = inout($class) y, z = inout($class) z, w = inout($class) w,
                        a = in(reg64) address, p = in(reg32) predicate as u32,
                        options(pure, readonly, nostack, preserves_flags));
                }
                Vec4::new($from(x), $from(y), $from(z), $from(w))
            }

            #[inline(always)]
            unsafe fn store4_global_if(predicate: bool, address: *mut Self, value: Vec4<Self>) {
                // SAFETY: the caller's address, not touched where the predicate is false.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {p}, 0; cvta.to.global.u64 g, {a};",
                        concat!("@p st.global.v4.", $ptx, " [g], {{{x}, {y}, {z}, {w}}}; }}"),
                        x = in($class) $into(value.x), y = in($class) $into(value.y),
                        z = in($class) $into(value.z), w = in($class) $into(value.w),
                        a = in(reg64) address, p = in(reg32) predicate as u32,
                        options(nostack, preserves_flags));
                }
            }
        }
    )*};
}

// An 8-bit element travels in a 16-bit register for scalars and is masked by `ld.u8` itself.
access! {
    u16, u16, reg16, "u16", core::convert::identity, core::convert::identity;
    i16, i16, reg16, "s16", core::convert::identity, core::convert::identity;
    u32, u32, reg32, "u32", core::convert::identity, core::convert::identity;
    i32, i32, reg32, "s32", core::convert::identity, core::convert::identity;
    u64, u64, reg64, "u64", core::convert::identity, core::convert::identity;
    i64, i64, reg64, "s64", core::convert::identity, core::convert::identity;
    f32, f32, reg32, "f32", core::convert::identity, core::convert::identity;
    f64, f64, reg64, "f64", core::convert::identity, core::convert::identity;
    f16, u16, reg16, "b16", f16::to_bits, f16::from_bits;
    bf16, u16, reg16, "b16", bf16::to_bits, bf16::from_bits;
    u8, u8, reg16, "u8", core::convert::identity, core::convert::identity;
    i8, i8, reg16, "s8", core::convert::identity, core::convert::identity;
}
access4! {
    u16, u16, reg16, "u16", core::convert::identity, core::convert::identity,
        "", "v4.u16 {{{x}, {y}, {z}, {w}}}", "";
    i16, i16, reg16, "s16", core::convert::identity, core::convert::identity,
        "", "v4.s16 {{{x}, {y}, {z}, {w}}}", "";
    u32, u32, reg32, "u32", core::convert::identity, core::convert::identity,
        "", "v4.u32 {{{x}, {y}, {z}, {w}}}", "";
    i32, i32, reg32, "s32", core::convert::identity, core::convert::identity,
        "", "v4.s32 {{{x}, {y}, {z}, {w}}}", "";
    f32, f32, reg32, "f32", core::convert::identity, core::convert::identity,
        "", "v4.f32 {{{x}, {y}, {z}, {w}}}", "";
    f16, u16, reg16, "b16", f16::to_bits, f16::from_bits,
        ".reg .b32 l, h; mov.b32 l, {{{x}, {y}}}; mov.b32 h, {{{z}, {w}}}; ", "v2.b32 {{l, h}}",
        "mov.b32 {{{x}, {y}}}, l; mov.b32 {{{z}, {w}}}, h; ";
    bf16, u16, reg16, "b16", bf16::to_bits, bf16::from_bits,
        ".reg .b32 l, h; mov.b32 l, {{{x}, {y}}}; mov.b32 h, {{{z}, {w}}}; ", "v2.b32 {{l, h}}",
        "mov.b32 {{{x}, {y}}}, l; mov.b32 {{{z}, {w}}}, h; ";
    u8, u8, reg16, "u8", core::convert::identity, core::convert::identity,
        "", "v4.u8 {{{x}, {y}, {z}, {w}}}", "";
    i8, i8, reg16, "s8", core::convert::identity, core::convert::identity,
        "", "v4.s8 {{{x}, {y}, {z}, {w}}}", "";
}
