//! Forward of windows of any size with the channels last, by [vectors](crate::vectors).

use cuda_std::prelude::*;

use super::Maximum;
use crate::vectors::{self, Found, LANES, Lanes, Place, Vectors, Words, lanes};
use crate::window::{Nhwc, Position, Window};

/// The greatest of each channel of a vector.
#[derive(Clone, Copy)]
struct Maxima {
    values: [f32; LANES],
    positions: [u32; LANES],
}

impl Maxima {
    #[device_inline]
    fn of(&self, lane: usize) -> Maximum {
        Maximum { value: self.values[lane], position: self.positions[lane] }
    }
}

impl Found for Maxima {
    #[device_inline]
    unsafe fn put(self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) {
        let places = shared.cast::<u32>();
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < lanes {
                // SAFETY: the caller's.
                unsafe {
                    shared.store(at + K as u32 * step, self.values[K]);
                    places.store(at + (lanes + K) as u32 * step, self.positions[K]);
                }
            }
        });
    }

    #[device_inline]
    unsafe fn with(mut self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) -> Self {
        let places = shared.cast::<u32>();
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < lanes {
                // SAFETY: the caller's.
                let (value, position) =
                    unsafe { (shared.load(at + K as u32 * step), places.load(at + (lanes + K) as u32 * step)) };
                let greatest = self.of(K).or_earlier(Maximum { value, position });
                (self.values[K], self.positions[K]) = (greatest.value, greatest.position);
            }
        });
        self
    }
}

/// As [`max_pool_forward`](super::max_pool_forward), by [vectors](crate::vectors).
///
/// # Safety
/// The module's, but for the tiling; memory begins at multiples of 16 bytes; `vectors` are of the window's outputs, with the launch's
/// grid, block and shared memory, which has two words for each channel that a thread finds.
#[kernel(
    max_threads = vectors::THREADS,
    min_blocks = vectors::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], P = [u8, u16])
)]
pub unsafe fn max_pool_forward_vectors<T: Lanes, P: Position>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<P>>,
    window: Window<Nhwc>,
    vectors: Vectors,
) {
    // Where all are minus infinity the first in the image wins.
    let found = |place: &Place| {
        let [i, j] =
            [(0, place.row), (1, place.column)].map(|(axis, output)| window.first_inside(axis, output).position);
        Maxima { values: [f32::NEG_INFINITY; LANES], positions: [i * window.size[1] + j; LANES] }
    };
    let add = |mut maxima: Maxima, words: Words, position: u32| {
        let numbers = T::numbers(words);
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < lanes::<T>() {
                let greatest = maxima.of(K).or(numbers[K], position);
                (maxima.values[K], maxima.positions[K]) = (greatest.value, greatest.position);
            }
        });
        maxima
    };
    let outside = T::words([f32::NEG_INFINITY; LANES])[0];
    // SAFETY: the caller's.
    let found = unsafe { vectors::of_windows(x, &window, &vectors, dynamic_shared(), outside, found, add) };
    let Some((Maxima { values, positions }, _, output)) = found else { return };
    // SAFETY: the output exists.
    unsafe {
        y.cast().store4(output * 4, Vec4::from(T::words(values)));
        if let Some(indices) = indices {
            let [a, b, c, d, e, f, g, h] = positions.map(P::narrow);
            indices.store4(output * lanes::<T>(), Vec4::new(a, b, c, d));
            if lanes::<T>() == 8 {
                indices.store4(output * 8 + 4, Vec4::new(e, f, g, h));
            }
        }
    }
}
