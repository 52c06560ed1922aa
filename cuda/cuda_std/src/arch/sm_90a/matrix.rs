//! Matrix products by a warpgroup, of operands in shared memory (PTX ISA, Asynchronous Warpgroup Level Matrix
//! Instructions: `wgmma`), and matrices of 16-bit elements from registers into shared memory.
//!
//! The sums of 64 rows and `COLUMNS` columns are spread over the warpgroup's threads, one for every two columns in each:
//! with `g = lane / 4` and `c = lane % 4`, of warp `w` of the warpgroup, sum `4 j + i` is that of row
//! `16 w + g + 8 (i / 2)` and column `8 j + 2 c + i % 2`.
//!
//! `wgmma` is inline assembly with side effects, for LLVM has no intrinsic of it: it may stand in branches that whole
//! warpgroups take.

use crate::arch::sm_80::Half;
use crate::element::Element;
use crate::shared::Shared;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p0"]
    fn stmatrix(row: *mut u32, a: u32, b: u32, c: u32, d: u32);
}

/// Where a slice of an operand lies in shared memory, and how: in rows of 128 bytes, whose pieces of 16 bytes are swapped
/// by the row's number modulo 8 (`Swizzle::Bytes128` of a tensor map), from an address that is a multiple of 1024 on.
///
/// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor Format.
#[derive(Clone, Copy)]
pub struct Matrix(u64);

/// Bytes of eight rows.
const EIGHT_ROWS: u32 = 1024;

impl Matrix {
    /// The matrix at `place`; where the depth is not innermost, `apart` bytes from 64 elements across to the next 64.
    #[inline(always)]
    pub fn at<T: Element>(place: Shared<T>, apart: u32) -> Self {
        const SWIZZLE_128: u64 = 1 << 62;
        let high = SWIZZLE_128 | (EIGHT_ROWS as u64 >> 4) << 32 | (apart as u64 >> 4) << 16;
        Self(high | u64::from(place.address() >> 4 & 0x3fff))
    }

    /// The same, so many bytes on, a multiple of 16.
    #[inline(always)]
    #[must_use]
    pub fn offset(self, bytes: u32) -> Self {
        // The sum stays below 2¹⁴: shared memory has 2¹⁸ bytes. Of the lower word alone, so that the upper one stays a constant.
        Self(self.0 >> 32 << 32 | u64::from((self.0 as u32).wrapping_add(bytes >> 4)))
    }
}

macro_rules! wgmma {
    (
        $sums:ident, $a:ident, $b:ident, $add:ident, $across_a:ident, $across_b:ident,
        $shape:literal, $type:literal, [$first:literal $($i:literal)*]
    ) => {
        core::arch::asm!(
            concat!(
                "{{ .reg .pred p; setp.ne.b32 p, {add}, 0; wgmma.mma_async.sync.aligned.", $shape, "k16.f32.", $type, ".",
                $type, " {{{}", $(wgmma!(@place $i),)* "}}, {a}, {b}, p, 1, 1, {across_a}, {across_b}; }}"
            ),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$i],)*
            a = in(reg64) $a.0, b = in(reg64) $b.0, add = in(reg32) u32::from($add),
            across_a = const $across_a as i32, across_b = const $across_b as i32,
            options(nostack, preserves_flags))
    };
    (@place $i:literal) => { ", {}" };
}

macro_rules! wgmma_of {
    (
        $sums:ident, $a:ident, $b:ident, $add:ident, $across_b:ident, $shape:literal, $type:literal,
        [$first:literal $($i:literal)*]
    ) => {
        core::arch::asm!(
            concat!(
                "{{ .reg .pred p; setp.ne.b32 p, {add}, 0; wgmma.mma_async.sync.aligned.", $shape, "k16.f32.", $type, ".",
                $type, " {{{}", $(wgmma_of!(@place $i),)* "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b}, p, 1, 1, {across_b}; }}"
            ),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$i],)*
            a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3],
            b = in(reg64) $b.0, add = in(reg32) u32::from($add), across_b = const $across_b as i32,
            options(nostack, preserves_flags))
    };
    (@place $i:literal) => { ", {}" };
}

macro_rules! wgmma_of_each_type {
    ($sums:ident, $a:ident, $b:ident, $add:ident, $across_b:ident, $shape:literal, $indices:tt) => {
        if T::IS_BF16 {
            wgmma_of!($sums, $a, $b, $add, $across_b, $shape, "bf16", $indices)
        } else {
            wgmma_of!($sums, $a, $b, $add, $across_b, $shape, "f16", $indices)
        }
    };
}

macro_rules! of_each_type {
    ($sums:ident, $a:ident, $b:ident, $add:ident, $across_a:ident, $across_b:ident, $shape:literal, $indices:tt) => {
        if T::IS_BF16 {
            wgmma!($sums, $a, $b, $add, $across_a, $across_b, $shape, "bf16", $indices)
        } else {
            wgmma!($sums, $a, $b, $add, $across_a, $across_b, $shape, "f16", $indices)
        }
    };
}

macro_rules! wgmma_tf32 {
    ($sums:ident, $a:ident, $b:ident, $add:ident, $shape:literal, [$first:literal $($i:literal)*]) => {
        core::arch::asm!(
            concat!(
                "{{ .reg .pred p; setp.ne.b32 p, {add}, 0; wgmma.mma_async.sync.aligned.", $shape, "k8.f32.tf32.tf32 {{{}",
                $(wgmma_tf32!(@place $i),)* "}}, {a}, {b}, p, 1, 1; }}"
            ),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$i],)*
            a = in(reg64) $a.0, b = in(reg64) $b.0, add = in(reg32) u32::from($add),
            options(nostack, preserves_flags))
    };
    (@place $i:literal) => { ", {}" };
}

macro_rules! wgmma_tf32_of {
    ($sums:ident, $a:ident, $b:ident, $add:ident, $shape:literal, [$first:literal $($i:literal)*]) => {
        core::arch::asm!(
            concat!(
                "{{ .reg .pred p; setp.ne.b32 p, {add}, 0; wgmma.mma_async.sync.aligned.", $shape, "k8.f32.tf32.tf32 {{{}",
                $(wgmma_tf32!(@place $i),)* "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b}, p, 1, 1; }}"
            ),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$i],)*
            a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3],
            b = in(reg64) $b.0, add = in(reg32) u32::from($add),
            options(nostack, preserves_flags))
    };
}

/// The macro for each number of columns that a product may have, the multiples of 8 up to 256: with these arguments, and the sums'
/// indices, which are those of fewer columns and four more.
macro_rules! of_each_size {
    ($size:ident, $do:ident, $arguments:tt) => {
        const { assert!($size % 8 == 0 && $size > 0 && $size <= 256, "there is no product of so many columns") };
        of_each_size!(@from $size, $do, $arguments, [], [
            (8 "m64n8" 0 1 2 3) (16 "m64n16" 4 5 6 7) (24 "m64n24" 8 9 10 11) (32 "m64n32" 12 13 14 15) (40 "m64n40" 16 17
            18 19) (48 "m64n48" 20 21 22 23) (56 "m64n56" 24 25 26 27) (64 "m64n64" 28 29 30 31) (72 "m64n72" 32 33 34 35)
            (80 "m64n80" 36 37 38 39) (88 "m64n88" 40 41 42 43) (96 "m64n96" 44 45 46 47) (104 "m64n104" 48 49 50 51) (112
            "m64n112" 52 53 54 55) (120 "m64n120" 56 57 58 59) (128 "m64n128" 60 61 62 63) (136 "m64n136" 64 65 66 67)
            (144 "m64n144" 68 69 70 71) (152 "m64n152" 72 73 74 75) (160 "m64n160" 76 77 78 79) (168 "m64n168" 80 81 82
            83) (176 "m64n176" 84 85 86 87) (184 "m64n184" 88 89 90 91) (192 "m64n192" 92 93 94 95) (200 "m64n200" 96 97
            98 99) (208 "m64n208" 100 101 102 103) (216 "m64n216" 104 105 106 107) (224 "m64n224" 108 109 110 111) (232
            "m64n232" 112 113 114 115) (240 "m64n240" 116 117 118 119) (248 "m64n248" 120 121 122 123) (256 "m64n256" 124
            125 126 127)
        ])
    };
    (
        @from $size:ident, $do:ident, ($($argument:tt)*), [$($before:literal)*],
        [($columns:literal $shape:literal $a:literal $b:literal $c:literal $d:literal) $($more:tt)*]
    ) => {
        if $size == $columns {
            $do!($($argument)*, $shape, [$($before)* $a $b $c $d]);
        } else {
            of_each_size!(@from $size, $do, ($($argument)*), [$($before)* $a $b $c $d], [$($more)*]);
        }
    };
    (@from $size:ident, $do:ident, $arguments:tt, $before:tt, []) => {};
}

/// A thread's sums of up to 256 columns: of fewer the first ones.
pub type Sums = [f32; 128];

/// Begins `sums = a · b + sums` over 16 of depth, or `sums = a · b` unless `add`: 64 rows of `a`, `COLUMNS` columns of `b`, a
/// multiple of 8 up to 256. `ACROSS` says of an operand that not its depth is innermost. PTX:
/// `wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16` and its kin.
///
/// Products are exact; sums are cut off and not rounded.
///
/// # Safety
/// All threads of the warpgroup execute it together, with the same operands, which [`Matrix`] describes. A
/// [`wgmma_fence`](super::wgmma_fence) came after the last other use of `sums`, which nothing uses before
/// [`wgmma_finish`]; the operands stay as they are until [`wgmma_wait`](super::wgmma_wait) says that it is done.
#[inline(always)]
pub unsafe fn wgmma<T: Half, const COLUMNS: u32, const ACROSS_A: bool, const ACROSS_B: bool>(
    sums: &mut Sums,
    a: Matrix,
    b: Matrix,
    add: bool,
) {
    // SAFETY: the caller's. Of the shapes one is left.
    unsafe {
        of_each_size!(COLUMNS, of_each_type, (sums, a, b, add, ACROSS_A, ACROSS_B));
    }
}

/// [`wgmma`] of 64 rows in registers, two elements of neighbouring depths in each: with `g = lane / 4` and `c = lane % 4`, of warp `w`
/// of the warpgroup, `a[i]` is that of row `16 w + g + 8 (i % 2)` and depths `2 c + 8 (i / 2)` and the next, the first below. PTX:
/// `wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16` and its kin.
///
/// # Safety
/// As [`wgmma`]; `a` as [`wgmma_tf32_of`]'s.
#[inline(always)]
pub unsafe fn wgmma_of<T: Half, const COLUMNS: u32, const ACROSS_B: bool>(
    sums: &mut Sums,
    a: [u32; 4],
    b: Matrix,
    add: bool,
) {
    // SAFETY: the caller's.
    unsafe {
        of_each_size!(COLUMNS, wgmma_of_each_type, (sums, a, b, add, ACROSS_B));
    }
}

/// [`wgmma`] of tf32, over 8 of depth: 64 rows of `a`, `COLUMNS` columns of `b`, of f32 whose low 13 bits do not count, the depth of
/// both innermost. PTX: `wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32` and its kin.
///
/// # Safety
/// As [`wgmma`].
#[inline(always)]
pub unsafe fn wgmma_tf32<const COLUMNS: u32>(sums: &mut Sums, a: Matrix, b: Matrix, add: bool) {
    // SAFETY: the caller's.
    unsafe {
        of_each_size!(COLUMNS, wgmma_tf32, (sums, a, b, add));
    }
}

/// [`wgmma_tf32`] of 64 rows in registers: with `g = lane / 4` and `c = lane % 4`, of warp `w` of the warpgroup, `a[i]` is that of row
/// `16 w + g + 8 (i % 2)` and depth `c + 4 (i / 2)`.
///
/// # Safety
/// As [`wgmma`]; `a` stays as it is until the product is done, which is `ptxas`'s part as long as the same variable takes no other
/// value before a [`wgmma_wait`](super::wgmma_wait) that says so.
#[inline(always)]
pub unsafe fn wgmma_tf32_of<const COLUMNS: u32>(sums: &mut Sums, a: [f32; 4], b: Matrix, add: bool) {
    // SAFETY: the caller's.
    unsafe {
        of_each_size!(COLUMNS, wgmma_tf32_of, (sums, a, b, add));
    }
}

macro_rules! settle {
    ($sums:ident, $shape:literal, [$($i:literal)*]) => {
        core::arch::asm!(concat!("/*", $(settle!(@place $i),)* " */"), $(inout(reg32) $sums[$i],)*
            options(nostack, preserves_flags))
    };
    (@place $i:literal) => { " {}" };
}

/// Says that the products into `sums` are done: each becomes a new value, which nothing uses before.
///
/// # Safety
/// They are: a [`wgmma_wait`](super::wgmma_wait) came before.
#[inline(always)]
pub unsafe fn wgmma_settle<const COLUMNS: u32>(sums: &mut Sums) {
    // SAFETY: nothing happens. To LLVM sums are known where the products are begun.
    unsafe {
        of_each_size!(COLUMNS, settle, (sums));
    }
}

/// Waits until all of the warpgroup's products are done, after which `sums` are whole.
///
/// # Safety
/// All threads of the warpgroup execute it together, and all groups are closed.
#[inline(always)]
pub unsafe fn wgmma_finish<const COLUMNS: u32>(sums: &mut Sums) {
    // SAFETY: the caller's.
    unsafe {
        super::wgmma_wait::<0>();
        wgmma_settle::<COLUMNS>(sums);
    }
}

/// Two numbers as 16-bit floats in a word, rounded to the nearest, ties to even; the first is below. PTX:
/// `cvt.rn.bf16x2.f32` or `cvt.rn.f16x2.f32` (PTX ISA, Data Movement: `cvt`).
#[inline(always)]
pub fn pack<T: Half>(low: f32, high: f32) -> u32 {
    let word: u32;
    // SAFETY: arithmetic.
    unsafe {
        if T::IS_BF16 {
            core::arch::asm!("cvt.rn.bf16x2.f32 {word}, {high}, {low};", word = out(reg32) word, high = in(reg32) high,
                low = in(reg32) low, options(pure, nomem, nostack, preserves_flags));
        } else {
            core::arch::asm!("cvt.rn.f16x2.f32 {word}, {high}, {low};", word = out(reg32) word, high = in(reg32) high,
                low = in(reg32) low, options(pure, nomem, nostack, preserves_flags));
        }
    }
    word
}

/// Stores four matrices of 8 × 8 elements of 16 bits: lane `8j + r` names row `r` of matrix `j`, the eight elements from
/// element `i` on. Word `j` of a lane, with `g = lane / 4` and `c = lane % 4`, is of matrix `j` the elements `2c` and
/// `2c + 1` of row `g`. PTX: `stmatrix.sync.aligned.m8n8.x4.b16` (PTX ISA, Warp Level Matrix Instructions:
/// `stmatrix`).
///
/// # Safety
/// All lanes of the warp execute it together. Each one's elements are in the array and aligned to 16 bytes, and no other
/// thread uses them meanwhile.
#[inline(always)]
pub unsafe fn stmatrix_x4<T: Half>(target: Shared<T>, i: u32, [a, b, c, d]: [u32; 4]) {
    // SAFETY: the caller's.
    unsafe { stmatrix(target.offset(i).generic().cast_mut().cast(), a, b, c, d) }
}
