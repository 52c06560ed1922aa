//! Forward of windows of a known size, one apart, with the channels last, by packs of these down strips of outputs.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use core::marker::PhantomData;

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

use super::doubling::{Doubling, Found};
use super::{any_window, store};
use crate::elements::{Elements, Place};
use crate::falling::{COLUMNS, Rows, ahead, wide};
use crate::packs::{self, PACKS_BLOCK, place};
use crate::vectors::{Lanes, Words};
use crate::window::{Nhwc, Window};

/// Words of a pack, at most.
const WORDS: usize = 2;
/// Columns of inputs that a thread's windows cover, at most.
const MOST_WIDE: usize = wide(13, 1);
/// Rows on their way, at most.
const MOST_AHEAD: usize = 3;

/// Blocks that fit on a multiprocessor: as many as leave each thread the registers for what it has found and what is on its way.
pub const fn falling_blocks(bytes: usize, size: usize) -> u32 {
    match (bytes, size) {
        (4, 3) => 7,
        (4, 5) => 6,
        (_, 3) => 5,
        (4, _) | (_, 5) => 4,
        _ => 3,
    }
}

/// The greatest elements of a word, and where they are in as many parts of another.
type Greatest = (u32, u32);
/// Those of a pack's words, of each of a thread's columns.
struct Row<T, const BYTES: usize>([[Greatest; WORDS]; COLUMNS as usize], PhantomData<T>);

/// What is compared by words, of one element or of two.
pub trait Compared: Lanes {
    /// Such parts of a word.
    fn each(part: u32) -> u32;
    /// Of each element the first unless the other is greater.
    fn or_greater(this: Greatest, that: Greatest) -> Greatest;
    /// Of each element a NaN if either is one, else the greater.
    fn maximum(a: u32, b: u32) -> u32;
    /// Whether an element is NaN.
    fn has_nan(word: u32) -> bool;
    /// The lowest byte of each part of two words, one after the other.
    fn bytes(words: [u32; WORDS]) -> u32;
}

impl Compared for f32 {
    #[device_inline]
    fn each(part: u32) -> u32 {
        part
    }

    #[device_inline]
    fn or_greater(this: Greatest, that: Greatest) -> Greatest {
        if f32::from_bits(that.0) > f32::from_bits(this.0) { that } else { this }
    }

    #[device_inline]
    fn maximum(a: u32, b: u32) -> u32 {
        float::maximum(f32::from_bits(a), f32::from_bits(b)).to_bits()
    }

    #[device_inline]
    fn has_nan(word: u32) -> bool {
        f32::from_bits(word).is_nan()
    }

    #[device_inline]
    fn bytes([a, b]: [u32; WORDS]) -> u32 {
        integer::bytes::<0x5140>(a, b)
    }
}

macro_rules! halves {
    ($($t:ty)*) => {$(
        impl Compared for $t {
            #[device_inline]
            fn each(part: u32) -> u32 {
                part * 0x1_0001
            }

            #[device_inline]
            fn or_greater(this: Greatest, that: Greatest) -> Greatest {
                let wins = Self::where_greater(that.0, this.0);
                (that.0 & wins | this.0 & !wins, that.1 & wins | this.1 & !wins)
            }

            #[device_inline]
            fn maximum(a: u32, b: u32) -> u32 {
                <Self as Paired>::maximum(a, b)
            }

            #[device_inline]
            fn has_nan(word: u32) -> bool {
                let [a, b] = Self::split(word);
                a.is_nan() | b.is_nan()
            }

            #[device_inline]
            fn bytes([a, b]: [u32; WORDS]) -> u32 {
                integer::bytes::<0x6420>(a, b)
            }
        }
    )*};
}
halves!(f16 bf16);

impl<T, const BYTES: usize> Clone for Row<T, BYTES> {
    #[device_inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const BYTES: usize> Copy for Row<T, BYTES> {}

impl<T: Compared, const BYTES: usize> Found for Row<T, BYTES> {
    #[device_inline]
    fn or(self, later: Self) -> Self {
        let mut found = self.0;
        unrolled!(C in [0 1] { unrolled!(W in [0 1] { if W < BYTES / 4 {
            found[C][W] = T::or_greater(self.0[C][W], later.0[C][W]);
        } }); });
        Self(found, PhantomData)
    }
}

/// What a thread goes through.
struct Strip<T, const BYTES: usize, const SIZE: usize> {
    inputs: Rows<T, BYTES, SIZE, 1, MOST_WIDE>,
    coming: [[Words; MOST_WIDE]; MOST_AHEAD],
    /// Of the strip's rows of inputs, the one that is next.
    next: u32,
    /// Rows and columns of the strip's first window that are outside of the image: no position is there, where all that is inside is minus infinity.
    above: u32,
    beside: u32,
    /// NaN where one was among the inputs.
    nan: u32,
    below: Doubling<Row<T, BYTES>>,
}

impl<T: Compared, const BYTES: usize, const SIZE: usize> Strip<T, BYTES, SIZE> {
    /// The greatest of the next row of inputs.
    ///
    /// # Safety
    /// The kernel's.
    #[device_inline]
    unsafe fn row(&mut self) -> Row<T, BYTES> {
        let ahead = ahead(SIZE);
        let packs = self.coming[0];
        unrolled!(A in [0 1] { if A + 1 < ahead { self.coming[A] = self.coming[A + 1]; } });
        // SAFETY: the caller's.
        self.coming[ahead - 1] = unsafe { self.inputs.load() };
        let down = T::each(if self.next < self.above { self.above } else { self.next } * SIZE as u32);
        self.next += 1;
        let mut found = [[(0, 0); WORDS]; COLUMNS as usize];
        unrolled!(W in [0 1] { if W < BYTES / 4 {
            unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13] {
                if J < wide(SIZE, 1) { self.nan = T::maximum(self.nan, packs[J][W]); }
            });
            // What both columns' windows have.
            let mut both = (packs[1][W], T::each(if self.beside < 1 { 1 } else { self.beside }));
            unrolled!(J in [2 3 4 5 6 7 8 9 10 11 12] {
                if J < SIZE { both = T::or_greater(both, (packs[J][W], T::each(J as u32))); }
            });
            let first = T::or_greater((packs[0][W], T::each(self.beside)), both);
            let second = T::or_greater(both, (packs[SIZE % MOST_WIDE][W], T::each(SIZE as u32)));
            found[0][W] = (first.0, first.1 + down);
            found[1][W] = (second.0, second.1 + down);
        } });
        Row(found, PhantomData)
    }
}

/// As [`max_pool_forward`](super::max_pool_forward), of windows one apart of 3×3 to 13×13 positions, by packs of 4 or 8 bytes of channels [down strips of
/// outputs](crate::falling).
///
/// Maxima are found along x, and these along y: of two rows, then of two such pairs one after the other, and so on, so that a window of 13 rows takes
/// four comparisons. Positions are counted in the strip, along y from its first row on, and in a window once it is done. Comparisons see numbers only: a
/// strip with a NaN is gone over again.
///
/// Bound by memory of 3×3 windows (on 64×64×112×112 0.86 of the copy rate in f32 on an H200, 0.84 in 16 bits), of larger ones by instructions, suspected (5×5
/// 0.69, 7×7 0.62; 9×9 and 13×13 of 64×256×28×28 0.42 to 0.45 and 0.25).
///
/// # Safety
/// The module's, but for the tiling. `x` and `y` are what `window` says, whose channels are packs of `BYTES` bytes, fewer than 2³¹ in a plane of `x`, and whose
/// windows are `SIZE` by `SIZE` and one apart; groups have `lanes` packs; `elements` are the outputs, each two columns of a row, by as many packs,
/// `rows` a thread, with the launch's grid for each group; `SIZE * (rows + SIZE)` is below 2¹⁶.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = falling_blocks(BYTES, SIZE),
    instances(
        (T, BYTES, SIZE) = [
            (f32, 4, 3), (f32, 4, 5), (f32, 4, 7), (f32, 4, 9), (f32, 4, 13), (f32, 8, 3), (f32, 8, 5), (f32, 8, 7), (f32, 8, 9),
            (f16, 4, 3), (f16, 4, 5), (f16, 4, 7), (f16, 4, 9), (f16, 4, 13), (f16, 8, 3), (f16, 8, 5), (f16, 8, 7), (f16, 8, 9),
            (bf16, 4, 3), (bf16, 4, 5), (bf16, 4, 7), (bf16, 4, 9), (bf16, 4, 13), (bf16, 8, 3), (bf16, 8, 5), (bf16, 8, 7), (bf16, 8, 9)
        ]
    )
)]
pub unsafe fn max_pool_forward_falling<T: Compared, const BYTES: usize, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nhwc>,
    elements: Elements,
    lanes: u32,
    rows: u32,
) {
    let Some(place) = place(&window, elements, PACKS_BLOCK, lanes) else { return };
    let Place { plane, row, column, channel } = Place { column: place.column * COLUMNS, ..place };
    let (place, rows) = (Place { column, ..place }, rows.min(window.output[0] - row));
    let outside = T::words([f32::NEG_INFINITY; 8])[0];
    // SAFETY: the caller's.
    let inputs = unsafe { Rows::new(x, &window, (Some(place), rows), outside) };
    let [above, beside] = [(0, row), (1, column)].map(|(axis, output)| window.padding[axis].saturating_sub(output));
    let mut strip = Strip::<T, BYTES, SIZE> {
        inputs,
        coming: [[[0; 4]; MOST_WIDE]; MOST_AHEAD],
        next: 0,
        above,
        beside,
        nan: outside,
        below: Doubling::new(Row([[(outside, 0); WORDS]; COLUMNS as usize], PhantomData)),
    };
    // SAFETY: likewise.
    unrolled!(I in [0 1 2] { if I < ahead(SIZE) { strip.coming[I] = unsafe { strip.inputs.load() }; } });
    let both = column + 1 < window.output[1];
    let (pixel, line) = (window.channels, window.output_line() as u32);
    // SAFETY: the plane exists.
    let (plane_of_y, plane_of_indices) = unsafe {
        let plane = window.output_plane(plane) * packs::channels::<T>(BYTES) as usize;
        (y.offset(plane), indices.map(|indices| indices.offset(plane)))
    };
    // The output whose window ends with the next row, at first such as are above the strip, and its pack of the plane's.
    let mut output = 1_u32.wrapping_sub(SIZE as u32);
    let mut to = row.wrapping_add(output).wrapping_mul(line).wrapping_add(column * pixel + channel);
    while (output as i32) < rows as i32 {
        // SAFETY: likewise.
        let row = unsafe { strip.row() };
        let Row(found, _) = strip.below.next::<SIZE>(row);
        // As a number without a sign those above are none of the strip's.
        if output < rows {
            unrolled!(C in [0 1] { if C == 0 || both {
                let (at, first) = ((to + C as u32 * pixel) as usize, T::each(output * SIZE as u32 + C as u32));
                let [(a, at_a), (b, at_b)] = found[C];
                // SAFETY: the output exists, and is this thread's.
                unsafe {
                    packs::store::<T, BYTES>(plane_of_y, at, [a, b, 0, 0]);
                    if let Some(indices) = plane_of_indices {
                        put_positions::<T, BYTES>(indices, at, [at_a.wrapping_sub(first), at_b.wrapping_sub(first)]);
                    }
                }
            } });
        }
        output = output.wrapping_add(1);
        to = to.wrapping_add(line);
    }
    if T::has_nan(strip.nan) {
        let each = packs::channels::<T>(BYTES);
        let window = Window { channels: window.channels * each, ..window };
        // SAFETY: the plane exists.
        let x = unsafe { x.offset(window.input_plane(plane)) };
        for output in 0..rows * COLUMNS * each {
            let (pixel, lane) = (output / each, output % each);
            let (row, column, channel) = (row + pixel / COLUMNS, column + pixel % COLUMNS, channel * each + lane);
            if column < window.output[1] {
                let output = window.output_plane(plane)
                    + row as usize * window.output_line()
                    + column as usize * window.channels as usize
                    + channel as usize;
                // SAFETY: the output exists, and is this thread's.
                unsafe { store(y, indices, output, any_window(window, x.offset(channel as usize), row, column)) };
            }
        }
    }
}

/// Stores the positions of a pack's elements, which are one after the other.
///
/// # Safety
/// The output of that pack exists, and is this thread's.
#[device_inline]
unsafe fn put_positions<T: Compared, const BYTES: usize>(indices: GlobalMut<u8>, pack: usize, words: [u32; WORDS]) {
    let bytes = T::bytes(words);
    // SAFETY: the caller's.
    unsafe {
        match packs::channels::<T>(BYTES) {
            1 => indices.store(pack, bytes as u8),
            2 => indices.cast::<u16>().store(pack, bytes as u16),
            _ => indices.cast::<u32>().store(pack, bytes),
        }
    }
}
