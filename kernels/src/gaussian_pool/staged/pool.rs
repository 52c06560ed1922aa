//! Sums along x.

use cuda_std::arch::sm_80::{Half, ldmatrix_x4_trans, mma_m16n8k16};
use cuda_std::prelude::*;

use super::{LINE, MOST_VALUES, SIZE, STRIDE};

/// What a thread sums at once, values of neighbouring windows and channels.
pub(super) type Values = [f32; MOST_VALUES];

/// How warps sum elements of this type along x.
pub trait Pool: Storage {
    /// Channels of a warp.
    const CHANNELS: u32;
    /// Columns of windows that a warp has for each value of a thread.
    const COLUMNS_OF_VALUE: u32;
    /// Columns of a row that are read beside two for each column of windows.
    const BESIDE: u32;
    /// Whether pieces of a pixel are swapped, so that those of the same channels of eight pixels are in different banks.
    const SWAPPED: bool;
    /// What sums are too large by, for the weights along y to mend.
    const SCALE: f32;
    /// Elements of shared memory that weights of one Gaussian take in the form that [`along`](Self::along) wants them.
    const TABLE: u32;
    /// A thread's weights.
    type Along: Copy;

    /// Puts the weights into such a form, one position of it after another.
    ///
    /// # Safety
    /// Shared memory holds [`TABLE`](Self::TABLE) elements, of which this thread writes number `i`, and a vector of weights.
    unsafe fn table(table: Shared<Self>, i: u32, weights: Shared<f32>);

    /// The thread's weights.
    ///
    /// # Safety
    /// Shared memory holds a vector of weights, and a table.
    unsafe fn along(table: Shared<Self>, weights: Shared<f32>) -> Self::Along;

    /// Where a lane's first pixel of a row is, counted in elements from the row's, of the warp with such channels.
    fn lane(chunk: u32) -> u32;

    /// As many sums of a thread, of the row whose lane's pixels begin here: `add` takes them with their numbers, which are constants.
    ///
    /// # Safety
    /// Shared memory holds it, and nobody writes there; all lanes of a warp come together.
    unsafe fn across(pixels: Shared<Self>, along: &Self::Along, count: usize, add: impl FnMut(usize, f32));

    /// The column of windows and the channel that the thread's first value is of, of the warp's.
    fn first() -> [u32; 2];
    /// How far from these value number `i` is.
    fn place(i: usize) -> [u32; 2];
}

impl Pool for f32 {
    const CHANNELS: u32 = warp::WARP_SIZE;
    const COLUMNS_OF_VALUE: u32 = 1;
    const BESIDE: u32 = (SIZE - STRIDE) as u32;
    const SWAPPED: bool = false;
    const SCALE: f32 = 1.0;
    const TABLE: u32 = 0;
    type Along = [f32; SIZE];

    #[device_inline]
    unsafe fn table(_: Shared<Self>, _: u32, _: Shared<f32>) {}

    #[device_inline]
    unsafe fn along(_: Shared<Self>, weights: Shared<f32>) -> Self::Along {
        let mut along = [0.0; SIZE];
        // SAFETY: the caller's.
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] { along[I] = unsafe { weights.load(I as u32) } });
        along
    }

    #[device_inline]
    fn lane(chunk: u32) -> u32 {
        chunk * warp::WARP_SIZE + warp::lane_id()
    }

    #[device_inline]
    unsafe fn across(pixels: Shared<Self>, along: &Self::Along, count: usize, mut add: impl FnMut(usize, f32)) {
        // SAFETY: zero bits are 0.0.
        let mut sums: Values = unsafe { core::mem::zeroed() };
        unrolled!(R in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40] {
            if R < count * STRIDE + SIZE - STRIDE {
                // SAFETY: the caller's.
                let value = unsafe { pixels.load(R as u32 * (LINE / 4)) };
                unrolled!(O in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                    let position = R.wrapping_sub(O * STRIDE);
                    if O < count && position < SIZE {
                        sums[O] = if position == 0 { along[0] * value } else { float::fma(along[position], value, sums[O]) };
                        if position == SIZE - 1 {
                            add(O, sums[O]);
                        }
                    }
                });
            }
        });
    }

    #[device_inline]
    fn first() -> [u32; 2] {
        [0, warp::lane_id()]
    }

    #[device_inline]
    fn place(i: usize) -> [u32; 2] {
        [i as u32, 0]
    }
}

/// Columns of windows that one product has, and of the image that it takes at once.
const GROUP: u32 = 8;
const DEPTH: u32 = 16;
/// Elements of a table of one part of the weights: the band's column for a window, with zeros around.
const BAND: u32 = 48;

/// Fragments of the band, of its two halves: of both parts of the weights.
#[derive(Clone, Copy)]
pub struct Band([[[u32; 2]; 2]; 2]);

macro_rules! halves {
    ($($t:ty: $scale:expr;)*) => {$(
        impl Pool for $t {
            const CHANNELS: u32 = 16;
            const COLUMNS_OF_VALUE: u32 = 2;
            const BESIDE: u32 = DEPTH;
            const SWAPPED: bool = true;
            const SCALE: f32 = $scale;
            const TABLE: u32 = 2 * BAND;
            type Along = Band;

            #[device_inline]
            unsafe fn table(table: Shared<Self>, i: u32, weights: Shared<f32>) {
                let (part, position) = (i / BAND, (i % BAND).wrapping_sub(DEPTH));
                // SAFETY: the caller's.
                let weight = unsafe { weights.load_if(position < SIZE as u32, position, 0.0) } * Self::SCALE;
                let high: Self = Storage::from_f32(weight);
                let element = if part == 0 { high } else { Storage::from_f32(weight - Storage::to_f32(high)) };
                // SAFETY: the caller's.
                unsafe { table.store(i, element) };
            }

            #[device_inline]
            unsafe fn along(table: Shared<Self>, _: Shared<f32>) -> Band {
                let (g, c) = (warp::lane_id() / 4, warp::lane_id() % 4);
                let mut band = [[[0; 2]; 2]; 2];
                unrolled!(P in [0 1] {
                    unrolled!(K in [0 1] {
                        unrolled!(J in [0 1] {
                            // Of pixels 2c + 8J + 16K and one more, for window g.
                            let i = (P as u32 * BAND + DEPTH + J as u32 * 8 + K as u32 * DEPTH) / 2 + c - g;
                            // SAFETY: the caller's; a table is aligned to words.
                            band[K][P][J] = unsafe { table.cast::<u32>().load(i) };
                        });
                    });
                });
                Band(band)
            }

            #[device_inline]
            fn lane(chunk: u32) -> u32 {
                // Lane 8j + r names row r of matrix j: of these 1 is that of eight channels more, 2 that of eight pixels more.
                let (j, r) = (warp::lane_id() / 8, warp::lane_id() % 8);
                (r + j / 2 * 8) * (LINE / 2) + ((chunk * 2 + j % 2) ^ r) * 8
            }

            #[device_inline]
            unsafe fn across(pixels: Shared<Self>, band: &Band, count: usize, add: impl FnMut(usize, f32)) {
                // SAFETY: the caller's.
                unsafe { products(pixels, band, count, add) };
            }

            #[device_inline]
            fn first() -> [u32; 2] {
                [warp::lane_id() % 4 * 2, warp::lane_id() / 4]
            }

            #[device_inline]
            fn place(i: usize) -> [u32; 2] {
                [i as u32 / 4 * GROUP + i as u32 % 2, i as u32 / 2 % 2 * 8]
            }
        }
    )*};
}
halves! {
    f16: 32768.0;
    bf16: 1.0;
}

/// [`Pool::across`] by tensor cores: what is copied of a row, by the band. Each half of the band is multiplied with 16 pixels, which
/// are the other half's of the group beside.
#[device_inline]
unsafe fn products<T: Half>(pixels: Shared<T>, Band(band): &Band, count: usize, mut add: impl FnMut(usize, f32)) {
    let mut rows = [[0; 4]; MOST_VALUES / 4 + 1];
    // SAFETY: the caller's.
    rows[0] = unsafe { ldmatrix_x4_trans(pixels, 0) };
    unrolled!(G in [0 1 2 3] {
        if 4 * G < count {
            // SAFETY: the caller's.
            unsafe {
                rows[G + 1] = ldmatrix_x4_trans(pixels.offset((G as u32 + 1) * DEPTH * (LINE / 2)), 0);
                let mut four = mma_m16n8k16::<T>(rows[G], band[0][0], [0.0; 4]);
                four = mma_m16n8k16::<T>(rows[G + 1], band[1][0], four);
                four = mma_m16n8k16::<T>(rows[G], band[0][1], four);
                four = mma_m16n8k16::<T>(rows[G + 1], band[1][1], four);
                unrolled!(J in [0 1 2 3] { add(4 * G + J, four[J]); });
            }
        }
    });
}
