//! Draws from windows with the channels last that are [summed by rows](super::by_rows): a thread goes down a column of a channel's outputs.
//!
//! Launch: blocks of [`BLOCK`] threads; neighbouring threads have neighbouring channels, then columns, of some rows of outputs. A thread adds up each
//! row of its windows once and keeps the sums of the last window's rows in shared memory, where nobody else reads them: in a ring, twice, so that those
//! of a window lie one after another wherever it begins. It draws by these, and loads the one row that is drawn from again, from the cache.
//!
//! Bound by instructions where windows overlap much: those of a draw, as of [row-major](super::tiles) windows, and a place and a comparison for each
//! element that is loaded. On an H200 7×7 one apart of 64×64×112×112 in f32 reaches 0.18 of the copy rate, with 70 % of the slots used, 9×9 three apart 0.35.

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory};
use super::sums_of_rows::{Summed, draw};
use super::{LARGE, by_rows, state, uniform_of};
use crate::band::BandLaunch;
use crate::philox::Pass;
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
const BLOCK: u32 = 128;
/// Such blocks that a multiprocessor has room for, at least: 72 registers a thread.
const BLOCKS: u32 = 7;
/// Rows of a window, at most: twice as many sums of each thread have room in shared memory.
const MOST_ROWS: u32 = 16;
/// Threads that keep a GPU busy, about: those that an H100 or H200 has room for.
const ENOUGH: u64 = 132 * 1024;
/// Rows of outputs of a thread, at most.
const MOST_OUTPUTS: u32 = 16;

/// How threads are laid over outputs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Falling {
    /// Threads.
    count: u32,
    /// Rows of outputs of a thread.
    rows: u32,
    /// Threads beside each other, and below each other.
    line: u32,
    by_line: Divider,
    runs: u32,
    by_runs: Divider,
    by_channels: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Falling {}

impl Falling {
    /// Of windows that are summed by rows and have indices of a byte, without dilation and not too high, and the launch; none where there are too many.
    pub fn new(window: &Window<Nhwc>) -> Option<(Self, BandLaunch)> {
        let [height, width] = window.output;
        let positions = u64::from(window.size[0]) * u64::from(window.size[1]);
        let is_such = by_rows(window.size) && positions < LARGE && window.dilation == [1, 1];
        let line = u64::from(width) * u64::from(window.channels);
        let columns = line.checked_mul(window.planes.into())?;
        // Indices of outputs have 32 bits, and so has a line of them.
        columns.checked_mul(height.into()).filter(|&outputs| outputs < 1 << 32)?;
        if !is_such || window.size[0] > MOST_ROWS {
            return None;
        }
        // Windows that share no rows are each for itself.
        let shared = window.size[0] > window.stride[0];
        let rows = (columns * u64::from(height) / ENOUGH).clamp(1, if shared { MOST_OUTPUTS.into() } else { 1 }) as u32;
        Self::of(window, rows)
    }

    /// Of so many rows of outputs a thread, at most.
    fn of(window: &Window<Nhwc>, rows: u32) -> Option<(Self, BandLaunch)> {
        let [height, width] = window.output;
        let line = width * window.channels;
        let runs = height.div_ceil(rows);
        let rows = height.div_ceil(runs);
        let count = u64::from(line) * u64::from(window.planes) * u64::from(runs);
        let count = u32::try_from(count).ok().filter(|&count| count < 1 << 31)?;
        let [by_line, by_runs, by_channels] = [line, runs, window.channels].map(Divider::new);
        let falling = Self { count, rows, line, by_line, runs, by_runs, by_channels };
        let shared = 2 * BLOCK * window.size[0] * size_of::<f32>() as u32;
        Some((falling, BandLaunch { grid: [count.div_ceil(BLOCK), 1, 1], block: [BLOCK, 1, 1], shared }))
    }
}

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), for windows that are summed by rows, with the channels last, of `SIZE` by `SIZE`
/// positions unless that is 0.
///
/// # Safety
/// The module's, but for the tiling; the window is such, and its outputs are fewer than 2³²; `falling` is the window's, with the
/// launch's grid, block and shared memory.
#[kernel(
    block = BLOCK,
    min_blocks = BLOCKS,
    instances(T = [f32, f16, bf16], SIZE = [0, 4, 5, 6, 7, 8, 9, 11])
)]
pub unsafe fn stochastic_pool_forward_falling<T: Storage, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nhwc>,
    falling: Falling,
) {
    let size = if SIZE > 0 { [SIZE as u32; 2] } else { window.size };
    let number = thread::block_idx_x() * BLOCK + thread::thread_idx_x();
    if number >= falling.count {
        return;
    }
    let [height, width] = window.output;
    let lines = falling.by_line.divide(number);
    let place = number - lines * falling.line;
    let plane = falling.by_runs.divide(lines);
    let first = (lines - plane * falling.runs) * falling.rows;
    let rows = falling.rows.min(height - first);
    let column = falling.by_channels.divide(place);
    let channel = place - column * window.channels;
    // SAFETY: the caller's: the plane is one; sums of this thread have a place for each row of a window.
    unsafe {
        let x = x.offset(window.input_plane(plane));
        let pass = Pass::new(state.load(state::SEED), state.load(state::OFFSET));
        let [top, left] = [first * window.stride[0], column * window.stride[1]];
        let mut falls = Falls {
            x: x.offset(channel as usize),
            pixel: window.channels,
            line: window.input_line(),
            input: window.input,
            size,
            top: top.wrapping_sub(window.padding[0]),
            left: left.wrapping_sub(window.padding[1]),
            inside: 0,
            sums: dynamic_shared::<f32>().offset(thread::thread_idx_x()),
            slot: 0,
        };
        unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] {
            falls.inside |= u32::from(falls.left.wrapping_add(J as u32) < window.input[1]) << J;
        });
        let map = plane * window.channels + channel;
        let output = window.output_plane(plane) + place as usize;
        let (mut fresh, mut row, mut again) = (size[0], first, false);
        while row < first + rows {
            falls.add::<SIZE>(fresh);
            let drawn = draw::<SIZE>(&falls, size, uniform_of(pass.number((map * height + row) * width + column)));
            again |= drawn.again;
            y.store(output + row as usize * window.output_line(), T::from_f32(drawn.value));
            indices.store(output + row as usize * window.output_line(), drawn.position as u8);
            falls.top = falls.top.wrapping_add(window.stride[0]);
            fresh = window.stride[0].min(size[0]);
            row += 1;
        }
        // Seldom, and apart from the loop that is for all: the registers are few.
        let mut row = if again { first } else { first + rows };
        while row < first + rows {
            let elements = Elements { window, source: InMemory { x, window, channel }, row, column, by_rows: true };
            let (position, value) = elements.draw(uniform_of(pass.number((map * height + row) * width + column)));
            y.store(output + row as usize * window.output_line(), T::from_f32(value));
            indices.store(output + row as usize * window.output_line(), position as u8);
            row += 1;
        }
    }
}

/// A window that goes down, and the sums of its rows.
struct Falls<T> {
    /// A plane's first element of the channel.
    x: Global<T>,
    /// Elements from one column to the next, and from one row to the next.
    pixel: u32,
    line: usize,
    input: [u32; 2],
    size: [u32; 2],
    /// The window's first row and column; outside the image they wrap round to far after it.
    top: u32,
    left: u32,
    /// Whether the window's first column is inside the image, in the lowest bit, its second, and so on, of as many as are compiled in.
    inside: u32,
    /// The sums of its rows, the first in this slot, below the window's rows, the others in those after it.
    sums: Shared<f32>,
    slot: u32,
}

/// Where in its plane a row of a window begins, which may be before it, and whether the row is inside the image.
#[derive(Clone, Copy)]
struct Row {
    at: usize,
    inside: bool,
}

impl<T: Storage> Falls<T> {
    /// Adds up the last so many of the window's rows, into the slots of the first as many of the window before.
    ///
    /// # Safety
    /// `x` has its image, and each row has two slots.
    #[device_inline]
    unsafe fn add<const SIZE: usize>(&mut self, fresh: u32) {
        let mut row = self.size[0] - fresh;
        while row < self.size[0] {
            let mut sum = 0.0;
            // SAFETY: the caller's.
            unsafe {
                let of_row = self.row(row);
                if SIZE > 0 {
                    let mut weights = [0.0; SIZE];
                    unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] { if J < SIZE { weights[J] = self.compiled(of_row, J); } });
                    unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] { if J < SIZE { sum += weights[J]; } });
                } else {
                    let mut j = 0;
                    while j < self.size[1] {
                        sum += self.weight(of_row, j);
                        j += 1;
                    }
                }
                self.sums.store(self.slot * BLOCK, sum);
                self.sums.store((self.slot + self.size[0]) * BLOCK, sum);
            }
            self.slot += 1;
            self.slot = if self.slot < self.size[0] { self.slot } else { 0 };
            row += 1;
        }
    }

    /// As [`weight`](Summed::weight), of a column that is compiled in.
    ///
    /// # Safety
    /// As its.
    #[device_inline]
    unsafe fn compiled(&self, row: Row, column: usize) -> f32 {
        let inside = row.inside & (self.inside & 1 << column != 0);
        // SAFETY: inside the image.
        let x = unsafe { self.x.load_if(inside, row.at.wrapping_add(column * self.pixel as usize), T::from_f32(0.0)) };
        float::maximum(x.to_f32(), 0.0)
    }
}

impl<T: Storage> Summed for Falls<T> {
    type Row = Row;

    #[device_inline]
    unsafe fn sum(&self, row: u32) -> f32 {
        // SAFETY: the caller's, and slots of a window are one after another.
        unsafe { self.sums.load((self.slot + row) * BLOCK) }
    }

    #[device_inline]
    unsafe fn row(&self, row: u32) -> Row {
        let y = self.top.wrapping_add(row);
        let left = (self.left.cast_signed() as isize).wrapping_mul(self.pixel as isize) as usize;
        Row { at: (y as usize).wrapping_mul(self.line).wrapping_add(left), inside: y < self.input[0] }
    }

    #[device_inline]
    unsafe fn weight(&self, row: Row, column: u32) -> f32 {
        let inside = row.inside & (self.left.wrapping_add(column) < self.input[1]);
        // SAFETY: inside the image.
        let x = unsafe {
            self.x.load_if(inside, row.at.wrapping_add(column as usize * self.pixel as usize), T::from_f32(0.0))
        };
        float::maximum(x.to_f32(), 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bits, drawn_one_by_one, elements, window};
    use super::*;
    use cuda_std::launch::{Launch, LaunchDims};

    #[test]
    fn any_rows_draw_the_same() {
        for (size, stride, padding) in [
            ([5, 5], [1, 1], [2, 2]),
            ([7, 7], [2, 2], [3, 0]),
            ([4, 3], [1, 3], [0, 1]),
            ([2, 9], [3, 1], [1, 4]),
            ([11, 11], [3, 3], [5, 5]),
            ([16, 2], [9, 2], [8, 1]),
        ] {
            let window = window::<Nhwc>([2, 5], [19, 13], size, stride, padding);
            let x = elements(&window);
            let expected = drawn_one_by_one(&window, &x);
            for rows in [1, 2, 3, 5, 19] {
                let (falling, launch) = Falling::of(&window, rows).unwrap();
                let count = window.output_plane(window.planes);
                let (mut y, mut indices, state) = (vec![0.0; count], vec![0; count], [7, 2]);
                let dims = LaunchDims::new(launch.grid, launch.block).with_shared(launch.shared);
                let (y_, indices_, state) = (&mut y, &mut indices, &state);
                let draws =
                    StochasticPoolForwardFalling::<f32, 0> { x: &x, y: y_, indices: indices_, state, window, falling };
                // SAFETY: the window is over `x`, the outputs and indices its, and the launch the plan's.
                unsafe { draws.emulate(dims) }.unwrap();
                assert!((bits(&y), indices) == expected, "{size:?} {stride:?} {rows}");
            }
        }
        // As many channels as a line of outputs, or a window's row, has more elements of than 32 bits count.
        for channels in [1 << 30, u32::MAX / 5, u32::MAX] {
            let window = Window { channels, ..window::<Nhwc>([1, 1], [9, 9], [5, 5], [1, 1], [0, 0]) };
            assert!(Falling::new(&window).is_none(), "{channels}");
        }
        let window_of_one = Window { channels: 1 << 28, ..window::<Nhwc>([1, 1], [5, 5], [5, 5], [1, 1], [0, 0]) };
        assert!(Falling::new(&window_of_one).is_some());
        assert!(Falling::new(&window::<Nhwc>([1, 1], [40, 40], [17, 2], [1, 1], [0, 0])).is_none());
        assert!(Falling::new(&window::<Nhwc>([1, 1], [40, 40], [3, 3], [1, 1], [0, 0])).is_none());
    }
}
