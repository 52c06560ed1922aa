//! What depends on the element type: which instruction multiplies, as what slices are copied, how results are stored.
//!
//! A slice has 128 bytes of depth. Of f32, multiplied as tf32, that is half as many elements: where the depth is counted, and in shared
//! memory, each is two of 16 bits.

use cuda_std::arch::sm_80::Half;
use cuda_std::arch::sm_90a::{Matrix, Sums, wgmma, wgmma_tf32};
use cuda_std::prelude::*;

use super::super::product::Shape;
use super::epilogue::{At, Columns, Store};

/// What the products on Hopper's tensor cores are made of: a 16-bit float, or [`Tf32`].
pub trait Factor: Copy {
    /// The elements of the matrices.
    type Element: Storage;
    /// As what slices of them are counted.
    type Half: Half;
    /// How many of these an element is.
    const HALVES: u32;
    /// Two neighbouring elements of the bias, as they are in memory.
    type Pair: Copy;
    /// Two zeros.
    const NONE: Self::Pair;

    /// The bias from element `at` on, which is even, if it exists.
    ///
    /// # Safety
    /// `bias` holds both where they exist, and begins at a multiple of their size.
    unsafe fn load_bias(bias: Global<Self::Element>, exists: bool, at: usize) -> Self::Pair;

    /// Its numbers.
    fn bias(pair: Self::Pair) -> [f32; 2];

    /// The sizes with the depth counted in these.
    #[device_inline]
    fn in_halves(shape: Shape) -> Shape {
        Shape { depth: Self::HALVES * shape.depth, depth_per_split: Self::HALVES * shape.depth_per_split, ..shape }
    }

    /// Begins the products of 32 bytes of depth.
    ///
    /// # Safety
    /// As [`wgmma`]'s.
    unsafe fn multiply<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
        sums: &mut Sums,
        a: Matrix,
        b: Matrix,
        add: bool,
    );

    /// Stores the warp's 16 rows of 64 columns to `target`, which lies as `out` does.
    ///
    /// # Safety
    /// All lanes together; the results that exist are the warp's.
    unsafe fn copy_out<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
        store: &Store<Self, COLUMNS, HEIGHT, PARTS>,
        target: GlobalMut<Self::Element>,
        values: &Columns,
        first: [u32; 2],
        at: At,
        warp: u32,
    );
}

impl<T: Half> Factor for T {
    type Element = Self;
    type Half = Self;
    const HALVES: u32 = 1;
    type Pair = u32;
    const NONE: u32 = 0;

    #[device_inline]
    unsafe fn load_bias(bias: Global<T>, exists: bool, at: usize) -> u32 {
        // SAFETY: the caller's.
        unsafe { Global::<u32>::from_raw(bias.as_raw().cast()).load_if(exists, at / 2, 0) }
    }

    #[device_inline]
    fn bias(pair: u32) -> [f32; 2] {
        T::split(pair)
    }

    #[device_inline]
    unsafe fn multiply<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
        sums: &mut Sums,
        a: Matrix,
        b: Matrix,
        add: bool,
    ) {
        // SAFETY: the caller's. Of the three one is left.
        unsafe {
            match (A_DEPTH_INNER, B_DEPTH_INNER) {
                (true, true) => wgmma::<T, COLUMNS, false, false>(sums, a, b, add),
                (true, false) => wgmma::<T, COLUMNS, false, true>(sums, a, b, add),
                (false, _) => wgmma::<T, COLUMNS, true, true>(sums, a, b, add),
            }
        }
    }

    #[device_inline]
    unsafe fn copy_out<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
        store: &Store<Self, COLUMNS, HEIGHT, PARTS>,
        target: GlobalMut<Self::Element>,
        values: &Columns,
        first: [u32; 2],
        at: At,
        warp: u32,
    ) {
        // SAFETY: the caller's.
        unsafe { store.copy_out(target, values, first, at, warp) }
    }
}

/// f32, multiplied as tf32: rounded to it by the copies, whose maps say so.
#[derive(Clone, Copy)]
pub struct Tf32;

impl Factor for Tf32 {
    type Element = f32;
    type Half = bf16;
    const HALVES: u32 = 2;
    type Pair = Vec2<f32>;
    const NONE: Vec2<f32> = Vec2::new(0.0, 0.0);

    #[device_inline]
    unsafe fn load_bias(bias: Global<f32>, exists: bool, at: usize) -> Vec2<f32> {
        // SAFETY: the caller's.
        unsafe { bias.load2_if(exists, at, Self::NONE) }
    }

    #[device_inline]
    fn bias(pair: Vec2<f32>) -> [f32; 2] {
        [pair.x, pair.y]
    }

    #[device_inline]
    unsafe fn multiply<const COLUMNS: u32, const A_DEPTH_INNER: bool, const B_DEPTH_INNER: bool>(
        sums: &mut Sums,
        a: Matrix,
        b: Matrix,
        add: bool,
    ) {
        const { assert!(A_DEPTH_INNER && B_DEPTH_INNER, "tf32 is multiplied with the depth innermost") };
        // SAFETY: the caller's.
        unsafe { wgmma_tf32::<COLUMNS>(sums, a, b, add) }
    }

    /// Four lanes have 32 bytes of a row together, which is what memory takes at once: nothing is won by whole rows.
    #[device_inline]
    unsafe fn copy_out<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
        store: &Store<Self, COLUMNS, HEIGHT, PARTS>,
        target: GlobalMut<Self::Element>,
        values: &Columns,
        _: [u32; 2],
        at: At,
        _: u32,
    ) {
        // SAFETY: the caller's.
        unsafe { store.store(target, 0, values, at) }
    }
}
