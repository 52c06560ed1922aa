//! Gaussian pooling forward with the channels last of windows of any size whose weights are the same everywhere and which all
//! channels share: for channels that are no whole vectors.
//!
//! A row of pixels is a line of elements, of which a block takes those of some outputs' windows, and some rows of outputs. First a
//! thread sums along y one element's column of one row of windows, straight from memory, so that neighbouring threads load
//! neighbouring elements; these sums go to shared memory. After a barrier a thread sums along x those of an output, which are a pixel
//! apart.
//!
//! Launch: the grid's x has the parts of a line, its y those of a plane, its z the images.
//!
//! Bound by memory and, of large windows, by instructions: `2 * size` products an output, of which those along y are for each
//! column of the image.

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::{Shape, vector};
use crate::band::least;
use crate::window::{Divider, Nhwc, Window};

/// Threads of a block.
pub const LINES_BLOCK: u32 = 256;
/// Such blocks that a multiprocessor has room for, at least.
const MIN_BLOCKS: u32 = 5;
/// Rows that are loaded before the first of them is used.
const AHEAD: u32 = 8;
/// Rows and columns of outputs of a block that are tried.
const TRIED: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Bytes of shared memory of a block, at most.
const MOST_BYTES: u64 = 24 << 10;
/// Blocks that a GPU has room for, about.
const AT_ONCE: u64 = 512;

/// How blocks are laid over rows of outputs, and how weights come from the parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Rows and columns of outputs of a block.
    outputs: [u32; 2],
    /// Elements of a row of inputs of a block, at most.
    elements: u32,
    by_elements: Divider,
    /// Elements of a row of outputs of a block, at most.
    by_outputs: Divider,
    by_channels: Divider,
    /// Variances of the Gaussian, 1 or 2.
    variances: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Lines {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub lines: Lines,
    /// Blocks.
    pub grid: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Lines {
    /// For the window's outputs: of all sizes of blocks that have room, the one whose threads load and sum least; none if none has.
    pub fn plan(window: &Window<Nhwc>, variances: u32) -> Option<Plan> {
        let [size, stride] = [window.size, window.stride].map(|pair| pair.map(u64::from));
        let channels = u64::from(window.channels);
        let mut best: Option<(u64, Plan)> = None;
        for rows in TRIED {
            for columns in TRIED {
                let outputs = [least(rows, window.output[0]), least(columns, window.output[1])];
                let reach = [0, 1].map(|axis| (u64::from(outputs[axis]) - 1) * stride[axis] + size[axis]);
                let elements = reach[1].min(window.input[1].into()) * channels;
                let sums = u64::from(outputs[0]) * elements;
                let bytes = (sums + u64::from(words(window.size))) * 4;
                let [high, wide] = [0, 1].map(|axis| window.output[axis].div_ceil(outputs[axis]));
                if bytes > MOST_BYTES || high > u32::from(u16::MAX) || window.planes > u32::from(u16::MAX) {
                    continue;
                }
                let blocks = u64::from(window.planes) * u64::from(high) * u64::from(wide);
                // Sums in turns of a block's threads; what is read comes from further away than what is summed.
                let turns = |elements: u64| elements.div_ceil(LINES_BLOCK.into()) * u64::from(LINES_BLOCK);
                let along_x = turns(u64::from(outputs[0] * outputs[1]) * channels) * size[1];
                let work = turns(sums) * size[0] + along_x + 2 * reach[0] * elements;
                let worth = blocks.div_ceil(AT_ONCE) * work;
                if best.is_none_or(|(of_best, _)| worth < of_best) {
                    let [elements, of_row] = [elements, u64::from(outputs[1]) * channels].map(|count| count as u32);
                    let [by_elements, by_outputs] = [elements, of_row].map(Divider::new);
                    let by_channels = Divider::new(window.channels);
                    let lines = Self { outputs, elements, by_elements, by_outputs, by_channels, variances };
                    best = Some((worth, Plan { lines, grid: [wide, high, window.planes], shared_bytes: bytes as u32 }));
                }
            }
        }
        best.map(|(_, plan)| plan)
    }
}

/// Words of the weights along both axes.
#[device_inline]
const fn words([height, width]: [u32; 2]) -> u32 {
    (height + width + 3) & !3
}

/// `y` = `x` pooled by one Gaussian.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` and `geometry` say, which are of the same windows; `mean` holds two and `var` as many
/// elements as `lines` says, which is what [`Lines::plan`] made of the window, with the launch's grid and shared memory.
#[kernel(block = LINES_BLOCK, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_forward_lines<T: Storage>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    geometry: Geometry,
    window: Window<Nhwc>,
    lines: Lines,
) {
    let (thread, channels) = (thread::thread_idx_x(), window.channels);
    let weights = dynamic_shared::<f32>();
    let mut axis = thread / warp::WARP_SIZE;
    while axis < 2 {
        // SAFETY: shared memory holds both vectors, each its warp's until the barrier; the parameters are there.
        unsafe {
            let own = weights.offset(axis * window.size[0]);
            let shape = Shape::load([mean, var], 0, axis == 0, lines.variances);
            let put = |i: u32, weight: f32| own.store(i, weight);
            vector(&geometry.axis(axis == 0), 0, shape, false, put, |i| own.load(i), |_, _, _| {});
        }
        axis += LINES_BLOCK / warp::WARP_SIZE;
    }
    thread::sync_threads();

    // SAFETY: the sums are behind the weights.
    let (by_x, sums) = unsafe { (weights.offset(window.size[0]), weights.offset(words(window.size))) };
    let plane = thread::block_idx_z();
    let first = [thread::block_idx_y() * lines.outputs[0], thread::block_idx_x() * lines.outputs[1]];
    let rows = least(lines.outputs[0], window.output[0] - first[0]);
    let columns = least(lines.outputs[1], window.output[1] - first[1]);
    // The columns of the image that the block's windows have.
    let begin = (first[1] * window.stride[1]).saturating_sub(window.padding[1]);
    let end = (first[1] + columns - 1) * window.stride[1] + window.size[1] - window.padding[1];
    let elements = (least(end, window.input[1]) - begin) * channels;
    let line = window.input_line();
    let origin = window.input_plane(plane) + (begin * channels) as usize;
    let mut item = thread;
    while item < rows * lines.elements {
        let row = lines.by_elements.divide(item);
        let element = item - row * lines.elements;
        let top = (first[0] + row) * window.stride[0];
        // The window's positions that are in the image.
        let mut i = window.padding[0].saturating_sub(top);
        let end = if element < elements { least(window.size[0], window.input[0] + window.padding[0] - top) } else { 0 };
        let mut at = origin + (top + i - window.padding[0]) as usize * line + element as usize;
        let mut sum = 0.0;
        while i < end {
            let mut inputs = [T::from_f32(0.0); AHEAD as usize];
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                // SAFETY: in the image where it is loaded.
                inputs[K] = unsafe { x.load_if(i + (K as u32) < end, at + K * line, inputs[K]) };
            });
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                // SAFETY: a weight where it is loaded, written before the barrier.
                let weight = unsafe { weights.load_if(i + (K as u32) < end, i + K as u32, 0.0) };
                sum = float::fma(weight, inputs[K].to_f32(), sum);
            });
            i += AHEAD;
            at += AHEAD as usize * line;
        }
        // SAFETY: shared memory has so many rows of as many elements, and each has one thread.
        unsafe { sums.store(item, sum) };
        item += LINES_BLOCK;
    }
    thread::sync_threads();

    let of_row = lines.outputs[1] * channels;
    let mut item = thread;
    while item < rows * of_row {
        let row = lines.by_outputs.divide(item);
        let element = item - row * of_row;
        let column = lines.by_channels.divide(element);
        if column < columns {
            let left = (first[1] + column) * window.stride[1];
            let mut j = window.padding[1].saturating_sub(left);
            let end = least(window.size[1], window.input[1] + window.padding[1] - left);
            let pixel = left + j - window.padding[1] - begin;
            let mut at = row * lines.elements + pixel * channels + element - column * channels;
            let mut sum = 0.0;
            while j < end {
                unrolled!(K in [0 1 2 3] {
                    let there = j + (K as u32) < end;
                    // SAFETY: as above.
                    let (weight, value) = unsafe {
                        (by_x.load_if(there, j + K as u32, 0.0), sums.load_if(there, at + K as u32 * channels, 0.0))
                    };
                    sum = float::fma(weight, value, sum);
                });
                j += 4;
                at += 4 * channels;
            }
            let output = window.output_plane(plane) + (first[0] + row) as usize * window.output_line();
            // SAFETY: the output exists, and has one thread.
            unsafe { y.store(output + (first[1] * channels + element) as usize, T::from_f32(sum)) };
        }
        item += LINES_BLOCK;
    }
}
