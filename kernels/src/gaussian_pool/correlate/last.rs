//! With the channels last.

use cuda_std::arch::sm_80::{Half, cp_async_commit, cp_async_wait, cp_async16_zero_fill, mma_m16n8k16};
use cuda_std::prelude::*;

use super::{
    CORRELATE_THREADS, Correlate, OPEN, PIXELS, SIZE, STRIDE, SUMS_PER_GAUSSIAN, Sums, VECTOR, VECTORS, WARPS, WINDOWS,
    covered, finish, with_derivatives,
};
use crate::gaussian_pool::{Geometry, divide};

/// Channels of a lane, 16 bytes, and of a warp.
const fn piece<T>() -> u32 {
    16 / size_of::<T>() as u32
}
pub(super) const fn channels<T>() -> u32 {
    4 * piece::<T>()
}
/// Slots of a warp's ring, pieces of a lane in a slot, and bytes of a slot.
const SLOTS: u32 = 3;
const PIECES: u32 = 6;
const SLOT: u32 = PIECES * 16 * warp::WARP_SIZE;

/// Shared memory of a block, in bytes: rings, vectors of weights, sums of warps.
pub(super) const SHARED_BYTES: u32 = WARPS * SLOTS * SLOT + (VECTORS * VECTOR + WARPS * SUMS_PER_GAUSSIAN) * 4;

/// Elements of a slot.
const fn slot<T>() -> u32 {
    SLOT / size_of::<T>() as u32
}

/// Each block's part of the sums of `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`, laid out `[blocks, 4]`.
///
/// A step is two rows of the image and one of windows; columns are image by image, tile by tile, group by group, and a block goes
/// down one after another, each warp one of four that are neighbours. A lane copies what it multiplies itself, two steps ahead,
/// so that nobody waits for others: of its channels, of two pixels of each row and of two windows. (In which order
/// channels are summed over is all the same.) Windows stay in registers for the six steps whose rows they cover.
///
/// # Safety
/// The parent module's. `x` holds the images, `dy` the windows, `mean` two and `var` `variances` elements; `parts` is what
/// [`CorrelatePlan::last`](super::CorrelatePlan::last) made of `geometry`.
#[kernel(block = CORRELATE_THREADS, min_blocks = 3, instances(S = [f16, bf16]))]
pub unsafe fn gaussian_pool_correlate_last<S: Half>(
    x: Global<S>,
    dy: Global<S>,
    mean: Global<f32>,
    var: Global<f32>,
    sums: GlobalMut<f32>,
    geometry: Geometry,
    parts: Correlate,
) {
    let shared = dynamic_shared::<f32>();
    let number = thread::thread_idx_x() / warp::WARP_SIZE;
    // SAFETY: shared memory is as large as the plan says.
    let ring = unsafe {
        let rings = shared.offset(VECTORS * VECTOR + WARPS * SUMS_PER_GAUSSIAN).cast::<S>();
        rings.offset((number * SLOTS * SLOT + warp::lane_id() * 16) / size_of::<S>() as u32)
    };
    let first = thread::block_idx_x() * parts.each;
    let end = parts.total.min(first + parts.each);
    // Rows of windows that reach into the first step.
    let begin = first.saturating_sub(OPEN as u32 - 1);
    let mut copies = Copies::new([x, dy], &geometry, &parts, begin);
    unrolled!(N in [0 1] {
        // SAFETY: a slot of the ring, which nobody uses yet.
        unsafe { copies.next(&geometry, &parts, ring.offset(N as u32 * slot::<S>()), begin + N as u32 >= first) };
    });
    // SAFETY: as above; the parameters are there.
    unsafe { with_derivatives(shared, VECTOR, [mean, var], &geometry, parts.variances) };

    // SAFETY: zero bits are 0.0 and 0.
    let (mut of_warp, mut windows): (Sums, [[[u32; 4]; 2]; OPEN]) = unsafe { core::mem::zeroed() };
    let mut step = begin;
    while step < end {
        unrolled!(U in [0 1 2 3 4 5] {
            let now = step + U as u32;
            if now < end {
                cp_async_wait::<1>();
                // SAFETY: slots of the ring; this lane has what it copied for the step before in registers.
                let slot = unsafe {
                    let free = ring.offset((U as u32 + 2) % SLOTS * slot::<S>());
                    copies.next(&geometry, &parts, free, now + 2 >= first);
                    ring.offset(U as u32 % SLOTS * slot::<S>())
                };
                // SAFETY: copied by this lane.
                let piece = |i: usize| unsafe { slot.cast::<u32>().load4(i as u32 * 4 * warp::WARP_SIZE) }.to_array();
                let (before, others) = (piece(4), piece(5));
                windows[U] = [0, 2].map(|i| [before[i], others[i], before[i + 1], others[i + 1]]);
                if now >= first {
                    unrolled!(P in [0 1] {
                        let pixels = [piece(2 * P), piece(2 * P + 1)];
                        // Those of the same sum wait for each other: all sums' first, then all sums' second.
                        unrolled!(N in [0 1] {
                            unrolled!(A in [0 1 2 3 4 5] {
                                let (position, over) = (A * STRIDE + P, windows[(U + OPEN - A) % OPEN][N]);
                                if position < SIZE {
                                    unrolled!(T in [0 1] {
                                        let sum = &mut of_warp[position][T];
                                        let channels = [pixels[T][2 * N], pixels[T][2 * N + 1]];
                                        // SAFETY: which steps a warp does is the same for all lanes.
                                        *sum = unsafe { mma_m16n8k16::<S>(over, channels, *sum) };
                                    });
                                }
                            });
                        });
                    });
                }
            }
        });
        step += OPEN as u32;
    }
    thread::sync_threads();
    // SAFETY: written before the barrier.
    unsafe { finish(&of_warp, shared, sums) };
}

/// What a lane copies of each step.
struct Copies<T> {
    x: Global<T>,
    dy: Global<T>,
    /// The step of the column, and the column.
    step: u32,
    column: u32,
    /// Where its first pixel is in the first row, and its first window; which wrap where these are not there.
    from: [usize; 2],
    /// The row, counted in the image, which wraps too.
    row: u32,
    /// Which of its pixels and windows are there, in every row.
    there: [bool; 4],
}

impl<T: Half> Copies<T> {
    /// From step `begin` of all on.
    #[device_inline]
    fn new([x, dy]: [Global<T>; 2], geometry: &Geometry, parts: &Correlate, begin: u32) -> Self {
        let (four, step) = divide(begin, parts.steps);
        let column = four * WARPS + thread::thread_idx_x() / warp::WARP_SIZE;
        let mut copies = Self { x, dy, step, column, from: [0; 2], row: 0, there: [false; 4] };
        copies.place(geometry, parts);
        copies
    }

    /// Works out where its column is.
    #[device_inline]
    fn place(&mut self, geometry: &Geometry, parts: &Correlate) {
        let [vertical, horizontal] = &geometry.axes;
        let (rest, group) = divide(self.column, parts.groups);
        let (image, tile) = divide(rest, parts.tiles);
        let (g, c) = (warp::lane_id() / 4, warp::lane_id() % 4);
        let channel = group * channels::<T>() + c * piece::<T>();
        let present = (self.column < parts.columns) & (channel < geometry.channels);
        let left = (tile * PIXELS + g).wrapping_sub(horizontal.padding);
        // The tile before has the windows that begin in the one before.
        let window = (tile * WINDOWS + g).wrapping_sub(WINDOWS);
        let of_pixel = |right: u32| present & (left.wrapping_add(right) < covered(horizontal));
        let of_window = |right: u32| present & (window.wrapping_add(right) < horizontal.output);
        self.there = [of_pixel(0), of_pixel(PIXELS / 2), of_window(0), of_window(WINDOWS)];
        self.row = (self.step * STRIDE as u32).wrapping_sub(vertical.padding);
        let place = |height: u32, row: u32, width: u32, column: u32| {
            (image as usize * height as usize)
                .wrapping_add_signed(row.cast_signed() as isize)
                .wrapping_mul(width as usize)
                .wrapping_add_signed(column.cast_signed() as isize)
                .wrapping_mul(geometry.channels as usize)
                .wrapping_add(channel as usize)
        };
        self.from = [
            place(vertical.image, self.row, horizontal.image, left),
            place(vertical.output, self.step, horizontal.output, window),
        ];
    }

    /// Begins to copy the next step's pieces into a slot, and closes the group; of the image if it is wanted.
    ///
    /// # Safety
    /// This lane does not read there any more; the images are what [`new`](Self::new) was told.
    #[device_inline]
    unsafe fn next(&mut self, geometry: &Geometry, parts: &Correlate, slot: Shared<T>, of_image: bool) {
        let [vertical, horizontal] = &geometry.axes;
        let channels = geometry.channels as usize;
        let line = horizontal.image as usize * channels;
        let copy = |i: u32, source: Global<T>, there: bool, from: usize| {
            let valid = if there { piece::<T>() } else { 0 };
            // SAFETY: what is there is in an image, at a multiple of 16 bytes, as pixels are; the place is the caller's.
            unsafe { cp_async16_zero_fill(slot, i * piece::<T>() * warp::WARP_SIZE, source, from, valid) };
        };
        unrolled!(P in [0 1] {
            let inside = of_image & (self.row.wrapping_add(P as u32) < covered(vertical));
            let from = self.from[0].wrapping_add(P * line);
            copy(2 * P as u32, self.x, inside & self.there[0], from);
            copy(2 * P as u32 + 1, self.x, inside & self.there[1], from.wrapping_add(PIXELS as usize / 2 * channels));
        });
        let inside = self.step < vertical.output;
        copy(4, self.dy, inside & self.there[2], self.from[1]);
        copy(5, self.dy, inside & self.there[3], self.from[1].wrapping_add(WINDOWS as usize * channels));
        cp_async_commit();
        self.step += 1;
        self.row = self.row.wrapping_add(STRIDE as u32);
        self.from[0] = self.from[0].wrapping_add(STRIDE * line);
        self.from[1] = self.from[1].wrapping_add(horizontal.output as usize * channels);
        if self.step == parts.steps {
            self.step = 0;
            self.column += WARPS;
            self.place(geometry, parts);
        }
    }
}
