//! Gaussian pooling with the channels last, for windows of a known size and stride: windows slide down in registers.
//!
//! A thread has four channels, which it loads and stores at once, and goes down a strip of the image in steps of a stride.
//! Threads of neighbouring channels are neighbours; those of neighbouring columns follow, so that what several of them read
//! is in the L1 cache.
//!
//! - [`gaussian_pool_forward_slide`]: of each row of the image a thread sums [`COLUMNS`] windows along x, and adds the sums
//!   to all windows down that are open there.
//! - [`gaussian_pool_backward_slide`]: of each row of `dy` a thread sums what the windows over its column give along x, and
//!   adds that to all rows of `dx` that the windows reach.
//! - [`gaussian_pool_backward_parameters_slide`] does the same with the derivatives of the weights along x too, and holds
//!   the rows of `x` that a row of windows covers: pooled along y with the weights and their derivatives, and multiplied by
//!   what is spread along x, they are what the parameters' gradients sum.
//!
//! No row is read twice but where two strips meet, and nothing goes through shared memory but weights.
//!
//! Where all channels have the same one or three Gaussians (`KERNELS`), a block computes the weights for itself, and they are
//! numbers; a thread takes all Gaussians of its channels. Else (`KERNELS = 0`) the weights come from the tables of
//! [`gaussian_pool_weights`](super::gaussian_pool_weights), a number for each channel, and channels are also loaded one by
//! one: those of several Gaussians, and those of pixels whose number of channels is no multiple of four. Forward such a
//! thread has four channels of the output.

mod backward;
mod forward;
mod parameters;

pub use backward::*;
use cuda_std::prelude::*;
pub use forward::*;
pub use parameters::*;

use super::weights::{Shape, vector};
use super::{Axis, DERIVATIVES_ENTRY, Geometry, divide};

/// Channels of a thread.
pub const CHANNELS: u32 = 4;
/// The most positions of a window along an axis.
const MOST: usize = 12;
/// The most windows that are over a pixel along an axis.
const OPEN: usize = 6;
/// The most pixels from one window to the next.
const STRIDES: usize = 2;
/// Shared memory that a block may have, in bytes: what needs no leave of the driver.
const MAX_SHARED: u32 = 48 << 10;
/// Multiprocessors that blocks are shared out to; on a GPU with fewer or more, the last round of blocks is less even.
const MULTIPROCESSORS: u32 = 132;
/// Bytes of a pixel's channels that a block reads at least, where there are as many: fewer were slower backward.
const LINE: u32 = 256;

/// The most Gaussians of a channel whose sums a thread keeps.
const MAPS: usize = 3;

/// Four numbers, one for each channel of a thread.
type Four = [f32; CHANNELS as usize];

/// Windows along an axis that are over one pixel, at most.
const fn open(size: u32, stride: u32) -> u32 {
    size.div_ceil(stride)
}

/// How blocks take images apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slide {
    /// Threads of neighbouring channels.
    pub lanes: u32,
    /// Groups of as many threads, which cover a pixel.
    pub groups: u32,
    /// Threads of neighbouring columns, of a block.
    pub places: u32,
    /// Blocks across an image.
    pub across: u32,
    /// Blocks down an image: strips.
    pub down: u32,
    /// Steps of a strip.
    pub steps: u32,
    /// Variances of each Gaussian, 1 or 2.
    pub variances: u32,
    /// Whether the four channels of a thread are loaded at once also where they vary, and backward stored: 0 or 1.
    pub vectors: u32,
    /// Whether they are stored at once, forward.
    pub stores: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Slide {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub slide: Slide,
    /// Gaussians that all channels share, as the kernel knows them; 0 for that for channels that vary.
    pub kernels: u32,
    /// Blocks, and threads of each.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// What a pass asks of a plan.
struct Needs {
    /// Channels that threads share out.
    channels: u32,
    /// Tables of weights of a block: one for each Gaussian and derivative.
    tables: u32,
    /// Threads of neighbouring columns that cover an image, and, in the same unit, what a block reads beside its own.
    columns: u32,
    beside: f64,
    /// Steps that cover an image, and those that a strip begins earlier.
    steps: u32,
    before: u32,
    /// Threads of a block, at most, and of a multiprocessor.
    threads: u32,
    resident: u32,
    /// Floats of shared memory of each thread.
    of_thread: u32,
}

impl Slide {
    /// For the forward pass over elements of so many bytes; none where the kernels cannot.
    pub fn forward(geometry: &Geometry, variances: u32, bytes: u32) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let kernels = Self::kernels(geometry);
        let (threads, columns) = (forward_threads(kernels), columns(kernels));
        let needs = Needs {
            channels: geometry.channels.checked_mul(if kernels == 0 { geometry.kernels } else { 1 })?,
            tables: kernels.max(1),
            columns: horizontal.output.div_ceil(columns),
            beside: f64::from(horizontal.size - 1) / f64::from(columns * horizontal.stride),
            steps: vertical.output,
            before: open(vertical.size, vertical.stride) - 1,
            threads,
            resident: threads * forward_blocks(vertical.size, kernels),
            of_thread: 0,
        };
        Self::plan(geometry, variances, bytes, needs)
    }

    /// For the backward pass; with `parameters` that for the parameters' gradients, of one Gaussian.
    pub fn backward(geometry: &Geometry, variances: u32, bytes: u32, parameters: bool) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let kernels = Self::kernels(geometry);
        let (threads, blocks) = if parameters {
            (PARAMETERS_THREADS, parameters_blocks(vertical.size, kernels))
        } else {
            (backward_threads(kernels), backward_blocks(vertical.size, kernels))
        };
        let first = vertical.padding / vertical.stride;
        let before = open(vertical.size, vertical.stride) - 1;
        let needs = Needs {
            channels: geometry.channels,
            tables: if parameters { 3 } else { geometry.kernels },
            columns: horizontal.image,
            beside: f64::from(horizontal.size) / 4.0,
            steps: (vertical.padding + vertical.image - 1) / vertical.stride + 1 - first,
            before,
            threads,
            resident: threads * blocks,
            of_thread: if parameters { SUMS_OF_THREAD } else { 0 },
        };
        if parameters && geometry.kernels > 1 { None } else { Self::plan(geometry, variances, bytes, needs) }
    }

    /// The Gaussians that all channels share, if there is a kernel for as many; else 0.
    fn kernels(geometry: &Geometry) -> u32 {
        let shared = geometry.sets == 1 && geometry.channels.is_multiple_of(CHANNELS);
        match geometry.kernels {
            1 if shared => 1,
            3 if shared && geometry.axes[0].size > 3 => 3,
            _ => 0,
        }
    }

    fn plan(geometry: &Geometry, variances: u32, bytes: u32, needs: Needs) -> Option<Plan> {
        let [vertical, horizontal] = geometry.axes;
        let kernels = Self::kernels(geometry);
        // Elements of a block's shared memory.
        let shared = |lanes: u32, threads: u32| {
            let vectors = vertical.cases.checked_add(horizontal.cases)?.checked_mul(needs.tables)?;
            let weights = if kernels == 0 {
                vectors.checked_mul(vertical.size)?.checked_mul(CHANNELS * lanes)?
            } else {
                vectors.checked_mul(vertical.size.next_multiple_of(4))?
            };
            // What threads leave at the end takes the weights' place.
            Some(weights.max(needs.of_thread * threads)).filter(|&elements| elements <= MAX_SHARED / 4)
        };
        let images = u64::from(geometry.planes / geometry.channels);
        let quads = needs.channels.div_ceil(CHANNELS);
        let line = (LINE / (CHANNELS * bytes)).min(quads);
        let mut best: Option<(f64, Plan)> = None;
        let mut most = quads.min(needs.threads);
        while most >= line {
            let groups = quads.div_ceil(most);
            let lanes = quads.div_ceil(groups);
            most = lanes / 2;
            let across = (needs.columns * lanes).div_ceil(needs.threads);
            let mut places = needs.columns.div_ceil(across);
            if places * lanes > needs.threads {
                places = needs.threads / lanes;
            }
            let across = needs.columns.div_ceil(places);
            let threads = (places * lanes).next_multiple_of(warp::WARP_SIZE);
            let Some(elements) = shared(lanes, threads) else { continue };
            let at_once = (needs.resident / threads).min(32) * MULTIPROCESSORS;
            let each = images * u64::from(groups) * u64::from(across);
            let mut down = 0;
            while down < needs.steps.min(MAX_DOWN) {
                down += 1;
                let steps = needs.steps.div_ceil(down);
                let blocks = each * u64::from(needs.steps.div_ceil(steps));
                // Rounds of blocks, by what each does: steps of threads, and what it reads beside its own.
                let rounds = blocks.div_ceil(u64::from(at_once)) * u64::from(at_once);
                let work = f64::from(threads * (steps + needs.before)) * (1.0 + needs.beside / f64::from(places));
                let cost = rounds as f64 * work;
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    let slide = Self {
                        lanes,
                        groups,
                        places,
                        across,
                        down: needs.steps.div_ceil(steps),
                        steps,
                        variances,
                        vectors: u32::from(geometry.kernels == 1 && geometry.channels.is_multiple_of(CHANNELS)),
                        stores: u32::from(needs.channels.is_multiple_of(CHANNELS)),
                    };
                    best = Some((cost, Plan { slide, kernels, blocks, threads, shared_bytes: elements * 4 }));
                }
            }
        }
        best.map(|(_, plan)| plan)
    }
}

/// Strips of an image that are tried, at most.
const MAX_DOWN: u32 = 24;

/// What a thread works on.
#[derive(Clone, Copy)]
struct Part {
    image: u32,
    /// The block's place among those of its image and group.
    number: u32,
    /// The thread's place among those of neighbouring channels, and the group.
    lane: u32,
    group: u32,
    /// The first of the thread's channels.
    channel: u32,
    /// Its place among the columns of an image; past all where the thread is one too many.
    place: u32,
    /// The first step of the strip.
    step: u32,
}

impl Part {
    #[device_inline]
    fn of_thread(slide: &Slide) -> Self {
        let (place, lane) = divide(thread::thread_idx_x(), slide.lanes);
        let (rest, group) = divide(thread::block_idx_x(), slide.groups);
        let (image, number) = divide(rest, slide.across * slide.down);
        let (down, across) = divide(number, slide.across);
        let place = if place < slide.places { across * slide.places + place } else { 1 << 30 };
        let channel = (group * slide.lanes + lane) * CHANNELS;
        Self { image, number, lane, group, channel, place, step: down * slide.steps }
    }
}

/// The weights of a block in shared memory: of each table, of each case along y and then along x, a vector. An element of it
/// is a number, or with `KERNELS = 0` one for each channel of the block.
#[derive(Clone, Copy)]
struct Weights<const SIZE: u32, const KERNELS: u32> {
    at: Shared<f32>,
    /// Elements from a position to the next.
    step: u32,
    /// Elements of a vector, and of a table.
    vector: u32,
    table: u32,
    /// Where those along x begin.
    x: u32,
}

/// Where the weights of a block that vary come from.
struct Tables {
    along: [Global<f32>; 2],
    /// Elements of an entry, of which as many tables are taken: 1, or 4 of which the last is not used.
    entry: u32,
    /// Gaussians that a table is made for each of, where the channels are those of the input.
    kernels: u32,
}

impl<const SIZE: u32, const KERNELS: u32> Weights<SIZE, KERNELS> {
    /// Whether channels vary.
    const VARIED: bool = KERNELS == 0;

    #[device_inline]
    fn new(at: Shared<f32>, geometry: &Geometry, slide: &Slide, part: &Part) -> Self {
        let [vertical, horizontal] = &geometry.axes;
        let step = if Self::VARIED { CHANNELS * slide.lanes } else { 1 };
        let vector = if Self::VARIED { SIZE * step } else { SIZE.next_multiple_of(4) };
        // SAFETY: the memory begins with the weights of the first lane.
        let at = unsafe { at.offset(if Self::VARIED { CHANNELS * part.lane } else { 0 }) };
        Self { at, step, vector, table: (vertical.cases + horizontal.cases) * vector, x: vertical.cases * vector }
    }

    /// Computes those of the Gaussians, and with `derivatives`, of one, their derivatives in two more tables. All threads come here;
    /// the weights are there after a barrier.
    ///
    /// # Safety
    /// The shared memory holds them; `mean` and `var` what the geometry says. A block has whole warps.
    #[device_inline]
    unsafe fn compute(self, shape: [Global<f32>; 2], geometry: &Geometry, variances: u32, derivatives: bool) {
        let [vertical, horizontal] = &geometry.axes;
        let cases = vertical.cases + horizontal.cases;
        let mut number = thread::thread_idx_x() / warp::WARP_SIZE;
        while number < KERNELS * cases {
            let (kernel, place) = divide(number, cases);
            let down = place < vertical.cases;
            let axis = geometry.axis(down);
            let case = if down { place } else { place - vertical.cases };
            let first = number * self.vector;
            // SAFETY: the caller's; the vector is this warp's.
            unsafe {
                vector(
                    &axis,
                    case,
                    Shape::load(shape, kernel, down, variances),
                    derivatives,
                    |i, weight| self.at.store(first + i, weight),
                    |i| self.at.load(first + i),
                    |i, _, [by_mean, by_var]| {
                        self.at.store(self.table + first + i, by_mean);
                        self.at.store(2 * self.table + first + i, by_var);
                    },
                );
            }
            number += thread::block_dim_x() / warp::WARP_SIZE;
        }
    }

    /// Brings those of the block's channels from tables. Of channels past the last they are the last's.
    ///
    /// `of_output` says that channels are those of the output, and else that they are those of the input.
    ///
    /// # Safety
    /// As for [`compute`](Self::compute); the tables hold the weights.
    #[device_inline]
    unsafe fn bring(
        shared: Shared<f32>,
        tables: &Tables,
        geometry: &Geometry,
        slide: &Slide,
        part: &Part,
        of_output: bool,
    ) {
        let [vertical, horizontal] = &geometry.axes;
        let width = CHANNELS * slide.lanes;
        let [down, across] = [vertical.cases * SIZE, horizontal.cases * SIZE];
        let mut i = thread::thread_idx_x();
        while i < tables.kernels * (down + across) * width {
            let (place, channel) = divide(i, width);
            let channel = part.group * width + channel;
            let (table, pair) = divide(place, down + across);
            let (channel, kernel) = if of_output {
                divide(channel.min(geometry.channels * geometry.kernels - 1), geometry.kernels)
            } else {
                (channel.min(geometry.channels - 1), table)
            };
            let set = if geometry.sets == 1 { 0 } else { channel };
            let (from, entries, pair) =
                if pair < down { (tables.along[0], down, pair) } else { (tables.along[1], across, pair - down) };
            let at = (kernel as usize * entries as usize + pair as usize) * geometry.sets as usize + set as usize;
            // SAFETY: the tables have an entry for each Gaussian, case and position; with derivatives at multiples of 16
            // bytes. Each element of shared memory is one thread's.
            unsafe {
                if tables.entry == 1 {
                    shared.store(i, from.load(at));
                } else {
                    let entry = from.load4(at * DERIVATIVES_ENTRY as usize);
                    let table = (down + across) * width;
                    shared.store(i, entry.x);
                    shared.store(table + i, entry.y);
                    shared.store(2 * table + i, entry.z);
                }
            }
            i += thread::block_dim_x();
        }
    }

    /// Where the vector of a window along an axis begins, of the axis' own.
    #[device_inline]
    fn of(self, axis: &Axis, output: u32) -> u32 {
        axis.case(output.min(axis.output - 1)) * self.vector
    }

    /// The weight at one position of a vector, for each channel.
    ///
    /// # Safety
    /// There is such a vector, and nobody writes it.
    #[device_inline]
    unsafe fn one(self, vector: u32, position: u32) -> Four {
        // SAFETY: the caller's; where channels vary a position's begin at a multiple of four.
        unsafe {
            if Self::VARIED {
                self.at.load4(vector + position * self.step).to_array()
            } else {
                [self.at.load(vector + position); 4]
            }
        }
    }

    /// The weight at a position of a vector, for each channel. `four` keeps numbers, which are loaded four at a time: positions
    /// are asked for in order, from a multiple of four on.
    ///
    /// # Safety
    /// As [`one`](Self::one).
    #[device_inline]
    unsafe fn next(self, four: &mut Four, vector: u32, position: usize) -> Four {
        // SAFETY: the caller's; a vector of numbers has a multiple of four of them.
        unsafe {
            if Self::VARIED {
                return self.one(vector, position as u32);
            }
            if position.is_multiple_of(4) {
                *four = self.at.load4(vector + position as u32).to_array();
            }
        }
        [four[position % 4]; 4]
    }
}

/// Four channels of a pixel, if the predicate is true, else 0: at once, or one by one at these distances.
///
/// # Safety
/// `from` holds them where the predicate is true; at once they begin at a multiple of four.
#[device_inline]
unsafe fn load<T: Storage>(from: Global<T>, inside: bool, at: usize, apart: Option<[u32; 4]>) -> Vec4<T> {
    let none = T::from_f32(0.0);
    // SAFETY: the caller's.
    unsafe {
        match apart {
            None => from.load4_if(inside, at, Vec4::splat(none)),
            Some([a, b, c, d]) => {
                let one = |distance: u32| from.load_if(inside, at.wrapping_add(distance as usize), none);
                Vec4::new(one(a), one(b), one(c), one(d))
            }
        }
    }
}

/// `out = sums + beta * out` for four channels of a pixel, of which so many are there; none where `inside` is false.
///
/// # Safety
/// `out` holds them; with `vectors` they are four and begin at a multiple of four.
#[device_inline]
unsafe fn store<T: Storage>(
    out: GlobalMut<T>,
    inside: bool,
    at: usize,
    sums: Four,
    beta: f32,
    vectors: bool,
    there: u32,
) {
    // SAFETY: the caller's.
    unsafe {
        if vectors {
            let mut sums = Vec4::from(sums);
            if beta != 0.0 {
                let old = out.load4_if(inside, at, Vec4::splat(T::from_f32(0.0)));
                sums = sums.zip_with(old.map(T::to_f32), |new, old| float::fma(beta, old, new));
            }
            out.store4_if(inside, at, sums.map(T::from_f32));
        } else {
            unrolled!(V in [0 1 2 3] {
                let (inside, at) = (inside & ((V as u32) < there), at.wrapping_add(V));
                let mut sum = sums[V];
                if beta != 0.0 {
                    sum = float::fma(beta, out.load_if(inside, at, T::from_f32(0.0)).to_f32(), sum);
                }
                out.store_if(inside, at, T::from_f32(sum));
            });
        }
    }
}

/// `sums += weight * values`, channel by channel.
#[device_inline]
fn add(sums: &mut Four, weight: Four, values: Four) {
    unrolled!(V in [0 1 2 3] { sums[V] = float::fma(weight[V], values[V], sums[V]); });
}
