//! How blocks are laid over outputs: what can be, and what of that costs least.
//!
//! A tile has all columns of outputs, or an even part of them, and some rows; a block of small planes has several of these. Each is counted: the
//! instructions for what is brought into shared memory, for the rows' sums and for the draws, in whole turns of the threads, and what a block does once; where few
//! blocks have room in a multiprocessor's shared memory, they take longer.

use cuda_std::prelude::*;

use super::super::{LARGE, by_rows};
use crate::band::BandLaunch;
use crate::window::{Divider, Nchw, Window};

/// Threads of a block, at most: as many as whole rows of 7, 14, 28, 56 and 112 columns.
pub(super) const THREADS: u32 = 224;
/// Shared memory of a block, in bytes, at most; and of all blocks of a multiprocessor, about.
const MOST_BYTES: u64 = 48 * 1024;
const ALL_BYTES: u64 = 224 * 1024;
/// Multiprocessors of an H100 or H200.
const MULTIPROCESSORS: u64 = 132;
/// Threads of a multiprocessor, at most, and beside which more do not help, about.
const MOST_THREADS: u64 = 1344;
const ENOUGH: u64 = 1152;
/// Windows beside each other of which a thread adds up a row, and elements of a vector.
pub(super) const FOUR: u32 = 4;
/// Elements of a row of weights, from which on a lane has four at once.
const WIDE: u32 = 4 * warp::WARP_SIZE;
/// Columns of a tile, at most.
const MOST_COLUMNS: u32 = 128;
/// Numbers of threads that are tried.
const MOST_TRIED: u32 = 15;
/// Rows of a tile, or planes of a block, that are tried.
const TRIED: [u32; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128];
/// What a thread does, in instructions, about: for each element that is brought, for a row's sums of four windows beside their elements, for a draw beside
/// the window's rows and columns, of which each takes as many more; and once.
const COSTS: [u64; 5] = [8, 12, 105, 5, 250];

/// How blocks are laid over outputs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Planes, and rows and columns of outputs, of a block.
    pub(super) depth: u32,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Rows of weights of a plane.
    pub(super) by_lines: Divider,
    /// Tiles of a plane, down and across.
    pub(super) by_down: Divider,
    pub(super) by_across: Divider,
    pub(super) across: u32,
    pub(super) down: u32,
    pub(super) by_columns: Divider,
    pub(super) by_rows: Divider,
    /// Elements of a row of weights in shared memory.
    pub(super) pitch: u32,
    /// Fours of columns.
    pub(super) fours: u32,
    pub(super) by_fours: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Tiles {}

/// Rows or columns of the image that so many windows beside each other have.
#[device_inline]
fn reach(window: &Window<Nchw>, axis: usize, windows: u32) -> u32 {
    (windows - 1) * window.stride[axis] + window.size[axis]
}

impl Tiles {
    /// Of windows that are summed by rows and have indices of a byte, without dilation, and the launch; none where these are so far apart that most
    /// of what lies between them would be read for nothing, or there are too many.
    pub fn new(window: &Window<Nchw>) -> Option<(Self, BandLaunch)> {
        let [height, width] = window.output.map(u64::from);
        let positions = u64::from(window.size[0]) * u64::from(window.size[1]);
        let is_such = by_rows(window.size) && positions < LARGE && window.dilation == [1, 1];
        let is_near = [0, 1].map(|axis| window.stride[axis] <= 2 * window.size[axis]) == [true; 2];
        // Indices of outputs have 32 bits, those of a plane's inputs a sign, too.
        let [high, wide] = window.input.map(u64::from);
        let fits = (height * width).checked_mul(window.planes.into()).is_some_and(|outputs| outputs <= 1 << 32)
            && high * wide < 1 << 31;
        if !is_such || !is_near || !fits {
            return None;
        }
        let mut best: Option<(u64, [u32; 3])> = None;
        let mut consider = |size: [u32; 3], threads: u32| {
            if let Some(cost) = cost(window, size, threads)
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, size));
            }
        };
        let [height, width] = window.output;
        let across = width.div_ceil(MOST_COLUMNS);
        let even = |all: u32, parts: u32| all.div_ceil(parts.min(all));
        for across in [across, 2 * across, 4 * across] {
            let columns = even(width, across);
            let threads = threads(columns);
            for rows in TRIED {
                consider([1, even(height, height.div_ceil(rows)), columns], threads);
            }
        }
        // Wide rows are staged as those of one plane.
        if across == 1 && pitch(window, width) < WIDE {
            let threads = threads(width);
            for depth in TRIED {
                consider([depth.min(window.planes), height, width], threads);
            }
        }
        // Of windows too high for that, a row of a few columns.
        let few =
            || [16, 4, 1].map(|columns| [1, 1, width.min(columns)]).into_iter().find(|&size| fits_in(window, size));
        Self::of(window, best.map(|(_, size)| size).or_else(few)?)
    }

    /// Of so many planes, rows and columns, for which there is room; several planes have all of theirs.
    pub(super) fn of(window: &Window<Nchw>, [depth, rows, columns]: [u32; 3]) -> Option<(Self, BandLaunch)> {
        let [height, width] = window.output;
        let [down, across] = [height.div_ceil(rows), width.div_ceil(columns)];
        let blocks = u64::from(window.planes.div_ceil(depth)) * u64::from(down) * u64::from(across);
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31)?;
        let by = Divider::new;
        let tiles = Self {
            depth,
            rows,
            columns,
            by_lines: by(reach(window, 0, rows)),
            by_down: by(down),
            by_across: by(across),
            across,
            down,
            by_columns: by(columns),
            by_rows: by(rows),
            pitch: pitch(window, columns),
            fours: columns.div_ceil(FOUR),
            by_fours: by(columns.div_ceil(FOUR)),
        };
        let shared = bytes(window, [depth, rows, columns]) as u32;
        Some((tiles, BandLaunch { grid: [blocks, 1, 1], block: [threads(columns), 1, 1], shared }))
    }
}

/// Threads of a block for so many columns: whole warps for whole rows of these, of which the fewest have no column.
fn threads(columns: u32) -> u32 {
    let most = THREADS / columns;
    let of_rows = |rows: u32| (rows * columns).next_multiple_of(warp::WARP_SIZE);
    let idle = |rows: u32| (of_rows(rows) - rows * columns) * (4096 / of_rows(rows));
    let least = most.div_ceil(2).max(most.saturating_sub(MOST_TRIED));
    of_rows((least..=most).rev().min_by_key(|&rows| idle(rows)).unwrap_or(1))
}

/// Elements of a row in shared memory of tiles of so many columns: what whole vectors for whole fours of windows have.
fn pitch(window: &Window<Nchw>, columns: u32) -> u32 {
    reach(window, 1, columns.next_multiple_of(FOUR)).next_multiple_of(warp::WARP_SIZE)
}

/// Shared memory of a block with so many planes, rows and columns.
fn bytes(window: &Window<Nchw>, [depth, rows, columns]: [u32; 3]) -> u64 {
    let lines = u64::from(depth) * u64::from(reach(window, 0, rows));
    lines * u64::from(pitch(window, columns) + columns.next_multiple_of(FOUR)) * size_of::<f32>() as u64
}

fn fits_in(window: &Window<Nchw>, size: [u32; 3]) -> bool {
    bytes(window, size) <= MOST_BYTES
}

/// What tiles of this size cost, if there is room for one.
fn cost(window: &Window<Nchw>, size: [u32; 3], threads: u32) -> Option<u64> {
    if !fits_in(window, size) {
        return None;
    }
    let (shared, threads) = (bytes(window, size), u64::from(threads));
    let [depth, rows, columns] = size.map(u64::from);
    let lines = depth * u64::from(reach(window, 0, size[1]));
    // Of so many of all threads that go down columns, or fours of columns.
    let turns = |lines: u64, columns: u64| lines.div_ceil(threads / columns) * threads;
    let [brought, of_four, of_draw, each, once] = COSTS;
    let [high, wide] = window.size.map(u64::from);
    let elements = lines * u64::from(pitch(window, size[2]));
    let of_block = elements * brought
        + turns(lines, columns.div_ceil(FOUR.into())) * (of_four + 4 * wide)
        + turns(depth * rows, columns) * (of_draw + each * (high + wide))
        + threads * once;
    let tiles = u64::from(window.output[0].div_ceil(size[1])) * u64::from(window.output[1].div_ceil(size[2]));
    let blocks = u64::from(window.planes.div_ceil(size[0])) * tiles;
    // Few blocks take as long as one; where a multiprocessor has few threads each takes its time alone.
    let resident = (ALL_BYTES / (shared + 1024) * threads).min(MOST_THREADS / threads * threads).clamp(threads, ENOUGH);
    Some(of_block * blocks.max(MULTIPROCESSORS) * (ENOUGH + 256) / (resident + 256))
}
