//! Gaussian pooling with the channels last, of square windows of a few known sizes whose weights are the same everywhere, of Gaussians that all channels
//! share or that each has: by a thread a channel, straight from memory.
//!
//! A block has some neighbouring channels, and for each of these as many threads, its workers. A worker takes a run of outputs below each other, or
//! backward of cells of inputs, and the next one the run beside it: what their windows share is in the cache. Neighbouring lanes load
//! neighbouring channels.
//!
//! Forward, a row of inputs is summed along x once, and added to the windows that are open, which come round; of small windows some rows are on their way
//! together. Backward, a thread keeps the rows of `dy`
//! whose windows are over its cell. For the gradients of mean and variance it adds `x · dy` to a sum for each position of the window
//! ([`positions`](super::positions) says what these are for), over one run after another, and a block leaves four sums, or four for each of its
//! channels; another kernel adds these up.
//!
//! Weights come from tables of entries of neighbouring sets ([`gaussian_pool_weights`](super::gaussian_pool_weights)).
//!
//! Bound by what threads wait for, loads of one element each (suspected, for more blocks a multiprocessor are faster at any cost of registers): an H200 takes
//! 0.3 to 0.8 of the copy rate in f32, and in 16 bits nearly as long (docs/perf).

use cuda_std::prelude::*;

mod backward;
mod forward;

pub use backward::*;
pub use forward::*;

use super::sets::Weights;
use crate::band::least;
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
pub const CHANNELS_BLOCK: u32 = 256;
/// Channels of a block, at most.
const MOST_LANES: u32 = warp::WARP_SIZE;
/// Threads that are enough, about: more have shorter runs. Rows of a run, at most.
const ENOUGH: u64 = 1 << 19;
const MOST_ROWS: u64 = 32;
/// Sizes of windows, and how far they are apart, that there are kernels for forward.
const FORWARD: [(u32, u32); 7] = [(2, 2), (5, 2), (7, 2), (3, 1), (5, 1), (4, 4), (3, 3)];

/// Sizes of windows, how far they are apart, and what is left of their padding by that, that there are kernels for backward.
const BACKWARD: [(u32, u32, u32); 9] =
    [(2, 2, 0), (3, 2, 0), (3, 2, 1), (5, 2, 0), (7, 2, 1), (3, 1, 0), (5, 1, 0), (4, 4, 0), (3, 3, 0)];

/// How threads are laid over channels, columns and runs of rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Channels: with several Gaussians a map, of the output; forward, pairs of them, where a thread has two.
    channels: u32,
    each: u32,
    /// Gaussians of a map, and sets of them.
    kernels: u32,
    sets: u32,
    /// The logarithm to base 2 of a block's channels, and groups of as many.
    lanes_log: u32,
    groups: u32,
    /// Columns of outputs or cells, rows of them and of a run.
    columns: u32,
    rows: u32,
    run: u32,
    /// Runs of a column, and of all columns of all images.
    runs: u32,
    count: u32,
    by_kernels: Divider,
    by_groups: Divider,
    by_columns: Divider,
    by_runs: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Workers {}

/// What a thread takes.
struct Run {
    image: u32,
    column: u32,
    /// The first row, and that past the last.
    rows: [u32; 2],
}

impl Workers {
    /// Over the outputs of this window, of sets of Gaussians; none where there is no kernel for it.
    pub fn forward(window: &Window<Nhwc>, sets: u32, kernels: u32) -> Option<Self> {
        let [size, stride, _] = square(window)?;
        // Two are loaded together, where they are even and maps have one Gaussian; of 3×3 windows one apart, which go by packs then, one.
        let pairs = kernels == 1 && window.channels.is_multiple_of(2) && (size, stride) != (3, 1);
        let each = if pairs { 2 } else { 1 };
        let known = FORWARD.contains(&(size, stride));
        known.then(|| Self::new(window, [sets, kernels], each, window.output))?
    }

    /// Over the cells of its inputs.
    pub fn backward(window: &Window<Nhwc>, sets: u32) -> Option<Self> {
        let [size, stride, phase] = square(window)?;
        let cells = window.input.map(|inputs| inputs.div_ceil(stride));
        BACKWARD.contains(&(size, stride, phase)).then(|| Self::new(window, [sets, 1], 1, cells))?
    }

    fn new(window: &Window<Nhwc>, [sets, kernels]: [u32; 2], each: u32, [rows, columns]: [u32; 2]) -> Option<Self> {
        let channels = window.channels.checked_mul(kernels)? / each;
        // As many lanes as leave at most a quarter of them without a channel.
        let idle = |lanes: u32| u64::from(channels.next_multiple_of(lanes) - channels) * 4 > u64::from(channels);
        let lanes =
            [MOST_LANES, MOST_LANES / 2, MOST_LANES / 4, 4, 2].into_iter().find(|&lanes| !idle(lanes)).unwrap_or(1);
        let lines = u64::from(window.planes) * u64::from(columns) * u64::from(channels);
        let run = (lines.checked_mul(rows.into())? / ENOUGH).clamp(1, MOST_ROWS.min(rows.into())) as u32;
        let runs = rows.div_ceil(run);
        let count = window.planes.checked_mul(runs)?.checked_mul(columns)?;
        let groups = channels.div_ceil(lanes);
        let fits = count < 1 << 31 && u64::from(count) * u64::from(groups) < 1 << 31 && channels < 1 << 31;
        let [by_kernels, by_groups, by_columns, by_runs] = [kernels, groups, columns, runs].map(Divider::new);
        let lanes_log = lanes.trailing_zeros();
        let workers = Self {
            channels,
            each,
            kernels,
            sets,
            lanes_log,
            groups,
            columns,
            rows,
            run,
            runs,
            count,
            by_kernels,
            by_groups,
            by_columns,
            by_runs,
        };
        fits.then_some(workers)
    }

    /// Blocks, each of whose workers takes a run.
    pub fn blocks(&self) -> u32 {
        self.count.div_ceil(CHANNELS_BLOCK >> self.lanes_log) * self.groups
    }

    /// The same, or as many blocks as about so many, each of whose workers takes one run after another.
    pub fn blocks_that_stay(&self, about: u32) -> u32 {
        let each = self.blocks().div_ceil(about.max(self.groups));
        (self.blocks() / self.groups).div_ceil(each) * self.groups
    }

    /// Channels of a thread of the forward pass.
    pub fn each(&self) -> u32 {
        self.each
    }

    /// Groups of neighbouring channels.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// This thread's channel, which may lie past the last, and the number of its block among those of these channels.
    #[device_inline]
    fn channel(&self) -> (u32, u32) {
        let number = self.by_groups.divide(thread::block_idx_x());
        let group = thread::block_idx_x() - number * self.groups;
        ((group << self.lanes_log) + (thread::thread_idx_x() & ((1 << self.lanes_log) - 1)), number)
    }

    /// Workers of a block, and the number of this thread among them.
    #[device_inline]
    fn workers(&self) -> (u32, u32) {
        (CHANNELS_BLOCK >> self.lanes_log, thread::thread_idx_x() >> self.lanes_log)
    }

    /// The run of this number.
    #[device_inline]
    fn run(&self, number: u32) -> Run {
        let line = self.by_columns.divide(number);
        let image = self.by_runs.divide(line);
        let first = (line - image * self.runs) * self.run;
        Run { image, column: number - line * self.columns, rows: [first, least(first + self.run, self.rows)] }
    }
}

/// The size of a square window, how far it is from the next, and what is left of its padding by that.
fn square(window: &Window<Nhwc>) -> Option<[u32; 3]> {
    let [size, stride] = [window.size[0], window.stride[0]];
    let phases = window.padding.map(|padding| padding % stride);
    let fits =
        window.size[1] == size && window.stride[1] == stride && phases[0] == phases[1] && window.dilation == [1; 2];
    fits.then_some([size, stride, phases[0]])
}

/// So many elements, each of so many, forward, or back where the number wrapped round below zero.
#[device_inline]
fn signed(number: u32, each: usize) -> usize {
    (number.cast_signed() as isize).wrapping_mul(each.cast_signed()).cast_unsigned()
}

/// The weights of a map's Gaussian, of tables of entries of so many elements, whose first they are.
///
/// # Safety
/// The tables have one case, of neighbouring sets.
#[device_inline]
unsafe fn load_weights<const SIZE: usize>(
    tables: [Global<f32>; 2],
    workers: &Workers,
    map: u32,
    kernel: u32,
    entry: u32,
) -> Weights<SIZE> {
    let set = if workers.sets == 1 { 0 } else { map };
    let first = (kernel * SIZE as u32 * workers.sets + set) * entry;
    let mut weights = Weights { by_y: [0.0; SIZE], by_x: [0.0; SIZE] };
    unrolled!(I in [0 1 2 3 4 5 6] {
        if I < SIZE {
            let at = (first + I as u32 * workers.sets * entry) as usize;
            // SAFETY: the caller's.
            unsafe {
                weights.by_y[I] = tables[0].load(at);
                weights.by_x[I] = tables[1].load(at);
            }
        }
    });
    weights
}
