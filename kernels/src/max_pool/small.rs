//! Forward over windows of sizes that are compiled in.

use cuda_std::prelude::*;

use super::Maximum;
use crate::band::slide::slide;
use crate::band::{self, Bands, pairs};
use crate::patch::{self, Patches};
use crate::window::{FEWEST_BLOCKS, Nchw, Nhwc, Order, Position, THREADS, Window};

/// As [`max_pool_forward`], by [patches](crate::patch), for windows of `SIZE` by `SIZE` positions, two apart, padded by
/// `PADDING`.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes, and `patches` are of the
/// window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWEST_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn max_pool_forward_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    let finish = |output, row, column, rows: [[Maximum; 4]; SIZE]| {
        let mut found = [Maximum::of_nothing(0); 4];
        unrolled!(K in [0 1 2 3] { found[K] = of_window(&window, 2, row, column, rows.map(|lanes| lanes[K])); });
        // SAFETY: the output exists, and its channels begin at a multiple of four.
        unsafe {
            y.store4(output, Vec4::from(found.map(|maximum| T::from_f32(maximum.value))));
            if let Some(indices) = indices {
                indices.store4(output, Vec4::from(found.map(|maximum| u8::narrow(maximum.position))));
            }
        }
    };
    // Minus infinity wins over nothing.
    let outside = f32::NEG_INFINITY;
    // SAFETY: the caller's.
    unsafe {
        if SIZE > 2 {
            patch::slide::<T, Maximum, SIZE, PADDING>(x, &window, &patches, outside, of_row, finish);
        } else {
            patch::each::<T, Maximum, SIZE, PADDING>(x, &window, &patches, outside, of_row, finish);
        }
    }
}

/// As [`max_pool_forward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such, without dilation; `x` begins at a multiple of 16 bytes, and `bands`
/// are of the window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 1), (3, 2), (3, 3)])
)]
pub unsafe fn max_pool_forward_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [Maximum; SIZE]| {
        let maximum = of_window(&window, STRIDE as u32, row, column, rows);
        // SAFETY: the output exists.
        unsafe {
            y.store(output, T::from_f32(maximum.value));
            if let Some(indices) = indices {
                indices.store(output, u8::narrow(maximum.position));
            }
        }
    };
    // SAFETY: the caller's. Minus infinity wins over nothing.
    unsafe { slide::<T, Maximum, SIZE, STRIDE>(x, &window, &bands, f32::NEG_INFINITY, of_row, finish) };
}

/// As [`max_pool_forward_band`], [two columns a thread](crate::band::pairs), for windows two apart, padded by `PADDING`.
///
/// # Safety
/// As [`max_pool_forward_band`]'s; the padding is such; `y` and `indices` begin at multiples of 16 bytes, and `bands` are of
/// pairs.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn max_pool_forward_pairs<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    bands: Bands,
) {
    let finish = |output: usize, row: u32, column: u32, rows: [[Maximum; 2]; SIZE]| {
        let of = |which: usize| of_window(&window, 2, row, column + which as u32, rows.map(|pair| pair[which]));
        let maxima = [of(0), of(1)];
        // SAFETY: the first output exists, at this column.
        unsafe {
            pairs::store(y, &window, output, column, maxima.map(|maximum| T::from_f32(maximum.value)));
            if let Some(indices) = indices {
                pairs::store(indices, &window, output, column, maxima.map(|maximum| u8::narrow(maximum.position)));
            }
        }
    };
    // SAFETY: the caller's. Minus infinity wins over nothing.
    unsafe { pairs::slide::<T, Maximum, SIZE, PADDING>(x, &window, &bands, f32::NEG_INFINITY, of_row, finish) };
}

/// The first of the greatest in a row of a window, by its column.
#[inline(always)]
fn of_row<const SIZE: usize>(values: [f32; SIZE]) -> Maximum {
    let mut maximum = Maximum { value: values[0], position: 0 };
    unrolled!(J in [1 2] { if J < SIZE { maximum = maximum.or(values[J], J as u32); } });
    maximum
}

/// The maximum of a window by those of its rows: of the first row that has the greatest.
#[inline(always)]
fn of_window<L: Order, const SIZE: usize>(
    window: &Window<L>,
    stride: u32,
    row: u32,
    column: u32,
    rows: [Maximum; SIZE],
) -> Maximum {
    let mut maximum = rows[0];
    unrolled!(I in [1 2] {
        if I < SIZE { maximum = maximum.or(rows[I].value, rows[I].position + (I * SIZE) as u32); }
    });
    if maximum.value == f32::NEG_INFINITY {
        // What is outside is the same: of equals the first that is inside.
        let first = |axis: usize, output: u32| window.padding[axis].saturating_sub(output * stride);
        maximum = Maximum::of_nothing(first(0, row) * SIZE as u32 + first(1, column));
    }
    maximum
}
