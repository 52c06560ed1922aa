//! Forward over windows of sizes that are compiled in.

use cuda_std::prelude::*;

use super::{Maximum, any_window, store};
use crate::band::slide::{slide, stage};
use crate::band::{self, Bands, pairs};
use crate::patch::{self, Patches};
use crate::window::{FEWEST_BLOCKS, Nchw, Nhwc, Position, THREADS, Window, for_each_of};

/// As [`max_pool_forward`](super::max_pool_forward), by [patches](crate::patch), for windows of `SIZE` by `SIZE`
/// positions, two apart, padded by `PADDING`.
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
        let of = |lane: usize| of_window(&window, row, column, rows.map(|lanes| lanes[lane]));
        let found = [of(0), of(1), of(2), of(3)];
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

/// The first of the greatest in a row of a window, by its column.
#[device_inline]
fn of_row<const SIZE: usize>(values: [f32; SIZE]) -> Maximum {
    let mut maximum = Maximum { value: values[0], position: 0 };
    unrolled!(J in [1 2] { if J < SIZE { maximum = maximum.or(values[J], J as u32); } });
    maximum
}

/// The maximum of a window by those of its rows: of the first row that has the greatest.
#[device_inline]
fn of_window<const SIZE: usize>(window: &Window<Nhwc>, row: u32, column: u32, rows: [Maximum; SIZE]) -> Maximum {
    let mut maximum = rows[0];
    unrolled!(I in [1 2] {
        if I < SIZE { maximum = maximum.or(rows[I].value, rows[I].position + (I * SIZE) as u32); }
    });
    if maximum.value == f32::NEG_INFINITY {
        // What is outside is the same: of equals the first that is inside.
        let first = |axis: usize, output: u32| window.padding[axis].saturating_sub(output * 2);
        maximum = Maximum::of_nothing(first(0, row) * SIZE as u32 + first(1, column));
    }
    maximum
}

/// Repeats a block with the function made from the indices, of which it is known when compiled whether there are any: asked for at
/// each output, the comparisons' results are kept until then in registers that there are too few of.
macro_rules! with_or_without {
    ($indices:ident => $make:expr, $f:ident => $body:block) => {
        if let Some(indices) = $indices {
            let $indices = Some(indices);
            let $f = $make;
            $body
        } else {
            let $indices = None;
            let $f = $make;
            $body
        }
    };
}

/// As [`max_pool_forward`](super::max_pool_forward), by [bands](crate::band), for windows of `SIZE` by `SIZE` positions,
/// `STRIDE` apart.
///
/// # Safety
/// The module's, but for the tiling; the window is such, without dilation; `x` begins at a multiple of 16 bytes, and `bands`
/// are of the window's outputs, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, STRIDE) = [(2, 2), (3, 1), (3, 2)])
)]
pub unsafe fn max_pool_forward_band<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    bands: Bands,
) {
    let finish = |indices: Option<GlobalMut<u8>>, output: usize, row: u32, column: u32, rows: [Seen; SIZE]| {
        let seen = Seen::of_window(rows);
        // SAFETY: the output exists.
        unsafe {
            let again = seen.again();
            store(y, indices, output, if again { look_again(x, &window, &bands, row, column) } else { seen.maximum });
        }
    };
    // SAFETY: the caller's. Minus infinity wins over nothing.
    unsafe {
        let (x, outside) = (stage(x, &window, &bands), f32::NEG_INFINITY);
        with_or_without!(indices => |output, row, column, rows| finish(indices, output, row, column, rows), f => {
            slide::<T, Seen, SIZE, STRIDE>(&x, &window, &bands, outside, Seen::of_row, f);
        });
    }
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
    let finish = |indices: Option<GlobalMut<u8>>, output: usize, row: u32, column: u32, rows: [[Seen; 2]; SIZE]| {
        let of = |which: usize| Seen::of_window(rows.map(|pair| pair[which]));
        let seen = [of(0), of(1)];
        // SAFETY: the first output exists, at this column.
        unsafe {
            if let Some(indices) = indices {
                pairs::store(indices, &window, output, column, seen.map(|seen| u8::narrow(seen.maximum.position)));
            }
            pairs::store(y, &window, output, column, seen.map(|seen| T::from_f32(seen.maximum.value)));
            for_each_of(seen.map(Seen::again), |which| {
                // The pair's second may be past the row's end.
                if column + which < window.output[1] {
                    let maximum = look_again(x, &window, &bands, row, column + which);
                    store(y, indices, output + which as usize, maximum);
                }
            });
        }
    };
    // SAFETY: the caller's. Minus infinity wins over nothing.
    unsafe {
        let (x, outside) = (stage(x, &window, &bands), f32::NEG_INFINITY);
        with_or_without!(indices => |output, row, column, rows| finish(indices, output, row, column, rows), f => {
            pairs::slide::<T, Seen, SIZE, PADDING>(&x, &window, &bands, outside, Seen::of_row, f);
        });
    }
}

/// The first of the greatest of several numbers, and their sum, which is a NaN if one of them is: it takes less to add than to
/// ask of each, and additions have a unit of their own. With the channels last, where a thread keeps four of everything, there
/// are not the registers for it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub maximum: Maximum,
    pub sum: f32,
}

impl Seen {
    /// Of one number.
    #[device_inline]
    pub fn of(value: f32, position: u32) -> Self {
        Self { maximum: Maximum { value, position }, sum: value }
    }

    /// This and what comes after it.
    #[device_inline]
    pub fn or(self, value: f32, position: u32) -> Self {
        Self { maximum: self.maximum.or_greater(value, position), sum: self.sum + value }
    }

    /// Of a row of a window, by columns.
    #[device_inline]
    fn of_row<const SIZE: usize>(values: [f32; SIZE]) -> Self {
        let mut seen = Self::of(values[0], 0);
        unrolled!(J in [1 2] { if J < SIZE { seen = seen.or(values[J], J as u32); } });
        seen
    }

    /// Of a window by its rows: of the first row that has the greatest.
    #[device_inline]
    fn of_window<const SIZE: usize>(rows: [Self; SIZE]) -> Self {
        let mut seen = rows[0];
        unrolled!(I in [1 2] {
            if I < SIZE {
                let Maximum { value, position } = rows[I].maximum;
                seen.maximum = seen.maximum.or_greater(value, position + (I * SIZE) as u32);
                seen.sum += rows[I].sum;
            }
        });
        seen
    }

    /// Whether the window wants looking at again, by [`any_window`]: for a NaN, or where all are minus infinity, as is what lies
    /// outside.
    #[device_inline]
    pub fn again(self) -> bool {
        self.sum.is_nan() | (self.maximum.value == f32::NEG_INFINITY)
    }
}

/// The maximum of the window of an output of this thread's plane.
///
/// # Safety
/// As [`max_pool_forward_band`]'s; the output exists.
#[device_inline]
unsafe fn look_again<T: Storage>(x: Global<T>, window: &Window<Nchw>, bands: &Bands, row: u32, column: u32) -> Maximum {
    let span = bands.block.span();
    let plane = span.first_plane + bands.part(&span).plane;
    // SAFETY: the plane is one.
    unsafe { any_window(*window, x.offset(window.input_plane(plane)), row, column) }
}
