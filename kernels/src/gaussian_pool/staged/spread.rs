//! What columns of windows give along x.

use cuda_std::arch::sm_80::{Half, ldmatrix_x4_trans, mma_m16n8k16};
use cuda_std::prelude::*;

use super::{LINE, OPEN, Pool, SIZE, STRIDE, VECTOR};

/// What a thread spreads at once.
pub(super) const VALUES: usize = 8;
pub(super) type Values = [f32; VALUES];

/// How warps spread elements of this type along x. A warp has columns of the image in pairs, of as many channels as [`Pool`] says.
pub trait Spread: Pool {
    /// Pairs of columns of a warp.
    const PAIRS: u32;
    /// Columns of windows that are read beside one for each pair of columns of a block.
    const BEFORE: u32;
    /// Elements of shared memory that weights of one Gaussian take in the form that [`along_x`](Self::along_x) wants them.
    const FORM: u32;
    /// A thread's weights.
    type AlongX: Copy;

    /// Puts the weights into such a form, for lane after lane.
    ///
    /// # Safety
    /// Shared memory holds [`FORM`](Self::FORM) elements, which the warp writes, and a vector of weights.
    unsafe fn form(form: Shared<Self>, weights: Shared<f32>);

    /// The thread's weights.
    ///
    /// # Safety
    /// Shared memory holds a vector of weights, and its form.
    unsafe fn along_x(form: Shared<Self>, weights: Shared<f32>) -> Self::AlongX;

    /// Where a lane's windows of the warp's first column are, in elements from the row's; of `maps` Gaussians a pixel.
    fn lane_windows(chunk: u32, maps: u32) -> u32;

    /// What the row of windows gives whose lane's begin here, each of so many elements.
    ///
    /// # Safety
    /// Shared memory holds it, and nobody writes there; all lanes of a warp come together.
    unsafe fn spread(windows: Shared<Self>, along_x: &Self::AlongX, line: u32) -> Values;

    /// The column and the channel of the warp's that the thread's first value is of.
    fn corner() -> [u32; 2];

    /// Puts the thread's pixels where the first is to be, columns so many elements apart.
    ///
    /// # Safety
    /// Shared memory holds the warp's; nobody else uses them.
    unsafe fn put(to: Shared<Self>, pitch: u32, values: &Values);
}

impl Spread for f32 {
    const PAIRS: u32 = 4;
    const BEFORE: u32 = OPEN as u32 - 1;
    const FORM: u32 = 0;
    type AlongX = [f32; VECTOR as usize];

    #[device_inline]
    unsafe fn form(_: Shared<Self>, _: Shared<f32>) {}

    #[device_inline]
    unsafe fn along_x(_: Shared<Self>, weights: Shared<f32>) -> Self::AlongX {
        // SAFETY: the caller's.
        unsafe { vector(weights) }
    }

    #[device_inline]
    fn lane_windows(chunk: u32, maps: u32) -> u32 {
        (chunk * warp::WARP_SIZE + warp::lane_id()) * maps
    }

    #[device_inline]
    unsafe fn spread(windows: Shared<Self>, along_x: &Self::AlongX, line: u32) -> Values {
        let mut values = [0.0; VALUES];
        unrolled!(R in [0 1 2 3 4 5 6 7 8] {
            // SAFETY: the caller's.
            let window = unsafe { windows.load(R as u32 * line) };
            unrolled!(I in [0 1 2 3 4 5 6 7] {
                // Window 0 begins five pairs before the warp's first.
                let position = (I + STRIDE * (OPEN - 1)).wrapping_sub(R * STRIDE);
                if position < SIZE {
                    let first = position + STRIDE >= SIZE;
                    let product = along_x[position] * window;
                    values[I] = if first { product } else { float::fma(along_x[position], window, values[I]) };
                }
            });
        });
        values
    }

    #[device_inline]
    fn corner() -> [u32; 2] {
        [0, warp::lane_id()]
    }

    #[device_inline]
    unsafe fn put(to: Shared<Self>, pitch: u32, values: &Values) {
        // SAFETY: the caller's.
        unrolled!(I in [0 1 2 3 4 5 6 7] { unsafe { to.store(I as u32 * pitch, values[I]) } });
    }
}

/// A vector of weights.
///
/// # Safety
/// It is there, at a multiple of four.
#[device_inline]
pub(super) unsafe fn vector(weights: Shared<f32>) -> [f32; VECTOR as usize] {
    let mut vector = [0.0; VECTOR as usize];
    unrolled!(Q in [0 1 2] {
        // SAFETY: the caller's.
        let four = unsafe { weights.load4(4 * Q as u32) }.to_array();
        unrolled!(R in [0 1 2 3] { vector[4 * Q + R] = four[R]; });
    });
    vector
}

/// Fragments of the weights, columns of the image by windows: of both parts of the weights.
type Rows = [[u32; 4]; 2];
/// Words of a lane in a form.
const WORDS: u32 = 8;

macro_rules! halves {
    ($($t:ty)*) => {$(
        impl Spread for $t {
            const PAIRS: u32 = 8;
            const BEFORE: u32 = 8;
            const FORM: u32 = 2 * WORDS * warp::WARP_SIZE;
            type AlongX = Rows;

            #[device_inline]
            unsafe fn form(form: Shared<Self>, weights: Shared<f32>) {
                let lane = warp::lane_id();
                let mut i = 0;
                while i < 2 * WORDS {
                    // Element i % 2 of word i / 2 % 4, of part i / 8: columns of the image are the fragment's rows.
                    let (part, j) = (i / 8, i / 2 % 4);
                    let (row, window) = (lane / 4 + j % 2 * 8, lane % 4 * 2 + j / 2 * 8 + i % 2);
                    let position = (row + (STRIDE * (OPEN - 1)) as u32).wrapping_sub(window * STRIDE as u32);
                    // SAFETY: the caller's.
                    unsafe {
                        let weight = weights.load_if(position < SIZE as u32, position, 0.0) * Self::SCALE;
                        let high: Self = Storage::from_f32(weight);
                        let element = if part == 0 { high } else { Storage::from_f32(weight - Storage::to_f32(high)) };
                        form.store((part * warp::WARP_SIZE + lane) * WORDS + i % 8, element);
                    }
                    i += 1;
                }
            }

            #[device_inline]
            unsafe fn along_x(form: Shared<Self>, _: Shared<f32>) -> Rows {
                let mut rows = [[0; 4]; 2];
                unrolled!(P in [0 1] {
                    let at = (P as u32 * warp::WARP_SIZE + warp::lane_id()) * (WORDS / 2);
                    // SAFETY: the caller's.
                    rows[P] = unsafe { form.cast::<u32>().load4(at) }.to_array();
                });
                rows
            }

            #[device_inline]
            fn lane_windows(chunk: u32, _: u32) -> u32 {
                // Lane 8j + r names row r of matrix j: of these 1 is that of eight rows more, 2 that of eight channels more.
                let (j, r) = (warp::lane_id() / 8, warp::lane_id() % 8);
                (r + j % 2 * 8) * (LINE / 2) + ((chunk * 2 + j / 2) ^ r) * 8
            }

            #[device_inline]
            unsafe fn spread(windows: Shared<Self>, rows: &Rows, _: u32) -> Values {
                // SAFETY: the caller's.
                unsafe { products(windows, rows) }
            }

            #[device_inline]
            fn corner() -> [u32; 2] {
                [warp::lane_id() / 4, warp::lane_id() % 4 * 2]
            }

            #[device_inline]
            unsafe fn put(to: Shared<Self>, pitch: u32, values: &Values) {
                unrolled!(J in [0 1 2 3] {
                    let at = J as u32 % 2 * 8 * pitch + J as u32 / 2 * 8;
                    let two = Vec2::new(Storage::from_f32(values[2 * J]), Storage::from_f32(values[2 * J + 1]));
                    // SAFETY: the caller's.
                    unsafe { to.store2(at, two) };
                });
            }
        }
    )*};
}
halves!(f16 bf16);

/// [`Spread::spread`] by tensor cores: a band of weights by sixteen rows of windows of sixteen channels.
#[device_inline]
unsafe fn products<T: Half>(windows: Shared<T>, [high, low]: &Rows) -> Values {
    let mut values = [0.0; VALUES];
    // SAFETY: the caller's.
    unsafe {
        let [a, b, c, d] = ldmatrix_x4_trans(windows, 0);
        let first = mma_m16n8k16::<T>(*high, [a, b], [0.0; 4]);
        let second = mma_m16n8k16::<T>(*high, [c, d], [0.0; 4]);
        let first = mma_m16n8k16::<T>(*low, [a, b], first);
        let second = mma_m16n8k16::<T>(*low, [c, d], second);
        unrolled!(J in [0 1 2 3] {
            values[J] = first[J];
            values[4 + J] = second[J];
        });
    }
    values
}
