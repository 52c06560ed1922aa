//! Large windows, [summed by rows](super::by_rows): threads of a block take rows of a few windows.
//!
//! Launch: blocks of [`BLOCK`] threads. A block has a power of two of outputs that are neighbours in memory, for each as many takers
//! of rows: thread `t` has output `t % outs` and is its taker `t / outs`. A taker adds up every so manyth row and leaves the sums
//! in shared memory, `[rows][outs]`; the first taker's threads add these up in order, and leave in their places the sums up to the
//! end of each row. There the first taker finds the row that is drawn from, and goes over that one again. With the channels last
//! neighbouring threads read neighbouring channels; in row-major images each has a row of its own, by vectors of four where all of
//! them are aligned. Blocks go on by the grid.
//!
//! Bound by the time that memory takes to answer: eight elements are on their way to a thread at once.

use cuda_std::prelude::*;

use super::elements::{Weights, rectified};
use super::{LARGE, by_rows, state, uniform};
use crate::band::BandLaunch;
use crate::window::{Divider, Nchw, Nhwc, Order, Window};

/// Threads of a block.
const BLOCK: u32 = 256;
/// Such blocks that a multiprocessor has room for, at least: 48 registers a thread.
const BLOCKS: u32 = 5;
/// Outputs of a block for the sake of neighbouring channels, at most: as many as a warp has threads.
const MOST_CHANNELS: u32 = warp::WARP_SIZE;
/// Shared memory of a block, in bytes, at most: as much as seven on a multiprocessor have.
const MOST_BYTES: u32 = 32 * 1024;
/// Blocks that keep a GPU busy, about: two for each multiprocessor of an H100 or H200.
const ENOUGH: u64 = 256;
/// Blocks of a grid, at most.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Elements of a vector.
const FOUR: u32 = 4;
/// Elements on their way to a thread at once.
const EIGHT: u32 = 8;

/// How blocks are laid over the outputs of large windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Large {
    /// Outputs of a block, as an exponent of two.
    outs: u32,
    by_line: Divider,
    by_height: Divider,
    by_channels: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Large {}

/// Where an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    plane: u32,
    row: u32,
    column: u32,
    channel: u32,
}

impl Large {
    /// Over the outputs of the window, and the launch; none where it is not large and summed by rows.
    pub fn new<L: Order>(window: &Window<L>) -> Option<(Self, BandLaunch)> {
        let positions = u64::from(window.size[0]) * u64::from(window.size[1]);
        if positions < LARGE || !by_rows(window.size) || window.dilation != [1, 1] {
            return None;
        }
        let count = outputs(window);
        let rows = window.size[0];
        // A thread a row, or more outputs for channels to be neighbours.
        let of_rows = (BLOCK / rows.next_power_of_two()).max(1);
        let of_channels = if L::CHANNELS_LAST { window.channels.min(MOST_CHANNELS).next_power_of_two() } else { 1 };
        let mut outs = of_rows.max(of_channels);
        let bytes = |outs: u32| rows * outs * size_of::<f32>() as u32;
        while outs > 1 && (bytes(outs) > MOST_BYTES || count.div_ceil(outs.into()) < ENOUGH) {
            outs /= 2;
        }
        let large = Self {
            outs: outs.trailing_zeros(),
            by_line: Divider::new(window.output_line() as u32),
            by_height: Divider::new(window.output[0]),
            by_channels: Divider::new(window.pixel()),
        };
        let blocks = count.div_ceil(outs.into()).min(MOST_BLOCKS) as u32;
        Some((large, BandLaunch { grid: [blocks, 1, 1], block: [BLOCK, 1, 1], shared: bytes(outs) }))
    }

    /// Of the output with this number in memory.
    #[device_inline]
    fn place<L: Order>(&self, window: &Window<L>, number: u64) -> Place {
        let [width, height] = [window.output_line() as u32, window.output[0]];
        let line = divide(number, width, self.by_line);
        let plane = divide(line, height, self.by_height);
        let (row, place) = ((line - plane * height as u64) as u32, (number - line * width as u64) as u32);
        let column = if L::CHANNELS_LAST { self.by_channels.divide(place) } else { place };
        Place { plane: plane as u32, row, column, channel: place - column * window.pixel() }
    }
}

/// All outputs.
#[device_inline]
fn outputs<L: Order>(window: &Window<L>) -> u64 {
    window.output_plane(window.planes) as u64
}

/// `number / divisor`, by the divider where it can.
#[device_inline]
fn divide(number: u64, divisor: u32, divider: Divider) -> u64 {
    if number < 1 << 31 {
        divider.divide(number as u32) as u64
    } else {
        // Never none: said so that there is no panic.
        number.checked_div(divisor as u64).unwrap_or(0)
    }
}

/// Draws a position of each window, as [`stochastic_pool_forward`](super::stochastic_pool_forward) of windows that are summed by rows.
///
/// # Safety
/// The module's, but for the tiling; the window is summed by rows; memory begins at multiples of 16 bytes; `large` is the
/// window's, with the launch's block and shared memory.
#[kernel(block = BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16], L = [Nchw, Nhwc]))]
pub unsafe fn stochastic_pool_forward_large<T: Storage, L: Order>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u16>,
    state: Global<u64>,
    window: Window<L>,
    large: Large,
) {
    // SAFETY: the caller's; outputs exist where they are stored.
    unsafe {
        let (seed, offset) = (state.load(state::SEED), state.load(state::OFFSET));
        for_each_share(x, &window, &large, |output, share: Share<T, L>| {
            let (weights, sum) = share.weighed();
            if share.taker != 0 {
                return;
            }
            let Place { plane, row, column, channel } = share.place;
            let map = plane as u64 * window.pixel() as u64 + channel as u64;
            let index = (map * window.output[0] as u64 + row as u64) * window.output[1] as u64 + column as u64;
            let (position, value) = share.draw(uniform(seed, offset, index), weights, sum);
            y.store_if(share.exists, output, T::from_f32(value));
            indices.store_if(share.exists, output, position as u16);
        });
    }
}

/// Calls `f` with each output of this thread and its share in the window. All threads of a block do so as often.
///
/// # Safety
/// As [`stochastic_pool_forward_large`]'s.
#[device_inline]
unsafe fn for_each_share<T: Storage, L: Order>(
    x: Global<T>,
    window: &Window<L>,
    large: &Large,
    f: impl Fn(usize, Share<T, L>),
) {
    let (count, thread) = (outputs(window), thread::thread_idx_x());
    let outs = 1 << large.outs;
    let (own, taker) = (thread & (outs - 1), thread >> large.outs);
    let mut first = (thread::block_idx_x() as u64) << large.outs;
    loop {
        let number = first + own as u64;
        let exists = number < count;
        // Threads past the last output help nobody, and go along with it.
        let number = if exists { number } else { count - 1 };
        // SAFETY: the output exists; the launch's shared memory has a place for each row of each of the block's outputs.
        unsafe {
            let sums = dynamic_shared::<f32>().offset(own);
            f(number as usize, Share::new(x, window, large, large.place(window, number), sums, exists, taker));
        }
        first += (thread::grid_dim_x() as u64) << large.outs;
        if first >= count {
            return;
        }
        // The sums are still read.
        thread::sync_threads();
    }
}

/// What a thread does for an output.
struct Share<T, L: Order> {
    window: Window<L>,
    place: Place,
    /// Whether the output is this thread's, and not another's that it goes along with.
    exists: bool,
    /// Which of the output's threads this is, and the distance to the next output's, as an exponent of two.
    taker: u32,
    outs: u32,
    /// The window's first element inside the image, and its position.
    x: Global<T>,
    first: [u32; 2],
    /// Rows and columns inside the image.
    inside: [u32; 2],
    /// Whether four elements from each fourth of a row on are aligned, and in the image's row.
    fours: bool,
    /// Places of the rows' sums, one every so many outputs.
    sums: Shared<f32>,
}

impl<T: Storage, L: Order> Share<T, L> {
    /// # Safety
    /// The output exists, and `x` has its image; `sums` has a place for each row inside it.
    #[device_inline]
    unsafe fn new(
        x: Global<T>,
        window: &Window<L>,
        large: &Large,
        place: Place,
        sums: Shared<f32>,
        exists: bool,
        taker: u32,
    ) -> Self {
        let along = |axis: usize, output: u32| {
            let begin = output * window.stride[axis];
            let from = begin.saturating_sub(window.padding[axis]);
            let end = begin + window.size[axis] - window.padding[axis];
            let end = if end < window.input[axis] { end } else { window.input[axis] };
            [from, from + window.padding[axis] - begin, end - from]
        };
        let [[top, i, height], [left, j, width]] = [along(0, place.row), along(1, place.column)];
        let at = top as usize * window.input_line() + (left * window.pixel() + place.channel) as usize;
        // SAFETY: the caller's.
        let x = unsafe { x.offset(window.input_plane(place.plane) + at) };
        let fours = !L::CHANNELS_LAST & left.is_multiple_of(FOUR) & window.input[1].is_multiple_of(FOUR);
        let (first, inside, outs) = ([i, j], [height, width], large.outs);
        Self { window: *window, place, exists, taker, outs, x, first, inside, fours, sums }
    }

    /// Calls `f` with the number and the value of each element of a row inside the image, in order, eight on their way before the
    /// first is used, until it says not to go on; and with zeros past the last.
    #[device_inline]
    fn for_each(&self, row: u32, mut f: impl FnMut(u32, f32) -> bool) {
        let (pixel, width, zero) = (self.window.pixel(), self.inside[1], T::from_f32(0.0));
        // SAFETY: the row is inside the image, and what is loaded too.
        let x = unsafe { self.x.offset(row as usize * self.window.input_line()) };
        let (mut number, mut goes_on) = (0, true);
        while goes_on & (number < width) {
            let mut values = [zero; EIGHT as usize];
            if self.fours {
                unrolled!(K in [0 4] {
                    let number = number + K as u32;
                    // SAFETY: as above; fours are aligned, and in the row where their first is.
                    let four = unsafe { x.load4_if(number < width, number as usize, Vec4::splat(zero)) };
                    values[K] = four.x;
                    values[K + 1] = if number + 1 < width { four.y } else { zero };
                    values[K + 2] = if number + 2 < width { four.z } else { zero };
                    values[K + 3] = if number + 3 < width { four.w } else { zero };
                });
            } else {
                unrolled!(K in [0 1 2 3 4 5 6 7] {
                    let number = number + K as u32;
                    // SAFETY: as above.
                    values[K] = unsafe { x.load_if(number < width, number.wrapping_mul(pixel) as usize, zero) };
                });
            }
            unrolled!(K in [0 1 2 3 4 5 6 7] { goes_on = f(number + K as u32, values[K].to_f32()); });
            number += EIGHT;
        }
    }

    /// The sum of what `of` gives for the window's elements, and nothing for zero: rows' sums in their order. The sums up to the end
    /// of each row stay where they are. All threads of the block know the sum, and wait for each other.
    #[device_inline]
    fn total(&self, of: impl Fn(f32) -> f32) -> f32 {
        let rows = self.inside[0];
        let mut row = self.taker;
        while row < rows {
            let mut sum = 0.0;
            self.for_each(row, |_, x| {
                sum += of(x);
                true
            });
            // SAFETY: a row has a place, and this row is this thread's.
            unsafe { self.sums.store(row << self.outs, sum) };
            row += BLOCK >> self.outs;
        }
        thread::sync_threads();
        if self.taker == 0 {
            let (mut sum, mut row) = (0.0, 0);
            while row < rows {
                let mut sums = [0.0; EIGHT as usize];
                unrolled!(K in [0 1 2 3 4 5 6 7] {
                    let row = row + K as u32;
                    // SAFETY: as above; all rows' sums are there, and nobody else is at them.
                    sums[K] = unsafe { self.sums.load_if(row < rows, row << self.outs, 0.0) };
                });
                unrolled!(K in [0 1 2 3 4 5 6 7] {
                    let row = row + K as u32;
                    sum += sums[K];
                    // SAFETY: as above.
                    unsafe { self.sums.store_if(row < rows, row << self.outs, sum) };
                });
                row += EIGHT;
            }
        }
        thread::sync_threads();
        self.up_to(rows)
    }

    /// The sum of so many rows, at least one.
    #[device_inline]
    fn up_to(&self, rows: u32) -> f32 {
        // SAFETY: a row has a place, and all threads are past the barrier after it was written.
        unsafe { self.sums.load((rows - 1) << self.outs) }
    }

    /// How the window's elements are weighed, and the weights' sum, which is finite. All threads have read it when this returns.
    #[device_inline]
    fn weighed(&self) -> (Weights, f32) {
        let sum = self.total(rectified);
        let is_finite = sum < f32::INFINITY;
        if !thread::sync_threads_or(!is_finite) {
            return (Weights::Plain, sum);
        }
        let infinite = self.total(|x| Weights::Infinite.of(x)) > 0.0;
        let weights = if is_finite { Weights::Plain } else { Weights::where_not_finite(sum, infinite) };
        thread::sync_threads();
        let sum = self.total(|x| weights.of(x));
        thread::sync_threads();
        (weights, sum)
    }

    /// The position and the element at which the sum of the weights so far passes `uniform` of all of them; the last that has a
    /// weight, where rounding keeps it from that. Without any weight the position past the last, and 0.
    #[device_inline]
    fn draw(&self, uniform: f32, weights: Weights, sum: f32) -> (u32, f32) {
        let [[i, j], [_, columns]] = [self.first, self.window.size];
        if sum == 0.0 {
            return (self.window.size[0] * columns, 0.0);
        }
        let until = uniform * sum;
        // Sums of which rounding leaves no part below the whole are so small that they are exact: rows without a weight add nothing.
        let passes = |so_far: f32| if until < sum { so_far > until } else { so_far == sum };
        // Sums of what is not negative never fall: the first row that passes.
        let (mut row, mut last) = (0, self.inside[0] - 1);
        while row < last {
            let middle = (row + last) / 2;
            if passes(self.up_to(middle + 1)) {
                last = middle;
            } else {
                row = middle + 1;
            }
        }
        let before = if row > 0 { self.up_to(row) } else { 0.0 };
        let (mut drawn, mut so_far, mut open) = ((0, 0.0), 0.0, true);
        self.for_each(row, |number, x| {
            let weight = weights.of(x);
            drawn = if open & (weight > 0.0) { (number, x) } else { drawn };
            so_far += weight;
            open &= before + so_far <= until;
            open
        });
        let (number, value) = drawn;
        ((i + row) * columns + j + number, value)
    }
}

#[cfg(test)]
mod tests {
    use core::marker::PhantomData;

    use cuda_std::launch::{Launch, LaunchDims};

    use super::*;

    /// Whole images of this size, channel by channel or channels last.
    fn window<L: Order>(planes: u32, channels: u32, size: [u32; 2]) -> Window<L> {
        let (input, stride, dilation) = (size, [1; 2], [1; 2]);
        Window { planes, channels, input, output: [1; 2], size, stride, padding: [0; 2], dilation, order: PhantomData }
    }

    fn outs<L: Order>(window: &Window<L>) -> u32 {
        let (large, launch) = Large::new(window).unwrap();
        let bytes = window.size[0] * size_of::<f32>() as u32;
        assert_eq!(launch.shared, bytes << large.outs);
        assert!(launch.shared <= MOST_BYTES);
        assert!(u64::from(launch.grid[0]) << large.outs >= outputs(window));
        1 << large.outs
    }

    #[test]
    fn blocks_have_rows_for_their_threads() {
        assert_eq!(outs(&window::<Nchw>(16 * 256, 1, [56, 56])), 4);
        assert_eq!(outs(&window::<Nchw>(64 * 256, 1, [28, 28])), 8);
        assert_eq!(outs(&window::<Nhwc>(64, 256, [28, 28])), 32);
        assert_eq!(outs(&window::<Nhwc>(1 << 20, 3, [56, 56])), 4);
        assert_eq!(outs(&window::<Nhwc>(1 << 20, 32, [4096, 15])), 2);
        // Fewer of so few.
        assert_eq!(outs(&window::<Nhwc>(16, 256, [56, 56])), 16);
        assert_eq!(outs(&window::<Nchw>(64, 1, [255, 255])), 1);
        assert!(Large::new(&window::<Nchw>(64, 1, [4097, 15])).is_none());
        assert!(Large::new(&window::<Nchw>(64, 1, [15, 17])).is_none());
        // More than a grid has blocks for.
        let (_, launch) =
            Large::new(&Window { output: [1 << 16; 2], ..window::<Nchw>(1 << 8, 1, [256, 255]) }).unwrap();
        assert_eq!(launch.grid, [MOST_BLOCKS as u32, 1, 1]);
    }

    #[test]
    fn outputs_past_32_bits_have_their_places() {
        let window = Window { output: [1000, 3000], ..window::<Nhwc>(1 << 12, 7, [16, 16]) };
        let (large, _) = Large::new(&window).unwrap();
        for (plane, row, column, channel) in
            [(0, 0, 0, 0), (102, 253, 1000, 3), (205, 7, 2999, 6), (4095, 999, 2999, 6)]
        {
            let number =
                ((u64::from(plane) * 1000 + u64::from(row)) * 3000 + u64::from(column)) * 7 + u64::from(channel);
            assert_eq!(large.place(&window, number), Place { plane, row, column, channel });
        }
    }

    /// Draws of blocks of so many outputs, one after another of a grid of so many.
    fn drawn<L: Order>(window: &Window<L>, x: &[f32], outs: u32, blocks: u32) -> (Vec<u32>, Vec<u16>)
    where
        for<'a> StochasticPoolForwardLarge<'a, f32, L>: Launch,
    {
        let (large, _) = Large::new(window).unwrap();
        let count = outputs(window) as usize;
        let (mut y, mut indices, state) = (vec![0.0f32; count], vec![u16::MAX; count], [1u64, 2]);
        let dims = LaunchDims::new([blocks, 1, 1], [BLOCK, 1, 1]).with_shared((window.size[0] * 4) << outs);
        let launch = StochasticPoolForwardLarge::<f32, L> {
            x: &x.to_vec(),
            y: &mut y,
            indices: &mut indices,
            state: &state,
            window: *window,
            large: Large { outs, ..large },
        };
        // SAFETY: the window is large and over `x`, and the launch has its shared memory.
        unsafe { launch.emulate(dims) }.unwrap();
        (y.into_iter().map(f32::to_bits).collect(), indices)
    }

    #[test]
    fn any_blocks_draw_the_same() {
        fn all<L: Order>(planes: u32, channels: u32)
        where
            for<'a> StochasticPoolForwardLarge<'a, f32, L>: Launch,
        {
            let input = [21, 20];
            let window = Window { input, output: [2, 3], stride: [5, 2], ..window::<L>(planes, channels, [16, 16]) };
            let mut x: Vec<f32> = (0..planes * channels * 420).map(|i| (i * 7919 % 1009) as f32 - 100.0).collect();
            x[500] = f32::NAN;
            x[2000] = f32::INFINITY;
            let expected = drawn(&window, &x, 0, planes * channels * 6);
            assert!(expected.1.iter().all(|index| *index < 256));
            for outs in 0..=8 {
                for blocks in [1, 2, 7] {
                    assert_eq!(drawn(&window, &x, outs, blocks), expected, "{outs} {blocks}");
                }
            }
        }
        all::<Nchw>(7, 1);
        all::<Nhwc>(2, 5);
    }
}
