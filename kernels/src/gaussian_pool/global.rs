//! Backward of global pooling, the input's gradient alone: planes that follow each other and have one window, and so one output for each
//! Gaussian.
//!
//! `dx = sum over the plane's Gaussians of weight * dy + beta * dx`, with the weights of the [table](super::gaussian_pool_weights).
//!
//! Launch: a thread has 16 bytes of `dx`, whatever planes and rows these are of: two planes at most, as a plane is no smaller.
//!
//! Bound by memory, which it writes; of small planes by instructions, too: each element asks for its row, and for two weights.

use cuda_std::prelude::*;

use super::Geometry;
use crate::elementwise::{get, put};
use crate::vectors::{self, LANES, Lanes, lanes};
use crate::window::Divider;

/// Threads of a block.
pub const GLOBAL_BLOCK: u32 = 128;
/// Such blocks that a multiprocessor has room for, at least: 96 registers a thread. With 64 the weights of eight elements spill.
const MIN_BLOCKS: u32 = 5;
/// Elements of `dx` and of a table of weights, at most.
const MOST_ELEMENTS: u64 = 1 << 30;

/// How threads are laid over the elements of planes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Globals {
    elements: u32,
    /// Of a plane.
    area: u32,
    by_area: Divider,
    by_width: Divider,
    by_channels: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Globals {}

impl Globals {
    /// Over the planes, and the blocks; none where planes have several windows, are smaller than 16 bytes of `bytes` each or too many to
    /// count.
    pub fn new(geometry: &Geometry, bytes: usize) -> Option<(Self, u32)> {
        let [vertical, horizontal] = &geometry.axes;
        let one = geometry.axes.iter().all(|axis| axis.output == 1 && axis.cases == 1);
        let lanes = (16 / bytes) as u32;
        let area = vertical.image.checked_mul(horizontal.image).filter(|&area| area >= lanes)?;
        let elements = u64::from(area) * u64::from(geometry.planes);
        // Of a table, whose places are counted in 32 bits.
        let entries =
            geometry.axes.map(|axis| u64::from(axis.size) * u64::from(geometry.kernels) * u64::from(geometry.sets));
        if !one || !(1..=MOST_ELEMENTS).contains(&elements) || entries.iter().any(|&entries| entries > MOST_ELEMENTS) {
            return None;
        }
        let [by_area, by_width, by_channels] = [area, horizontal.image, geometry.channels].map(Divider::new);
        let globals = Self { elements: elements as u32, area, by_area, by_width, by_channels };
        Some((globals, globals.elements.div_ceil(lanes).div_ceil(GLOBAL_BLOCK)))
    }
}

/// `dx` of global pooling.
///
/// # Safety
/// The parent module's, of planes that follow each other; `dx` begins at a multiple of 16 bytes; the tables hold the weights, and no
/// derivatives; `globals` are the planes', with the launch's grid.
#[kernel(block = GLOBAL_BLOCK, min_blocks = MIN_BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn gaussian_pool_backward_global<T: Lanes>(
    dy: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    dx: GlobalMut<T>,
    dx_beta: f32,
    geometry: Geometry,
    globals: Globals,
) {
    let [vertical, horizontal] = geometry.axes;
    let vector = thread::block_idx_x() * GLOBAL_BLOCK + thread::thread_idx_x();
    let count = const { lanes::<T>() as u32 };
    let first = vector * count;
    if first >= globals.elements {
        return;
    }
    let plane = globals.by_area.divide(first);
    let position = first - plane * globals.area;
    // The next plane is asked for only where the vector has elements of it.
    let next = if position + count > globals.area && plane + 1 < geometry.planes { plane + 1 } else { plane };
    let set = |plane: u32| {
        if geometry.sets == 1 { 0 } else { plane - globals.by_channels.divide(plane) * geometry.channels }
    };
    let planes = [plane, next];
    let sets = planes.map(set);
    let mut sums = [0.0; LANES];
    let mut kernel = 0;
    while kernel < geometry.kernels {
        let [this, that] = [0, 1].map(|which| {
            // SAFETY: the planes exist, and the output has one element for each of their Gaussians.
            let dy = unsafe { get(dy, planes[which] as usize * geometry.kernels as usize + kernel as usize) };
            // `Globals` takes no larger tables.
            let first = |axis| geometry.first_entry(false, axis, sets[which], kernel) as u32;
            let [y, x] = geometry.axes.each_ref().map(first);
            (dy, y, x)
        });
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < lanes::<T>() {
                let position = position + K as u32;
                let over = position >= globals.area;
                let position = if over { position - globals.area } else { position };
                let (dy, y, x) = if over { that } else { this };
                let row = globals.by_width.divide(position);
                let column = position - row * horizontal.image;
                let (i, j) = (row + vertical.padding, column + horizontal.padding);
                let covered = (i < vertical.size) & (j < horizontal.size);
                // SAFETY: positions of the window.
                let [by_y, by_x] = unsafe {
                    [weights_y.load_if(covered, (y + i) as usize, 0.0), weights_x.load_if(covered, (x + j) as usize, 0.0)]
                };
                // What no window covers gets nothing, of NaN either.
                if covered { sums[K] = float::fma(by_y * by_x, dy, sums[K]); }
            }
        });
        kernel += 1;
    }
    // SAFETY: elements of `dx`, where they are inside.
    unsafe {
        if first + count <= globals.elements {
            vectors::put(dx, dx_beta, true, vector as usize, sums);
        } else {
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < lanes::<T>() && first + (K as u32) < globals.elements {
                    put(dx, (first + K as u32) as usize, sums[K], dx_beta);
                }
            });
        }
    }
}
