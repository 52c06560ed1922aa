//! Matrix products by a warp: matrices of 16-bit floats from shared memory into registers, and products of them, summed
//! in `f32`.
//!
//! The elements of a matrix are spread over the lanes of the warp, its *fragments* (PTX ISA, Warp Level Matrix
//! Instructions: Matrix Fragments for `mma.m16n8k16`). With `g = lane / 4` and `c = lane % 4`, two elements in a 32-bit
//! word, the one of the smaller index below:
//!
//! | fragment | word or element | of the matrix |
//! |---|---|---|
//! | `a: [u32; 4]`, 16 × 16 | `a[j]` | row `g + 8 (j % 2)`, columns `2c + 8 (j / 2)` and one more |
//! | `b: [u32; 2]`, 16 × 8 | `b[j]` | rows `2c + 8j` and one more, column `g` |
//! | `c`, `d: [f32; 4]`, 16 × 8 | `d[j]` | row `g + 8 (j / 2)`, column `2c + j % 2` |
//!
//! What all lanes must execute together is an LLVM intrinsic, which LLVM does not copy into divergent branches. All but the
//! product of `f16`: LLVM takes its words as vectors of two, which rustc hands to no function. It is inline assembly with
//! side effects: LLVM moves it past no branch, and the fragments that it multiplies come of intrinsics that keep their
//! block from being copied, or of [`ldmatrix_x4_near`], which asks that of its caller.

use super::pairs::Paired;
use crate::element::Storage;
use crate::shared::Shared;
use half::{bf16, f16};

mod sealed {
    pub trait Half {
        /// Which of the two it is.
        #[cfg(target_arch = "nvptx64")]
        const IS_BF16: bool;

        #[cfg(target_arch = "nvptx64")]
        unsafe fn product(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];

        #[cfg(not(target_arch = "nvptx64"))]
        const PRODUCT: crate::emulator::matrix::Operation;
    }
}

/// A 16-bit float whose matrices a warp multiplies: `f16` or `bf16`.
pub trait Half: Storage + Paired + sealed::Half {}
impl Half for f16 {}
impl Half for bf16 {}

#[cfg(not(target_arch = "nvptx64"))]
mod emulated {
    use super::{bf16, f16, sealed};
    use crate::emulator::matrix::Operation;

    impl sealed::Half for f16 {
        const PRODUCT: Operation = Operation::ProductF16;
    }
    impl sealed::Half for bf16 {
        const PRODUCT: Operation = Operation::ProductBf16;
    }
}

#[cfg(target_arch = "nvptx64")]
mod intrinsics {
    use super::{bf16, f16, sealed};

    #[repr(C)]
    pub struct Words(pub u32, pub u32, pub u32, pub u32);

    #[repr(C)]
    struct Sums(f32, f32, f32, f32);

    #[allow(improper_ctypes)]
    unsafe extern "unadjusted" {
        #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p0"]
        pub fn ldmatrix(row: *const u32) -> Words;
        #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p0"]
        pub fn ldmatrix_trans(row: *const u32) -> Words;
        #[link_name = "llvm.nvvm.mma.m16n8k16.row.col.bf16"]
        fn mma_bf16(a0: u32, a1: u32, a2: u32, a3: u32, b0: u32, b1: u32, c0: f32, c1: f32, c2: f32, c3: f32) -> Sums;
    }

    impl sealed::Half for f16 {
        const IS_BF16: bool = false;

        #[inline(always)]
        unsafe fn product(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
            let [mut d0, mut d1, mut d2, mut d3] = c;
            // SAFETY: together as the caller says.
            unsafe {
                core::arch::asm!(
                    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
                    "{{{d0}, {d1}, {d2}, {d3}}}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {{{d0}, {d1}, {d2}, {d3}}};",
                    d0 = inout(reg32) d0, d1 = inout(reg32) d1, d2 = inout(reg32) d2, d3 = inout(reg32) d3,
                    a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                    b0 = in(reg32) b[0], b1 = in(reg32) b[1],
                    options(nomem, nostack, preserves_flags));
            }
            [d0, d1, d2, d3]
        }
    }

    impl sealed::Half for bf16 {
        const IS_BF16: bool = true;

        #[inline(always)]
        unsafe fn product(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
            // SAFETY: together as the caller says.
            let d = unsafe { mma_bf16(a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]) };
            [d.0, d.1, d.2, d.3]
        }
    }
}

macro_rules! loads {
    ($($name:ident $intrinsic:ident $emulated:ident: $gets:literal, $ptx:literal;)*) => {$(
        /// Loads four matrices of 8 × 8 elements from shared memory: lane `8j + r` names row `r` of matrix `j`, the eight
        /// elements from element `i` on.
        #[doc = concat!("Word `j` of a lane, with `g = lane / 4` and `c = lane % 4`, is then of matrix `j` ", $gets, ".")]
        #[doc = concat!("PTX: `", $ptx, "` (PTX ISA, Warp Level Matrix Instructions: `ldmatrix`).")]
        ///
        /// # Safety
        /// All lanes of the warp execute it together. Each one's elements are in the array and aligned to 16 bytes, and no
        /// thread writes them meanwhile.
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub unsafe fn $name<T: Half>(source: Shared<T>, i: u32) -> [u32; 4] {
            #[cfg(target_arch = "nvptx64")]
            {
                // The index is added to the address that the intrinsic takes: what is constant of it goes into the
                // instruction.
                // SAFETY: the caller's.
                let words = unsafe { intrinsics::$intrinsic(source.generic().wrapping_add(i as usize).cast()) };
                [words.0, words.1, words.2, words.3]
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let row = source.at(i, 8).cast::<[u32; 4]>();
                // SAFETY: in bounds and aligned, as checked.
                let row = unsafe { row.read() };
                crate::machine::matrix(crate::emulator::matrix::Operation::$emulated, &row)
            }
        }
    )*};
}
macro_rules! near_loads {
    ($($name:ident $like:ident $trans:literal;)*) => {$(
        #[doc = concat!("[`", stringify!($like), "`] with an address in one register, and what is constant of it in the instruction.")]
        ///
        /// It is inline assembly: the intrinsic takes an address that says nothing of its window, in two registers that are added to
        /// apart. LLVM does not know of it that all lanes execute it together, but copies no block of code with a barrier into branches.
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($like), "`]; it stands in a block of code that has a barrier, or that no thread leaves out.")]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub unsafe fn $name<T: Half>(source: Shared<T>, i: u32) -> [u32; 4] {
            #[cfg(target_arch = "nvptx64")]
            {
                let (a, b, c, d);
                // SAFETY: the caller's.
                unsafe {
                    core::arch::asm!(
                        concat!("ldmatrix.sync.aligned.m8n8.x4", $trans, ".shared.b16 {{{a}, {b}, {c}, {d}}}, [{at}];"),
                        a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                        at = in(reg32) source.offset(i).address(),
                        options(nostack, preserves_flags));
                }
                [a, b, c, d]
            }
            // SAFETY: the caller's.
            #[cfg(not(target_arch = "nvptx64"))]
            unsafe {
                $like(source, i)
            }
        }
    )*};
}
loads! {
    ldmatrix_x4 ldmatrix Load:
        "the elements `2c` and `2c + 1` of row `g`", "ldmatrix.sync.aligned.m8n8.x4.b16";
    ldmatrix_x4_trans ldmatrix_trans LoadTransposed:
        "the elements `g` of rows `2c` and `2c + 1`", "ldmatrix.sync.aligned.m8n8.x4.trans.b16";
}
near_loads! {
    ldmatrix_x4_near ldmatrix_x4 "";
    ldmatrix_x4_near_trans ldmatrix_x4_trans ".trans";
}

/// `d = a · b + c` of a matrix of 16 × 16 and one of 16 × 8, spread over the warp's lanes as the [module](self) says.
/// PTX: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32` or `.f32.bf16.bf16.f32` (PTX ISA, Warp Level Matrix
/// Instructions: `mma`).
///
/// Products are exact. How sums are rounded is the GPU's own: on Hopper they are cut off and not rounded. The emulated
/// grid adds in `f64` and rounds each element once.
///
/// # Safety
/// All lanes of the warp execute it together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn mma_m16n8k16<T: Half>(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    // SAFETY: the caller's.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        T::product(a, b, c)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let [[a0, a1, a2, a3], [c0, c1, c2, c3]] = [a, c.map(f32::to_bits)];
        crate::machine::matrix(T::PRODUCT, &[a0, a1, a2, a3, b[0], b[1], c0, c1, c2, c3]).map(f32::from_bits)
    }
}
