//! Windows of any size with the channels last, by vectors: 16 bytes of neighbouring channels, four of `f32` or eight of 16 bits.
//!
//! Forward, a thread takes the positions of a vector's window, [`AHEAD`] at a time whose loads are all under way before any is
//! used. Where outputs are few and windows large, threads of a block share a window: each takes a *slice*, every so manyth of its
//! positions, so that slices beside each other read pixels beside each other, and what they found is brought together through
//! shared memory, in a fixed order. Backward, a thread gathers what the windows over a vector of inputs give: over [`AHEAD`]
//! inputs below each other of windows that do not overlap, each of which at most one is over, else of as many windows at a time.
//!
//! Where windows overlap, a block has few channels of many columns, so that most of what they share is in its cache.
//!
//! Bound by memory; of windows that overlap much by instructions.

mod gather;

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;
pub(crate) use gather::*;

use crate::window::{Divider, Nhwc, Window};

/// Threads of a block, at most.
pub const THREADS: u32 = 512;
/// Threads of a block, where no more are needed.
pub const FEWER_THREADS: u32 = 256;
/// Such blocks that a multiprocessor has room for, at least: 64 registers a thread.
pub const MIN_BLOCKS: u32 = 2;
/// Vectors that a thread loads before it uses the first.
pub const AHEAD: usize = 4;
/// Slices of a window, at most.
const MOST_SLICES: u32 = 128;
/// Vectors beside each other of a block, at least, unless there are fewer: half of what memory gives at once.
const LEAST_PLACES: u32 = 4;
/// Threads that keep memory busy: half of what a GPU has room for.
const ENOUGH: u64 = 1 << 17;
/// Runs of outputs below each other that keep a GPU busy; and rows of one, at most.
pub const ENOUGH_RUNS: u64 = 1 << 18;
const MOST_ROWS: u32 = 14;
/// Vectors of a pixel that a block has beside each other where windows overlap, at most.
const MOST_BESIDE: u32 = 16;
/// And at least, unless there are fewer: what memory gives at once.
const LEAST_BESIDE: u32 = 8;
/// Channels of a vector, at most.
pub(crate) const LANES: usize = 8;

/// The words of a vector.
pub(crate) type Words = [u32; 4];
/// The numbers of a vector, and what is made of them; zeros after those that it has.
pub(crate) type Numbers = [f32; LANES];

/// What vectors are of.
pub trait Lanes: Storage {
    /// The numbers, exactly; zeros after them.
    fn numbers(words: Words) -> Numbers;
    /// The nearest that memory can hold, of as many.
    fn words(numbers: Numbers) -> Words;
}

impl Lanes for f32 {
    #[device_inline]
    fn numbers(words: Words) -> Numbers {
        let [a, b, c, d] = words.map(f32::from_bits);
        [a, b, c, d, 0.0, 0.0, 0.0, 0.0]
    }

    #[device_inline]
    fn words([a, b, c, d, ..]: Numbers) -> Words {
        [a, b, c, d].map(f32::to_bits)
    }
}

macro_rules! halves {
    ($($t:ty)*) => {$(
        impl Lanes for $t {
            #[device_inline]
            fn numbers(words: Words) -> Numbers {
                let [[a, b], [c, d], [e, f], [g, h]] = words.map(<Self as Paired>::split);
                [a, b, c, d, e, f, g, h]
            }

            #[device_inline]
            fn words([a, b, c, d, e, f, g, h]: Numbers) -> Words {
                [[a, b], [c, d], [e, f], [g, h]].map(<Self as Paired>::join)
            }
        }
    )*};
}
halves!(f16 bf16);

/// Channels of a vector.
pub const fn lanes<T>() -> usize {
    16 / size_of::<T>()
}

/// How threads are laid over vectors and windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Places, each a vector, or a few below each other.
    total: u32,
    /// Vectors of a pixel.
    pub(crate) groups: u32,
    /// Of these, how many are neighbours in a block; the other chunks of as many are elsewhere.
    beside: u32,
    by_beside: Divider,
    /// Pixels of a row.
    width: u32,
    by_width: Divider,
    /// Rows of a place, and rows of places that cover a plane.
    pub(crate) each: u32,
    rows: u32,
    by_rows: Divider,
    chunks: u32,
    by_chunks: Divider,
    /// The logarithm to base 2 of a block's places.
    places: u32,
    /// Threads that share a place.
    slices: u32,
    /// Forward, positions of a window and of its rows; backward, windows over an input, both ways and across, at most.
    count: u32,
    across: u32,
    by_across: Divider,
    by_stride: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Vectors {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub vectors: Vectors,
    /// Blocks, and their threads.
    pub blocks: u32,
    /// See `blocks`.
    pub threads: u32,
    /// Threads that share a window.
    pub slices: u32,
}

/// Where a vector is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Whether it is one: the last threads have none.
    pub there: bool,
    pub plane: u32,
    pub row: u32,
    pub column: u32,
    /// Its number in its pixel.
    pub group: u32,
}

impl Plan {
    /// Over the outputs, of elements of so many bytes. None where channels are not whole vectors, or more than 32 bits count.
    pub fn forward(window: &Window<Nhwc>, bytes: usize) -> Option<Self> {
        let positions = window.size[0].checked_mul(window.size[1]).filter(|&positions| positions < 1 << 30)?;
        let groups = groups(window, bytes)?;
        let of_plane = pixels(window.output) * u64::from(groups);
        let outputs = of_plane.saturating_mul(u64::from(window.planes));
        let is_few = |slices: u32| outputs < ENOUGH / u64::from(slices);
        let mut slices = 1;
        while is_few(slices) && slices < MOST_SLICES && positions >= 2 * slices * AHEAD as u32 {
            slices *= 2;
        }
        Self::new(window, window.output, groups, 1, slices, [positions, window.size[1]])
    }

    /// Over the outputs, a thread each.
    pub fn outputs(window: &Window<Nhwc>, bytes: usize) -> Option<Self> {
        let count = window.size[0].checked_mul(window.size[1])?;
        Self::new(window, window.output, groups(window, bytes)?, 1, 1, [count, window.size[1]])
    }

    /// Over the inputs. Dilated windows have none either, nor do images without an output.
    pub fn backward(window: &Window<Nhwc>, bytes: usize) -> Option<Self> {
        let over = [0, 1].map(|axis| window.size[axis].div_ceil(window.stride[axis]).min(window.output[axis]));
        let each = if overlap(window) { 1 } else { AHEAD as u32 };
        let count = over[0].checked_mul(over[1]).filter(|&count| count < 1 << 30)?;
        if window.dilation != [1; 2] || count == 0 {
            return None;
        }
        Self::new(window, window.input, groups(window, bytes)?, each, 1, [count, over[1]])
    }

    /// Over the outputs, as many below each other a thread as leave `enough` threads.
    pub fn runs(window: &Window<Nhwc>, bytes: usize, enough: u64) -> Option<Self> {
        let count = window.size[0].checked_mul(window.size[1])?;
        let (groups, [height, width]) = (groups(window, bytes)?, window.output);
        let of_row = u64::from(width) * u64::from(groups) * u64::from(window.planes);
        let down = (enough.div_ceil(of_row.max(1)).min(u64::from(u32::MAX)) as u32).max(height.div_ceil(MOST_ROWS));
        let each = height.div_ceil(down).max(AHEAD as u32);
        Self::new(window, window.output, groups, each, 1, [count, window.size[1]])
    }

    /// `each` rows a place.
    fn new(
        window: &Window<Nhwc>,
        [height, width]: [u32; 2],
        groups: u32,
        each: u32,
        slices: u32,
        [count, across]: [u32; 2],
    ) -> Option<Self> {
        let limit = u64::from(i32::MAX as u32 - THREADS);
        let is_small = |size| pixels(size) * u64::from(groups) <= limit;
        // The most that all of a pixel's vectors are a multiple of, unless that is few: then all.
        let fits = |&beside: &u32| groups.is_multiple_of(beside);
        let most = (LEAST_BESIDE..=MOST_BESIDE).rev().find(fits).filter(|_| overlap(window));
        let beside = most.unwrap_or(groups);
        let rows = height.div_ceil(each);
        let of_plane = u64::from(rows) * u64::from(width) * u64::from(groups);
        let total = u64::from(window.planes).checked_mul(of_plane).filter(|&total| total <= limit)?;
        if !is_small(window.input) || !is_small(window.output) {
            return None;
        }
        let places = (FEWER_THREADS / slices).max(LEAST_PLACES);
        let chunks = groups / beside;
        let vectors = Vectors {
            total: total as u32,
            groups,
            beside,
            by_beside: Divider::new(beside),
            width,
            by_width: Divider::new(width),
            each,
            rows,
            by_rows: Divider::new(rows),
            chunks,
            by_chunks: Divider::new(chunks),
            places: places.trailing_zeros(),
            slices,
            count,
            across,
            by_across: Divider::new(across),
            by_stride: window.stride.map(Divider::new),
        };
        Some(Self { vectors, blocks: vectors.total.div_ceil(places), threads: places * slices, slices })
    }

    /// Bytes of shared memory of a block, of which each thread that shares a window leaves so many words for each channel.
    pub fn shared_bytes(&self, words: u32, bytes: usize) -> u32 {
        let lanes = (16 / bytes) as u32;
        if self.slices > 1 { self.threads * lanes * words * 4 } else { 0 }
    }
}

/// Whether windows share inputs.
pub fn overlap(window: &Window<Nhwc>) -> bool {
    (0..2).any(|axis| window.extent(axis) > window.stride[axis])
}

/// Vectors of a pixel, if these are whole.
fn groups(window: &Window<Nhwc>, bytes: usize) -> Option<u32> {
    let lanes = (16 / bytes) as u32;
    window.channels.is_multiple_of(lanes).then_some(window.channels / lanes)
}

fn pixels([height, width]: [u32; 2]) -> u64 {
    u64::from(height) * u64::from(width)
}

impl Vectors {
    /// This thread's place, of the first of so many rows.
    #[device_inline]
    pub(crate) fn place(&self, rows: u32) -> Place {
        self.place_of(thread::block_idx_x(), rows)
    }

    /// The blocks that take all places.
    #[device_inline]
    pub(crate) fn blocks(&self) -> u32 {
        (self.total + (1 << self.places) - 1) >> self.places
    }

    /// That which it would have in another block.
    #[device_inline]
    pub(crate) fn place_of(&self, block: u32, rows: u32) -> Place {
        let thread = thread::thread_idx_x() & ((1 << self.places) - 1);
        let number = (block << self.places) + thread;
        let column = self.by_beside.divide(number);
        let row = self.by_width.divide(column);
        let chunk = self.by_rows.divide(row);
        let plane = self.by_chunks.divide(chunk);
        let there = number < self.total;
        Place {
            there,
            // Of what is not there no address is worked out.
            plane: if there { plane } else { 0 },
            row: if there { (row - chunk * self.rows) * rows } else { 0 },
            column: column - row * self.width,
            group: (chunk - plane * self.chunks) * self.beside + number - column * self.beside,
        }
    }

    /// This thread's run.
    #[device_inline]
    pub(crate) fn run(&self) -> Place {
        self.place(self.each)
    }

    /// The first word of plane `plane` of so many pixels, counted from the place's vectors.
    #[device_inline]
    pub(crate) fn first(&self, place: &Place, [height, width]: [u32; 2]) -> usize {
        let vectors = place.plane as usize * (height * width * self.groups) as usize;
        vectors + if place.there { place.group as usize } else { 0 }
    }

    /// The vector of the pixel at this row and column, counted from [`first`](Self::first).
    #[device_inline]
    pub(crate) fn at(&self, row: u32, column: u32, width: u32) -> usize {
        row.wrapping_mul(width).wrapping_add(column).wrapping_mul(self.groups) as usize
    }
}

impl Vectors {
    /// `to = numbers + beta * to` of the vector so many rows below a place, of planes of this height and width, if there is such a row.
    ///
    /// # Safety
    /// `to` holds the planes, and begins at a multiple of 16 bytes; the place is there.
    #[device_inline]
    pub(crate) unsafe fn put<T: Lanes>(
        &self,
        to: GlobalMut<T>,
        beta: f32,
        size: [u32; 2],
        place: &Place,
        below: u32,
        numbers: Numbers,
    ) {
        let row = place.row + below;
        let vector = self.first(place, size).wrapping_add(self.at(row, place.column, size[1]));
        // SAFETY: a vector of the plane where it is inside.
        unsafe { put(to, beta, row < size[0], vector, numbers) };
    }
}

/// `to = numbers + beta * to` of a vector, if it is `inside`.
///
/// # Safety
/// `to` holds it then, and begins at a multiple of 16 bytes.
#[device_inline]
pub(crate) unsafe fn put<T: Lanes>(to: GlobalMut<T>, beta: f32, inside: bool, vector: usize, mut numbers: Numbers) {
    let at = vector.wrapping_mul(4);
    // SAFETY: the caller's.
    unsafe {
        let to = to.cast::<u32>();
        if beta != 0.0 {
            let old = T::numbers(to.as_global().load4_if(inside, at, Vec4::splat(0)).to_array());
            unrolled!(K in [0 1 2 3 4 5 6 7] { numbers[K] = float::fma(beta, old[K], numbers[K]); });
        }
        to.store4_if(inside, at, Vec4::from(T::words(numbers)));
    }
}

/// What is found of a window's positions by and by.
pub(crate) trait Found: Copy {
    /// Leaves it in shared memory, the numbers of each of so many channels `step` apart.
    ///
    /// # Safety
    /// There is room, and nobody else uses it.
    unsafe fn put(self, lanes: usize, shared: Shared<f32>, at: u32, step: u32);
    /// This, and what was found of other positions and left so.
    ///
    /// # Safety
    /// It was, before a barrier.
    unsafe fn with(self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) -> Self;
}

impl Found for Numbers {
    #[device_inline]
    unsafe fn put(self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) {
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            // SAFETY: the caller's.
            if K < lanes { unsafe { shared.store(at + K as u32 * step, self[K]) }; }
        });
    }

    #[device_inline]
    unsafe fn with(mut self, lanes: usize, shared: Shared<f32>, at: u32, step: u32) -> Self {
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            // SAFETY: the caller's.
            if K < lanes { self[K] += unsafe { shared.load(at + K as u32 * step) }; }
        });
        self
    }
}

/// What is found of the window of this thread's output: `add(found, vector, position)` of each position of a slice, with the vector
/// `outside` for what is not in the image or past the window, beginning with `found`; and the output's place, and its vector's number
/// among all, for the threads that have all slices' together.
///
/// # Safety
/// `x` holds the window's inputs, and begins at a multiple of 16 bytes; `vectors` are of its outputs, with the launch's grid, block and
/// shared memory, if slices are several, from `shared` on.
#[device_inline]
pub(crate) unsafe fn of_windows<T: Lanes, F: Found>(
    x: Global<T>,
    window: &Window<Nhwc>,
    vectors: &Vectors,
    shared: Shared<f32>,
    outside: u32,
    found: impl Fn(&Place) -> F,
    add: impl Fn(F, Words, u32) -> F,
) -> Option<(F, Place, usize)> {
    let place = vectors.place(1);
    let [top, left] = [(0, place.row), (1, place.column)]
        .map(|(axis, output)| (output * window.stride[axis]).wrapping_sub(window.padding[axis]));
    let slice = thread::thread_idx_x() >> vectors.places;
    // SAFETY: the plane is one of the image's, and the group one of its pixels'.
    let x = unsafe { x.cast::<u32>().offset(vectors.first(&place, window.input) * 4) };
    let mut found = found(&place);
    let mut next = slice;
    while next < vectors.count {
        let mut loaded = [Vec4::splat(outside); AHEAD];
        unrolled!(K in [0 1 2 3] {
            let position = next + K as u32 * vectors.slices;
            let i = vectors.by_across.divide(position);
            let j = position - i * vectors.across;
            let row = top.wrapping_add(i.wrapping_mul(window.dilation[0]));
            let column = left.wrapping_add(j.wrapping_mul(window.dilation[1]));
            let inside = place.there & (position < vectors.count) & (row < window.input[0]) & (column < window.input[1]);
            let at = vectors.at(row, column, window.input[1]);
            // SAFETY: loaded only where it is in the image.
            loaded[K] = unsafe { x.load4_if(inside, at * 4, Vec4::splat(outside)) };
        });
        unrolled!(K in [0 1 2 3] { found = add(found, loaded[K].to_array(), next + K as u32 * vectors.slices); });
        next += AHEAD as u32 * vectors.slices;
    }
    if vectors.slices > 1 {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let mut half = vectors.slices / 2;
        while half > 0 {
            // SAFETY: of this thread alone, and read by one of the first half, after the barrier.
            unsafe {
                if (slice >= half) & (slice < 2 * half) {
                    found.put(lanes::<T>(), shared, thread, threads);
                }
                thread::sync_threads();
                if slice < half {
                    found = found.with(lanes::<T>(), shared, thread + (half << vectors.places), threads);
                }
            }
            half /= 2;
        }
    }
    let output = vectors.first(&place, window.output) + vectors.at(place.row, place.column, window.output[1]);
    if place.there & (slice == 0) { Some((found, place, output)) } else { None }
}

#[cfg(test)]
mod tests;
